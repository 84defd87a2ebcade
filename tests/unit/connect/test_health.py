"""When failed connectors are restarted, what counts as well, and the metrics of both."""

from itertools import pairwise
from typing import Any

from pylog.connect.document import State, Wanted
from pylog.connect.health import (
    CALM_MS,
    FIRST_DELAY_MS,
    MAX_DELAY_MS,
    MAX_LABELS,
    Restarts,
    Status,
    metrics_text,
    read_statuses,
    unwell,
)

TRACE = (
    "org.apache.kafka.connect.errors.ConnectException: x\n\tat y\nCaused by: java.io.IOException: no such file\n\tat z"
)


def answer(*tasks: str, connector: str = "RUNNING", worker: str = "h1:8083") -> dict[str, Any]:
    return {
        "status": {
            "name": "a",
            "type": "source",
            "connector": {"state": connector, "worker_id": worker},
            "tasks": [
                {"id": number, "state": state, "worker_id": worker, **({"trace": TRACE} if state == "FAILED" else {})}
                for number, state in enumerate(tasks)
            ],
        }
    }


def statuses(*tasks: str, **connector: str) -> dict[str, Status]:
    return read_statuses({"a": answer(*tasks, **connector)})


def test_the_cause_of_a_failed_task_is_the_last_of_its_trace() -> None:
    [status] = statuses("RUNNING", "FAILED").values()
    assert status.failed == [1]
    assert status.tasks[1].reason == "java.io.IOException: no such file"


def test_everything_that_is_not_as_wanted_is_named() -> None:
    should = [Wanted(name="a", config={}), Wanted(name="b", config={}, state=State.PAUSED)]
    found = unwell(should, statuses("RUNNING", "FAILED", "UNASSIGNED"))
    assert found == [
        "a task 1: failed on h1:8083: java.io.IOException: no such file",
        "a task 2: unassigned on h1:8083",
        "b: not there",
    ]
    assert unwell(should[:1], statuses("RUNNING")) == []
    assert unwell(should[:1], statuses(connector="PAUSED")) == ["a: paused on h1:8083"]


def test_waits_between_restarts_double_up_to_ten_minutes() -> None:
    restarts, failed = Restarts(), statuses("FAILED")
    times = [now for now in range(0, 7_200_000, 1_000) if restarts.due(failed, now)]
    waits = [later - before for before, later in pairwise(times)]
    assert times[0] == FIRST_DELAY_MS
    assert waits[:6] == [20_000, 40_000, 80_000, 160_000, 320_000, MAX_DELAY_MS]
    assert set(waits[6:]) == {MAX_DELAY_MS}
    assert restarts.counts["a"] == len(times)


def test_after_a_calm_time_a_failure_counts_as_the_first() -> None:
    restarts = Restarts()
    for now in (0, 10_000, 30_000):
        restarts.due(statuses("FAILED"), now)
    restarts.due(statuses("RUNNING"), 40_000)
    restarts.due(statuses("RUNNING"), 40_000 + CALM_MS)
    assert restarts.due(statuses("FAILED"), 50_000 + CALM_MS) == []
    assert restarts.due(statuses("FAILED"), 60_000 + CALM_MS) == ["a"]


def test_a_failure_soon_after_a_restart_waits_on() -> None:
    restarts = Restarts()
    restarts.due(statuses("FAILED"), 0)
    assert restarts.due(statuses("FAILED"), 10_000) == ["a"]
    restarts.due(statuses("RUNNING"), 15_000)
    assert restarts.due(statuses("FAILED"), 25_000) == []
    assert restarts.due(statuses("FAILED"), 30_000) == ["a"]


def test_failures_on_other_workers_are_left_to_their_watch() -> None:
    restarts, failed = Restarts(), statuses("FAILED", worker="h2:8083")
    assert [restarts.due(failed, now, ["h1:8083"]) for now in (0, 10_000, 20_000)] == [[], [], []]
    assert [restarts.due(failed, now, ["h2:8083"]) for now in (30_000, 40_000)] == [[], ["a"]]


def test_a_connector_that_failed_as_a_whole_is_restarted_too() -> None:
    restarts, failed = Restarts(), statuses(connector="FAILED")
    assert [restarts.due(failed, now) for now in (0, 10_000)] == [[], ["a"]]


def test_a_deleted_connector_is_forgotten() -> None:
    restarts = Restarts()
    restarts.due(statuses("FAILED"), 0)
    restarts.due({}, 5_000)
    assert restarts.due(statuses("FAILED"), 10_000) == []


def test_metrics_count_connectors_and_tasks_by_state() -> None:
    text = metrics_text(statuses("RUNNING", "RUNNING", "FAILED"), {"a": 2}, 1_000.5)
    assert "pylog_connect_up 1\n" in text
    assert 'pylog_connect_connectors{connector="a",state="running"} 1\n' in text
    assert 'pylog_connect_tasks{connector="a",state="running"} 2\n' in text
    assert 'pylog_connect_tasks{connector="a",state="failed"} 1\n' in text
    assert 'pylog_connect_restarts_total{connector="a"} 2\n' in text
    assert "pylog_connect_up 0\n" in metrics_text(None, {}, 1_000.5)


def test_names_in_metrics_are_bounded_in_number_length_and_bytes() -> None:
    names = ['"odd\n' + "x" * 1_000, *(f"c{number:05}" for number in range(MAX_LABELS + 500))]
    text = metrics_text(read_statuses({name: answer("RUNNING") for name in names}), {}, 0)
    lines = [line for line in text.splitlines() if line.startswith("pylog_connect_connectors{")]
    assert len(lines) == MAX_LABELS + 1
    assert 'pylog_connect_connectors{connector="other",state="running"} 501' in lines
    assert all(len(line) < 200 for line in lines)
