"""Rolls under 10 MB/s of 1 KiB records from idempotent producers of librdkafka and Apache Kafka, while groups read."""

import time
from typing import Any

from tests.rolls import cluster, heavy


def roll(name: str, playbook: str, extra: dict[str, Any] | None = None) -> None:
    """Run *playbook* under load, judge what became of the load, and keep the numbers."""
    before = cluster.starts()
    release = min(cluster.releases().values())
    with heavy.loaded(name) as load:
        began_s = time.monotonic()
        done = cluster.playbook(playbook, extra)
        took_s = time.monotonic() - began_s
    assert done.returncode == 0
    cluster.keep_more("loaded_roll", "rolls", {
        "roll": name, "from": release, "to": min(cluster.releases().values()), "seconds": round(took_s),
        "clients": load.clients,
    })  # fmt: skip
    for row in load.groups:
        cluster.keep_more("loaded_roll", "groups", {"roll": name, **row})
    load.check()
    assert all(after > before[host] for host, after in cluster.starts().items()), "a broker was not started again"
    assert cluster.health()["problems"] == []


def test_to_this_release() -> None:
    roll("up", "rolling_upgrade")


def test_one_broker_after_the_other_is_started_again() -> None:
    roll("restart", "rolling_restart")


def test_back_to_the_previous_release() -> None:
    roll("back", "rolling_upgrade", {"pylog_wheelhouse": str(cluster.PREVIOUS)})


def test_to_this_release_again() -> None:
    roll("up-again", "rolling_upgrade")
