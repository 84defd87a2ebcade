"""Avro datums of one schema -> an Arrow array, field by field of all of them at a time; or one after the other.

A datum's fields follow each other without lengths, so field n begins where field n-1 ended: a different place in each
datum, kept in an array.  `Node.walk` reads one field of all datums, `Node.read` reads it in one datum.  Both follow the
same tree, which `pylog.ingest.resolve` makes of a writer's and a reader's schema.  A datum that is not what its schema
says is marked by `walk`, read on as if it were empty, and left to `read`, which says what is wrong with it.

Source: Avro specification, "Binary Encoding"; Apache Avro's BinaryDecoder.
"""

# ruff: noqa: D102  what `walk`, `read` and `array` do is said once, at Node and Found

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Protocol
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylog.ingest.columns import Bools, Bytes, Int64s, gather, varints

PADDING_BYTES = 16
"""Behind the last datum: a varint or a double that begins at its end must not read beyond the array."""

MAX_DEPTH = 150
"""Of values inside values of a type that contains itself; deeper ones do not decode."""

_COLUMN_DEPTH = 20
# As deep as all datums are read at a time; what is deeper is few, and is read one by one.

_ROUNDS, _FEW = 64, 32
# Arrays are read an item of every datum at a time.  When so many items were read and so few datums are left, a round
# costs more than reading those datums one by one, and they are left to that.

_MAX_EMPTY_ITEMS = 1_000_000
# Items that take no byte: nothing else bounds how many of them a datum may claim.

_INT32 = (-(1 << 31), (1 << 31) - 1)
_MAX_DIGITS = 4_000
# Of a decimal that is shown as text; Python refuses to write more than 4,300.


class BadDatum(Exception):
    """One datum is not what its schema says, or its reader cannot take it; the message says where and why.

    Attributes:
        path: names of the fields on the way there, outermost first.
        reason: why.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str] = []

    def __str__(self) -> str:
        """Return path and reason."""
        return f"field {'.'.join(self.path)}: {self.reason}" if self.path else self.reason


@dataclass(slots=True)
class Datums:
    """Where reading is in each datum, or in each item of the arrays of some.

    Attributes:
        data: the bytes, padded.
        at: the next byte of each.
        end: the first byte after each; *at* never goes beyond it.
        rows: which datum each belongs to; None for all, in order.
        bad: by datum, those that are not what the schema says.
        depth: how many values of types that contain themselves these are inside of.
    """

    data: Bytes
    at: Int64s
    end: Int64s
    rows: Int64s | None
    bad: Bools
    depth: int = 0

    def fail(self, wrong: Bools) -> None:
        """Mark the datums of those that are *wrong*."""
        if self.rows is None:
            self.bad |= wrong
        else:
            self.bad[self.rows[wrong]] = True

    def numbers(self) -> Int64s:
        """Read a varint."""
        numbers, at, too_long = varints(self.data, self.at)
        if too_long.size:
            self.bad[too_long if self.rows is None else self.rows[too_long]] = True
        over = at > self.end
        if over.any():
            self.fail(over)
            at = np.minimum(at, self.end)
            numbers = np.where(over, 0, numbers)
        self.at = at
        return numbers

    def skip(self, lengths: Int64s | int) -> tuple[Int64s, Int64s]:
        """Go on by *lengths*; return where what was skipped begins, and how long it is."""
        starts = self.at
        sizes = np.broadcast_to(np.asarray(lengths, np.int64), starts.shape)
        wrong = (sizes < 0) | (sizes > self.end - starts)
        if wrong.any():
            self.fail(wrong)
            sizes = np.where(wrong, 0, sizes)
        self.at = starts + sizes
        return starts, sizes

    def only(self, some: Int64s) -> "Datums":
        """Return some of them; `put` takes back how far those were read."""
        rows = some if self.rows is None else self.rows[some]
        return Datums(self.data, self.at[some], self.end[some], rows, self.bad, self.depth)

    def put(self, some: Int64s, those: "Datums") -> None:
        """Take over how far *some* were read."""
        self.at[some] = those.at


class Cursor:
    """Where reading is in one datum.

    Args:
        data: the datum.
    """

    __slots__ = ("at", "data", "depth")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.depth = 0

    def varint(self, what: str) -> int:
        """Read a number of at most 64 bits."""
        raw = shift = 0
        while True:
            if self.at >= len(self.data):
                raise BadDatum(f"ends inside {what}")
            byte = self.data[self.at]
            self.at += 1
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise BadDatum(f"{what} is longer than 64 bits need")
        raw &= (1 << 64) - 1
        return (raw >> 1) ^ -(raw & 1)

    def take(self, size: int, what: str) -> bytes:
        """Read *size* bytes."""
        left = len(self.data) - self.at
        if size < 0:
            raise BadDatum(f"{what} has a length of {size}")
        if size > left:
            raise BadDatum(f"{what} of {size} bytes begins {left} bytes before the end")
        self.at += size
        return self.data[self.at - size : self.at]


class Found(Protocol):
    """What `Node.walk` read, not yet an array."""

    def array(self, places: Int64s | None) -> pa.Array:
        """Return the values at *places*, in increasing order where not negative; null where negative; None for all."""


class Node(Protocol):
    """How one part of the writer's schema is read."""

    def walk(self, datums: Datums) -> Found:
        """Read the part in all datums."""

    def read(self, cursor: Cursor) -> Any:  # noqa: ANN401  whatever the schema says
        """Return the part of one datum, as pyarrow takes it.

        Raises:
            BadDatum: the bytes are not what the schema says.
        """


class DatumReader:
    """Reads datums of one schema.

    Args:
        node: how.
    """

    def __init__(self, node: Node) -> None:
        self._node = node

    def read(self, data: Bytes, starts: Int64s, ends: Int64s) -> tuple[pa.Array, Bools]:
        """Return the column, and which of its rows mean nothing because their datum must be read alone.

        Args:
            data: the bytes, with `PADDING_BYTES` more.
            starts: where each datum begins, in order.
            ends: where each ends.
        """
        datums = Datums(data, starts.copy(), ends, None, np.zeros(len(starts), np.bool_))
        found = self._node.walk(datums)
        datums.bad |= datums.at != ends
        return found.array(None), datums.bad

    def read_one(self, datum: bytes) -> Any:  # noqa: ANN401  whatever the schema says
        """Return one datum's value.

        Raises:
            BadDatum: it is not what the schema says.
        """
        cursor = Cursor(datum)
        value = self._node.read(cursor)
        if cursor.at != len(datum):
            raise BadDatum(f"{len(datum) - cursor.at} more bytes than a value of the schema")
        return value


# -- what was found ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Nulls:
    """Nothing, so many times."""

    count: int
    kind: pa.DataType

    def array(self, places: Int64s | None) -> pa.Array:
        return pa.nulls(self.count if places is None else len(places), self.kind)


@dataclass(slots=True)
class Numbers:
    """Numbers of a column's own width; days and points in time are such numbers too."""

    values: npt.NDArray[Any]
    kind: pa.DataType

    def array(self, places: Int64s | None) -> pa.Array:
        values, mask = (self.values, None) if places is None else (_at(self.values, places), places < 0)
        if not pa.types.is_temporal(self.kind):
            return pa.array(values, self.kind, mask=mask)
        plain = pa.int32() if self.kind.bit_width == 32 else pa.int64()
        return pa.array(values, plain, mask=mask).view(self.kind)


@dataclass(slots=True)
class Slices:
    """Bytes where they lie in the datums."""

    datums: Datums
    starts: Int64s
    lengths: Int64s
    is_text: bool
    """Whether they must be UTF-8."""

    def array(self, places: Int64s | None) -> pa.Array:
        starts, lengths = self.starts, self.lengths
        if places is not None:
            nulls = places < 0
            # Arrow guesses the size of what it gathers from the last place: a null's must not lie before the others.
            starts = np.maximum.accumulate(np.where(nulls, 0, _at(starts, places)))
            lengths = np.where(nulls, -1, _at(lengths, places))
        found = gather(pa.py_buffer(self.datums.data), starts, lengths)
        if not self.is_text:
            return found
        try:
            return found.cast(pa.string())
        except pa.ArrowInvalid:
            wrong = np.array([not _is_text(value) for value in found.to_pylist()], np.bool_)
            if places is None:
                self.datums.fail(wrong)
            else:
                own = np.zeros(len(self.starts), np.bool_)
                own[places[wrong]] = True
                self.datums.fail(own)
            plain = pa.array(np.where(wrong, b"", found.to_numpy(zero_copy_only=False)), pa.binary())
            return plain.cast(pa.string())


@dataclass(slots=True)
class Taken:
    """An array that is finished."""

    values: pa.Array

    def array(self, places: Int64s | None) -> pa.Array:
        return self.values if places is None else self.values.take(_indices(places))


@dataclass(slots=True)
class Texts:
    """Decimals and times that become text, made only for the places that are wanted."""

    values: npt.NDArray[Any]
    symbols: pa.Array

    def array(self, places: Int64s | None) -> pa.Array:
        if places is None:
            return self.symbols.take(pa.array(self.values))
        return self.symbols.take(pa.array(_at(self.values, places), mask=places < 0))


@dataclass(slots=True)
class Structs:
    """Fields of a column, in its order."""

    kind: pa.DataType
    count: int
    fields: Sequence[Found]

    def array(self, places: Int64s | None) -> pa.Array:
        mask = None if places is None or (places >= 0).all() else pa.array(places < 0)
        if not self.fields:
            count = self.count if places is None else len(places)
            return pa.array([{}] * count, self.kind, mask=None if mask is None else mask.to_numpy(zero_copy_only=False))
        arrays = [found.array(places) for found in self.fields]
        return pa.StructArray.from_arrays(arrays, fields=list(self.kind), mask=mask)


@dataclass(slots=True)
class Members:
    """A union's values in the struct that stands for it: one of its fields holds them."""

    kind: pa.DataType
    count: int
    member: int
    found: Found

    def array(self, places: Int64s | None) -> pa.Array:
        count = self.count if places is None else len(places)
        arrays = [
            self.found.array(places) if number == self.member else pa.nulls(count, one.type)
            for number, one in enumerate(self.kind)
        ]
        mask = None if places is None or (places >= 0).all() else pa.array(places < 0)
        return pa.StructArray.from_arrays(arrays, fields=list(self.kind), mask=mask)


@dataclass(slots=True)
class Placed:
    """Values of which only some are there: a nullable field's."""

    found: Found
    places: Int64s

    def array(self, places: Int64s | None) -> pa.Array:
        return self.found.array(self.places if places is None else _through(self.places, places))


@dataclass(slots=True)
class Joined:
    """Values of several branches, one branch behind the other."""

    branches: Sequence[Found]
    places: Int64s

    def array(self, places: Int64s | None) -> pa.Array:
        joined = pa.concat_arrays([found.array(None) for found in self.branches])
        return joined.take(_indices(self.places if places is None else _through(self.places, places)))


@dataclass(slots=True)
class Lists:
    """Items of all arrays, or entries of all maps, one behind the other."""

    kind: pa.DataType
    bounds: Int64s
    """Number of items before each array, and of all."""
    keys: Found | None
    items: Found

    def array(self, places: Int64s | None) -> pa.Array:
        if places is None:
            bounds, inner, nulls = self.bounds, None, None
        else:
            nulls = places < 0
            counts = np.where(nulls, 0, _at(np.diff(self.bounds), places))
            bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
            firsts = np.where(nulls, 0, _at(self.bounds[:-1], places))
            inner = np.repeat(firsts - bounds[:-1], counts) + np.arange(bounds[-1])
        offsets = pa.array(bounds.astype(np.int32))
        items = self.items.array(inner)
        mask = None if nulls is None or not nulls.any() else pa.array(nulls)
        if self.keys is None:
            found = pa.ListArray.from_arrays(offsets, items, type=self.kind, mask=mask)
        else:
            found = pa.MapArray.from_arrays(offsets, self.keys.array(inner), items, type=self.kind, mask=mask)
        return found


# -- nodes -------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Null:
    """A null, of a column of any type."""

    kind: pa.DataType

    def walk(self, datums: Datums) -> Found:
        return Nulls(len(datums.at), self.kind)

    def read(self, cursor: Cursor) -> None:
        return None


@dataclass(slots=True)
class Refused:
    """Something that the reader's schema does not take; only datums that hold it are refused."""

    reason: str
    kind: pa.DataType

    def walk(self, datums: Datums) -> Found:
        datums.fail(np.ones(len(datums.at), np.bool_))
        return Nulls(len(datums.at), self.kind)

    def read(self, cursor: Cursor) -> None:
        raise BadDatum(self.reason)


@dataclass(slots=True)
class Boolean:
    """One byte."""

    def walk(self, datums: Datums) -> Found:
        starts, _ = datums.skip(1)
        byte = datums.data[starts]
        wrong = byte > 1
        if wrong.any():
            datums.fail(wrong)
        return Numbers(byte == 1, pa.bool_())

    def read(self, cursor: Cursor) -> bool:
        (byte,) = cursor.take(1, "a boolean")
        if byte > 1:
            raise BadDatum(f"a boolean is {byte}")
        return byte == 1


@dataclass(slots=True, kw_only=True)
class Number:
    """An int or a long, and what it stands for.

    Attributes:
        kind: of the column.
        is_int: whether the writer's is an int, of 32 bits.
        through: the reader's type where that is narrower than the column's, as a float's that becomes a double.
        multiply: factor to the column's unit.
        divide: divisor to the column's unit; the rest is cut off towards the past.
        bounds: numbers that the column can hold, before the change of unit.
        means: what the number is, for errors.
    """

    kind: pa.DataType
    is_int: bool
    through: type[np.float32] | None = None
    multiply: int = 1
    divide: int = 1
    bounds: tuple[int, int] | None = None
    means: str = "a number"

    def __post_init__(self) -> None:
        if self.is_int and self.bounds is None:
            self.bounds = _INT32

    def walk(self, datums: Datums) -> Found:
        numbers = datums.numbers()
        if self.bounds is not None:
            wrong = (numbers < self.bounds[0]) | (numbers > self.bounds[1])
            if wrong.any():
                datums.fail(wrong)
                numbers = np.where(wrong, self.bounds[0], numbers)
        if self.multiply != 1:
            numbers = numbers * self.multiply
        elif self.divide != 1:
            numbers = numbers // self.divide
        return Numbers(self._converted(numbers), self.kind)

    def read(self, cursor: Cursor) -> Any:  # noqa: ANN401  int or float
        number = cursor.varint(self.means)
        if self.bounds is not None and not self.bounds[0] <= number <= self.bounds[1]:
            raise BadDatum(f"the column cannot hold {self.means} of {number}: {self.bounds[0]} to {self.bounds[1]}")
        if pa.types.is_floating(self.kind):
            return self._converted(np.array([number], np.int64))[0]
        return number * self.multiply // self.divide

    def _converted(self, numbers: Int64s) -> npt.NDArray[Any]:
        if self.through is not None:
            return numbers.astype(self.through).astype(self.kind.to_pandas_dtype(), copy=False)
        width = np.int32 if self.kind.bit_width == 32 else np.int64
        return numbers.astype(self.kind.to_pandas_dtype() if pa.types.is_floating(self.kind) else width, copy=False)


@dataclass(slots=True)
class TimeText:
    """A time of day, as text: ``23:59:59.999`` or ``23:59:59.999999``."""

    number: Number

    def walk(self, datums: Datums) -> Found:
        times = self.number.walk(datums).array(None).cast(pa.string()).dictionary_encode()
        return Texts(times.indices.to_numpy(zero_copy_only=False), times.dictionary)

    def read(self, cursor: Cursor) -> str:
        return str(pa.scalar(self.number.read(cursor), self.number.kind).cast(pa.string()).as_py())


@dataclass(slots=True)
class Real:
    """A float or a double, as the processor has them.

    Attributes:
        is_double: whether the writer's is.
        kind: of the column.
    """

    is_double: bool
    kind: pa.DataType

    def walk(self, datums: Datums) -> Found:
        dtype = np.dtype("<f8" if self.is_double else "<f4")
        starts, _ = datums.skip(dtype.itemsize)
        # An array of every number that begins at any byte: numpy reads unaligned ones where it is told to.
        size = len(datums.data) - dtype.itemsize + 1
        values = np.ndarray((size,), dtype, datums.data, strides=(1,))[starts]
        return Numbers(values.astype(self.kind.to_pandas_dtype(), copy=False), self.kind)

    def read(self, cursor: Cursor) -> Any:  # noqa: ANN401  a float of either size
        what, dtype = ("a double", "<f8") if self.is_double else ("a float", "<f4")
        raw = np.frombuffer(cursor.take(np.dtype(dtype).itemsize, what), dtype)
        return raw.astype(self.kind.to_pandas_dtype())[0]


@dataclass(slots=True)
class Raw:
    """Bytes, a string or a fixed, as they are.

    Attributes:
        size: of a fixed; None where a length comes first.
        is_text: whether the column holds text, which must be UTF-8.
    """

    size: int | None
    is_text: bool = False

    def places(self, datums: Datums) -> tuple[Int64s, Int64s]:
        """Read over the bytes; return where they begin, and how many they are."""
        return datums.skip(datums.numbers() if self.size is None else self.size)

    def walk(self, datums: Datums) -> Found:
        starts, lengths = self.places(datums)
        return Slices(datums, starts, lengths, self.is_text)

    def bytes(self, cursor: Cursor) -> bytes:
        """Return the bytes of one datum."""
        what = "a string" if self.is_text else "bytes" if self.size is None else "a fixed"
        return cursor.take(cursor.varint(f"the length of {what}") if self.size is None else self.size, what)

    def read(self, cursor: Cursor) -> Any:  # noqa: ANN401  str or bytes
        raw = self.bytes(cursor)
        if not self.is_text:
            return raw
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise BadDatum(f"a string is not UTF-8: {error}") from error


@dataclass(slots=True)
class Uuid:
    """A fixed of 16 bytes as text."""

    raw: Raw

    def walk(self, datums: Datums) -> Found:
        starts, _ = self.raw.places(datums)
        digits = _HEX[datums.data[starts[:, None] + np.arange(16)]].reshape(len(starts), 32)
        text = np.full((len(starts), 36), ord("-"), np.uint8)
        text[:, _UUID_DIGITS] = digits
        bounds = np.arange(0, 36 * len(starts) + 1, 36, dtype=np.int32)
        return Taken(pa.StringArray.from_buffers(len(starts), pa.py_buffer(bounds), pa.py_buffer(text.tobytes())))

    def read(self, cursor: Cursor) -> str:
        return str(UUID(bytes=self.raw.bytes(cursor)))


_HEX = np.array([list(f"{byte:02x}".encode()) for byte in range(256)], np.uint8)
_UUID_DIGITS = np.array([place for place in range(36) if place not in (8, 13, 18, 23)])


@dataclass(slots=True)
class Duration:
    """A fixed of 12 bytes as months, days and milliseconds, each from 0 to 4,294,967,295."""

    raw: Raw
    kind: pa.DataType

    def walk(self, datums: Datums) -> Found:
        starts, _ = self.raw.places(datums)
        every = np.ndarray((len(datums.data) - 3,), "<u4", datums.data, strides=(1,))
        parts = [Numbers(every[starts + at].astype(np.int64), pa.int64()) for at in (0, 4, 8)]
        return Structs(self.kind, len(starts), parts)

    def read(self, cursor: Cursor) -> dict[str, int]:
        parts = struct.unpack("<III", self.raw.bytes(cursor))
        return {one.name: part for one, part in zip(self.kind, parts, strict=True)}


@dataclass(slots=True)
class DecimalNumber:
    """An unscaled number in two's complement, in a decimal column of at most 38 digits."""

    raw: Raw
    kind: pa.DataType

    def walk(self, datums: Datums) -> Found:
        starts, lengths = self.raw.places(datums)
        # Little-endian as Arrow has them: the last byte first, and the sign beyond the first one.
        sign = np.where(lengths > 0, datums.data[starts] >> 7, 0).astype(np.uint8) * np.uint8(0xFF)
        words = np.empty((len(starts), 16), np.uint8)
        last = starts + lengths - 1
        for place in range(16):
            words[:, place] = np.where(place < lengths, datums.data[np.maximum(last - place, 0)], sign)
        low, high = words.view("<u8")[:, 0], words.view("<i8")[:, 1]
        limit = 10**self.kind.precision
        wrong = (lengths < 1) | (lengths > 16) | ~_is_below(low, high, limit) | _is_below(low, high, 1 - limit)
        if wrong.any():
            # Also those that are written with more bytes than they need: they are read one by one.
            datums.fail(wrong)
            words[wrong] = 0
        return Taken(pa.Array.from_buffers(self.kind, len(starts), [None, pa.py_buffer(words.tobytes())]))

    def read(self, cursor: Cursor) -> Decimal:
        unscaled = _unscaled(self.raw.bytes(cursor))
        if abs(unscaled) >= 10**self.kind.precision:
            raise BadDatum(
                f"the column cannot hold a decimal of {len(str(abs(unscaled)))} digits: {self.kind.precision}"
            )
        return _decimal(unscaled, self.kind.scale)


@dataclass(slots=True)
class DecimalText:
    """A decimal of more digits than a decimal column holds, or of a scale that each value brings along, as text.

    Attributes:
        raw: the bytes.
        scale: digits behind the point; None where the bytes say it.
    """

    raw: Raw
    scale: int | None

    def walk(self, datums: Datums) -> Found:
        starts, lengths = self.raw.places(datums)
        texts: list[str] = []
        wrong = np.zeros(len(starts), np.bool_)
        for number, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
            try:
                texts.append(self._text(datums.data[start : start + length].tobytes()))
            except BadDatum:
                wrong[number] = True
                texts.append("")
        if wrong.any():
            datums.fail(wrong)
        return Taken(pa.array(texts, pa.string()))

    def read(self, cursor: Cursor) -> str:
        return self._text(self.raw.bytes(cursor))

    def _text(self, raw: bytes) -> str:
        scale = self.scale
        if scale is None:
            inner = Cursor(raw)
            raw = inner.take(inner.varint("the length of a big decimal"), "a big decimal")
            scale = inner.varint("the scale of a big decimal")
        unscaled = _unscaled(raw)
        if len(raw) * 2.5 > _MAX_DIGITS or abs(scale) > _MAX_DIGITS:
            raise BadDatum(f"a decimal of {len(raw)} bytes and scale {scale} is longer than {_MAX_DIGITS} digits")
        return f"{_decimal(unscaled, scale):f}"


@dataclass(slots=True)
class Enum:
    """The number of a symbol.

    Attributes:
        symbols: by the writer's number, what the reader calls it; None if it knows none.
        written: the writer's own.
    """

    symbols: Sequence[str | None]
    written: Sequence[str]

    def walk(self, datums: Datums) -> Found:
        numbers = datums.numbers()
        is_known = np.array([*(symbol is not None for symbol in self.symbols), False])
        wrong = ~is_known[np.where((numbers < 0) | (numbers >= len(self.symbols)), len(self.symbols), numbers)]
        if wrong.any():
            datums.fail(wrong)
            numbers = np.where(wrong, 0, numbers)
        # A symbol more, for datums that are wrong where the enum has none at all.
        return Texts(numbers, pa.array([*self.symbols, None], pa.string()))

    def read(self, cursor: Cursor) -> str:
        number = cursor.varint("an enum")
        if not 0 <= number < len(self.symbols):
            raise BadDatum(f"an enum is {number} of {len(self.symbols)} symbols")
        symbol = self.symbols[number]
        if symbol is None:
            raise BadDatum(f"the reader's enum has no symbol {self.written[number]}, and no default")
        return symbol


@dataclass(slots=True)
class Union:
    """The number of a branch, and a value of that branch.

    Attributes:
        branches: what each is read as; all become the same column.
    """

    branches: Sequence[Node]

    def walk(self, datums: Datums) -> Found:
        numbers = datums.numbers()
        count = len(numbers)
        if count and 0 <= numbers[0] < len(self.branches) and (numbers == numbers[0]).all():
            return self.branches[int(numbers[0])].walk(datums)
        wrong = (numbers < 0) | (numbers >= len(self.branches))
        if wrong.any():
            datums.fail(wrong)
        places = np.full(count, -1, np.int64)
        found: list[Found] = []
        total = 0
        for number, branch in enumerate(self.branches):
            rows = np.flatnonzero(numbers == number)
            if not rows.size:
                continue
            those = datums.only(rows)
            one = branch.walk(those)
            datums.put(rows, those)
            if not isinstance(one, Nulls):
                places[rows] = np.arange(total, total + len(rows))
                total += len(rows)
                found.append(one)
        if not found:
            kind = next((branch.kind for branch in self.branches if isinstance(branch, Null | Refused)), pa.null())
            return Nulls(count, kind)
        return Placed(found[0], places) if len(found) == 1 else Joined(found, places)

    def read(self, cursor: Cursor) -> Any:  # noqa: ANN401  whatever the branch is
        number = cursor.varint("the number of a union's branch")
        if not 0 <= number < len(self.branches):
            raise BadDatum(f"branch {number} of a union of {len(self.branches)}")
        return self.branches[number].read(cursor)


@dataclass(slots=True)
class Member:
    """A value that becomes one field of the struct which stands for the reader's union.

    Attributes:
        kind: of the struct.
        number: of the field.
        node: how the value is read.
    """

    kind: pa.DataType
    number: int
    node: Node

    def walk(self, datums: Datums) -> Found:
        count = len(datums.at)
        return Members(self.kind, count, self.number, self.node.walk(datums))

    def read(self, cursor: Cursor) -> dict[str, Any]:
        return {self.kind.field(self.number).name: self.node.read(cursor)}


@dataclass(slots=True)
class Record:
    """Fields in the writer's order; those the reader wants become the column's, in the reader's.

    Attributes:
        kind: the column's type.
        fields: the name of each, how to read it, and its number in *kind*; None if it is passed over.
        defaults: array of one, by number in *kind*, of the fields that the writer lacks.
    """

    kind: pa.DataType
    fields: Sequence[tuple[str, Node, int | None]]
    defaults: Mapping[int, pa.Array]

    def walk(self, datums: Datums) -> Found:
        count = len(datums.at)
        found: dict[int, Found] = {number: _Default(count, default) for number, default in self.defaults.items()}
        for _, node, number in self.fields:
            one = node.walk(datums)
            if number is not None:
                found[number] = one
        return Structs(self.kind, count, [found[number] for number in range(self.kind.num_fields)])

    def read(self, cursor: Cursor) -> dict[str, Any]:
        values = {self.kind.field(number).name: default[0].as_py() for number, default in self.defaults.items()}
        for name, node, number in self.fields:
            try:
                value = node.read(cursor)
            except BadDatum as bad:
                bad.path.insert(0, name)
                raise
            if number is not None:
                values[self.kind.field(number).name] = value
        return values


@dataclass(slots=True)
class _Default:
    count: int
    value: pa.Array

    def array(self, places: Int64s | None) -> pa.Array:
        if places is None:
            return self.value.take(pa.array(np.zeros(self.count, np.int64)))
        return self.value.take(pa.array(np.zeros(len(places), np.int64), mask=places < 0))


@dataclass(slots=True)
class Within:
    """A value of a type that may contain itself, made when it is met; bounded in depth."""

    name: str
    node: Node | None = None

    def walk(self, datums: Datums) -> Found:
        assert self.node is not None, "whoever makes the node sets it before anything is read"
        if datums.depth >= _COLUMN_DEPTH:
            datums.fail(np.ones(len(datums.at), np.bool_))
            return Nulls(len(datums.at), pa.null())
        deeper = replace(datums, depth=datums.depth + 1)
        found = self.node.walk(deeper)
        datums.at = deeper.at
        return found

    def read(self, cursor: Cursor) -> Any:  # noqa: ANN401  whatever the schema says
        assert self.node is not None, "whoever makes the node sets it before anything is read"
        if cursor.depth >= MAX_DEPTH:
            raise BadDatum(f"{self.name} nests deeper than {MAX_DEPTH} levels")
        cursor.depth += 1
        value = self.node.read(cursor)
        cursor.depth -= 1
        return value


@dataclass(slots=True)
class Items:
    """Blocks of an array's items or of a map's entries, and an empty one at the end.

    Attributes:
        kind: of the column; None if it is passed over.
        over: how to pass over one item, or one entry.
        size: of each item, if all are of one.
        item: how to read an item, or an entry's value; None if they are passed over.
    """

    kind: pa.DataType | None
    over: Node
    size: int | None
    item: Node | None = None

    @property
    def _is_map(self) -> bool:
        return self.kind is not None and pa.types.is_map(self.kind)

    def walk(self, datums: Datums) -> Found:
        count = len(datums.at)
        owners, starts = self._starts(datums)
        if self.kind is None or self.item is None:
            return Nulls(count, pa.null())
        order = np.argsort(owners, kind="stable")
        owners, starts = owners[order], starts[order]
        bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(owners, minlength=count))])
        rows = owners if datums.rows is None else datums.rows[owners]
        items = Datums(datums.data, starts, datums.end[owners], rows, datums.bad, datums.depth)
        keys = None
        if self._is_map:
            keys = Taken(Raw(None, is_text=True).walk(items).array(None))
            datums.fail(_has_doubles(keys.values, owners, count))
        return Lists(self.kind, bounds.astype(np.int64), keys, self.item.walk(items))

    def _starts(self, datums: Datums) -> tuple[Int64s, Int64s]:
        """Pass over all items; return which array each belongs to and where it begins, in order for each array."""
        owners: list[Int64s] = [np.zeros(0, np.int64)]
        starts: list[Int64s] = [np.zeros(0, np.int64)]
        rows = np.arange(len(datums.at))
        rounds = 0
        while rows.size:
            those = datums.only(rows)
            counts = self._counts(those)
            if self.size is not None:
                within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
                owners.append(np.repeat(rows, counts))
                starts.append(np.repeat(those.at, counts) + within * self.size)
                those.at = those.at + counts * self.size
                rounds += 1
            else:
                left = counts.copy()
                some = np.flatnonzero(left > 0)
                while some.size:
                    rounds += 1
                    one = those.only(some)
                    if rounds > _ROUNDS and some.size < _FEW:
                        one.fail(np.ones(some.size, np.bool_))
                        counts[some] = 0
                        break
                    owners.append(rows[some])
                    starts.append(one.at.copy())
                    self.over.walk(one)
                    those.put(some, one)
                    left[some] -= 1
                    some = some[left[some] > 0]
            datums.put(rows, those)
            go_on = (counts > 0) & ~datums.bad[rows if datums.rows is None else datums.rows[rows]]
            rows = rows[go_on]
            if rounds > _ROUNDS and rows.size < _FEW:
                datums.only(rows).fail(np.ones(rows.size, np.bool_))
                break
        return np.concatenate(owners), np.concatenate(starts)

    def _counts(self, those: Datums) -> Int64s:
        """Read the head of one block of each."""
        counts = those.numbers()
        negative = np.flatnonzero(counts < 0)
        if negative.size:
            # A block may say how many bytes it takes, for readers that pass over it.
            sized = those.only(negative)
            sized.numbers()
            those.put(negative, sized)
            counts = np.abs(counts)
        most = (those.end - those.at) // max(self.size or 1, 1) if self.size != 0 else _MAX_EMPTY_ITEMS
        wrong = (counts < 0) | (counts > most)
        if wrong.any():
            those.fail(wrong)
            counts = np.where(wrong, 0, counts)
        return counts

    def read(self, cursor: Cursor) -> Any:  # noqa: ANN401  a list, of pairs for a map
        keys = Raw(None, is_text=True)
        entries: dict[str, Any] = {}
        items: list[Any] = []
        count = 0
        while (size := cursor.varint("the count of a block")) != 0:
            if size < 0:
                cursor.varint("the size of a block")
                size = -size
            if size > (_MAX_EMPTY_ITEMS - count if self.size == 0 else len(cursor.data) - cursor.at):
                raise BadDatum(f"a block of {size} items begins {len(cursor.data) - cursor.at} bytes before the end")
            count += size
            for _ in range(size):
                if self.item is None:
                    self.over.read(cursor)
                elif self._is_map:
                    key = keys.read(cursor)
                    entries[key] = self.item.read(cursor)
                else:
                    items.append(self.item.read(cursor))
        return list(entries.items()) if self._is_map else items


@dataclass(slots=True)
class PassedOver:
    """Values one behind the other, all passed over: a record that nobody wants, or an entry of a map."""

    nodes: Sequence[Node]

    def walk(self, datums: Datums) -> Found:
        for node in self.nodes:
            node.walk(datums)
        return Nulls(len(datums.at), pa.null())

    def read(self, cursor: Cursor) -> None:
        for node in self.nodes:
            node.read(cursor)


# -- arithmetic --------------------------------------------------------------------------------------------------------


def _at(values: npt.NDArray[Any], places: Int64s) -> npt.NDArray[Any]:
    """Return *values* at *places*, something where they are negative."""
    if not len(values):
        return np.zeros(len(places), values.dtype)
    return values[np.maximum(places, 0)]


def _through(places: Int64s, outer: Int64s) -> Int64s:
    return np.where(outer < 0, -1, _at(places, outer))


def _indices(places: Int64s) -> pa.Array:
    nulls = places < 0
    return pa.array(np.maximum(places, 0), mask=nulls if nulls.any() else None)


def _is_below(low: npt.NDArray[Any], high: npt.NDArray[Any], limit: int) -> Bools:
    """Return which numbers of 128 bits are below *limit*."""
    limit_low, limit_high = np.uint64(limit & ((1 << 64) - 1)), np.int64(limit >> 64)
    return np.asarray((high < limit_high) | ((high == limit_high) & (low < limit_low)), np.bool_)


def _has_doubles(keys: pa.Array, owners: Int64s, count: int) -> Bools:
    """Return which maps name a key twice: the last of them counts, which reading one by one knows."""
    doubles = np.zeros(count, np.bool_)
    if len(keys):
        codes = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
        pairs = np.sort(owners * len(keys) + codes)
        doubles[pairs[1:][pairs[1:] == pairs[:-1]] // len(keys)] = True
    return doubles


def _unscaled(raw: bytes) -> int:
    if not raw:
        raise BadDatum("a decimal has no bytes")
    return int.from_bytes(raw, "big", signed=True)


def _decimal(unscaled: int, scale: int) -> Decimal:
    # Not by arithmetic, which would round to the context's precision.
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def _is_text(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True
