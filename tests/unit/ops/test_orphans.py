"""What still runs on a host after a change of groups (F17)."""

import re
from pathlib import Path

import pytest

from pylog.ops.orphans import EXPORTER, PROGRAMS, orphans, servers_without_a_place
from pylog.ops.preflight import GROUPS, Host, strays

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("enabled", "groups", "found"),
    [
        (["pylog-ship.service"], ["pylog_ship"], []),
        (["pylog-ship.service", "pylog-mirror.service"], ["pylog_ship"], ["pylog-mirror.service"]),
        (["pylog-ingest.timer", "pylog-compact.timer"], ["pylog_ship"], ["pylog-compact.timer", "pylog-ingest.timer"]),
        (["pylog-spark-worker.service"], ["pylog_spark_master"], ["pylog-spark-worker.service"]),
        (["pylog-broker@1.service", "pylog-zookeeper.service"], ["pylog_ship"], []),
        (["pylog-firewall.service"], ["pylog_ship"], []),
        (["pylog-stream@a-b.service"], ["pylog_stream"], []),
        (
            ["pylog-stream@b.service", "pylog-stream@a.service"],
            [],
            ["pylog-stream@a.service", "pylog-stream@b.service"],
        ),
    ],
)
def test_f17_a_program_of_no_group_is_found_by_name(enabled: list[str], groups: list[str], found: list[str]) -> None:
    assert orphans(enabled, groups, is_watched=True) == found


@pytest.mark.parametrize(("is_watched", "found"), [(True, []), (False, [EXPORTER])])
def test_f17_the_exporter_stays_as_long_as_anybody_watches(is_watched: bool, found: list[str]) -> None:
    assert orphans([EXPORTER], ["pylog_broker"], is_watched=is_watched) == found


def test_f17_every_program_of_the_templates_is_known() -> None:
    names = {path.name.removesuffix(".j2") for path in (ROOT / "templates/etc/systemd/system").glob("pylog-*.j2")}
    by_timer = {name.replace(".timer", ".service") for name in names if name.endswith(".timer")}
    # The filter is `firewall_enabled`'s; brokers and ZooKeeper hold data.
    known = {*PROGRAMS, EXPORTER, "pylog-firewall.service", "pylog-broker@.service", "pylog-zookeeper.service"}
    assert names - by_timer - known == set()
    assert {group for groups in PROGRAMS.values() for group in groups} <= {*GROUPS}


def test_f17_servers_with_data_are_named_and_not_stopped() -> None:
    enabled = ["pylog-broker@1.service", "pylog-broker@2.service", "pylog-zookeeper.service"]
    assert list(servers_without_a_place(enabled, ["pylog_broker"], [1])) == [
        ("pylog-broker@2.service", "decommission.yml"), ("pylog-zookeeper.service", "remove_zookeeper.yml"),
    ]  # fmt: skip
    host = Host(name="h", variables={"pylog_broker_instances": [{"id": 1}]}, facts={"enabled_units": enabled})
    found = list(strays(host, {"pylog_broker": ["h"], "pylog_zookeeper": ["h"]}))
    assert [(one.check, one.found) for one in found] == [("pylog-broker@2.service", "runs here")]


def test_f17_the_verbs_that_preflight_names_exist() -> None:
    text = (ROOT / "pylog/ops/orphans.py").read_text()
    verbs = set(re.findall(r"\w+\.yml", text))
    assert verbs
    assert [verb for verb in verbs if not (ROOT / "playbooks" / verb).exists()] == []
