"""Encode and decode the dataclasses that `schema` describes, one plan per class and version.

string  => int16 length (-1: null), utf-8            compact: unsigned varint length + 1 (0: null)
bytes   => int32 length (-1: null), bytes            compact: unsigned varint length + 1 (0: null)
array   => int32 count (-1: null), elements          compact: unsigned varint count + 1 (0: null)
struct  => fields in order                           flexible: then tagged fields
tagged  => unsigned varint count, (unsigned varint tag, unsigned varint size, size bytes)*

A plan is a tree of small nodes, built on first use.  Neighbouring numbers of a struct become one `struct.Struct`, which
is most of the speed.  Every count and length is checked against the bytes that remain before anything is made from it.

Why not a library: kafka-python's generated classes take 0.4 s and 12 MB to import, read counts and varints without
bounds, and would need our own dataclasses and a copy in both directions besides.  kio and kafka-python check this codec
in the tests instead.

Source: Kafka protocol guide, "Protocol primitive types"; KIP-482.
"""

import dataclasses
import types
from operator import attrgetter
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Annotated, Any, Protocol, Union, cast, get_args, get_origin
from uuid import UUID

from pylog.errors import ProtocolError
from pylog.wire.api.schema import Versions, Width
from pylog.wire.primitives import (
    MAX_ELEMENTS,
    MAX_STRING_BYTES,
    check_tag_count,
    claim_elements,
    read_unsigned_varint,
    write_unsigned_varint,
)

_SHORT_ARRAY = 16
_INT16, _INT32 = Struct(">h"), Struct(">i")
_FORMATS = {bool: "?", float: "d"}


class Cursor:
    """Where decoding stands in one message body.

    Attributes:
        elements_left: how many more array elements may be made; see `primitives.MAX_ELEMENTS`.

    Invariant: 0 <= position <= len(view) after every call that does not raise.
    """

    __slots__ = ("elements_left", "end", "position", "view")

    def __init__(self, view: bytes, elements: int = MAX_ELEMENTS) -> None:
        self.view = view
        self.position = 0
        self.end = len(view)
        self.elements_left = elements

    def varint(self) -> int:
        """Return the next unsigned varint."""
        position = self.position
        if position < self.end and (byte := self.view[position]) < 0x80:
            self.position = position + 1
            return byte
        number, self.position = read_unsigned_varint(self.view, position)
        return number

    def number(self, layout: Struct) -> int:
        """Return the next number of *layout*, which holds one."""
        (number,) = layout.unpack_from(self.view, self.position)
        self.position += layout.size
        return int(number)

    def take(self, size: int) -> bytes:
        """Return the next *size* bytes.

        Raises:
            ProtocolError: fewer remain.
        """
        start = self.position
        if not 0 <= size <= self.end - start:
            raise ProtocolError(f"field of {size} bytes where {self.end - start} remain")
        self.position = start + size
        return self.view[start : self.position]

    def check_count(self, count: int, element_bytes: int) -> None:
        """Refuse a *count* of elements, each at least *element_bytes* long, that cannot be there."""
        remaining = self.end - self.position
        if count < 0 or count * element_bytes > remaining:
            raise ProtocolError(f"{count} elements where {remaining} bytes remain")

    def claim(self, count: int) -> None:
        """Count *count* elements against the message's allowance."""
        self.elements_left = claim_elements(count, self.elements_left)


class Node(Protocol):
    """One wire type; ``min_bytes`` is the shortest encoding it has."""

    min_bytes: int

    def encode(self, value: Any, out: bytearray) -> None:  # noqa: ANN401  # the declaration fixes the type
        """Append *value* to *out*."""

    def decode(self, cursor: Cursor) -> Any:  # noqa: ANN401
        """Return the value at *cursor* and move behind it."""


class _Number:
    """One fixed-size number that stands alone."""

    def __init__(self, layout: Struct) -> None:
        self._layout = layout
        self.min_bytes = layout.size

    def encode(self, value: float, out: bytearray) -> None:
        out += self._layout.pack(value)

    def decode(self, cursor: Cursor) -> Any:  # noqa: ANN401  # bool, int or float, as the layout says
        (value,) = self._layout.unpack_from(cursor.view, cursor.position)
        cursor.position += self._layout.size
        return value


class _Uuid:
    min_bytes = 16

    def encode(self, value: UUID, out: bytearray) -> None:
        out += value.bytes

    def decode(self, cursor: Cursor) -> UUID:
        return UUID(bytes=cursor.take(16))


class _Length:
    """A length or count in front of something, and whether null is allowed."""

    def __init__(self, layout: Struct, is_compact: bool, is_nullable: bool) -> None:
        self._layout = layout
        self.is_compact = is_compact
        self._is_nullable = is_nullable
        self.min_bytes = 1 if is_compact else layout.size

    def encode(self, length: int, out: bytearray) -> None:
        if not self.is_compact:
            out += self._layout.pack(length)
        elif length < 127:
            out.append(length + 1)
        else:
            write_unsigned_varint(out, length + 1)

    def encode_null(self, out: bytearray) -> None:
        assert self._is_nullable, "None for a field that cannot be null in this version"
        self.encode(-1, out)

    def decode(self, cursor: Cursor) -> int:
        """Return the length, or -1 for an allowed null; other negative numbers never come out."""
        length = cursor.varint() - 1 if self.is_compact else cursor.number(self._layout)
        if length < 0 and (length != -1 or not self._is_nullable):
            raise ProtocolError(f"length {length} where it cannot be")
        return length


class _String:
    def __init__(self, length: _Length) -> None:
        self._length = length
        self.min_bytes = length.min_bytes

    def encode(self, value: str | None, out: bytearray) -> None:
        if value is None:
            self._length.encode_null(out)
            return
        raw = value.encode()
        assert len(raw) <= MAX_STRING_BYTES, f"string of {len(raw)} bytes"
        self._length.encode(len(raw), out)
        out += raw

    def decode(self, cursor: Cursor) -> str | None:
        length = self._length.decode(cursor)
        if length > MAX_STRING_BYTES:
            raise ProtocolError(f"string of {length} bytes")
        return None if length < 0 else str(cursor.take(length), "utf-8")


class _Bytes:
    def __init__(self, length: _Length) -> None:
        self._length = length
        self.min_bytes = length.min_bytes

    def encode(self, value: bytes | None, out: bytearray) -> None:
        if value is None:
            self._length.encode_null(out)
            return
        self._length.encode(len(value), out)
        out += value

    def decode(self, cursor: Cursor) -> bytes | None:
        length = self._length.decode(cursor)
        return None if length < 0 else cursor.take(length)


class _NumberArray:
    """An array of fixed-size numbers: one pack, one unpack."""

    def __init__(self, length: _Length, layout: Struct) -> None:
        self._length = length
        self._format = layout.format[-1]
        self._size = layout.size
        self.min_bytes = length.min_bytes
        # Replica lists are short and many: their count and numbers go out in one pack.
        self._extra = 1 if length.is_compact else 0
        count_format = "B" if length.is_compact else "i"
        self._short = [Struct(f">{count_format}{count}{self._format}").pack for count in range(_SHORT_ARRAY)]

    def encode(self, value: list[int] | None, out: bytearray) -> None:
        if value is None:
            self._length.encode_null(out)
            return
        count = len(value)
        if count < _SHORT_ARRAY:
            out += self._short[count](count + self._extra, *value)
            return
        self._length.encode(count, out)
        out += Struct(f">{count}{self._format}").pack(*value)

    def decode(self, cursor: Cursor) -> list[int] | None:
        count = self._length.decode(cursor)
        if count < 0:
            return None
        cursor.check_count(count, self._size)
        cursor.claim(count)
        return list(Struct(f">{count}{self._format}").unpack(cursor.take(count * self._size)))


class _Array:
    def __init__(self, length: _Length, element: Node) -> None:
        self._length = length
        self._element = element
        self.min_bytes = length.min_bytes

    def encode(self, value: list[Any] | None, out: bytearray) -> None:
        if value is None:
            self._length.encode_null(out)
            return
        self._length.encode(len(value), out)
        encode = self._element.encode
        for element in value:
            encode(element, out)

    def decode(self, cursor: Cursor) -> list[Any] | None:
        count = self._length.decode(cursor)
        if count < 0:
            return None
        cursor.check_count(count, self._element.min_bytes)
        cursor.claim(count)
        decode = self._element.decode
        return [decode(cursor) for _ in range(count)]


class _Run:
    """Neighbouring fixed-size numbers of one struct; its value is a tuple of them."""

    def __init__(self, layout: Struct) -> None:
        self._layout = layout
        self.min_bytes = layout.size

    def encode(self, value: tuple[float, ...], out: bytearray) -> None:
        out += self._layout.pack(*value)

    def decode(self, cursor: Cursor) -> tuple[Any, ...]:
        values = self._layout.unpack_from(cursor.view, cursor.position)
        cursor.position += self.min_bytes
        return values


class _TaggedFields:
    """The tagged section: known tags are read, others skipped; defaults are not written."""

    def __init__(self, known: dict[int, tuple[str, Node, object]]) -> None:
        self._known = known
        self.min_bytes = 1

    def encode(self, message: object, out: bytearray) -> None:
        """Append the section of *message*."""
        if not self._known:
            out.append(0)
            return
        present = [
            (tag, node, value)
            for tag, (name, node, default) in sorted(self._known.items())
            if (value := getattr(message, name)) != default
        ]
        write_unsigned_varint(out, len(present))
        for tag, node, value in present:
            content = bytearray()
            node.encode(value, content)
            write_unsigned_varint(out, tag)
            write_unsigned_varint(out, len(content))
            out += content

    def decode(self, fields: dict[str, Any], cursor: Cursor) -> None:
        """Put the known tags at *cursor* into *fields*."""
        count = cursor.varint()
        if not count:
            return
        cursor.check_count(count, 2)  # the smallest tagged field is tag and size
        check_tag_count(count)
        cursor.claim(count - 1)  # the first one comes with its struct
        for _ in range(count):
            tag, size = cursor.varint(), cursor.varint()
            end = cursor.position + size
            content = cursor.take(size)
            if tag not in self._known:
                continue
            name, node, _ = self._known[tag]
            inner = Cursor(content, cursor.elements_left)
            fields[name] = node.decode(inner)
            cursor.elements_left = inner.elements_left
            if inner.position != size:
                raise ProtocolError(f"tag {tag} has {size - inner.position} bytes too many before byte {end}")


class StructPlan:
    """How one dataclass travels in one version."""

    def __init__(self, cls: type, parts: list[tuple[tuple[str, ...], Node]], tagged: _TaggedFields | None) -> None:
        self._cls = cls
        # attrgetter of several names returns the tuple a run wants, of one name the value itself.
        self._encoders = [(attrgetter(*names), node.encode) for names, node in parts]
        self._decoders = [(names, isinstance(node, _Run), node.decode) for names, node in parts]
        self._tagged = tagged
        self.min_bytes = sum(node.min_bytes for _, node in parts) + (tagged is not None)

    def encode(self, value: object, out: bytearray) -> None:
        """Append *value*, an instance of the plan's class, to *out*."""
        for get, encode in self._encoders:
            encode(get(value), out)
        if self._tagged is not None:
            self._tagged.encode(value, out)

    def decode(self, cursor: Cursor) -> Any:  # noqa: ANN401  # an instance of the plan's class
        """Return the instance at *cursor* and move behind it."""
        fields: dict[str, Any] = {}
        for names, is_run, decode in self._decoders:
            if is_run:
                fields.update(zip(names, decode(cursor), strict=True))
            else:
                fields[names[0]] = decode(cursor)
        if self._tagged is not None:
            self._tagged.decode(fields, cursor)
        return self._cls(**fields)


_plans: dict[tuple[type[Any], int, bool], StructPlan] = {}


def plan(cls: type[Any], version: int, is_flexible: bool) -> StructPlan:
    """Return the plan of dataclass *cls* in *version*; built once."""
    key = (cls, version, is_flexible)
    if (known := _plans.get(key)) is None:
        known = _plans[key] = _build(cls, version, is_flexible)
    return known


def _build(cls: type[Any], version: int, is_flexible: bool) -> StructPlan:
    parts: list[tuple[tuple[str, ...], Node]] = []
    tagged: dict[int, tuple[str, Node, object]] = {}
    run: list[tuple[str, Width]] = []
    for field in dataclasses.fields(cls):
        kind, is_optional, width, versions = _read_annotation(field.type)
        if not versions.first <= version <= versions.last:
            continue
        is_nullable = is_optional and version >= versions.null_from
        if versions.tag is not None:
            tagged[versions.tag] = (field.name, _node(kind, width, version, is_flexible, is_nullable), _default(field))
        elif width is not None:
            run.append((field.name, width))
        else:
            _close(run, parts)
            parts.append(((field.name,), _node(kind, width, version, is_flexible, is_nullable)))
    _close(run, parts)
    return StructPlan(cls, parts, _TaggedFields(tagged) if is_flexible else None)


def encode(message: object, version: int, is_flexible: bool, out: bytearray) -> None:
    """Append the body of *message* to *out*."""
    cls: type[Any] = type(message)
    plan(cls, version, is_flexible).encode(message, out)


def decode(cls: type[Any], version: int, is_flexible: bool, view: memoryview, elements: int = MAX_ELEMENTS) -> Any:  # noqa: ANN401
    """Return the *cls* that *view* starts with.

    Args:
        cls: a dataclass declared as `schema` says.
        version: of the message.
        is_flexible: whether that version uses compact lengths and tagged fields.
        view: the body.
        elements: how many array elements may be made at most.

    Raises:
        ProtocolError: the bytes are not such a message; close the connection.
    """
    # Copied once: a field is cut out of bytes in half the time that a view takes, and nobody holds on to the view.
    cursor = Cursor(bytes(view), elements)
    try:
        message = plan(cls, version, is_flexible).decode(cursor)
    except (StructError, UnicodeDecodeError) as error:
        raise ProtocolError(f"{cls.__name__} v{version} at byte {cursor.position}: {error}") from None
    except ProtocolError as error:
        raise ProtocolError(f"{cls.__name__} v{version} at byte {cursor.position}: {error}") from None
    # Bytes after the message are ignored, as Apache Kafka does: librdkafka leaves three behind the null topic list of a
    # Metadata request from version 9 on (it reserves four bytes for the count and fills one).
    return message


def _close(run: list[tuple[str, Width]], parts: list[tuple[tuple[str, ...], Node]]) -> None:
    """Turn the collected numbers into one part."""
    if run:
        layout = Struct(">" + "".join(width.format for _, width in run))
        names = tuple(name for name, _ in run)
        parts.append((names, _Run(layout) if len(run) > 1 else _Number(layout)))
        run.clear()


def _read_annotation(annotation: Any) -> tuple[Any, bool, Width | None, Versions]:  # noqa: ANN401
    """Return (bare type, is optional, width of a fixed-size number, versions)."""
    width: Width | None = None
    versions = Versions()
    is_optional = False
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            for mark in annotation.__metadata__:
                width = mark if isinstance(mark, Width) else width
                versions = mark if isinstance(mark, Versions) else versions
            annotation = annotation.__origin__
        elif origin in (Union, types.UnionType):
            (annotation,) = (kind for kind in get_args(annotation) if kind is not types.NoneType)
            is_optional = True
        else:
            if annotation in _FORMATS:
                width = Width(_FORMATS[annotation])
            return annotation, is_optional, width, versions


def _node(kind: Any, width: Width | None, version: int, is_flexible: bool, is_nullable: bool) -> Node:  # noqa: ANN401
    """Return the node for a bare type."""
    if width is not None:
        return _Number(Struct(f">{width.format}"))
    if kind is str:
        return _String(_Length(_INT16, is_flexible, is_nullable))
    length = _Length(_INT32, is_flexible, is_nullable)
    if kind is bytes:
        return _Bytes(length)
    if kind is UUID:
        return _Uuid()
    if get_origin(kind) is list:
        element, _, element_width, _ = _read_annotation(get_args(kind)[0])
        if element_width is not None:
            return _NumberArray(length, Struct(f">{element_width.format}"))
        return _Array(length, _node(element, None, version, is_flexible, is_nullable=False))
    assert dataclasses.is_dataclass(kind), f"{kind} has no wire type"
    return plan(cast(type[Any], kind), version, is_flexible)


def _default(field: "dataclasses.Field[Any]") -> object:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    assert field.default is not dataclasses.MISSING, f"tagged field {field.name} needs a default"
    return field.default
