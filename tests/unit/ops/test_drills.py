"""Every row T1 to T38 is a drill or says why not; a drill only breaks what may be broken, and judges honestly."""

import shutil
import subprocess
from typing import Any

import pytest

from pylog.ops.drills import DRILLS, REASONS, Where
from pylog.ops.inventory import Target
from pylog.ops.load import History
from pylog.ops.rehearsal import CLIENT_DRILLS, LEFTOVERS, DrillRefused, faults_of, hosts_of


def target(name: str, **variables: Any) -> Target:
    known = {"pylog_broker_instances": [{"id": int(name[-1]), "port": 9092}], "drills_allowed": True, **variables}
    return Target(
        name=name, address=name, user="root", port=22, key_file=None, known_hosts=None, is_root=True,
        timeout_s=10, groups=frozenset({"pylog_broker"}), variables=known,
    )  # fmt: skip


def hosts(**variables: Any) -> list[Target]:
    return [target(f"live{number}", **variables) for number in (1, 2, 3)]


def test_every_row_has_a_drill_or_a_reason() -> None:
    assert {*DRILLS, *REASONS} == {f"T{number}" for number in range(1, 39)}
    assert not DRILLS.keys() & REASONS.keys()


def test_a_drill_on_hosts_breaks_and_heals() -> None:
    for code, one in DRILLS.items():
        if one.where is Where.NOWHERE:
            assert code in CLIENT_DRILLS
            assert one.inject + one.heal == ""
        else:
            assert one.inject
            assert one.heal
        assert bool(one.needs) == bool(one.lacking), code


@pytest.mark.parametrize("script", [LEFTOVERS, *(text for one in DRILLS.values() for text in (one.inject, one.heal))])
def test_scripts_are_shell(script: str) -> None:
    assert subprocess.run(["sh", "-n", "-c", script], check=False).returncode == 0
    checker = shutil.which("shellcheck")
    assert checker, "apt-get install shellcheck"
    done = subprocess.run(
        [checker, "--shell=dash", "--exclude=SC2154,SC2012,SC2009", "-"], input=script, text=True, capture_output=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_nothing_is_broken_where_the_inventory_does_not_say_so() -> None:
    for allowed in (None, False, "yes"):
        with pytest.raises(DrillRefused, match="live1, live2, live3: the inventory does not say drills_allowed: true"):
            hosts_of(hosts(drills_allowed=allowed), "")


def test_the_datacenter_is_the_one_that_can_lose_a_broker() -> None:
    alone = target("offline4", pylog_datacenter="offline")
    found = hosts_of([*hosts(pylog_datacenter="live"), alone], "")
    assert [one.name for one in found] == ["live1", "live2", "live3"]
    with pytest.raises(DrillRefused, match="none with three brokers"):
        hosts_of([*hosts(pylog_datacenter="live"), alone], "offline")


def history(**more: Any) -> History:
    return History(**({"acknowledged": {0: [0, 1, 2]}, "read": {0: [0, 1, 2]}} | more))


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (history(), []),
        (history(read={0: [0, 2]}), ["lost: 1"]),
        (history(read={}), ["lost: 3"]),
        (history(read={0: [0, 1, 1, 2]}), ["doubled: 1"]),
        (history(read={0: [0, 2, 1]}), ["records out of order: 1"]),
        (history(failures=["timed out"]), ["failed: 1", "timed out"]),
        (history(acknowledged={0: []}, read={}), ["nothing was acknowledged at all"]),
    ],
)
def test_what_the_records_say(found: History, words: list[str]) -> None:
    assert faults_of(found, DRILLS["T1"]) == words


def test_without_waiting_for_all_a_loss_is_only_counted() -> None:
    found = history(read={0: [0, 2]})
    assert faults_of(found, DRILLS["T2"]) == []
    assert found.report()["lost"] == 1
