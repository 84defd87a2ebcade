"""Records of the topic `_schemas`, in Confluent's JSON.

key   => {"keytype":"SCHEMA","subject":string,"version":int,"magic":1}
       | {"keytype":"CONFIG" | "MODE" | "DELETE_SUBJECT","subject":string | null,"magic":0}
       | {"keytype":"NOOP","magic":0}
value => SCHEMA: {"subject","version","id","schema","deleted",["schemaType"],["references"],["metadata"],["ruleSet"]}
         CONFIG: {"compatibilityLevel"}    MODE: {"mode"}    DELETE_SUBJECT: {"subject","version"}
         NOOP: {"maxId"}, which other registries pass over
header pylog.writer => epoch, writer's id and number of the write, as text with blanks between

Keys are compared as bytes by compaction, so their attributes keep this order.

Source: `io.confluent.kafka.schemaregistry.storage`, classes SchemaKey and following.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

WRITER_HEADER = "pylog.writer"

AVRO = "AVRO"
"""The kind of schema that is checked; others are kept as another registry wrote them."""

CONTRACT_FIELDS = ("metadata", "ruleSet")
"""What Confluent's registry keeps beside a schema and clients act on, such as which fields to encrypt."""

MAX_ID = (1 << 31) - 1


class Kind(StrEnum):
    """What a record is about."""

    SCHEMA = "SCHEMA"
    CONFIG = "CONFIG"
    MODE = "MODE"
    DELETE_SUBJECT = "DELETE_SUBJECT"
    NOOP = "NOOP"


class Mode(StrEnum):
    """What a subject allows."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    IMPORT = "IMPORT"


class Key(NamedTuple):
    """Names what a record replaces; `subject` is None for everything global."""

    kind: Kind
    subject: str | None = None
    version: int = 0


CLAIM = Key(Kind.NOOP)
"""Of a primary's first record, and of every record that only keeps the highest id."""


class Reference(NamedTuple):
    """A schema that another one takes names from."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """What an id stands for.

    Attributes:
        text: as it is stored.
        references: where the names come from that it does not define.
        kind: AVRO, JSON, PROTOBUF or what else another registry wrote.
        contract: those of `CONTRACT_FIELDS` that another registry wrote; a schema without them is the same schema.
    """

    text: str
    references: tuple[Reference, ...] = ()
    kind: str = AVRO
    contract: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def body(self) -> dict[str, Any]:
        """Return it as answers and records show it."""
        body: dict[str, Any] = {"schema": self.text}
        if self.kind != AVRO:
            body["schemaType"] = self.kind
        if self.references:
            body["references"] = [reference._asdict() for reference in self.references]
        return body | dict(self.contract)


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a subject."""

    subject: str
    version: int
    schema_id: int
    schema: Schema
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """The highest id ever given."""

    max_id: int


@dataclass(frozen=True, slots=True)
class DeletedUpTo:
    """All versions of a subject up to this one are deleted softly."""

    version: int


Value: TypeAlias = Version | Claim | DeletedUpTo | str | None
"""A level or a mode is a text; None removes what the key names."""


class Stamp(NamedTuple):
    """Who wrote a record.

    Attributes:
        epoch: grows with every change of the primary.
        writer: one life of one instance.
        number: of the write in that life.
    """

    epoch: int
    writer: str
    number: int

    def encode(self) -> bytes:
        """Return the header's value."""
        return f"{self.epoch} {self.writer} {self.number}".encode()

    @classmethod
    def decode(cls, value: bytes | None) -> "Stamp | None":
        """Return what `encode` was given; None for a record of another registry."""
        parts = (value or b"").decode(errors="replace").split(" ")
        if len(parts) != 3 or not (parts[0].isdecimal() and parts[2].isdecimal()):
            return None
        return cls(int(parts[0]), parts[1], int(parts[2]))


def encode_key(key: Key) -> bytes:
    """Return the record's key."""
    match key.kind:
        case Kind.SCHEMA:
            body: dict[str, Any] = {"keytype": key.kind, "subject": key.subject, "version": key.version, "magic": 1}
        case Kind.NOOP:
            body = {"keytype": key.kind, "magic": 0}
        case _:
            body = {"keytype": key.kind, "subject": key.subject, "magic": 0}
    return _dump(body)


def decode_key(data: bytes | None) -> Key:
    """Return what `encode_key` was given.

    Raises:
        ValueError: it is no key that this release knows.
    """
    body = _object(data)
    kind = Kind(body.get("keytype", ""))
    subject, version = body.get("subject"), body.get("version", 0)
    if not isinstance(subject, str | None) or not isinstance(version, int):
        raise ValueError(f"{body!r} is no key")
    return Key(kind, subject, version if kind is Kind.SCHEMA else 0)


def encode_value(key: Key, value: Value) -> bytes | None:
    """Return the record's value."""
    match value:
        case None:
            return None
        case Version():
            body: dict[str, Any] = {"subject": value.subject, "version": value.version, "id": value.schema_id}
            body |= value.schema.body() | {"deleted": value.is_deleted}
        case Claim(max_id):
            body = {"maxId": max_id}
        case DeletedUpTo(version):
            body = {"subject": key.subject, "version": version}
        case str():
            body = {"compatibilityLevel" if key.kind is Kind.CONFIG else "mode": value}
    return _dump(body)


def decode_value(key: Key, data: bytes | None) -> Value:
    """Return what `encode_value` was given.

    Raises:
        ValueError: it does not fit the key.
    """
    if data is None:
        return None
    body = _object(data)
    try:
        match key.kind:
            case Kind.SCHEMA:
                schema = Schema(
                    str(body["schema"]),
                    references_of(body.get("references")),
                    str(body.get("schemaType") or AVRO),
                    {name: body[name] for name in CONTRACT_FIELDS if body.get(name) is not None},
                )
                is_deleted = bool(body.get("deleted", False))
                return Version(str(key.subject), key.version, int(body["id"]), schema, is_deleted)
            case Kind.CONFIG:
                return str(body["compatibilityLevel"])
            case Kind.MODE:
                return str(Mode(body["mode"]))
            case Kind.DELETE_SUBJECT:
                return DeletedUpTo(int(body["version"]))
            case Kind.NOOP:
                return Claim(int(body.get("maxId", 0)))
    except (KeyError, TypeError) as error:
        raise ValueError(f"{key}: {error!r} in {body!r}") from error


def id_in(data: bytes | None) -> int:
    """Return the id that a record's value names, whatever else it holds; 0 if it names none."""
    try:
        found = _object(data).get("id")
    except (ValueError, RecursionError):
        return 0
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 < found <= MAX_ID else 0


def references_of(body: object) -> tuple[Reference, ...]:
    """Return the references of a request or record.

    Raises:
        ValueError: they are none.
    """
    if body is None:
        return ()
    if not isinstance(body, list):
        raise ValueError(f"references are {body!r}; a list is wanted")
    found = []
    for one in body:
        if not (
            isinstance(one, dict)
            and isinstance(one.get("name"), str)
            and isinstance(one.get("subject"), str)
            and isinstance(one.get("version"), int)
        ):
            raise ValueError(f"a reference is {one!r}; name, subject and version are wanted")
        found.append(Reference(one["name"], one["subject"], one["version"]))
    return tuple(found)


def _object(data: bytes | None) -> dict[str, Any]:
    body = json.loads(data or b"null")
    if not isinstance(body, dict):
        raise ValueError(f"{data!r} is no JSON object")
    return body


def _dump(body: object) -> bytes:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
