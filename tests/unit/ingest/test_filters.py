"""Which records a query's filters can want."""

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from pylog.ingest.filters import Wanted, wanted_by
from pylog.ingest.plan import Range
from pylog.model import TopicPartition

A, B = TopicPartition("logins", 0), TopicPartition("logins", 1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOW_MS = 1_767_225_600_000


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ([], Wanted()),
        ([EqualTo(("partition",), 1)], Wanted(partitions=frozenset({1}))),
        ([In(("partition",), (0, 1)), EqualTo(("partition",), 1)], Wanted(partitions=frozenset({1}))),
        ([EqualTo(("topic",), "logins")], Wanted(topics=frozenset({"logins"}))),
        ([GreaterThanOrEqual(("offset",), 5), LessThan(("offset",), 9)], Wanted(start=5, end=9)),
        ([GreaterThan(("offset",), 5), LessThanOrEqual(("offset",), 9)], Wanted(start=6, end=10)),
        ([In(("offset",), (7, 3)), LessThan(("offset",), 6)], Wanted(start=3, end=6)),
        ([GreaterThan(("timestamp",), NOW)], Wanted(since_ms=NOW_MS)),
        ([GreaterThan(("timestamp",), NOW + timedelta(microseconds=1500))], Wanted(since_ms=NOW_MS + 1)),
        ([EqualTo(("timestamp",), NOW), GreaterThan(("timestamp",), NOW)], Wanted(since_ms=NOW_MS)),
    ],
)
def test_filters_that_narrow(filters: list[Filter], wanted: Wanted) -> None:
    assert wanted_by(filters) == wanted


@pytest.mark.parametrize(
    "unsure",
    [
        LessThan(("timestamp",), NOW),  # a later offset may hold an older time
        GreaterThan(("timestamp",), datetime(1960, 1, 1, tzinfo=UTC)),
        Not(EqualTo(("partition",), 1)),
        IsNotNull(("key",)),
        StringStartsWith(("topic",), "log"),
        EqualTo(("key",), b"1"),
        EqualTo(("headers", "key"), "1"),
    ],
)
def test_a_filter_it_is_not_sure_of_lets_everything_through(unsure: Filter) -> None:
    assert wanted_by([unsure]) == Wanted()


def test_ranges_are_narrowed() -> None:
    ranges = [Range(A, 0, 10), Range(B, 0, 10)]
    assert Wanted(start=3, end=8).narrow(ranges, {A: 5}) == [Range(A, 5, 8), Range(B, 3, 8)]
    assert Wanted(partitions=frozenset({1})).narrow(ranges, {}) == [Range(B, 0, 10)]
    assert Wanted(topics=frozenset({"other"})).narrow(ranges, {}) == []
    assert Wanted(start=10).narrow(ranges, {}) == []
