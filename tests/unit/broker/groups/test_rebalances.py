"""Rebalances are counted by cause, and by group for those that rebalanced last."""

import pytest

from pylog.broker.groups.rebalances import MAX_GROUPS, Rebalances
from pylog.errors import ErrorCode
from pylog.group.state import Cause, Group, GroupConfig
from pylog.metrics import MAX_LABEL_CHARS, Metrics
from tests.unit.group.members import SESSION_MS, Table, group_of


def _group(name: str, cause: Cause | None = Cause.JOINED) -> Group:
    group = Group(name, GroupConfig())
    group.rebalances_for = cause
    return group


def _rows(metrics: Metrics, name: str) -> dict[str, float]:
    lines = [line for line in metrics.render().splitlines() if line.startswith(name + "{")]
    return {line.split('"')[1]: float(line.rsplit(" ", 1)[1]) for line in lines}


def _cause_of(table: Table) -> Cause | None:
    cause, table.group.rebalances_for = table.group.rebalances_for, None
    return cause


def test_a_group_says_what_began_its_rebalance() -> None:
    table = group_of(SESSION_MS, SESSION_MS)
    table.group.rebalances_for = None
    table.join()
    assert _cause_of(table) is Cause.JOINED
    table.join("m1")
    assert _cause_of(table) is None, "the same rebalance"


def test_a_member_that_leaves_begins_a_rebalance() -> None:
    table = group_of(SESSION_MS, SESSION_MS)
    table.group.rebalances_for = None
    assert table.leave("m2") is ErrorCode.NONE
    assert _cause_of(table) is Cause.LEFT


def test_a_member_that_falls_silent_begins_a_rebalance() -> None:
    table = group_of(SESSION_MS, SESSION_MS)
    table.group.rebalances_for = None
    table.pass_time(SESSION_MS // 2)
    assert table.heartbeat("m1") is ErrorCode.NONE
    table.pass_time(SESSION_MS // 2)
    assert _cause_of(table) is Cause.EXPIRED


def test_an_assignment_that_cannot_be_written_begins_a_rebalance() -> None:
    table = Table(write_error=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    table.joined(table.join())
    assert _cause_of(table) is Cause.JOINED
    table.sync("m1", assignments={"m1": b"all"})
    assert _cause_of(table) is Cause.UNWRITTEN


def test_each_rebalance_is_counted_once() -> None:
    metrics = Metrics()
    rebalances, group = Rebalances(metrics), _group("g", Cause.LEFT)
    rebalances.note(group)
    rebalances.note(group)
    assert _rows(metrics, "pylog_rebalances_total")["left"] == 1
    assert _rows(metrics, "pylog_group_rebalances_total") == {"g": 1}


def test_a_million_groups_do_not_grow_the_page_and_the_restless_one_stays_on_it() -> None:
    metrics = Metrics()
    rebalances = Rebalances(metrics)
    for number in range(MAX_GROUPS * 5):
        rebalances.note(_group(f"{number}-" + "x" * 300))
        if number % 100 == 0:
            rebalances.note(_group("restless"))
    rows = _rows(metrics, "pylog_group_rebalances_total")
    assert len(rows) == MAX_GROUPS
    assert max(map(len, rows)) <= MAX_LABEL_CHARS
    assert rows["restless"] == MAX_GROUPS * 5 / 100
    assert _rows(metrics, "pylog_rebalances_total")["joined"] == pytest.approx(MAX_GROUPS * 5 * 1.01)


def test_odd_bytes_in_a_groups_name_leave_the_page_readable() -> None:
    metrics = Metrics()
    Rebalances(metrics).note(_group('a"b\\c\nd\x00\u2028e'))
    [line] = [line for line in metrics.render().split("\n") if line.startswith("pylog_group_rebalances_total{")]
    assert line == 'pylog_group_rebalances_total{group="a\\"b\\\\c\\nd\x00\u2028e"} 1'
