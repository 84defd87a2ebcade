"""Which offset of the target stands for which of the source.  Decides; waits for nothing.

Offsets differ: the source's log may start above 0, compaction leaves holes, and a restart sends records again.  So the
mirror notes pairs (source offset, target offset) as it commits.  A pair says: all records below the source offset have
a copy below the target offset, and all from it on have a copy from the target offset on.

A group that committed source offset g goes on at the target offset of the greatest pair not above g.  Whatever it had
not read, from g on, then comes after; some of what it had read may come again.  The way back is the same: one that
committed target offset h goes on at the source offset of the greatest pair whose target offset is not above h.

map key   => {"id": source topic's id, "partition": int}
map value => {"version": 1, "topic": string, "target_id": target topic's id, "complete_ms": int or null,
              "pairs": [[source offset, target offset]]}
(JSON, one compacted record a partition; few pairs far back, many near the end; at `complete_ms` the target had all)
"""

import bisect
import json
from collections.abc import Iterable
from typing import NamedTuple

from pylog.model import Offset

MAP_TOPIC_PREFIX = "pylog.offsets."
"""Of the topic in the target cluster that holds the maps of one source cluster, whose name follows."""

_VERSION = 1
_RECENT = 8
_SPREAD = 2


class Pair(NamedTuple):
    """Below *source* is below *target*; from *source* on is from *target* on."""

    source: Offset
    target: Offset


class MapKey(NamedTuple):
    """A partition of one life of a topic: a topic that is deleted and made again gets another id."""

    topic_id: str
    partition: int

    def encode(self) -> bytes:
        """Return the record's key."""
        return json.dumps({"id": self.topic_id, "partition": self.partition}, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> "MapKey":
        """Return what `encode` was given; raise ValueError if it is nothing like it."""
        try:
            body = json.loads(data)
            return cls(str(body["id"]), int(body["partition"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"{data!r} is no key of an offset map: {error!r}") from error


class OffsetMap:
    """The pairs of one partition.

    Args:
        topic: name, for people.
        target_id: id of the target's topic; a map made with another one means nothing.
        pairs: noted before.
        complete_ms: the last moment of which everything has arrived; None if that is not known.

    Invariant: source offsets grow strictly, target offsets never fall.
    """

    def __init__(self, topic: str, target_id: str, pairs: Iterable[Pair] = (), complete_ms: int | None = None) -> None:
        self.topic, self.target_id, self.complete_ms = topic, target_id, complete_ms
        self.pairs: list[Pair] = []
        for pair in pairs:
            self._append(pair)

    def note(self, source: Offset, target: Offset, lowest: Offset | None = None) -> None:
        """Note a pair; for a source offset that is known, the lower target offset stays.

        Args:
            source: every record below it has a copy.
            target: behind the last of these copies.
            lowest: target offset of the first copy since the last call; None if there was none.
        """
        # The target lost what those pairs led to: an unclean election, or records that were deleted by hand.  What it
        # was given since may have filled the gap, so the first copy tells, not the last.
        bound = target if lowest is None else min(lowest, target)
        while self.pairs and self.pairs[-1].target > bound:
            self.pairs.pop()
        # After a restart the mirror passes once more what it had passed: what was noted then is as true and lower.
        if self.pairs and source <= self.pairs[-1].source:
            return
        self._append(Pair(source, target))
        self._thin()

    def cut(self, end: Offset) -> bool:
        """Drop the pairs above *end*, where the source lost its records; return whether there were any.

        What it writes at those offsets now has copies behind those of the lost records.
        """
        before = len(self.pairs)
        while self.pairs and self.pairs[-1].source > end:
            self.pairs.pop()
        return len(self.pairs) < before

    def pass_over(self, source: Offset, original: Offset) -> bool:
        """Note a record that came from the target; return whether pairs were dropped.

        A group that has not read it at *source* must not go on behind it in the target.

        Args:
            source: its offset in the source.
            original: its offset in the target.
        """
        before = len(self.pairs)
        if before and self.pairs[-1].target > original:
            self.pairs = [pair for pair in self.pairs if pair.source > source or pair.target <= original]
        return len(self.pairs) < before

    def translate(self, source: Offset) -> Offset | None:
        """Return where a group that committed *source* goes on; None means at the target's log start."""
        place = bisect.bisect_right(self.pairs, source, key=lambda pair: pair.source)
        return self.pairs[place - 1].target if place else None

    def translate_back(self, target: Offset) -> Offset | None:
        """Return where in the source a group goes on that committed *target*; None means at the source's log start.

        So for records that came through the mirror: what somebody else wrote to the target is not in the source.
        """
        place = bisect.bisect_right(self.pairs, target, key=lambda pair: pair.target)
        return self.pairs[place - 1].source if place else None

    def encode(self) -> bytes:
        """Return the record's value."""
        body = {
            "version": _VERSION,
            "topic": self.topic,
            "target_id": self.target_id,
            "complete_ms": self.complete_ms,
            "pairs": self.pairs,
        }
        return json.dumps(body, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> "OffsetMap":
        """Return what `encode` was given; raise ValueError if it is nothing like it, or of a later release."""
        try:
            body = json.loads(data)
            if body["version"] != _VERSION:
                raise ValueError(f"offset map of version {body['version']!r}; {_VERSION} is known")
            pairs = [Pair(int(source), int(target)) for source, target in body["pairs"]]
            # The release before did not say when.
            complete_ms = body.get("complete_ms")
            return cls(
                str(body["topic"]), str(body["target_id"]), pairs, None if complete_ms is None else int(complete_ms)
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"{data[:200]!r} is no offset map: {error!r}") from error

    def _append(self, pair: Pair) -> None:
        if self.pairs:
            last = self.pairs[-1]
            if pair.source <= last.source or pair.target < last.target:
                raise ValueError(f"{pair} after {last}: offsets of a partition only grow")
        self.pairs.append(pair)

    def _thin(self) -> None:
        """Keep the last pairs, and before them ever fewer: each about twice as far back as the one after it."""
        newest = self.pairs[-1].source
        kept: list[Pair] = []
        for pair in reversed(self.pairs):
            if len(kept) < _RECENT or newest - pair.source >= _SPREAD * (newest - kept[-1].source):
                kept.append(pair)
        # The first pair stays: below it there is only the log start, and everything would be read again.
        if kept[-1] != self.pairs[0]:
            kept.append(self.pairs[0])
        self.pairs = kept[::-1]
