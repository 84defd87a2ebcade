"""Which ports a host's parts listen on, and from which addresses they can be reached.

Pure: a host's variables, its groups and the roles' specifications come in.  `preflight` judges ports by this table,
role `firewall` opens them by it.
"""

import ipaddress
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

EVERYWHERE = "0.0.0.0"  # what a part binds to, not what we bind
TRUSTED = "pylog_trusted_networks"
DEFAULT_TRUSTED = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fe80::/10")
"""What role `preflight` sets where the operator says nothing: addresses that no other network routes to."""
SPARK_GROUPS = ("pylog_spark", "pylog_spark_master", "pylog_spark_worker")


@dataclass(frozen=True, slots=True, order=True)
class Listener:
    """One port.

    Attributes:
        what: whose it is, for people.
        address: what it is bound to; an unspecified one stands for every address of the host.
        port: 1 to 65535.
        setting: the variable that says the address; empty where none does.
    """

    what: str
    address: str
    port: int
    setting: str = ""


# group, whose it is, variable of the address, variable of the port
_SERVERS = (
    ("pylog_zookeeper", "ZooKeeper for clients", "", "zookeeper_client_port"),
    ("pylog_zookeeper", "ZooKeeper for followers", "", "zookeeper_peer_port"),
    ("pylog_zookeeper", "ZooKeeper for votes", "", "zookeeper_election_port"),
    ("pylog_load_balancer", "the load balancer", "load_balancer_listen_host", "load_balancer_port"),
    ("pylog_registry", "the registry", "registry_listen_host", "registry_port"),
    ("pylog_spark_master", "Spark's master", "", "spark_port"),
)
# group, whose it is, variable with HOST:PORT, default of its port; the default of its host follows who scrapes
_METRICS = (
    ("pylog_load_balancer", "metrics of the load balancer", "load_balancer_metrics_listen", 9183),
    ("pylog_mirror", "metrics of the mirror", "mirror_metrics_listen", 9181),
    ("pylog_audit", "metrics of the audit", "audit_metrics_listen", 9182),
    ("pylog_probe", "metrics of the probe", "probe_metrics_listen", 9184),
)
# Spark's pages show jobs to whoever reaches them; the ports are Spark's own defaults.
_SPARK_PAGES = (
    ("pylog_spark_master", "the page of Spark's master", 8080),
    ("pylog_spark_worker", "the page of Spark's worker", 8081),
)
_BROKER_PORTS = (
    ("port", "broker_listen_host"),
    ("secured_port", "broker_listen_host"),
    ("internal_port", "broker_internal_listen_host"),
    ("metrics_port", "broker_metrics_host"),
)
_LOOPBACK = "127.0.0.1"
# As `pylog.ops.certificates` has it, which reads this module.
_SECURED = "sasl_ssl"


def listeners(
    variables: Mapping[str, Any], groups: Collection[str], specs: Mapping[str, Mapping[str, Any]], *, is_watched: bool
) -> list[Listener]:
    """Return what listens on a host.

    Args:
        variables: the host's, templated; what is not a number where one is wanted is left to other checks.
        groups: those it is a member of.
        specs: variable -> specification, for defaults.
        is_watched: whether some host of the inventory runs Prometheus, so that metrics are for others too.
    """
    rows = _rows(variables, groups, specs, EVERYWHERE if is_watched else _LOOPBACK)
    return sorted(
        {
            Listener(what, address.strip("[]"), int(str(port)), setting)
            for what, address, port, setting in rows
            if _is_port(port)
        }
    )


def _rows(
    variables: Mapping[str, Any], groups: Collection[str], specs: Mapping[str, Mapping[str, Any]], metrics_host: str
) -> Iterator[tuple[str, str, object, str]]:
    """Yield the fields of every listener, its port as the inventory has it."""

    def value(name: str, otherwise: str = EVERYWHERE) -> str:
        return str(variables.get(name, specs.get(name, {}).get("default", otherwise)))

    def joined(what: str, name: str, otherwise: str = "") -> tuple[str, str, object, str]:
        host, _, port = value(name, otherwise).rpartition(":")
        return what, host, port, name

    for instance in variables.get("pylog_broker_instances") or []:
        for key, host in _BROKER_PORTS:
            if isinstance(instance, Mapping) and key in instance:
                default = metrics_host if key == "metrics_port" else EVERYWHERE
                yield f"broker {instance.get('id')} {key}", value(host, default), instance[key], host
    for group, what, host, port in _SERVERS:
        if group in groups:
            yield what, value(host) if host else EVERYWHERE, value(port), host
    for group, what, name, default_port in _METRICS:
        if group in groups:
            yield joined(what, name, f"{metrics_host}:{default_port}")
    for group, what, page in _SPARK_PAGES:
        if group in groups:
            yield what, EVERYWHERE, page, ""
    if "pylog_connect" in groups:
        # Who reaches it may run code: open to other workers only where they know each other by certificates.
        host = EVERYWHERE if variables.get("pylog_security") == _SECURED else _LOOPBACK
        yield (
            "Kafka Connect's REST API",
            value("connect_listen_host", host),
            value("connect_port"),
            "connect_listen_host",
        )
    if "pylog_console" in groups:
        yield joined("the console", "console_listen")
    if "pylog_monitoring" in groups:
        yield joined("Prometheus", "monitoring_listen")
        if variables.get("monitoring_alertmanager"):
            yield joined("the Alertmanager", "monitoring_alertmanager_listen")
    if metrics_host == EVERYWHERE:
        host = "monitoring_exporter_listen_host"
        yield "the node exporter", value(host), value("monitoring_exporter_port"), host


def _is_port(port: object) -> bool:
    return not isinstance(port, bool) and str(port).isascii() and str(port).isdecimal() and 0 < int(str(port)) < 65536


def networks(variables: Mapping[str, Any]) -> list[Network]:
    """Return the networks that the operator trusts.

    Raises:
        ValueError: an entry is none; it is the message.
    """
    found = []
    for one in variables.get(TRUSTED, DEFAULT_TRUSTED):
        try:
            found.append(ipaddress.ip_network(str(one)))
        except ValueError as error:
            raise ValueError(repr(one)) from error
    return found


def reachable(listener: Listener, addresses: Collection[str]) -> list[Address]:
    """Return the addresses at which *listener* answers, of a host that has *addresses*; names are left out."""
    bound = numeric(listener.address)
    if bound is None or not bound.is_unspecified:
        return [] if bound is None else [bound]
    return [one for text in addresses if (one := numeric(text)) is not None]


def outside(listener: Listener, addresses: Collection[str], trusted: Collection[Network]) -> list[Address]:
    """Return the addresses at which *listener* answers outside the *trusted* networks."""
    found = (one for one in reachable(listener, addresses) if not one.is_loopback)
    return [one for one in found if not any(one in network for network in trusted)]


def numeric(text: str) -> Address | None:
    """Return the address that *text* is; None for a name."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
