"""The marker that ends a transaction in a partition: a control batch with one record.

key   => version: int16 (0), type: int16        0 aborts, 1 commits
value => version: int16 (0), coordinator_epoch: int32

Source: Kafka's EndTxnMarker and ControlRecordType.
"""

import struct
from typing import NamedTuple

from pylog.errors import CorruptRecords
from pylog.wire import records
from pylog.wire.records import CONTROL, TRANSACTIONAL, BatchHeader, Record

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_VERSION = 0
_ABORT, _COMMIT = 0, 1


class Marker(NamedTuple):
    """The end of a transaction; its producer stands in the header of the batch."""

    is_commit: bool
    coordinator_epoch: int


def encode_marker(
    producer_id: int,
    producer_epoch: int,
    marker: Marker,
    timestamp: int,
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """Return the batch that ends the transaction of a producer."""
    key = _KEY.pack(_VERSION, _COMMIT if marker.is_commit else _ABORT)
    return records.encode_batch(
        [Record(base_offset, timestamp, key, _VALUE.pack(_VERSION, marker.coordinator_epoch))],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=TRANSACTIONAL | CONTROL,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def decode_marker(view: memoryview, header: BatchHeader, position: int = 0) -> Marker | None:
    """Return what a control batch says; None if it ends no transaction, or compaction removed its record.

    Raises:
        CorruptRecords: the record contradicts itself.
    """
    for record in records.decode_records(view, header, position):
        key, value = record.key or b"", record.value or b""
        if len(key) < _KEY.size or len(value) < _VALUE.size:
            raise CorruptRecords(f"control record of {len(key)} and {len(value)} bytes at offset {record.offset}")
        # Later versions only add fields at the end, as Kafka promises.
        _, kind = _KEY.unpack_from(key)
        if kind in (_ABORT, _COMMIT):
            return Marker(kind == _COMMIT, _VALUE.unpack_from(value)[1])
    return None
