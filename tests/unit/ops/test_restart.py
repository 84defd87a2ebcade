"""The restart decision: a table of what runs against what is installed."""

from typing import Any

import pytest

from pylog.ops.restart import plan


def broker(broker_id: int = 1, **changes: Any) -> dict[str, Any]:
    status = {"release": "0.1.0", "config_hash": "aa", "state": "running", "controller_id": 9}
    status |= changes.pop("status", {})
    return {
        "id": broker_id,
        "unit": f"pylog-broker@{broker_id}.service",
        "config_hash": "aa",
        "is_active": True,
        "changed_files": [],
        "status": status,
        "is_ready": True,
        "reason": "",
    } | changes


def zookeeper(server_id: int, mode: str, **changes: Any) -> dict[str, Any]:
    unit = "pylog-zookeeper.service"
    return {"id": server_id, "unit": unit, "mode": mode, "changed_files": [], "is_ready": True, "reason": ""} | changes


@pytest.mark.parametrize(
    ("reading", "reasons"),
    [
        (broker(), None),
        (broker(is_active=False, changed_files=["/etc/pylog/broker-1.yml"]), None),
        (broker(status={"release": "0.0.9"}), ["runs release 0.0.9, installed is 0.1.0"]),
        (broker(status={"config_hash": "bb"}), ["runs configuration bb, installed is aa"]),
        (broker(changed_files=["/x"]), ["/x changed since the process started"]),
        (
            broker(changed_files=["/x"], status={"release": "0.2.0"}),
            ["/x changed since the process started", "runs release 0.2.0, installed is 0.1.0"],
        ),
        (broker(changed_files=["/x"]) | {"status": None}, ["/x changed since the process started"]),
    ],
)
def test_broker_restarts_for_named_reasons_only(reading: dict[str, Any], reasons: list[str] | None) -> None:
    made = plan([("h1", reading)], "0.1.0")
    assert [list(restart.reasons) for restart in made.restarts] == ([] if reasons is None else [reasons])


def test_controller_restarts_last() -> None:
    changed = {"changed_files": ["/x"], "status": {"controller_id": 1}}
    made = plan([(f"h{number}", broker(number, **dict(changed))) for number in (1, 2, 3)], "0.1.0")
    assert [restart.host for restart in made.restarts] == ["h2", "h3", "h1"]


def test_zookeeper_leader_restarts_last() -> None:
    modes = {1: "follower", 2: "leader", 3: "follower"}
    readings = [(f"h{number}", zookeeper(number, mode, changed_files=["/x"])) for number, mode in modes.items()]
    assert [restart.host for restart in plan(readings, None).restarts] == ["h1", "h3", "h2"]


def test_an_unwell_instance_that_needs_a_restart_goes_first() -> None:
    made = plan(
        [("h1", broker(1, changed_files=["/x"])), ("h2", broker(2, changed_files=["/x"], is_ready=False))], "0.1.0"
    )
    assert [restart.host for restart in made.restarts] == ["h2", "h1"]
    assert made.blockers == ()


def test_an_unwell_instance_that_needs_none_blocks_the_others() -> None:
    made = plan(
        [("h1", broker(1, changed_files=["/x"])), ("h2", broker(2, is_ready=False, reason="not in sync"))], "0.1.0"
    )
    assert made.blockers == ("pylog-broker@2.service on h2 is not well: not in sync",)


def test_a_recovering_broker_is_never_restarted() -> None:
    made = plan([("h1", broker(changed_files=["/x"], is_ready=False, status={"state": "recovering"}))], "0.1.0")
    assert made.restarts == ()
    assert "recovering" in made.blockers[0]
