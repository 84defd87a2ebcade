"""Which records a query's filters can want; decides only, and lets through whatever it is not sure of."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from pylog.ingest.plan import Range
from pylog.model import Offset, TopicPartition

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What all filters leave.

    Attributes:
        topics: names; None for all.
        partitions: numbers; None for all.
        start: first offset.
        end: first offset not wanted; None for no bound.
        since_ms: time of the oldest record.  The newest bounds nothing: a later offset may hold an older time.
    """

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    start: Offset = 0
    end: Offset | None = None
    since_ms: int | None = None

    def narrow(self, ranges: Iterable[Range], starts: Mapping[TopicPartition, Offset]) -> list[Range]:
        """Return what is left of *ranges*.

        Args:
            ranges: what there is.
            starts: by partition, the first offset whose time is not before `since_ms`.
        """
        kept = []
        for where, start, end in ranges:
            if self.topics is not None and where.topic not in self.topics:
                continue
            if self.partitions is not None and where.partition not in self.partitions:
                continue
            start = max(start, self.start, starts.get(where, 0))
            end = end if self.end is None else min(end, self.end)
            if start < end:
                kept.append(Range(where, start, end))
        return kept


def wanted_by(filters: Iterable[Filter]) -> Wanted:
    """Return what *filters*, all of which must hold, leave."""
    wanted = Wanted()
    for one in filters:
        if isinstance(one, EqualTo | EqualNullSafe | In):
            wanted = _equal(wanted, one)
        elif isinstance(one, GreaterThan | GreaterThanOrEqual):
            wanted = _above(wanted, one.attribute, one.value, isinstance(one, GreaterThan))
        elif isinstance(one, LessThan | LessThanOrEqual) and one.attribute == ("offset",):
            end = one.value + isinstance(one, LessThanOrEqual)
            wanted = replace(wanted, end=end if wanted.end is None else min(wanted.end, end))
    return wanted


def _equal(wanted: Wanted, one: EqualTo | EqualNullSafe | In) -> Wanted:
    values = frozenset(one.value) if isinstance(one, In) else frozenset([one.value])
    values -= {None}  # nothing here is ever null
    match one.attribute:
        case ("topic",):
            return replace(wanted, topics=values if wanted.topics is None else wanted.topics & values)
        case ("partition",):
            return replace(wanted, partitions=values if wanted.partitions is None else wanted.partitions & values)
        case ("offset",) if values:
            above = _above(wanted, one.attribute, min(values), False)
            end = max(values) + 1
            return replace(above, end=end if above.end is None else min(above.end, end))
        case ("timestamp",) if values:
            return _above(wanted, one.attribute, min(values), False)
    return wanted


def _above(wanted: Wanted, attribute: tuple[str, ...], value: object, is_beyond: bool) -> Wanted:
    if attribute == ("offset",) and isinstance(value, int):
        return replace(wanted, start=max(wanted.start, value + is_beyond))
    if attribute == ("timestamp",) and isinstance(value, datetime):
        # Whole milliseconds, rounded down: the brokers know no finer time.
        since_ms = (value - _EPOCH) // _MILLISECOND
        if since_ms <= 0:
            return wanted  # to a broker, times below 0 are names of offsets
        return replace(wanted, since_ms=since_ms if wanted.since_ms is None else max(wanted.since_ms, since_ms))
    return wanted
