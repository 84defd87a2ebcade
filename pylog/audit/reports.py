"""Records of the topic `_audit`: what a tier says it saw.

report => {"version": 1, "kind": "count", "tier": tier, "topic": string, "who": string, "number": int, "at_ms": int,
           "complete_ms": int, "is_whole": bool, "from_ms": int, "is_closed": bool, "offsets": {partition: next offset},
           "topic_id": text or null,
           "windows": [{"producer", "host", "window_ms", "count", "content", "ranges"}], "unstamped": int}
        | {"version": 1, "kind": "progress", "source", "topic", "partition", "complete_ms"}       (of the mirror)

A producer, and a tier's reader, number their reports of a topic; a number that came before is passed over, so that a
report that was sent twice counts once.  A whole report (of the lake) replaces those before it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pylog.audit.counting import WindowCount
from pylog.audit.sequences import Sequences

_VERSION = 1
FOR_EVER_MS = 1 << 62


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
            },
            separators=(",", ":"),
        ).encode()


@dataclass(frozen=True, slots=True)
class Progress:
    """Up to when everything of one partition has passed the mirror."""

    topic: str
    partition: int
    complete_ms: int


def decode(data: bytes | None) -> Report | Progress:
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
            offsets={int(partition): int(offset) for partition, offset in body["offsets"].items()},
            topic_id=body.get("topic_id"),
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{(data or b'')[:200]!r} is no report: {error!r}") from error
