"""When a record happened, by a field of its payload instead of its own timestamp; on request.

payload => framed Avro, whose field is a timestamp, a local timestamp (taken as UTC), a date or a long of milliseconds;
           or JSON, whose field is a number of milliseconds or text as in ISO 8601 (UTC where it names no zone)
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pylog.client.avro import RegistryClient, RegistryUnreachable, SchemaError
from pylog.client.security import security_of
from pylog.errors import ConfigError, PylogError
from pylog.ingest.avro import AvroColumns, column_for, registry_of

TIME = pa.timestamp("us", "UTC")
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999


@dataclass(frozen=True, slots=True)
class EventTime:
    """Where one topic's times are.

    Attributes:
        field: name of a field of the payload.
        registry: URLs of the schema registry; empty for JSON.
        texts: of a schema that has this field alone; see `with_schema`.
        security: keys of `pylog.client.security.SECURITY_KEYS`, for a registry that asks for a login; the files are
            read on the host of the task.
        subject: that the schema is the latest of.
    """

    field: str
    registry: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    security: Mapping[str, str] = dataclasses.field(default_factory=dict)
    subject: str | None = None

    def times(self, values: pa.Array) -> pa.Array:
        """Return the times of *values*, null where there is none.

        Raises:
            RegistryUnreachable: a schema was not met before and nobody answers.
        """
        if not self.texts:
            return pa.array([_json_us(value, self.field) for value in values.to_pylist()], pa.int64()).view(TIME)
        registry = registry_of(self.registry, security_of(self.security))
        found, _ = AvroColumns(registry, self.texts, self.subject).decode(values)
        times = pc.struct_field(found, self.field)
        if pa.types.is_int64(times.type):
            usable = pc.and_(pc.greater_equal(times, _FIRST_MS), pc.less_equal(times, _LAST_MS))
            return pc.multiply(pc.if_else(usable, times, None), 1000).cast(pa.int64()).view(TIME)
        if pa.types.is_date(times.type):
            times = times.cast(pa.timestamp("us"))
        return times.view(pa.int64()).view(TIME)


def with_schema(
    topic: str, field: str, registry: tuple[str, ...], security: Mapping[str, str] | None = None
) -> EventTime:
    """Return where *topic*'s times are, as its latest schema has the field.

    Args:
        topic: its name.
        field: of the payload.
        registry: URLs; empty for payloads in JSON.
        security: keys of a block ``security:``, for a registry that asks for a login.

    Raises:
        ConfigError: the schema has no such field, or one that is no time.
        SchemaError: the registry has no schema.
        RegistryUnreachable: nobody answers.
    """
    if not registry:
        return EventTime(field)
    subject = f"{topic}-value"
    texts = RegistryClient(registry, security=security_of(security or {})).latest(subject)
    found = _only(texts, field)
    kind = None if found is None else column_for(found).kind.field(0).type
    if found is None or not (pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_int64(kind)):
        raise ConfigError(
            f"topic {topic!r} has no time in field {field!r}: {'no such field' if found is None else kind}; a field "
            "with a timestamp, a date or a long of milliseconds is wanted"
        )
    return EventTime(field, registry, found, security or {}, subject)


class EventTimes:
    """Where the times of several topics are; the registry is asked once for each that it answers.

    Args:
        fields: of the payload, by topic.
        registry: as for `with_schema`.
        security: as for `with_schema`.

    Attributes:
        known: topics that the registry answered.
    """

    def __init__(self, fields: Mapping[str, str], registry: tuple[str, ...], security: Mapping[str, str]) -> None:
        self._fields, self._registry, self._security = fields, registry, security
        self.known: dict[str, EventTime] = {}

    def learn(self, topics: Iterable[str]) -> dict[str, PylogError]:
        """Ask for those of *topics* that are not known; return the ones whose field is not known now, and why."""
        failed: dict[str, PylogError] = {}
        unreachable: PylogError | None = None
        for topic in sorted({*topics} & self._fields.keys() - self.known.keys()):
            try:
                if unreachable is None:
                    self.known[topic] = with_schema(topic, self._fields[topic], self._registry, self._security)
                    continue
                failed[topic] = unreachable  # nobody would answer for this topic either, after one more time-out
            except RegistryUnreachable as error:
                failed[topic] = unreachable = error
            except PylogError as error:
                failed[topic] = error
        return failed


def _only(texts: Sequence[str], field: str) -> tuple[str, ...] | None:
    """Return the last schema with one of its fields alone; None if it has none of that name."""
    body: Any = json.loads(texts[-1])
    if not isinstance(body, dict) or body.get("type") != "record":
        raise SchemaError("a schema whose field gives the time must be a record")
    own = [one for one in body["fields"] if one["name"] == field]
    return (*texts[:-1], json.dumps({**body, "fields": own})) if own else None


def _json_us(value: bytes | None, field: str) -> int | None:
    try:
        found = json.loads(value or b"null")[field]
        if isinstance(found, str):
            at = datetime.fromisoformat(found)
            since = (at if at.tzinfo is not None else at.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
            return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
        if isinstance(found, int | float) and not isinstance(found, bool) and _FIRST_MS <= found <= _LAST_MS:
            return int(found * 1000)
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
        pass
    return None
