"""What moved between two looks at a cluster: records written a second, records read, records left.

Pure: `pylog top` brings the looks.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pylog.model import Offset, TopicPartition


@dataclass(frozen=True, slots=True)
class Look:
    """A cluster at one moment.

    Attributes:
        at_s: when, on a clock that only goes forward.
        ends: where the log of each partition ends; partitions without a leader are missing.
        committed: by group, the next offset it reads in each partition.
    """

    at_s: float
    ends: Mapping[TopicPartition, Offset]
    committed: Mapping[str, Mapping[TopicPartition, Offset]]


@dataclass(frozen=True, slots=True)
class TopicRate:
    """How one topic grows."""

    topic: str
    partition_count: int
    written_a_second: float


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
