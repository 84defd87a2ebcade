"""Five broken releases: at most one broker is touched, it gets back what it ran before, and clients notice nothing."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.rolls import cluster

Extra = Callable[[Path], dict[str, Any]]
SLOW = "\nimport time\ntime.sleep(100_000)\n"
NEVER_FETCHES = "\nReplication.image_applied = lambda self: None\n"
# An address of no host here, but inside: preflight has nothing to say, and no broker can start with it.
ELSEWHERE = "10.255.255.254"


def release(file: str, text: str) -> Extra:
    return lambda directory: {"pylog_wheelhouse": str(cluster.altered(directory, file, text))}


@pytest.mark.parametrize(
    ("extra", "touched"),
    [
        pytest.param(release("pylog/broker/broker.py", "\nraise RuntimeError\n"), 1, id="crashes on start"),
        pytest.param(lambda directory: {"broker_listen_host": ELSEWHERE}, 1, id="bad configuration"),
        pytest.param(release("pylog/broker/broker.py", SLOW), 1, id="slow start"),
        pytest.param(release("pylog/broker/data/replication.py", NEVER_FETCHES), 1, id="never in sync again"),
        pytest.param(lambda directory: {"pylog_wheelhouse": str(cluster.corrupt(directory))}, 0, id="corrupt archive"),
        pytest.param(lambda directory: {"broker_config": {"no.such.setting": 1}}, 0, id="unknown setting"),
    ],
)
def test_one_broker_is_touched_and_gets_back_what_it_ran(
    extra: Extra, touched: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    releases, starts = cluster.releases(), cluster.starts()
    hashes = {host: reading["config_hash"] for host, reading in cluster.readings().items()}
    began_s = time.monotonic()
    with cluster.loaded("bad") as load:
        done = cluster.playbook("rolling_upgrade", extra(tmp_path) | {"broker_ready_timeout_s": 25})
        seconds = round(time.monotonic() - began_s)
    assert done.returncode != 0
    load.check()
    assert cluster.health()["problems"] == []
    now = cluster.starts()
    assert sum(now[host] != starts[host] for host in starts) == touched
    assert cluster.releases() == releases
    assert {host: reading["config_hash"] for host, reading in cluster.readings().items()} == hashes
    if touched:
        assert "did not pass" in done.stdout
        assert "put back" in done.stdout
        assert "the cluster is well again" in done.stdout
        [host] = [host for host in starts if now[host] != starts[host]]
        assert cluster.readings()[host]["marker"]["state"] == "rolled back"
    name = request.node.callspec.id
    cluster.keep_more("bad_release", "releases", {
        "release": name, "brokers_touched": touched, "seconds": seconds, "clients": load.reports,
    })  # fmt: skip


def test_a_good_release_still_rolls_afterwards(tmp_path: Path) -> None:
    before = cluster.releases()
    good = cluster.altered(tmp_path, "pylog/__main__.py", "# nothing is broken here\n")
    began_s = time.monotonic()
    with cluster.loaded("good") as load:
        done = cluster.playbook("rolling_upgrade", {"pylog_wheelhouse": str(good)})
        seconds = round(time.monotonic() - began_s)
    assert done.returncode == 0
    load.check()
    after = set(cluster.releases().values())
    assert len(after) == 1
    assert after.isdisjoint(before.values())
    assert cluster.health()["problems"] == []
    cluster.keep_more("bad_release", "releases", {
        "release": "none of these", "brokers_touched": len(before), "seconds": seconds, "clients": load.reports,
    })  # fmt: skip
