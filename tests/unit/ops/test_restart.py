"""The restart decision: a table of what runs against what is wanted."""

import json
from typing import Any

import pytest

from pylog.ops.restart import VERBS, Action, Desired, Evidence, Kind, Plan, next_step, plan, verdict

CONFIG, UNIT = "/etc/pylog/broker-1.yml", "/etc/systemd/system/pylog-broker@.service"
LOCK, SECRET = "/opt/pylog/current/requirements.lock", "/etc/pylog/cluster.secret"
STARTED = {CONFIG: "c0", UNIT: "u0", LOCK: "l0", SECRET: "s0"}
WANTED = Desired(files=STARTED, release="0.1.0-a")


def broker(broker_id: int = 1, **changes: Any) -> dict[str, Any]:
    status = {"release": "0.1.0", "state": "running", "controller_id": 9, "started_ms": 5_000}
    status |= changes.pop("status", {})
    return {
        "id": broker_id,
        "unit": f"pylog-broker@{broker_id}.service",
        "is_active": True,
        "changed_files": [],
        "started_with": STARTED,
        "current": "0.1.0-a",
        "marker": None,
        "asked_ms": 0,
        "free_percent": 50,
        "status": status,
        "is_ready": True,
        "reason": "",
    } | changes


def zookeeper(server_id: int, mode: str, **changes: Any) -> dict[str, Any]:
    unit = "pylog-zookeeper.service"
    return {
        "id": server_id, "unit": unit, "mode": mode, "is_active": True, "changed_files": [],
        "started_with": {"/x": "1"}, "is_ready": True, "reason": "",
    } | changes  # fmt: skip


def decide(reading: dict[str, Any], desired: Desired = WANTED) -> Plan:
    return plan([("h1", reading)], {"h1": desired})


def wanted(**files: str) -> Desired:
    paths = {"config": CONFIG, "unit": UNIT, "lock": LOCK, "secret": SECRET}
    return Desired(files=STARTED | {paths[name]: digest for name, digest in files.items()}, release="0.1.0-a")


@pytest.mark.parametrize(
    ("reading", "desired", "kinds"),
    [
        (broker(), WANTED, []),
        (broker(), Desired(), []),
        (broker(is_active=False, changed_files=[CONFIG], current="0.0.9-b"), WANTED, []),
        (broker(is_active=False, marker={"state": "restarting"}), WANTED, [Kind.STOPPED]),
        (broker(current="0.0.9-b"), WANTED, [Kind.RELEASE]),
        (broker(current=""), WANTED, [Kind.RELEASE]),
        # The link moved and the run died before the restart.
        (broker(), wanted(lock="l1"), [Kind.RELEASE]),
        (broker(), wanted(config="c1"), [Kind.CONFIG]),
        (broker(), wanted(unit="u1"), [Kind.UNIT]),
        (broker(), wanted(secret="s1"), [Kind.SECRET]),
        (broker(), wanted(config="c1", unit="u1"), [Kind.UNIT, Kind.CONFIG]),
        # What is installed counts only where nobody said what is wanted.
        (broker(changed_files=[CONFIG]), WANTED, []),
        (broker(changed_files=[CONFIG]), Desired(), [Kind.CONFIG]),
        (broker(changed_files=["/usr/share/java/x.jar"], started_with={"/usr/share/java/x.jar": "1"}), Desired(),
         [Kind.FILE]),
        (broker(changed_files=["/run/pylog/broker-1.started"], started_with={}), WANTED, [Kind.UNKNOWN]),
        (broker(asked_ms=5_001), WANTED, [Kind.ASKED]),
        (broker(asked_ms=4_999), WANTED, []),
        (broker(asked_ms=5_001) | {"status": None}, WANTED, []),
        (broker(current="0.0.9-b", asked_ms=9_000), wanted(config="c1"), [Kind.RELEASE, Kind.CONFIG, Kind.ASKED]),
    ],
)  # fmt: skip
def test_broker_restarts_for_named_reasons_only(reading: dict[str, Any], desired: Desired, kinds: list[Kind]) -> None:
    steps = decide(reading, desired).steps
    assert sorted(kind for step in steps for kind in step.kinds) == sorted(kinds)
    assert [step.action for step in steps] == ([Action.RESTART] if kinds else [])


def test_a_reason_says_found_and_wanted() -> None:
    assert decide(broker(current="0.0.9-b")).steps[0].reasons == ("release 0.0.9-b, wanted 0.1.0-a",)
    assert decide(broker(), wanted(config="c1")).steps[0].reasons == (f"{CONFIG} c0, wanted c1",)


def test_a_broker_whose_gate_an_interrupted_run_left_out_gets_only_the_gate() -> None:
    [step] = decide(broker(marker={"state": "restarting"})).steps
    assert (step.action, step.kinds) == (Action.SETTLE, ())


@pytest.mark.parametrize("state", ["done", "rolled back"])
def test_a_finished_broker_is_skipped(state: str) -> None:
    assert decide(broker(marker={"state": state})).steps == ()


def test_a_roll_takes_as_long_as_the_last_one() -> None:
    readings = [("h1", broker(1, current="x", marker={"state": "done", "took_s": 7})), ("h2", broker(2, current="x"))]
    assert plan(readings, {"h1": WANTED, "h2": WANTED}).expected_s == 27


def test_controller_restarts_last() -> None:
    changed = {"current": "x", "status": {"controller_id": 1}}
    made = plan(
        [(f"h{number}", broker(number, **dict(changed))) for number in (1, 2, 3)],
        {f"h{number}": WANTED for number in (1, 2, 3)},
    )
    assert [step.host for step in made.steps] == ["h2", "h3", "h1"]


def test_datacenters_go_one_after_the_other_each_with_its_own_controller() -> None:
    places = {"h1": "b", "h2": "a", "h3": "b", "h4": "a"}
    readings = [
        (host, broker(number, current="x", status={"controller_id": 1 if places[host] == "b" else 2}))
        for number, host in enumerate(places, start=1)
    ]
    made = plan(readings, dict.fromkeys(places, WANTED), places)
    assert [step.host for step in made.steps] == ["h4", "h2", "h3", "h1"]


def test_zookeeper_leader_restarts_last() -> None:
    modes = {1: "follower", 2: "leader", 3: "follower"}
    readings = [(f"h{number}", zookeeper(number, mode, changed_files=["/x"])) for number, mode in modes.items()]
    assert [step.host for step in plan(readings, {}).steps] == ["h1", "h3", "h2"]


def test_an_unwell_instance_that_needs_a_restart_goes_first() -> None:
    made = plan(
        [("h1", broker(1, current="x")), ("h2", broker(2, current="x", is_ready=False))], {"h1": WANTED, "h2": WANTED}
    )
    assert [(step.host, step.is_well) for step in made.steps] == [("h2", False), ("h1", True)]
    assert made.blockers == ()


def test_an_unwell_instance_that_needs_none_blocks_the_others() -> None:
    made = plan(
        [("h1", broker(1, current="x")), ("h2", broker(2, is_ready=False, reason="not in sync"))],
        {"h1": WANTED, "h2": WANTED},
    )
    assert made.blockers == ("pylog-broker@2.service on h2 is not well: not in sync",)


def test_a_full_disk_blocks() -> None:
    assert decide(broker(current="x", free_percent=2)).blockers == (
        "pylog-broker@1.service on h1 has 2 % of its disk free, wanted at least 3 %",
    )


def test_a_recovering_broker_is_never_restarted() -> None:
    made = decide(broker(current="x", is_ready=False, status={"state": "recovering"}))
    assert "recovering" in made.blockers[0]


STEPS = [
    {"host": f"h{number}", "id": number, "datacenter": "a" if number < 4 else "b", "is_well": True}
    for number in range(1, 6)
]


@pytest.mark.parametrize(
    ("finished", "controllers", "host"),
    [
        ([], {}, "h1"),
        ([], {"a": 1}, "h2"),
        ([["h2", 2]], {"a": 1}, "h3"),
        # It moved to the one whose turn it would be.
        ([["h2", 2]], {"a": 3}, "h1"),
        ([["h1", 1], ["h2", 2]], {"a": 3}, "h3"),
        # An id says nothing in another datacenter.
        ([["h1", 1], ["h2", 2], ["h3", 3]], {"a": 4, "b": 5}, "h4"),
    ],
)
def test_whose_turn_it_is_follows_the_controller(
    finished: list[list[Any]], controllers: dict[str, int], host: str
) -> None:
    assert next_step(STEPS, finished, controllers)["host"] == host


def test_an_unwell_controller_still_goes_before_those_that_are_well() -> None:
    steps = [STEPS[0] | {"is_well": False}, *STEPS[1:]]
    assert next_step(steps, [], {"a": 1})["host"] == "h1"


WELL = {"brokers": [1, 2, 3], "controller_id": 3, "problems": []}


def view(*problems: tuple[str, str, str], brokers: tuple[int, ...] = (1, 2, 3)) -> dict[str, Any]:
    keys = ("kind", "subject", "detail")
    return {"brokers": list(brokers), "problems": [dict(zip(keys, problem, strict=True)) for problem in problems]}


BEHIND = ("not_in_sync", "t-0", "in sync 2,3, replicas 1,2,3")
RUNS = broker(1, is_ready=False, reason="1 partitions not in sync, first t-0")
CRASHES = RUNS | {"restarts": 3, "reason": "the admin socket does not answer"}
OFF = RUNS | {"is_active": False, "is_off": True, "reason": "it is failed, and nothing starts it"}
SILENT = RUNS | {"status": None, "reason": "the admin socket does not answer"}
WAITS = RUNS | {"status": {"state": "starting", "is_registered": False}, "reason": "not registered: no session"}
OTHER_DEAD = view(BEHIND, ("no_leader", "u-0", "no leader; replicas 2"), brokers=(1, 3))


@pytest.mark.parametrize(
    ("evidence", "outcome", "why"),
    [
        pytest.param(Evidence(is_reached=True, is_passed=True), "passed", "", id="gate passed"),
        pytest.param(Evidence(is_reached=True, reading=RUNS, view=view(BEHIND)), "back", "t-0", id="only it lacks"),
        pytest.param(Evidence(is_reached=True, reading=RUNS, view=OTHER_DEAD), "hold", "broker 2", id="one is dead"),
        pytest.param(
            Evidence(is_reached=True, reading=broker(1), view=view(brokers=(1, 3))), "hold", "broker 2",
            id="it is well and another is dead",
        ),
        pytest.param(
            Evidence(is_reached=True, reading=RUNS, view=view(("broker_silent", "broker 2", "does not answer"))),
            "hold", "broker 2", id="another hangs",
        ),
        pytest.param(
            Evidence(is_reached=True, reading=RUNS, view=view(("broker_silent", "broker 1", "does not answer"))),
            "back", "", id="it hangs",
        ),
        pytest.param(
            Evidence(is_reached=True, reading=RUNS, view=view(("not_in_sync", "t-0", "in sync 1, replicas 1,2,3"))),
            "hold", "t-0", id="it has what others lack",
        ),
        pytest.param(
            Evidence(is_reached=True, reading=RUNS, view=view(("no_leader", "t-0", "no leader; replicas 1"))),
            "back", "", id="its only copy",
        ),
        pytest.param(
            Evidence(is_reached=True, reading=RUNS, view=view(("no_controller", "cluster", "controller is -1"))),
            "hold", "controller", id="no controller",
        ),
        pytest.param(
            Evidence(is_reached=True, reading=RUNS, view=view(("unreachable", "cluster", "x"), brokers=())),
            "hold", "not registered", id="nobody answers",
        ),
        pytest.param(Evidence(is_reached=True, reading=RUNS), "hold", "no other broker", id="nobody could be asked"),
        pytest.param(Evidence(is_reached=False, reading=CRASHES), "hold", "reached", id="its host is lost"),
        pytest.param(Evidence(is_reached=True), "hold", "read", id="it cannot be read"),
        pytest.param(Evidence(is_reached=True, refused="1-c is not installed"), "back", "1-c", id="restart refused"),
        pytest.param(Evidence(is_reached=True, reading=CRASHES, view=WELL), "back", "3 times", id="it crashes"),
        pytest.param(
            Evidence(is_reached=True, reading=CRASHES, view=OTHER_DEAD), "back", "3 times",
            id="it crashes and another is dead: nobody loses anything",
        ),
        pytest.param(Evidence(is_reached=True, reading=OFF, view=OTHER_DEAD), "back", "does not run", id="it is off"),
        pytest.param(Evidence(is_reached=True, reading=SILENT, view=WELL), "back", "answer", id="it never answered"),
        pytest.param(
            Evidence(is_reached=True, reading=WAITS, view=view(BEHIND), others=[WAITS]), "hold", "ZooKeeper",
            id="ZooKeeper is down",
        ),
        pytest.param(
            Evidence(is_reached=True, reading=WAITS, view=view(BEHIND), others=[SILENT, broker(2)], store_wait_s=30),
            "back", "no session", id="it alone does not reach ZooKeeper",
        ),
        pytest.param(
            Evidence(is_reached=True, reading=RUNS, view=view(BEHIND), others=[broker(2)], store_wait_s=25),
            "hold", "25 s", id="ZooKeeper was down",
        ),
        pytest.param(
            Evidence(is_reached=True, reading=RUNS, view=view(BEHIND), others=[broker(2)], store_wait_s=2),
            "back", "t-0", id="its start took as long as any",
        ),
        pytest.param(
            Evidence(is_reached=True, reading=RUNS, view=view(BEHIND), others=[SILENT]), "back", "t-0",
            id="who does not answer says nothing of ZooKeeper",
        ),
    ],
)  # fmt: skip
def test_a_step_goes_back_only_where_nobody_loses_by_it(evidence: Evidence, outcome: str, why: str) -> None:
    found = verdict(1, [1, 2, 3], evidence)
    assert (found.outcome, why in found.why) == (outcome, True), found


def test_a_cluster_of_one_broker_has_nobody_else_to_blame() -> None:
    assert verdict(1, [1], Evidence(is_reached=True, reading=RUNS)).outcome == "back"


def test_a_broker_that_is_away_is_not_missed() -> None:
    found = verdict(1, [1, 3], Evidence(is_reached=True, reading=RUNS, view=view(BEHIND, brokers=(1, 3))))
    assert found.outcome == "back"


def test_an_answer_is_json() -> None:
    question = {
        "readings": {"h1": {"brokers": [broker(current="x")]}, "h2": zookeeper(1, "leader")},
        "desired": {"h1": {"files": STARTED, "release": "0.1.0-a"}},
        "datacenters": {"h1": "live"},
    }
    answer = json.loads(json.dumps(VERBS["plan"](question)))
    assert (answer["expected_s"], answer["steps"][0]["kinds"]) == (20, ["release"])
