"""Reading one field of many records at once: a number, or a slice of bytes, at each of many places."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bytes: TypeAlias = npt.NDArray[np.uint8]
Int64s: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

_LAST_SHIFT = 63


def varints(data: Bytes, at: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Read one varint at every position of *at*.

    Args:
        data: with at least ten bytes behind the last position.
        at: where each begins.

    Returns:
        The numbers, the positions after them, and the indices of those that are longer than 64 bits need.
    """
    byte = data[at]
    raw = (byte & 0x7F).astype(np.uint64)
    at = at + 1
    more = np.flatnonzero(byte >= 0x80)
    shift = 7
    while more.size and shift <= _LAST_SHIFT:
        byte = data[at[more]]
        raw[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        at[more] += 1
        more = more[byte >= 0x80]
        shift += 7
    return (raw >> np.uint64(1)).astype(np.int64) ^ -(raw & np.uint64(1)).astype(np.int64), at, more


def gather(buffer: pa.Buffer, starts: Int64s, lengths: Int64s) -> pa.Array:
    """Return the slices of *buffer* as one binary array; a negative length is a null."""
    # One array whose even slots are the slices and whose odd slots are the gaps between them: `take` then copies the
    # slices in C++, and nothing else is copied.
    if not len(starts):
        return pa.array([], pa.binary())
    bounds = np.empty(2 * len(starts), dtype=np.int32)
    bounds[0::2] = starts
    bounds[1::2] = starts + np.maximum(lengths, 0)
    slots = pa.BinaryArray.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), buffer])
    nulls = lengths < 0
    return slots.take(pa.array(np.arange(0, len(bounds), 2, dtype=np.int32), mask=nulls if nulls.any() else None))
