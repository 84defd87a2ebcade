"""What moved between looks at a cluster: records written a second, records read, records left and how old they are.

Pure: `pylog top` brings the looks.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pylog.model import Offset, TopicPartition
from pylog.probe.ends import EndHistory

MAX_TREND = 60
"""Looks that a trend remembers."""

_BLOCKS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Look:
    """A cluster at one moment.

    Attributes:
        at_s: when, on a clock that only goes forward.
        ends: where the log of each partition ends; partitions without a leader are missing.
        committed: by group, the next offset it reads in each partition.
        leaders: the broker that leads each partition.
        unknown_groups: how many groups are not in `committed`.
    """

    at_s: float
    ends: Mapping[TopicPartition, Offset]
    committed: Mapping[str, Mapping[TopicPartition, Offset]]
    leaders: Mapping[TopicPartition, int] = field(default_factory=dict)
    unknown_groups: int = 0


@dataclass(frozen=True, slots=True)
class TopicRate:
    """How one topic grows."""

    topic: str
    partition_count: int
    written_a_second: float


@dataclass(frozen=True, slots=True)
class PartitionRate:
    """How one partition grows.

    Attributes:
        partition: which.
        leader: the broker that leads it, -1 where that is not known.
        written_a_second: records.
        factor: how many times the mean of its topic's partitions that is; 1.0 where all are alike.
    """

    partition: TopicPartition
    leader: int
    written_a_second: float
    factor: float


@dataclass(frozen=True, slots=True)
class GroupRate:
    """How one group reads.

    Attributes:
        group: its id.
        lag: records it has not read, now.
        read_a_second: offsets committed since the look before.
        lag_a_second: by how much the lag grows; below 0 it catches up.
    """

    group: str
    lag: int
    read_a_second: float
    lag_a_second: float


def topic_rates(before: Look, after: Look) -> list[TopicRate]:
    """Return the rate of each topic, the busiest first."""
    seconds = _seconds(before, after)
    written: dict[str, int] = {}
    counts: dict[str, int] = {}
    for partition, end in after.ends.items():
        # A topic that was made anew in between begins below where it was; nothing was unwritten.
        grown = max(0, end - before.ends.get(partition, end))
        written[partition.topic] = written.get(partition.topic, 0) + grown
        counts[partition.topic] = counts.get(partition.topic, 0) + 1
    found = [TopicRate(topic, counts[topic], grown / seconds) for topic, grown in written.items()]
    return sorted(found, key=lambda one: (-one.written_a_second, one.topic))


def hot_partitions(before: Look, after: Look) -> list[PartitionRate]:
    """Return the rate of each partition that was written to, the busiest first."""
    means = {one.topic: one.written_a_second / one.partition_count for one in topic_rates(before, after)}
    seconds = _seconds(before, after)
    found = []
    for partition, end in after.ends.items():
        rate = max(0, end - before.ends.get(partition, end)) / seconds
        if rate:
            leader = after.leaders.get(partition, -1)
            found.append(PartitionRate(partition, leader, rate, rate / means[partition.topic]))
    return sorted(found, key=lambda one: (-one.written_a_second, one.partition))


def group_rates(before: Look, after: Look) -> list[GroupRate]:
    """Return the rate of each group, the one with most left to read first."""
    seconds = _seconds(before, after)
    found = []
    for group, committed in after.committed.items():
        earlier = before.committed.get(group, {})
        read = sum(max(0, offset - earlier.get(partition, offset)) for partition, offset in committed.items())
        lag, lag_before = _lag(committed, after.ends), _lag(earlier, before.ends)
        growth = (lag - lag_before) / seconds if group in before.committed else 0.0
        found.append(GroupRate(group, lag, read / seconds, growth))
    return sorted(found, key=lambda one: (-one.lag, one.group))


def _lag(committed: Mapping[TopicPartition, Offset], ends: Mapping[TopicPartition, Offset]) -> int:
    return sum(max(0, ends[partition] - offset) for partition, offset in committed.items() if partition in ends)


def _seconds(before: Look, after: Look) -> float:
    assert after.at_s > before.at_s, f"{after.at_s} is not after {before.at_s}"
    return after.at_s - before.at_s


class LagAges:
    """How old the oldest record is that a group has not read, as far as the looks tell.

    A record that was there at the first look is at least as old as that.
    """

    def __init__(self) -> None:
        self._ends: dict[TopicPartition, EndHistory] = {}

    def note(self, look: Look) -> None:
        """Take the ends of *look*; what no group reads is forgotten."""
        read = {partition for committed in look.committed.values() for partition in committed}
        for partition in read & look.ends.keys():
            self._ends.setdefault(partition, EndHistory()).note(int(look.at_s * 1000), look.ends[partition])
        for partition in self._ends.keys() - read:
            del self._ends[partition]

    def seconds(self, look: Look, group: str) -> float:
        """Return the age in seconds at *look*, which was noted; 0 where the group has read everything."""
        ages = [0.0]
        for partition, offset in look.committed.get(group, {}).items():
            ends = self._ends.get(partition)
            reached_ms = None if ends is None else ends.reached_ms(offset)
            if reached_ms is not None:
                ages.append(look.at_s - reached_ms / 1000)
        return max(ages)


class Trends:
    """The last values of each row, for a small picture beside it."""

    def __init__(self) -> None:
        self._values: dict[str, deque[float]] = {}

    def note(self, values: Mapping[str, float]) -> None:
        """Take one value of each row; rows that are missing are forgotten."""
        for name in self._values.keys() - values.keys():
            del self._values[name]
        for name, value in values.items():
            self._values.setdefault(name, deque(maxlen=MAX_TREND)).append(value)

    def of(self, name: str) -> Sequence[float]:
        """Return the values of one row, the oldest first."""
        return tuple(self._values.get(name, ()))


def sparkline(values: Iterable[float], width: int) -> str:
    """Return the last *width* of *values* as blocks between nothing and the largest of them."""
    shown = list(values)[-width:]
    largest = max(shown, default=0)
    if largest <= 0:
        return _BLOCKS[0] * len(shown)
    return "".join(_BLOCKS[min(len(_BLOCKS) - 1, int(max(0.0, one) / largest * len(_BLOCKS)))] for one in shown)
