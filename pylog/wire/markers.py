"""The marker that ends a transaction in a partition: a control batch with one record.

key   => version: int16 (0), type: int16        0 aborts, 1 commits
value => version: int16 (0), coordinator_epoch: int32
header   => `DECIDED_HEADER`: decided_ms: int64      of markers of pylog's coordinators; Kafka ignores it

Source: Kafka's EndTxnMarker and ControlRecordType.
"""

import struct
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from pylog.errors import CorruptRecords
from pylog.model import Offset
from pylog.wire import records
from pylog.wire.records import CONTROL, TRANSACTIONAL, BatchHeader, Record

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_DECIDED = struct.Struct(">q")
_VERSION = 0
_ABORT, _COMMIT = 0, 1

DECIDED_HEADER = "pylog.decided_ms"
"""Name of the header that tells the transactions of one producer epoch apart."""

NOT_DECIDED = -1


class Marker(NamedTuple):
    """The end of a transaction; its producer stands in the header of the batch.

    Attributes:
        decided_ms: when the coordinator wrote the decision down, by its own clock: the same in all markers of one
            transaction.  NOT_DECIDED in markers of Kafka and of tools.
    """

    is_commit: bool
    coordinator_epoch: int
    decided_ms: int = NOT_DECIDED


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
    headers: list[tuple[str, bytes | None]] = []
    if marker.decided_ms != NOT_DECIDED:
        headers.append((DECIDED_HEADER, _DECIDED.pack(marker.decided_ms)))
    return records.encode_batch(
        [Record(base_offset, timestamp, key, _VALUE.pack(_VERSION, marker.coordinator_epoch), headers)],
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
            return Marker(kind == _COMMIT, _VALUE.unpack_from(value)[1], _decided_ms(record))
    return None


def _decided_ms(record: Record) -> int:
    for name, content in record.headers:
        if name == DECIDED_HEADER and content is not None and len(content) == _DECIDED.size:
            return int(_DECIDED.unpack(content)[0])
    return NOT_DECIDED


def without_aborted(
    batches: Iterable[tuple[int, BatchHeader]], aborted: Iterable[tuple[int, Offset]]
) -> list[tuple[int, BatchHeader]]:
    """Return *batches* without those of aborted transactions; markers stay.

    Args:
        batches: (position, header) of all batches of one fetch, in their order.
        aborted: (producer id, first offset) of the aborted transactions that the answer of this fetch names.

    Source: KIP-98; a producer is left out from the first offset of its transaction on, up to its marker.
    """
    waiting = deque(sorted(aborted, key=lambda row: row[1]))
    left_out: set[int] = set()
    kept = []
    for position, header in batches:
        while waiting and waiting[0][1] <= header.last_offset:
            left_out.add(waiting.popleft()[0])
        if header.is_control:
            left_out.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in left_out:
            continue
        kept.append((position, header))
    return kept
