"""The files that roles write at a stage between open and secured, by their own templates."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pylog.ops.certificates import ensemble_settings
from pylog.ops.migration import Stage
from pylog.ops.securing import broker_text, ensemble_text
from tests.templates import render


def broker_file(stage: Stage, instance: Mapping[str, Any], *, address: str, store: str) -> str:
    """Return what role `broker` writes for *instance*.

    Args:
        stage: of its datacenter.
        instance: an entry of `pylog_broker_instances`.
        address: of its host.
        store: ZooKeeper servers, as HOST:PORT separated by commas.
    """
    hosts = {"h1": {"pylog_security": "sasl_ssl"}}
    shown = ensemble_settings(hosts, {"pylog_zookeeper": ["h1"], "pylog_broker": ["h1"]}, {"all": stage.store})
    settings: dict[str, str] = {}
    if shown:
        settings = shown["all"]["connection"] | shown["all"]["rights"]
        settings["zookeeper.ssl.keystore.location"] = "/etc/pylog/tls.pem"
    rights: dict[str, str] = {}
    if stage.rights != "off":
        rights["authorizer.class.name"] = "kafka.security.authorizer.AclAuthorizer"
        rights["super.users"] = "User:pylog-admin"
        rights |= {"authorizer.mode": "report"} if stage.rights == "report" else {}
    return render(
        "etc/pylog/broker.yml.j2", ansible_managed="managed", instance=instance, broker_listen_host="0.0.0.0",
        broker_session_ms=3600000, broker_advertised_host=address, broker_internal_listen_host="0.0.0.0",
        broker_internal_advertised_host=address, broker_metrics_host="0.0.0.0", broker_store_hosts=store,
        broker_session_timeout_ms=6000, broker_secret_file="/etc/pylog/cluster.secret",
        broker_config_effective={"num.partitions": 4} | rights, __broker_store_settings=settings,
        __broker_security=asdict(stage), __broker_security_text=broker_text(asdict(stage)),
    )  # fmt: skip


def server_file(stage: Stage, **variables: Any) -> str:
    """Return what role `zookeeper` writes for the only server of an ensemble."""
    given: dict[str, Any] = {
        "zookeeper_tick_ms": 2000, "zookeeper_init_ticks": 10, "zookeeper_sync_ticks": 5,
        "zookeeper_data_dir": "/var/lib/pylog-zookeeper", "zookeeper_data_log_dir": "", "zookeeper_client_port": 2181,
        "zookeeper_max_connections": 200, "zookeeper_autopurge_hours": 24, "zookeeper_autopurge_snapshots": 3,
        "zookeeper_four_letter_words": ["mntr"], "zookeeper_members": ["h1"],
        "__zookeeper_keys": "/etc/pylog-zookeeper/tls.pem", "__zookeeper_authorities": "/etc/pylog-zookeeper/ca.pem",
    }  # fmt: skip
    stages = {"__zookeeper_security": asdict(stage), "__zookeeper_security_text": ensemble_text(asdict(stage))}
    return render("etc/pylog-zookeeper/zoo.cfg.j2", ansible_managed="managed", **(given | variables | stages))
