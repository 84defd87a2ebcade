"""Compaction: of all records with one key the last stays, at its offset.

A pass notes the last offset of every key in the part that was never compacted, then writes closed segments anew without
what is outdated, neighbours together where they fit into one.  The active segment, records above the last stable offset
or the recovery point and those younger than `min.compaction.lag.ms` stay as they are.  A record without value, a
tombstone, outlives the pass that first meets it by `delete.retention.ms`, so that readers learn of it; that time is
kept in its batch (attribute bit 6, base timestamp), as Kafka does.  How far tombstones were removed is written down
first, for replicas that are away (`pylog.log.tombstones`).

Records of aborted transactions replace nothing and go at once.  A marker goes `delete.retention.ms` after the pass that
first meets no batch of its transaction, for followers and readers that have the batches and not yet the marker.

How the new segment takes the place of the old ones: `pylog.log.swap`.

Source: Kafka's Cleaner and DefaultRecordBatch, KIP-534.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

from pylog.errors import ApiError, StorageError
from pylog.log.checkpoint import sync_path
from pylog.log.jobs import Breath
from pylog.log.log import Log
from pylog.log.segment import RELATIVE_OFFSET_MAX, Segment
from pylog.log.swap import add_cleaned_index, cleaned_segment, remove_cleaned
from pylog.log.tombstones import NONE
from pylog.log.transactions import AbortedTransaction, TransactionsOfPass
from pylog.model import Offset
from pylog.wire.compression import NAMES
from pylog.wire.records import (
    COMPRESSION_MASK,
    DELETE_HORIZON,
    MAX_INT64,
    BatchHeader,
    Record,
    decode_records,
    encode_batch,
    parse_header,
)

_logger = logging.getLogger(__name__)

MAX_KEY_COUNT = 400_000
"""Keys one pass remembers, about 60 MB; what comes after them waits for the next pass."""

_DIGEST_BYTES = 16


class Plan(NamedTuple):
    """What a pass may touch.

    Attributes:
        segments: everything that may be written anew, oldest first.
        first_dirty_offset: what is below was compacted before.
        dirty_ratio: share of bytes that were not.
        is_overdue: `max.compaction.lag.ms` is over for a record that was not.
    """

    segments: list[Segment]
    first_dirty_offset: Offset
    dirty_ratio: float
    is_overdue: bool


def plan(log: Log, now_ms: int) -> Plan | None:
    """Return what a pass over *log* would touch, or None if there is nothing that was not compacted before."""
    end = min(log.last_stable_offset, log.recovery_point)
    segments: list[Segment] = []
    for segment in log.segments[:-1]:
        if segment.next_offset > end or segment.max_timestamp > now_ms - log.config.min_compaction_lag_ms:
            break
        segments.append(segment)
    if log.producers.unsure:
        return None  # whose last batches have to stay is not known yet
    first_dirty = log.compacted_offset
    dirty = [segment for segment in segments if segment.next_offset > first_dirty]
    dirty_bytes = sum(segment.size_bytes for segment in dirty)
    if not dirty_bytes:
        return None
    overdue_ms = now_ms - log.config.max_compaction_lag_ms
    is_overdue = any(0 <= segment.first_timestamp <= overdue_ms for segment in dirty)
    return Plan(segments, first_dirty, dirty_bytes / sum(segment.size_bytes for segment in segments), is_overdue)


class CompactionJob:
    """One pass over one log: `run` in a thread, `finish` where the log lives."""

    def __init__(
        self,
        log: Log,
        found: Plan,
        now_ms: int,
        breathe: Callable[[], None] | None = None,
        *,
        copied_offset: Offset | None = None,
    ) -> None:
        """Take note of what the pass needs to know of the log.

        Args:
            log: to be compacted.
            found: what of it; see `plan`.
            now_ms: the time.
            breathe: called between batches.
            copied_offset: tombstones from here on stay, since a replica is copying this log that has not come so far;
                None if nobody is.
        """
        config = log.config
        self.log = log
        self.error: Exception | None = None
        self._is_run = False
        self._plan = found
        self._now_ms = now_ms
        self._breathe = breathe or Breath().take
        self._horizon_ms = min(now_ms + config.delete_retention_ms, MAX_INT64)
        self._copied_offset = copied_offset
        self._removed_tombstone = NONE
        self._segment_bytes = config.segment_bytes
        self._interval_bytes = config.index_interval_bytes
        self._truncation_count = log.truncation_count
        # What a producer wrote last has to stay, if only as an empty batch: a restart learns its sequence from there.
        self._last_offsets = log.producers.last_offsets()
        self._marker_epochs = log.producers.marker_epochs()
        # Also of segments that stay: the marker may be there.
        self._indexes = [segment.aborted for segment in log.segments if segment.aborted is not None]
        self._transactions = TransactionsOfPass(())
        # And what ends the range, or a follower that has everything before it could never come to the log end.
        self._final_offset = found.segments[-1].next_offset - 1
        self._groups: list[tuple[list[Segment], Segment]] = []
        self._last_offset_by_key: dict[bytes, Offset] = {}
        self._mapped_offset: Offset = found.first_dirty_offset
        for segment in found.segments:
            segment.acquire()

    def run(self) -> None:
        """Write the compacted segments beside the others."""
        try:
            self._transactions = TransactionsOfPass(row for index in self._indexes for row in index.read())
            self._map_keys()
            touched = [one for one in self._plan.segments if one.base_offset < self._mapped_offset]
            for group in _groups(touched, self._segment_bytes):
                if not self._is_current():
                    return
                self._groups.append((group, self._rewrite(group)))
            if self._groups:
                sync_path(self.log.directory)
            # Before the tombstones are gone; if they stay in the end, this says too much, which does no harm.
            self.log.tombstones.note(self._removed_tombstone, self._is_current)
            self._is_run = True
        except Exception as error:  # noqa: BLE001  whatever it is, half a pass must not count as a whole one
            self.error = error
        finally:
            self._last_offset_by_key = {}

    def _is_current(self) -> bool:
        """Whether the log is still as the pass found it; if not, the directory may be another one's, too."""
        log = self.log
        return log.offline is None and not log.is_leaving and log.truncation_count == self._truncation_count

    def finish(self) -> None:
        """Put the new segments in the old ones' place, unless those have changed meanwhile.

        Raises:
            StorageError: the disk fails, and the partition is offline.
        """
        for segment in self._plan.segments:
            segment.release()
        log = self.log
        is_valid = self._is_run and self._is_current()
        for old, new in self._groups:
            if is_valid and log.has_segments(old):
                log.replace_segments(old, new)
            else:
                self._discard(new)
                is_valid = False  # a gap in what is compacted must not look compacted
        if is_valid:
            log.compacted_offset = max(log.compacted_offset, self._mapped_offset)
        if self.error is not None:
            remove_cleaned(log.directory)
            is_expected = isinstance(self.error, (OSError, StorageError, ApiError))
            trace = None if is_expected else self.error
            message = "compaction failed partition=%s reason=%s"
            _logger.error(message, log.topic_partition, self.error, exc_info=trace)

    @staticmethod
    def _discard(segment: Segment) -> None:
        for path in segment.paths:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)

    def _map_keys(self) -> None:
        """Note the last offset of every key from the first dirty offset on, as far as memory is granted."""
        last_offsets = self._last_offset_by_key
        for segment in self._plan.segments:
            if segment.next_offset <= self._plan.first_dirty_offset:
                continue
            for position, header in segment.batches():
                if header.last_offset < self._plan.first_dirty_offset or header.is_control:
                    continue
                if self._transactions.find_aborted(header) is not None:
                    continue  # it replaces nothing
                if len(last_offsets) + header.record_count > MAX_KEY_COUNT and last_offsets:
                    return
                for record in _records(segment, position, header):
                    if record.key is not None:
                        last_offsets[_digest(record.key)] = record.offset
                self._mapped_offset = header.last_offset + 1
                self._breathe()
            self._mapped_offset = segment.next_offset

    def _rewrite(self, group: Sequence[Segment]) -> Segment:
        new = cleaned_segment(self.log.directory, group[0].base_offset)
        aborted: list[AbortedTransaction] = []
        try:
            for segment in group:
                self._copy(segment, new, aborted)
            # As old as its newest part: retention by the file's time, where it counts, must not begin again.
            modified_ns = group[-1].path.stat().st_mtime_ns
            os.utime(new.path, ns=(modified_ns, modified_ns))
            os.fsync(new.fd)
        finally:
            os.close(new.fd)  # it is opened again when it is read
            new.fd = -1
        new.next_offset = group[-1].next_offset
        new.forget_recent()
        if not new.close_indexes():
            raise StorageError(f"{new.index.path}: cannot be written")
        if aborted:
            add_cleaned_index(new, aborted)
        return new

    def _copy(self, segment: Segment, new: Segment, aborted: list[AbortedTransaction]) -> None:
        for position, header in segment.batches():
            is_needed = self._transactions.meet(header)
            row = self._transactions.find_aborted(header) if is_needed else None
            if row is not None:
                aborted.append(row)
            if header.is_control:
                data = self._kept_marker(segment, position, header, is_needed=is_needed)
            else:
                data = self._compacted(segment, position, header)
            if data is not None:
                at, left = new.size_bytes, memoryview(data)
                while left:
                    count = os.pwrite(new.fd, left, at)
                    at, left = at + count, left[count:]
                new.note(new.size_bytes, parse_header(data), self._interval_bytes)
            self._breathe()

    def _compacted(self, segment: Segment, position: int, header: BatchHeader) -> bytes | memoryview | None:
        """Return what stays of one batch; None if nothing does."""
        whole = segment.read_batch(position, header.size_bytes)
        if header.last_offset >= self._mapped_offset:
            return whole  # what is not mapped waits: a tombstone must not go before what it deletes
        is_last = (
            self._last_offsets.get(header.producer_id) == header.last_offset or header.last_offset == self._final_offset
        )
        if not header.record_count:
            return whole if is_last else None
        is_aborted = self._transactions.find_aborted(header) is not None
        records = [] if is_aborted else decode_records(whole, header)
        kept = [record for record in records if self._is_kept(record, header)]
        if not kept:
            return _emptied(header) if is_last else None
        horizon_ms = None
        if any(record.value is None for record in kept):
            horizon_ms = header.base_timestamp if header.attributes & DELETE_HORIZON else self._horizon_ms
        is_marked = bool(header.attributes & DELETE_HORIZON) or horizon_ms is None
        if len(kept) == len(records) and is_marked:
            return whole
        return _rebuilt(kept, header, horizon_ms)

    def _kept_marker(
        self, segment: Segment, position: int, header: BatchHeader, *, is_needed: bool
    ) -> bytes | memoryview | None:
        """Return what stays of a control batch; None if nothing does."""
        whole = segment.read_batch(position, header.size_bytes)
        is_last = (
            self._marker_epochs.get(header.producer_id) == header.producer_epoch
            or header.last_offset == self._final_offset
        )
        if is_needed or is_last or header.last_offset >= self._mapped_offset:
            return whole
        if not header.record_count:
            return None
        if not header.attributes & DELETE_HORIZON:
            return _rebuilt(decode_records(whole, header), header, self._horizon_ms)
        is_to_be_copied = self._copied_offset is not None and header.last_offset >= self._copied_offset
        if header.base_timestamp >= self._now_ms or is_to_be_copied:
            return whole
        # A replica that ends before it has the batches, and without the marker they would be open there for ever.
        self._removed_tombstone = max(self._removed_tombstone, header.last_offset)
        return None

    def _is_kept(self, record: Record, header: BatchHeader) -> bool:
        if record.key is None:
            return False  # written before the topic was compacted; no later record can replace it
        last_offset = self._last_offset_by_key.get(_digest(record.key), -1)
        if record.offset < last_offset:
            return False
        if record.value is not None or not header.attributes & DELETE_HORIZON:
            return True
        is_to_be_copied = self._copied_offset is not None and record.offset >= self._copied_offset
        if header.base_timestamp >= self._now_ms or is_to_be_copied:
            return True
        self._removed_tombstone = max(self._removed_tombstone, record.offset)
        return False


def _groups(segments: Sequence[Segment], max_bytes: int) -> Iterator[list[Segment]]:
    """Yield neighbours that fit into one segment together."""
    group: list[Segment] = []
    for segment in segments:
        size_bytes = sum(one.size_bytes for one in group) + segment.size_bytes
        is_far = bool(group) and segment.next_offset - group[0].base_offset > RELATIVE_OFFSET_MAX
        if group and (size_bytes > max_bytes or is_far):
            yield group
            group = []
        group.append(segment)
    if group:
        yield group


def _records(segment: Segment, position: int, header: BatchHeader) -> list[Record]:
    return decode_records(segment.read_batch(position, header.size_bytes), header) if header.record_count else []


def _digest(key: bytes) -> bytes:
    """Return what stands for *key*: itself if short, else a hash that no two keys share by chance."""
    return key if len(key) < _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()


def _emptied(header: BatchHeader) -> bytes:
    """Return the batch without records: offsets, epochs and sequence stay."""
    return encode_batch(
        [],
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        attributes=header.attributes & ~(DELETE_HORIZON | COMPRESSION_MASK),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        leader_epoch=header.partition_leader_epoch,
    )


def _rebuilt(kept: Sequence[Record], header: BatchHeader, horizon_ms: int | None) -> bytes:
    """Return the batch with these of its records only, and with the time until which its tombstones stay."""
    attributes = header.attributes & ~(DELETE_HORIZON | COMPRESSION_MASK)
    return encode_batch(
        kept,
        compression_type=NAMES[header.compression],
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        base_timestamp=kept[0].timestamp if horizon_ms is None else horizon_ms,
        # Under log append time this is the time of all records.
        max_timestamp=header.max_timestamp if header.is_log_append_time else None,
        attributes=attributes | (DELETE_HORIZON if horizon_ms is not None else 0),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        leader_epoch=header.partition_leader_epoch,
    )
