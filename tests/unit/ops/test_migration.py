"""The steps from an open datacenter to a secured one and back, and where one stands by what its processes say."""

from dataclasses import asdict
from typing import Any

import pytest

from pylog.ops.migration import (
    BROKER_FACETS,
    ENSEMBLE_FACETS,
    STEPS,
    Kind,
    Need,
    Position,
    Process,
    Stage,
    comment,
    cut_off,
    facets_in,
    next_turn,
    position,
    stage_at,
    steps_of,
)

ENDS = [asdict(stage_at(STEPS, done)) for done in (0, len(STEPS))]
INDEX = {step.name: number for number, step in enumerate(STEPS)}
NOW_MS = 2_000_000_000
DAY_S = 86_400


def facets(done: int, names: tuple[str, ...]) -> dict[str, str]:
    """What a process at *done* steps says, by way of the text of its file."""
    found = facets_in(comment(asdict(stage_at(STEPS, done)), names, ()))
    assert found.keys() == set(names)
    return found


def broker(number: int, done: int) -> Process:
    return Process(name=f"broker-{number}", facets=facets(done, BROKER_FACETS))


def server(number: int, done: int) -> Process:
    return Process(name=f"zookeeper-{number}", facets=facets(done, ENSEMBLE_FACETS))


def profile(done: int) -> Process:
    return Process(name="profile", facets={"programs": stage_at(STEPS, done).programs})


def datacenter(done: int) -> list[Process]:
    return [broker(1, done), broker(2, done), server(1, done), server(2, done), profile(done)]


def test_each_step_changes_one_thing_and_follows_the_one_before() -> None:
    assert stage_at(STEPS, 0) == Stage()
    assert stage_at(STEPS, len(STEPS)) == Stage(
        quorum="tls", ensemble="tls", store="acl", peers="tls", secured=True, rights="enforce", programs="secured",
        pages="secured", plain=False,
    )  # fmt: skip
    assert len({step.name for step in STEPS}) == len(STEPS)


@pytest.mark.parametrize("facet", ["quorum", "ensemble", "peers"])
def test_a_port_takes_both_before_anybody_calls_by_tls_and_until_all_do(facet: str) -> None:
    """At every step, any process calls in a way that any other accepts, whichever of the two has had its roll."""
    accepts = {"open": {"plain"}, "both": {"plain", "tls"}, "calls": {"plain", "tls"}, "tls": {"tls"}}
    calls = {"open": "plain", "both": "plain", "calls": "tls", "tls": "tls"}
    for step in (one for one in STEPS if one.facet == facet):
        callers = [calls[step.before], calls[step.after]]
        if facet == "ensemble":  # whose callers are brokers: they change at steps of their own
            number = INDEX[step.name]
            callers = ["plain" if stage_at(STEPS, done).store == "open" else "tls" for done in (number, number + 1)]
        assert {*callers} <= accepts[step.before] & accepts[step.after], step.name


def test_no_listener_is_closed_before_programs_have_left_it_and_rights_are_enforced() -> None:
    for done in range(len(STEPS) + 1):
        stage = stage_at(STEPS, done)
        assert stage.plain or stage.secured
        assert stage.programs == "open" or (stage.secured and stage.rights != "off")
        assert stage.plain or (stage.programs == "secured" and stage.rights == "enforce")


def test_users_are_written_only_once_zookeeper_is_closed() -> None:
    assert INDEX["ensemble-closed"] < INDEX["rights-reported"]


@pytest.mark.parametrize("done", range(len(STEPS) + 1))
def test_the_position_of_a_whole_datacenter_is_read_from_its_files(done: int) -> None:
    found = position(datacenter(done), STEPS)
    assert found == Position(done=done, latest=done)


@pytest.mark.parametrize("done", range(len(STEPS)))
def test_a_half_done_step_names_who_is_behind_and_who_ahead(done: int) -> None:
    kind = STEPS[done].kind
    if kind is Kind.PROGRAMS:
        # The profile is written last: as long as one lacks it, the step is not done.
        mixed = [*datacenter(done)[:4], Process(name="profile-1", facets={"programs": "open"}),
                 Process(name="profile-2", facets={"programs": "secured"})]  # fmt: skip
    elif kind is Kind.ENSEMBLE:
        mixed = [broker(1, done), broker(2, done), server(1, done), server(2, done + 1), profile(done)]
    else:
        mixed = [broker(1, done), broker(2, done + 1), server(1, done), server(2, done), profile(done)]
    found = position(mixed, STEPS)
    assert found is not None
    assert found.is_half
    assert found.done == done
    assert (len(found.behind), len(found.ahead)) == (1, 1)
    there, back = (next_turn(found, STEPS, to_open=way) for way in (False, True))
    assert (there.step, there.stage) == (STEPS[done], stage_at(STEPS, done + 1))
    assert (back.step, back.stage) == (STEPS[done], stage_at(STEPS, done))


def test_a_broker_two_steps_behind_is_named_and_nothing_goes_on() -> None:
    found = position([broker(1, 8), broker(2, 10)], STEPS)
    assert found is not None
    assert not found.is_half
    assert found.strange == ("broker-1 stands after step 8", "broker-2 stands after step 10")
    with pytest.raises(ValueError, match="broker-1 stands after step 8"):
        next_turn(found, STEPS, to_open=False)


def test_a_file_of_no_step_is_named() -> None:
    odd = Process(name="broker-7", facets={**facets(9, BROKER_FACETS), "peers": "maybe"})
    found = position([broker(1, 9), odd], STEPS)
    assert found is not None
    assert len(found.strange) == 1
    assert "broker-7 has" in found.strange[0]
    assert "peers=maybe" in found.strange[0]


def test_nothing_runs_so_nothing_stands_anywhere() -> None:
    assert position([], STEPS) is None


def test_the_way_there_and_back_goes_through_the_same_stages() -> None:
    seen = []
    found = Position(done=0)
    while (turn := next_turn(found, STEPS, to_open=False)).step is not None:
        seen.append((turn.number, turn.stage))
        found = Position(done=found.done + 1)
    back = []
    while (turn := next_turn(found, STEPS, to_open=True)).step is not None:
        back.append((turn.number, turn.stage))
        found = Position(done=found.done - 1)
    assert [number for number, _ in seen] == list(range(1, len(STEPS) + 1))
    assert [number for number, _ in back] == list(range(len(STEPS), 0, -1))
    assert [stage for _, stage in back] == [Stage(), *(stage for _, stage in seen)][:-1][::-1]


def test_an_ensemble_that_stays_open_has_none_of_its_steps() -> None:
    steps = steps_of(has_open_ensemble=True)
    assert {step.facet for step in steps} == {"peers", "secured", "rights", "programs", "pages", "plain"}
    assert stage_at(steps, len(steps)).ensemble == "open"


def test_files_at_either_end_say_nothing() -> None:
    for done in (0, len(STEPS)):
        assert comment(asdict(stage_at(STEPS, done)), BROKER_FACETS, ENDS) == ""
    middle = comment(asdict(stage_at(STEPS, INDEX["peers-call"])), BROKER_FACETS, ENDS)
    assert middle == "store=acl peers=both secured=no rights=off pages=open plain=yes"


# -- whom a step would cut off ------------------------------------------------------------------------------------


def rights(**changes: Any) -> dict[str, Any]:
    """What a broker says that has been up for two days, whose open listener nobody has used for one."""
    return {
        "started_ms": NOW_MS - 2 * DAY_S * 1000,
        "mode": "report",
        "denials": [],
        "dropped": 0,
        "dropped_ms": 0,
        "last_requests": [
            {"listener": "client", "protocol": "PLAINTEXT", "principal": "ANONYMOUS", "last_ms": NOW_MS - DAY_S * 1000},
            {"listener": "secured", "protocol": "SASL_SSL", "principal": "alice", "last_ms": NOW_MS - 1},
        ],
        **changes,
    }


CLOSING = STEPS[INDEX["listener-closed"]].there.needs
ENFORCING = STEPS[INDEX["rights-enforced"]].there.needs
LOSING = STEPS[INDEX["listener-secured"]].back.needs


def test_a_quiet_listener_may_be_closed() -> None:
    assert cut_off(CLOSING, {"broker 1": rights()}, NOW_MS, DAY_S) == []
    assert cut_off(ENFORCING, {"broker 1": rights()}, NOW_MS, DAY_S) == []


def test_an_anonymous_client_seen_within_the_time_is_named() -> None:
    row = {"listener": "client", "protocol": "PLAINTEXT", "principal": "ANONYMOUS", "last_ms": NOW_MS - 5_000}
    found = cut_off(CLOSING, {"broker 1": rights(), "broker 2": rights(last_requests=[row])}, NOW_MS, DAY_S)
    assert found == ["broker 2: ANONYMOUS used listener client 5 s ago"]
    assert cut_off(CLOSING, {"broker 2": rights(last_requests=[row])}, NOW_MS, 4) == []


def test_who_logged_in_is_named_before_the_secured_listener_goes() -> None:
    assert LOSING == (Need.SECURED_IS_QUIET,)
    assert cut_off(LOSING, {"broker 1": rights()}, NOW_MS, DAY_S) == ["broker 1: alice used listener secured 0 s ago"]


def test_a_broker_that_restarted_since_knows_too_little() -> None:
    [line] = cut_off(CLOSING, {"broker 1": rights(started_ms=NOW_MS - 60_000)}, NOW_MS, DAY_S)
    assert line == f"broker 1 knows of the last 60 s alone, since it started then; wanted {DAY_S} s"


def test_a_broker_that_says_nothing_is_no_quiet_one() -> None:
    assert cut_off(CLOSING, {"broker 1": {}}, NOW_MS, DAY_S) == ["broker 1 did not say who uses it"]


def test_a_user_without_a_right_is_named_before_rights_are_enforced() -> None:
    denial = {"principal": "User:bob", "host": "192.0.2.7", "operation": "WRITE", "resource": "TOPIC",
              "name": "clicks", "last_ms": NOW_MS - 1_000}  # fmt: skip
    old = {**denial, "name": "old", "last_ms": NOW_MS - 2 * DAY_S * 1000}
    found = cut_off(
        ENFORCING, {"broker 1": rights(denials=[denial, old], dropped=3, dropped_ms=NOW_MS - 2)}, NOW_MS, DAY_S
    )
    assert found == [
        "broker 1: User:bob from 192.0.2.7 lacks WRITE on TOPIC clicks",
        "broker 1: 3 more kinds of denials had no room; its log has them",
    ]
    assert cut_off(CLOSING, {"broker 1": rights(denials=[denial])}, NOW_MS, DAY_S) == []


def test_a_list_that_was_full_long_ago_stops_nobody() -> None:
    past = rights(dropped=3, dropped_ms=NOW_MS - DAY_S * 1000)
    assert cut_off(ENFORCING, {"broker 1": past}, NOW_MS, DAY_S) == []


def test_a_broker_that_asks_for_no_rights_knows_of_no_denials() -> None:
    [line] = cut_off(ENFORCING, {"broker 1": rights(mode="off")}, NOW_MS, DAY_S)
    assert line.startswith("broker 1 asks for no rights yet")


def test_a_broker_that_enforces_already_does_not_stop_the_roll_that_made_it() -> None:
    assert cut_off(ENFORCING, {"broker 1": rights(mode="enforce"), "broker 2": rights()}, NOW_MS, DAY_S) == []


def test_an_operator_may_force_it() -> None:
    assert cut_off(CLOSING, {"broker 1": {}}, NOW_MS, 0) == []
