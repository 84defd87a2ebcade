"""Programs that still run on a host after a change of groups.

Pure: a host's groups and the units that systemd runs there come in.  `site` stops programs that the host's groups no
longer name.  Brokers and ZooKeeper servers hold data, so a change of groups stops neither: `preflight` names them, and
the verbs that take one out of service stop it.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping

SPARK = ("pylog_spark",)
PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "pylog-alertmanager.service": ("pylog_monitoring",),
    "pylog-audit-lake.timer": SPARK,
    "pylog-audit-report.timer": ("pylog_audit",),
    "pylog-audit.service": ("pylog_audit",),
    "pylog-compact.timer": SPARK,
    "pylog-connect-watch.service": ("pylog_connect",),
    "pylog-connect.service": ("pylog_connect",),
    "pylog-console.service": ("pylog_console",),
    "pylog-ingest.service": SPARK,
    "pylog-ingest.timer": SPARK,
    "pylog-load-balancer.service": ("pylog_load_balancer",),
    "pylog-mirror.service": ("pylog_mirror",),
    "pylog-probe.service": ("pylog_probe",),
    "pylog-prometheus.service": ("pylog_monitoring",),
    "pylog-registry.service": ("pylog_registry",),
    "pylog-ship.service": ("pylog_ship",),
    "pylog-spark-master.service": ("pylog_spark_master",),
    "pylog-spark-worker.service": ("pylog_spark_worker",),
    "pylog-stream@.service": ("pylog_stream",),
}
"""Unit -> groups of which any member runs it; one with an @ stands for all its instances."""

EXPORTER = "pylog-node-exporter.service"
"""Runs on every host while anybody watches."""


def orphans(enabled: Iterable[str], groups: Collection[str], *, is_watched: bool) -> list[str]:
    """Return the programs that run on a host and that none of its groups names.

    Args:
        enabled: units that run on the host and start at boot.
        groups: the host's groups.
        is_watched: whether the inventory has a host of `pylog_monitoring`.
    """
    programs = {unit: PROGRAMS.get(re.sub(r"@[^.]+", "@", unit)) for unit in enabled}
    found = [unit for unit, wanted in programs.items() if wanted is not None and not {*wanted} & {*groups}]
    return sorted(found + [unit for unit in programs if unit == EXPORTER and not is_watched])


def servers_without_a_place(
    enabled: Iterable[str], groups: Collection[str], broker_ids: Collection[int]
) -> Iterator[tuple[str, str]]:
    """Yield (unit, verb that takes it out of service) of brokers and ZooKeeper servers that the inventory lacks.

    Args:
        enabled: units that run on the host and start at boot.
        groups: the host's groups.
        broker_ids: ids of its broker instances.
    """
    for unit in enabled:
        if found := re.fullmatch(r"pylog-broker@(\d+)\.service", unit):
            if "pylog_broker" not in groups or int(found[1]) not in broker_ids:
                yield unit, "decommission.yml"
        elif unit == "pylog-zookeeper.service" and "pylog_zookeeper" not in groups:
            yield unit, "remove_zookeeper.yml"
