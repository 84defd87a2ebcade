"""Where hosts and their servers are reached by each other: the one place that decides it.

Pure.  How Ansible reaches a host (`ansible_host`) does not count: that is often another network, or a way through a
bastion.
"""

import ipaddress
from collections.abc import Collection, Mapping
from typing import Any

Variables = Mapping[str, Any]
Specs = Mapping[str, Mapping[str, Any]]


def address(name: str, variables: Variables) -> str:
    """Return the address at which the other hosts reach host *name*: `pylog_address`, or its name in the inventory."""
    return str(variables.get("pylog_address") or name)


def joined(host: str, port: object) -> str:
    """Return ``HOST:PORT``; an IPv6 address gets its brackets."""
    try:
        is_bare = ipaddress.ip_address(host).version == 6
    except ValueError:
        is_bare = False
    return f"[{host}]:{port}" if is_bare else f"{host}:{port}"


def _brokers(name: str, variables: Variables, is_secured: bool) -> list[str]:
    host = str(variables.get("broker_advertised_host") or address(name, variables))
    instances = variables.get("pylog_broker_instances") or []
    return [
        joined(
            host,
            _secured_port(one) if is_secured and "secured_port" in one else one.get("advertised_port", one["port"]),
        )
        for one in instances
        if isinstance(one, Mapping) and "port" in one
    ]


def _secured_port(instance: Mapping[str, Any]) -> object:
    return instance.get("secured_advertised_port", instance["secured_port"])


def _ids(variables: Variables) -> list[int]:
    instances = variables.get("pylog_broker_instances") or []
    return [int(one["id"]) for one in instances if isinstance(one, Mapping) and str(one.get("id", "")).isdecimal()]


def addresses(hosts: Mapping[str, Variables], specs: Specs, secured: Collection[str] = ()) -> dict[str, dict[str, Any]]:
    """Return what the roles of *hosts* connect to.

    Args:
        hosts: host -> its templated variables.
        specs: variable -> specification, for the defaults of ports.
        secured: datacenters whose brokers are reached at their secured listener, where that has a port of its own.

    Returns:
        ``host``: host -> its address; ``ids``: host -> ids of its brokers; ``brokers``: host -> ``HOST:PORT`` of each
        of its brokers, as clients are told; ``zookeeper``, ``load_balancer``: host -> ``HOST:PORT`` for clients;
        ``ensemble``: host -> its address for the other ZooKeeper servers.
    """

    def port(variables: Variables, name: str) -> object:
        return variables.get(name, specs.get(name, {}).get("default"))

    ensemble = {name: str(v.get("zookeeper_address") or address(name, v)) for name, v in hosts.items()}
    return {
        "host": {name: address(name, variables) for name, variables in hosts.items()},
        "ids": {name: _ids(variables) for name, variables in hosts.items()},
        "brokers": {
            name: _brokers(name, variables, str(variables.get("pylog_datacenter", "all")) in secured)
            for name, variables in hosts.items()
        },
        "ensemble": ensemble,
        "zookeeper": {name: joined(ensemble[name], port(v, "zookeeper_client_port")) for name, v in hosts.items()},
        "load_balancer": {name: joined(address(name, v), port(v, "load_balancer_port")) for name, v in hosts.items()},
    }
