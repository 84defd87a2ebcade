"""A fourth broker joins and takes its share; a broker leaves and takes nothing with it; clients go on."""

import time
from typing import Any

import pytest

from tests.rolls import cluster

NEW = "live4"
LEAVER = "live2"
FILLED = "spread"
# The first run dies while the new broker copies, and at this rate the second still finds most of it on the move.
SLOW_PER_S = 50_000
FASTER_PER_S = 2_000_000
MOVING = r"[1-9]\d* partitions are on the move\)"


def replicas() -> dict[int, int]:
    """Return broker -> how many replicas it has."""
    return {row["id"]: row["replicas"] for row in cluster.said("cluster", "info")["brokers"]}


def factors() -> set[int]:
    """Return how many replicas topics have."""
    return {row["replication_factor"] for row in cluster.said("topic", "list")}


def throttled() -> list[str]:
    """Return the settings that limit replication, of brokers and of the filled topic."""
    holders = [("broker", str(number)) for number in replicas()] + [("topic", FILLED)]
    rows = [row for holder in holders for row in cluster.said("config", "describe", *holder)]
    return [row["setting"] for row in rows if "throttled" in row["setting"] and row["source"] != "default"]


@pytest.mark.parametrize(
    ("verb", "extra", "told"),
    [
        (
            "expand",
            {"expand_throttle": "fast"},
            "expand_throttle: found fast, wanted bytes a second, at least 1, or none",
        ),
        ("decommission", {}, "decommission_host: found nothing, wanted one of live1, live2, live3"),
        ("decommission", {"decommission_host": "live9"}, "decommission_host: found live9, wanted one of live1, live2"),
        ("decommission", {"decommission_host": "live2"}, "2 brokers are left; wanted at least 3"),
    ],
)
def test_what_cannot_be_is_refused_before_a_host_is_touched(verb: str, extra: dict[str, Any], told: str) -> None:
    done = cluster.playbook(verb, extra)
    assert done.returncode != 0
    assert told in " ".join(done.stdout.split())
    assert "changed=1" not in done.stdout


def test_a_new_broker_takes_its_share_also_when_the_run_dies_on_the_way() -> None:
    before = cluster.starts()
    cluster.fill(FILLED, 24)
    known = cluster.bootstrap()
    cluster.add(NEW)
    began_s = time.monotonic()
    with cluster.loaded("expand", known) as load:
        asked = cluster.playbook("expand", {"move_ask": True})
        assert asked.returncode != 0
        assert "move_ask: found no answer, wanted yes; nothing was moved" in " ".join(asked.stdout.split())
        assert min(replicas().values()) == 0, "nobody said yes"
        cluster.interrupt("expand", {"expand_throttle": SLOW_PER_S}, MOVING)
        interrupted_s = time.monotonic() - began_s
        assert throttled()
        assert cluster.said("partition", "reassign", "--status")["partitions"], "or the rerun had nothing to go on with"
        done = cluster.playbook("expand", {"expand_throttle": FASTER_PER_S})
        found = replicas()  # before the clients read, for which a topic of the cluster's own may be made
    assert done.returncode == 0
    load.check()
    assert len(found) == 4
    assert max(found.values()) - min(found.values()) <= 1, found
    assert factors() == {3}, "a rerun on the way does not take replicas that go for wanted ones"
    assert throttled() == []
    after = cluster.starts()
    assert {host: after[host] for host in before} == before, "nobody restarts because another joins"
    cluster.keep_result("expand", {
        "verbs": [{"verb": "expand", "interrupted_s": round(interrupted_s),
                   "seconds": round(time.monotonic() - began_s), "replicas": found, "clients": load.reports}],
    })  # fmt: skip


def test_a_broker_that_leaves_has_nothing_left() -> None:
    began_s = time.monotonic()
    with cluster.loaded("decommission", cluster.old_bootstrap(LEAVER)) as load:
        assert cluster.playbook("decommission", {"decommission_host": LEAVER}).returncode == 0
    load.check()
    found = replicas()
    assert set(found) == {1, 3, 4}
    assert factors() == {3}
    assert cluster.on(LEAVER, "systemctl is-active 'pylog-broker@2' || true") == "inactive"
    assert cluster.on(LEAVER, "find /var/lib/pylog/disk1/broker-2 -mindepth 1 -type d") == ""
    verb = {"verb": "decommission", "seconds": round(time.monotonic() - began_s), "replicas": found,
            "clients": load.reports}  # fmt: skip
    cluster.keep_more("expand", "verbs", verb)


def test_leaving_twice_changes_nothing_and_no_other_may_leave() -> None:
    before = replicas()
    again = cluster.playbook("decommission", {"decommission_host": LEAVER})
    assert again.returncode == 0
    other = cluster.playbook("decommission", {"decommission_host": "live3"})
    assert other.returncode != 0
    assert replicas() == before
