"""Records of the topic `_audit`: what a tier says it saw.

report => {"version": 1, "kind": "count", "tier": tier, "topic": string, "who": string, "number": int, "at_ms": int,
           "complete_ms": int, "is_whole": bool, "from_ms": int, "is_closed": bool, "offsets": {partition: next offset},
           "topic_id": text or null, "after": {partition: next offset} or null, "is_compacted": bool, "by": text,
           "windows": [{"producer", "host", "window_ms", "count", "content", "ranges"}], "unstamped": int,
           "places": as `pylog.audit.places` has them}
        | {"version": 1, "kind": "progress", "source", "topic", "partition", "complete_ms"}       (of the mirror)
        | {"version": 1, "kind": "round", "tier", "who", "by", "at_ms", "complete_ms", "behind": {topic: complete_ms}}

A producer numbers its reports of a topic; a number that came before is passed over, so that a report that was sent
twice counts once.  A reader's report names the offsets that its last one ended with: it counts if that is the last one
that counted, so that of two readers of one tier each record counts once.  A whole report (of the lake) replaces those
before it.  A topic of which nothing came has no report, except once in `IDLE_REPORT_MS`; the round says how far its
reader is.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pylog.audit.counting import WindowCount
from pylog.audit.places import Places
from pylog.audit.sequences import Sequences

_VERSION = 1
MAX_REPORT_BYTES = 15 << 20
"""Of one report; `_audit` takes a little more.  A topic of which there is more to say has no report, which is told."""
FOR_EVER_MS = 1 << 62
IDLE_REPORT_MS = 3_600_000
"""Between two reports of a topic of which nothing comes; reading `_audit` from so much earlier on meets each topic."""


class Tier(StrEnum):
    """Where records are counted, in the order in which they pass."""

    PRODUCER = "producer"
    LIVE = "live"
    MIRROR = "mirror"
    LAKE = "lake"


WindowKey = tuple[str, int]
"""Producer, and when the window begins."""


@dataclass(slots=True, kw_only=True)
class Report:
    """What one reader, or one producer, saw of one topic since its last report.

    Attributes:
        tier: where.
        topic: of which topic.
        who: a producer's instance, or the reader.
        number: of the report, from 0.
        at_ms: when it was made.
        complete_ms: everything that was there at this time is counted now; of a producer: all it ever sends from
            before this time is.
        is_whole: whether it says everything from *from_ms* on anew.
        from_ms: windows that begin earlier are left as they are by a whole report.
        is_closed: whether the producer ended.
        offsets: where the reader goes on.
        topic_id: of the topic that these are offsets of; None if the reader did not say.
        windows: what was seen.
        unstamped: records without a stamp.
        after: the *offsets* of this reader's report before this one; None if it does not say (a producer, the lake, the
            release before).
        places: all that was seen up to now, not only since the last report.
        is_compacted: whether the topic's log may drop records that a later one of their key replaces.
        by: names the session that wrote it, as its rounds do; empty if it writes none.
    """

    tier: Tier
    topic: str
    who: str
    number: int
    at_ms: int
    complete_ms: int
    is_whole: bool = False
    from_ms: int = 0
    is_closed: bool = False
    offsets: dict[int, int] = field(default_factory=dict)
    topic_id: str | None = None
    windows: Mapping[WindowKey, WindowCount] = field(default_factory=dict)
    unstamped: int = 0
    after: dict[int, int] | None = None
    places: Places = field(default_factory=Places)
    is_compacted: bool = False
    by: str = ""

    def key(self) -> bytes:
        """Return the record's key."""
        return f"{self.tier} {self.topic} {self.who}".encode()

    def encode(self) -> bytes:
        """Return the record's value."""
        windows = [
            {
                "producer": producer,
                "host": one.host,
                "window_ms": window_ms,
                "count": one.count,
                "content": one.content,
                "ranges": list(one.sequences.ranges()),
            }
            for (producer, window_ms), one in self.windows.items()
        ]
        return json.dumps(
            {
                "version": _VERSION,
                "kind": "count",
                "tier": self.tier,
                "topic": self.topic,
                "who": self.who,
                "number": self.number,
                "at_ms": self.at_ms,
                "complete_ms": self.complete_ms,
                "is_whole": self.is_whole,
                "from_ms": self.from_ms,
                "is_closed": self.is_closed,
                "offsets": self.offsets,
                "topic_id": self.topic_id,
                "windows": windows,
                "unstamped": self.unstamped,
                "after": self.after,
                "places": self.places.to_json(),
                "is_compacted": self.is_compacted,
                "by": self.by,
            },
            separators=(",", ":"),
        ).encode()


@dataclass(frozen=True, slots=True)
class Progress:
    """Up to when everything of one partition has passed the mirror."""

    topic: str
    partition: int
    complete_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Up to when a reader has everything of all its topics, those included that it had nothing to report of.

    Attributes:
        tier: where.
        who: the reader.
        by: names the session; it says nothing of a topic whose last report that counted is another's.
        at_ms: when it was made.
        complete_ms: of every topic that *behind* does not name.
        behind: of those that are less far.
    """

    tier: Tier
    who: str
    by: str
    at_ms: int
    complete_ms: int
    behind: Mapping[str, int] = field(default_factory=dict)

    def key(self) -> bytes:
        """Return the record's key."""
        return f"{self.tier}  {self.who}".encode()

    def encode(self) -> bytes:
        """Return the record's value."""
        return json.dumps(
            {
                "version": _VERSION,
                "kind": "round",
                "tier": self.tier,
                "who": self.who,
                "by": self.by,
                "at_ms": self.at_ms,
                "complete_ms": self.complete_ms,
                "behind": dict(self.behind),
            },
            separators=(",", ":"),
        ).encode()


def decode(data: bytes | None) -> Report | Progress | Round:
    """Return what a record of `_audit` says.

    Raises:
        ValueError: it is none, or of a later release.
    """
    try:
        body = json.loads(data or b"null")
        if body["version"] != _VERSION:
            raise ValueError(f"report of version {body['version']!r}; {_VERSION} is known")
        if body["kind"] == "progress":
            return Progress(str(body["topic"]), int(body["partition"]), int(body["complete_ms"]))
        if body["kind"] == "round":
            return Round(
                tier=Tier(body["tier"]),
                who=str(body["who"]),
                by=str(body["by"]),
                at_ms=int(body["at_ms"]),
                complete_ms=int(body["complete_ms"]),
                behind={str(topic): int(complete_ms) for topic, complete_ms in body["behind"].items()},
            )
        windows = {
            (str(one["producer"]), int(one["window_ms"])): WindowCount(
                str(one["host"]), int(one["count"]), one["content"], Sequences(one["ranges"])
            )
            for one in body["windows"]
        }
        return Report(
            tier=Tier(body["tier"]),
            topic=str(body["topic"]),
            who=str(body["who"]),
            number=int(body["number"]),
            at_ms=int(body["at_ms"]),
            complete_ms=int(body["complete_ms"]),
            is_whole=bool(body["is_whole"]),
            from_ms=int(body["from_ms"]),
            is_closed=bool(body["is_closed"]),
            windows=windows,
            unstamped=int(body["unstamped"]),
            offsets=_offsets(body["offsets"]),
            topic_id=body.get("topic_id"),
            after=None if body.get("after") is None else _offsets(body["after"]),
            places=Places.from_json(body.get("places") or {}),
            is_compacted=bool(body.get("is_compacted", False)),
            by=str(body.get("by", "")),
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{(data or b'')[:200]!r} is no report: {error!r}") from error


def _offsets(body: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): int(offset) for partition, offset in body.items()}
