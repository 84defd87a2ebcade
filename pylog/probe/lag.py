"""How far groups are behind, in records and seconds, and whether they keep up.

Fed with what coordinators write to `__consumer_offsets` and with samples of the logs' ends.  No clock and no socket:
`pylog.probe.reader` brings both.
"""

import heapq
import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pylog.client.admin.lag import PATIENCE_MS, WINDOW_COMMITS, Commit, Status, evaluate
from pylog.group.subscription import is_assigned
from pylog.model import Offset, TopicPartition
from pylog.probe.ends import EndHistory

MAX_ROWS = 5_000
"""Pairs of group and topic that are shown, those that are furthest behind first."""

MAX_FOLLOWED = 100_000
"""Pairs of group and partition that are remembered, about 1 KB each.  A program that makes a new group at each start
would take all memory otherwise."""

MAX_STUCK = 200
"""Partitions in which groups stand still that are shown, those that are furthest behind first."""

MAX_MEMBER_BYTES = 64 << 20
"""Of members and their assignments that are remembered; of groups beyond it only the number of members is known."""

Row = tuple[str, str]
_STATUS_VALUES = {status: float(place) for place, status in enumerate(Status)}


class MemberNote(NamedTuple):
    """One member of a group: its id, where it connected from, and what it reads, in Kafka's encoding."""

    member_id: str
    address: str
    assignment: bytes


class Stuck(NamedTuple):
    """Where a group stands still, and the member that reads there; empty if none does, or it is not known."""

    group: str
    topic: str
    partition: str
    member: str
    address: str


_MEMBER_BYTES = 200
"""Of a `MemberNote` beside its assignment, at most about."""


@dataclass(slots=True)
class _Committed:
    """What a group committed for one partition: its latest commits, the oldest first."""

    commits: list[tuple[int, Offset]] = field(default_factory=list)

    @property
    def offset(self) -> Offset:
        return self.commits[-1][1]


@dataclass(frozen=True, slots=True)
class LagReport:
    """One judgement of all groups.

    Attributes:
        records: by group and topic, what is left to read.
        seconds: age of the oldest record that was not read; 0 where everything was.
        status: 0 OK, 1 WARN, 2 STALL, 3 STOP; see `pylog.client.admin.lag.Status`.
        members: by group.
        stuck: the offset that a group does not get beyond, of partitions that are judged STALL or STOP.
        unknown: partitions with a committed offset whose end is not known.
        left_out: pairs of group and topic beyond `MAX_ROWS`.
        passed_over: commits of pairs of group and partition beyond `MAX_FOLLOWED`.
    """

    records: Mapping[Row, float] = field(default_factory=dict)
    seconds: Mapping[Row, float] = field(default_factory=dict)
    status: Mapping[Row, float] = field(default_factory=dict)
    members: Mapping[tuple[str], float] = field(default_factory=dict)
    stuck: Mapping[Stuck, float] = field(default_factory=dict)
    unknown: int = 0
    left_out: int = 0
    passed_over: int = 0


class GroupLags:
    """Everything that is known of groups."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, _Committed]] = defaultdict(dict)
        self._members: dict[str, int] = {}
        self._notes: dict[str, tuple[MemberNote, ...]] = {}
        self._note_bytes = 0
        self._ends: dict[TopicPartition, EndHistory] = {}
        self._sampled: frozenset[TopicPartition] = frozenset()
        self._followed = 0
        self._passed_over = 0

    def note_commit(self, group: str, partition: TopicPartition, at_ms: int, offset: Offset) -> None:
        """A group committed *offset* at *at_ms*, ms since the Unix epoch by the coordinator's clock."""
        found = self._committed.get(group, {}).get(partition)
        if found is None:
            if self._followed >= MAX_FOLLOWED:
                self._passed_over += 1
                return
            self._followed += 1
            found = self._committed[group][partition] = _Committed()
        found.commits.append((at_ms, offset))
        del found.commits[:-WINDOW_COMMITS]

    def forget_commit(self, group: str, partition: TopicPartition) -> None:
        """The committed offset was deleted or has expired."""
        committed = self._committed.get(group)
        if committed is not None and committed.pop(partition, None) is not None:
            self._followed -= 1
            if not committed:
                del self._committed[group]

    def note_members(self, group: str, count: int | None, notes: Sequence[MemberNote] = ()) -> None:
        """The group has *count* members, of which *notes* tells more; None: there is no such group any more."""
        self._note_bytes -= _size(self._notes.pop(group, ()))
        size = _size(notes)
        if count and notes and self._note_bytes + size <= MAX_MEMBER_BYTES:
            self._notes[group] = tuple(notes)
            self._note_bytes += size
        if count is None:
            self._members.pop(group, None)
        elif group in self._members or len(self._members) < MAX_FOLLOWED:
            self._members[group] = count

    def partitions(self) -> set[TopicPartition]:
        """Return every partition that some group committed an offset of."""
        return {partition for found in self._committed.values() for partition in found}

    def note_ends(self, at_ms: int, ends: Mapping[TopicPartition, Offset]) -> None:
        """Take samples of ends.

        A partition that is missing, as one without a leader, keeps what is known of it for later while somebody reads
        it; until its next sample its lag is unknown.
        """
        self._sampled = frozenset(ends)
        for partition, end in ends.items():
            self._ends.setdefault(partition, EndHistory()).note(at_ms, end)
        for partition in self._ends.keys() - self.partitions():
            del self._ends[partition]

    def report(self, now_ms: int) -> LagReport:
        """Judge every group at *now_ms*."""
        records: dict[Row, float] = {}
        seconds: dict[Row, float] = {}
        statuses: dict[Row, list[Status]] = defaultdict(list)
        stuck: list[tuple[float, str, TopicPartition, Offset]] = []
        unknown = 0
        for group, found in self._committed.items():
            for partition, committed in found.items():
                ends = self._ends.get(partition)
                if ends is None or partition not in self._sampled:
                    unknown += 1
                    continue
                row = group, partition.topic
                reached_ms = ends.reached_ms(committed.offset)
                records[row] = records.get(row, 0) + max(0, ends.end - committed.offset)
                late_s = 0.0 if reached_ms is None else max(0, now_ms - reached_ms) / 1000
                seconds[row] = max(seconds.get(row, 0.0), late_s)
                status = _judge(committed, ends, now_ms)
                statuses[row].append(status)
                if status in (Status.STALL, Status.STOP):
                    stuck.append((late_s, group, partition, committed.offset))
        kept = _furthest_behind(seconds, records)
        return LagReport(
            {row: records[row] for row in kept},
            {row: seconds[row] for row in kept},
            {row: _STATUS_VALUES[max(statuses[row], key=_STATUS_VALUES.__getitem__)] for row in kept},
            self._shown_members(kept),
            {self._stuck(group, at): float(offset) for _, group, at, offset in heapq.nlargest(MAX_STUCK, stuck)},
            unknown,
            len(records) - len(kept),
            self._passed_over,
        )

    def _stuck(self, group: str, at: TopicPartition) -> Stuck:
        for note in self._notes.get(group, ()):
            if is_assigned(note.assignment, at.topic, at.partition):
                return Stuck(group, at.topic, str(at.partition), note.member_id, note.address)
        return Stuck(group, at.topic, str(at.partition), "", "")

    def _shown_members(self, rows: Iterable[Row]) -> dict[tuple[str], float]:
        """Return the members of the groups of *rows*, then of others."""
        names = [group for group, _ in rows if group in self._members]
        names += itertools.islice(self._members, MAX_ROWS)
        return {(group,): float(self._members[group]) for group in itertools.islice(dict.fromkeys(names), MAX_ROWS)}


def _size(notes: Iterable[MemberNote]) -> int:
    return sum(len(note.assignment) + len(note.member_id) + _MEMBER_BYTES for note in notes)


def _judge(committed: _Committed, ends: EndHistory, now_ms: int) -> Status:
    # Where the log ended at a commit from before the first sample, nobody knows.  Such a commit counts as one that had
    # read everything: its time still tells whether commits come, and no lag is made up for it.
    commits = [
        Commit(at_ms, offset, offset if at_ms < ends.first_ms else ends.end_at(at_ms))
        for at_ms, offset in committed.commits
    ]
    return evaluate(commits, committed.offset, ends.end, ends.end_at(now_ms - PATIENCE_MS), now_ms)


def _furthest_behind(seconds: Mapping[Row, float], records: Mapping[Row, float]) -> list[Row]:
    if len(seconds) <= MAX_ROWS:
        return sorted(seconds)
    return sorted(seconds, key=lambda row: (-seconds[row], -records[row], row))[:MAX_ROWS]
