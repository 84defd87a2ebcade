"""Records as a page shows them: what counts as a hit, when to stop, and how bytes become text.

No clock and no socket: `pylog.console.sources` brings the records.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

from pylog.client.avro import FRAME_BYTES, MAGIC, SchemaError
from pylog.client.consumer import ConsumedRecord
from pylog.client.rows import Row
from pylog.errors import ConfigError
from pylog.model import Offset, TopicPartition

SHOWN_BYTES = 64 << 10
"""Of one key, value or header: more freezes a browser."""

PARSED_BYTES = 256 << 10
"""A larger value is not parsed: as a tree it takes up to thirty times its bytes, and its beginning alone is shown."""

BINARY_BYTES = 256
"""Of content that is no text."""

MAX_HEADERS = 100
"""Headers of one record that are shown."""

Deserialize: TypeAlias = Callable[[bytes], Any]
"""Makes a value of a payload in Avro."""

Hide: TypeAlias = Callable[[ConsumedRecord], ConsumedRecord]
"""Returns a record as people may see it."""

# What moves or hides other text: controls but tab and line feed, and marks that turn the direction of writing.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """When reading ends, whatever is left."""

    records: int
    bytes: int
    seconds: float


BROWSE = Budget(records=100, bytes=8 << 20, seconds=10.0)
SEARCH = Budget(records=100, bytes=64 << 20, seconds=10.0)
TAIL = Budget(records=64, bytes=1 << 20, seconds=3.0)

TAIL_RECORDS = 50
"""Records that a tail looks back at, of all its partitions."""

TAIL_PARTITIONS = 64
"""Partitions that one look of a tail reads; of more, those that grew most."""


@dataclass(slots=True)
class Found:
    """What reading brought.

    Attributes:
        next_offsets: where to go on in each partition.
        records: hits, or all records without a search; in the order in which they were read.
        scanned: records looked at.
        scanned_bytes: of keys, values and headers, as people may see them.
        ended_by: end, transaction, records, bytes or time.
        open_at: partitions that cannot be read to their ends, with the offset at which an open transaction begins.
    """

    next_offsets: dict[int, Offset]
    records: list[ConsumedRecord] = field(default_factory=list)
    scanned: int = 0
    scanned_bytes: int = 0
    ended_by: str = "end"
    open_at: Mapping[int, Offset] = field(default_factory=dict)


class Left:
    """What is left to read of several partitions, each from its first offset to before its second.

    Attributes:
        ends: of the partitions that are still to be read.
        open_at: partitions of which nothing more can be read, with the offset at which an open transaction begins.
    """

    def __init__(self, spans: Mapping[int, tuple[Offset, Offset]]) -> None:
        self.ends = {partition: end for partition, (start, end) in spans.items() if start < end}
        self.open_at: dict[int, Offset] = {}

    def note(self, batch: Iterable[ConsumedRecord], at_end: Mapping[TopicPartition, Offset]) -> list[int]:
        """Note what was read and where reading came to an end; return the partitions that are done with it.

        The log may have grown meanwhile, so a batch may hold records of a partition that was done before.
        """
        done = {one.partition for one in batch if one.offset >= self.ends.get(one.partition, one.offset + 2) - 1}
        for place, offset in at_end.items():
            # The last offsets before an end may hold no record: compaction, markers of transactions.
            if place.partition in self.ends and place.partition not in done:
                done.add(place.partition)
                if offset < self.ends[place.partition]:
                    self.open_at[place.partition] = offset
        for partition in done:
            del self.ends[partition]
        return sorted(done)


def collect(
    batches: Iterable[Sequence[ConsumedRecord]],
    spans: Mapping[int, tuple[Offset, Offset]],
    needle: bytes,
    budget: Budget,
    clock_s: Callable[[], float],
    open_at: Mapping[int, Offset] = MappingProxyType({}),
    hide: Hide | None = None,
) -> Found:
    """Take records of partitions until each one's end or until the budget is used up.

    Args:
        batches: what was read, in order within each partition; an empty one is a moment in which nothing came.  They
            end when every partition was read to its end.
        spans: where reading begins in each partition, and where it ended when reading began.
        needle: bytes that a hit has in its key, its value or a header; empty for every record.
        budget: the limits.
        clock_s: seconds of a clock that does not go back.
        open_at: `Left.open_at`, once the batches have ended.
        hide: hides what is masked, before a record is searched; None to hide nothing.
    """
    found = Found({partition: start for partition, (start, _) in spans.items()})
    deadline_s = clock_s() + budget.seconds
    read_bytes = 0
    for batch in batches:
        for record in batch:
            if record.offset >= spans[record.partition][1]:
                continue
            found.scanned += 1
            found.next_offsets[record.partition] = record.offset + 1
            # The budget is about what is read and parsed; the page must not tell how long a masked field is.
            read_bytes += _size(record)
            shown = hide(record) if hide else record
            found.scanned_bytes += _size(shown)
            if not needle or _has(shown, needle):
                found.records.append(shown)
            if len(found.records) >= budget.records:
                found.ended_by = "records"
            elif read_bytes >= budget.bytes:
                found.ended_by = "bytes"
            elif hide and clock_s() >= deadline_s:
                # To hide is to parse: a batch of thousands of records may take longer than the whole budget.
                found.ended_by = "time"
            if found.ended_by != "end":
                return found
        if clock_s() >= deadline_s:
            found.ended_by = "time"
            return found
    found.open_at = dict(open_at)
    found.next_offsets = {partition: open_at.get(partition, end) for partition, (_, end) in spans.items()}
    found.ended_by = "transaction" if open_at else "end"
    return found


def search_data(
    found: Found, spans: Mapping[int, tuple[Offset, Offset]], query: str, deserialize: Deserialize | None
) -> Row:
    """Return the model of a search through a topic.

    Args:
        found: what reading brought.
        spans: where reading began in each partition, and the partition's end.
        query: what was searched for.
        deserialize: for values in Avro; None without a registry.
    """
    searched = sum(found.next_offsets[partition] - start for partition, (start, _) in spans.items())
    total = sum(end - start for start, end in spans.values())
    hits = f"{len(found.records):,} {'record' if len(found.records) == 1 else 'records'}"
    named = "1 partition" if len(spans) == 1 else f"{len(spans):,} partitions"
    ended = "That is all of them." if found.ended_by == "end" else _end_of(found)
    is_done = found.ended_by == "end" or searched >= total
    return {
        "query": query,
        "searched": searched,
        "total_offsets": total,
        "scanned": found.scanned,
        "scanned_bytes": found.scanned_bytes,
        "ended_by": found.ended_by,
        "sentence": f"Searched {searched:,} of {total:,} offsets in {named}: {hits} found. {ended}",
        "next": None if is_done else format_places(found.next_offsets),
        "records": [_record_row(one, deserialize) | {"partition": one.partition} for one in found.records],
    }


def tail_spans(
    ends: Mapping[int, tuple[Offset, Offset]], seen: Mapping[int, Offset]
) -> dict[int, tuple[Offset, Offset]]:
    """Return what a look of a tail reads: the latest offsets of each partition.

    Args:
        ends: first offset and end by partition.
        seen: the ends at the look before; empty at the first one.
    """

    def grown(partition: int) -> int:
        return ends[partition][1] - seen.get(partition, ends[partition][0])

    chosen = sorted(ends, key=lambda one: (-grown(one), one))[:TAIL_PARTITIONS]
    each = -(-TAIL_RECORDS // max(1, len(chosen)))
    return {one: (max(ends[one][0], ends[one][1] - each), ends[one][1]) for one in chosen}


def tail_data(
    found: Found,
    ends: Mapping[int, tuple[Offset, Offset]],
    seen: Mapping[int, Offset],
    deserialize: Deserialize | None,
) -> Row:
    """Return the model of one look of a tail, the latest record first.

    Args:
        found: what reading brought.
        ends: first offset and end by partition.
        seen: the ends at the look before; empty at the first one.
        deserialize: for values in Avro; None without a registry.
    """
    new = sum(max(0, end - seen.get(partition, end)) for partition, (_, end) in ends.items())
    rows = []
    for one in sorted(found.records, key=lambda one: (one.timestamp_ms, one.partition, one.offset), reverse=True):
        is_new = one.offset >= seen.get(one.partition, one.offset + 1)
        rows.append(_record_row(one, deserialize) | {"partition": one.partition, "is_new": is_new})
    shown = sum(row["is_new"] for row in rows)
    if not seen:
        sentence = "These are the latest records."
    elif not new:
        sentence = "Nothing was written since the last look."
    else:
        sentence = f"{new:,} {'offset was' if new == 1 else 'offsets were'} written since the last look"
        sentence += "; all are shown." if shown >= new else f"; the latest {shown:,} records of them are shown."
    return {
        "sentence": sentence,
        "new": new,
        "seen": format_places({partition: end for partition, (_, end) in ends.items()}),
        "records": rows,
    }


def format_places(offsets: Mapping[int, Offset]) -> str:
    """Return offsets by partition as one text, such as ``0:12,1:40``."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))


_PLACES = re.compile(r"[0-9]{1,9}:[0-9]{1,18}(,[0-9]{1,9}:[0-9]{1,18})*")


def parse_places(text: str, name: str = "go_on") -> dict[int, Offset]:
    """Return what `format_places` was given; *name* is that of *text* in the message.

    Raises:
        ConfigError: *text* is something else.
    """
    if not _PLACES.fullmatch(text):
        raise ConfigError(f"{name} must be like 0:12,1:40: partitions and offsets")
    return {int(partition): int(offset) for partition, _, offset in (one.partition(":") for one in text.split(","))}


def records_data(
    found: Found, start: Offset, held: tuple[Offset, Offset], query: str, deserialize: Deserialize | None
) -> Row:
    """Return the model of a page of records.

    Args:
        found: what reading brought.
        start: where reading began.
        held: log start offset and end of the partition.
        query: what was searched for; empty for browsing.
        deserialize: for values in Avro; None without a registry.
    """
    [next_offset] = found.next_offsets.values()
    return {
        "from_offset": start,
        "start_offset": held[0],
        "end_offset": held[1],
        "query": query,
        "scanned": found.scanned,
        "scanned_bytes": found.scanned_bytes,
        "next_offset": next_offset if next_offset < held[1] else None,
        "ended_by": found.ended_by,
        "sentence": _sentence(found, start, next_offset, held[1], is_search=bool(query)),
        "records": [_record_row(one, deserialize) for one in found.records],
    }


_ENDS = {
    "end": "That is the end of the partition.",
    "records": "This page is full.",
    "bytes": "It stopped because it had read as many bytes as one page may.",
    "time": "It stopped because its time was up.",
}


def _end_of(found: Found) -> str:
    """Return why reading ended, as a sentence."""
    if found.ended_by != "transaction":
        return _ENDS[found.ended_by]
    partition, offset = min(found.open_at.items())
    others = len(found.open_at) - 1
    more = f" The same holds for {others:,} more {'partition' if others == 1 else 'partitions'}." if others else ""
    return f"Partition {partition} cannot be read from offset {offset:,} on: an open transaction begins there.{more}"


def _sentence(found: Found, start: Offset, next_offset: Offset, end: Offset, *, is_search: bool) -> str:
    if start >= end:
        return "There is no record from this offset on."
    hits = f"{len(found.records):,} {'record' if len(found.records) == 1 else 'records'}"
    if is_search:
        span = f"Searched {next_offset - start:,} of {end - start:,} offsets: {hits} found."
    else:
        span = f"Offsets {start:,} to {next_offset - 1:,}: {hits}."
    return f"{span} {_end_of(found)}"


def _record_row(record: ConsumedRecord, deserialize: Deserialize | None) -> Row:
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms if record.timestamp_ms >= 0 else None,
        "key": decoded(record.key, deserialize),
        "value": decoded(record.value, deserialize),
        "headers": [
            {"name": _visible(name[:SHOWN_BYTES]), "value": decoded(value, None)}
            for name, value in record.headers[:MAX_HEADERS]
        ],
        "header_count": len(record.headers),
    }


def decoded(payload: bytes | None, deserialize: Deserialize | None) -> Row:
    """Return *payload* as text.

    Returns:
        kind: null, avro, json, text or binary.
        text: at most `SHOWN_BYTES` characters; of binary content the first bytes in hexadecimal.
        size_bytes: of the payload.
        is_cut: whether the text is only its beginning.
        note: why it was not decoded as it seems to be meant; None without a reason.
    """
    if payload is None:
        return {"kind": "null", "text": "", "size_bytes": 0, "is_cut": False, "note": None}
    kind, text, note = _kind_and_text(payload, deserialize)
    limit = BINARY_BYTES * 3 if kind == "binary" else SHOWN_BYTES
    return {
        "kind": kind,
        "text": _visible(text[:limit]),
        "size_bytes": len(payload),
        "is_cut": len(text) > limit,
        "note": note and _visible(note[:1_000]),
    }


def _kind_and_text(payload: bytes, deserialize: Deserialize | None) -> tuple[str, str, str | None]:
    note = None
    if deserialize and FRAME_BYTES <= len(payload) <= PARSED_BYTES and payload[0] == MAGIC:
        try:
            return "avro", _indented(deserialize(payload)), None
        except (SchemaError, ValueError, RecursionError) as error:
            note = f"not shown as Avro: {error}"
    try:
        # A character has four bytes at most; one that the cut would break is in the part that is not shown.
        text = payload.decode() if len(payload) <= PARSED_BYTES else payload[: 4 * SHOWN_BYTES].decode(errors="replace")
    except UnicodeDecodeError:
        return "binary", payload[: BINARY_BYTES + 1].hex(" "), note
    if text[:1] in ("{", "[") and len(payload) <= PARSED_BYTES:
        try:
            return "json", _indented(json.loads(text)), note
        except (ValueError, RecursionError):
            pass  # it only looks like JSON, and is shown as it is
    return "text", text, note


_JSON = json.JSONEncoder(indent=2, ensure_ascii=False, default=str)


def _indented(value: object) -> str:
    """Return *value* as indented JSON; of one that is longer than what is shown, a little more than that.

    Indentation multiplies: 40 kB of nested lists would become 34 MB.
    """
    parts, length = [], 0
    for part in _JSON.iterencode(value):
        parts.append(part)
        length += len(part)
        if length > SHOWN_BYTES:
            break
    return "".join(parts)


def _visible(text: str) -> str:
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _size(record: ConsumedRecord) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def _has(record: ConsumedRecord, needle: bytes) -> bool:
    if needle in (record.value or b"") or needle in (record.key or b""):
        return True
    return any(needle in name.encode() or needle in (value or b"") for name, value in record.headers)
