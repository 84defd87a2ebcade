"""From the previous release to this one under load, with mixed brokers on the way, and back again."""

import json
import os
import time
from typing import Any

import pytest

from tests.rolls import cluster

full = pytest.mark.full
FILLED_MIB = 1024 if os.environ.get("FULL") else 8


def roll(name: str, wheelhouse: str | None) -> dict[str, Any]:
    """Roll to a release under load and return what it cost."""
    before = cluster.releases()
    with cluster.loaded(name) as load:
        began_s = time.monotonic()
        done = cluster.playbook("rolling_upgrade", {"pylog_wheelhouse": wheelhouse} if wheelhouse else None)
        took_s = time.monotonic() - began_s
    assert done.returncode == 0
    load.check()
    after = cluster.releases()
    assert set(after.values()).isdisjoint(before.values())
    assert len(set(after.values())) == 1
    assert cluster.health()["problems"] == []
    return {"roll": name, "from": min(before.values()), "to": min(after.values()), "seconds": round(took_s),
            "filled_mib": FILLED_MIB,
            "clients": load.reports}  # fmt: skip


def test_to_this_release_and_nothing_more_the_second_time() -> None:
    cluster.fill("filled", FILLED_MIB)
    cluster.keep_result("rolling_upgrade", {"rolls": [roll("up", None)]})
    starts = cluster.starts()
    assert cluster.playbook("rolling_upgrade").returncode == 0
    assert cluster.starts() == starts


def test_every_host_keeps_the_previous_release_and_marks_its_step_done() -> None:
    for host, reading in cluster.readings().items():
        assert reading["marker"]["state"] == "done"
        assert len(cluster.on(host, "ls /opt/pylog/releases").split()) == 2


@full
def test_back_after_the_new_release_has_written_and_up_again() -> None:
    rolls = [roll("back", str(cluster.PREVIOUS)), roll("up-again", None)]
    path = cluster.RESULTS / "rolling_upgrade.json"
    cluster.keep_result("rolling_upgrade", {"rolls": json.loads(path.read_text())["rolls"] + rolls})
