"""One partition's log: append at the end, read anywhere, let go at the beginning.

A log lives in one thread, that of the broker's loop.  Work that may wait for a disk is put into `jobs`; whoever made
that queue runs it elsewhere (`pylog.log.jobs`).  Files and their names are Apache Kafka's.
"""

import contextlib
import logging
import os
import struct
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

from pylog.errors import ApiError, CorruptRecords, ErrorCode, OffsetOutOfRange, StorageError
from pylog.log import search
from pylog.log.batch_file import DISK_FULL, NO_DESCRIPTORS, OutOfDescriptors
from pylog.log.checkpoint import BOOT_ID, PARTITION_METADATA
from pylog.log.config import LogConfig
from pylog.log.intake import treat_time
from pylog.log.jobs import Job, SyncJob, UnlinkJob
from pylog.log.producers import UNKNOWN, Producers
from pylog.log.recovery import NOWHERE, LoadedLog, load_log
from pylog.log.recovery_point import RecoveryPoint
from pylog.log.replay import ReplayJob, replay_producers
from pylog.log.retention import DeletedSegment, expired_segments
from pylog.log.segment import FileSlice, Segment
from pylog.log.segments import Segments
from pylog.log.tombstones import RemovedTombstones
from pylog.log.transactions import AbortedTransaction, Transactions
from pylog.model import Offset, TopicPartition
from pylog.wire.markers import Marker, decode_marker
from pylog.wire.records import (
    CONTROL,
    LOG_APPEND_TIME,
    BatchHeader,
    check_stored_batch,
    iter_batches,
)

_logger = logging.getLogger(__name__)

_FRONT = struct.Struct(">qii")  # base_offset, batch_length, partition_leader_epoch

_ALWAYS = 1 << 64
"""More than any two timestamps differ by."""

_NEVER = 2**63 - 1

_NO_MARKERS: dict[Offset, Marker | None] = {}
"""Never filled: an append makes its own with the first marker it meets."""


@dataclass(slots=True)
class AppendResult:
    """Where a batch went.

    Attributes:
        log_append_time_ms: the broker's time if the topic asks for it, else -1.
        is_duplicate: the batch had been stored before, at these offsets; nothing was written.  With base offset -1 it
            was so long ago that nobody knows where, only that it ends at or before *last_offset*.
    """

    base_offset: Offset
    last_offset: Offset
    log_append_time_ms: int = -1
    is_duplicate: bool = False


class Log:
    """The log of one partition.

    Attributes:
        log_start_offset: first offset that may be read.
        start_on_disk: log start offset in the checkpoint file; a start after a power cut begins there or later.
        start_in_checkpoints: the largest log start offset that the checkpoint file has, or that a checkpoint has which
            is being written.
        high_watermark: first offset consumers may not read yet; set by whoever knows the replicas.
        log_end_offset: offset the next record gets.
            Invariant: log_start_offset <= high_watermark <= log_end_offset.
        is_flushing: `flush.messages` or `flush.ms` asks for syncs; see `is_sync_due`.
        offline: why nothing is read or written any more, or None.
        is_leaving: nobody is served from it any more, and a thread may take its files away: nothing is synced.
        is_compacted: only the last record of each key stays, so every record needs one.
        was_compacted: it is or was so, and records may lack that a later one of their key replaced.
        is_looking_inside: a producer's batch has to pass `pylog.log.intake` before it is appended.
        compacted_offset: everything below went through a compaction.
        truncation_count: grows when something is cut off, so that work begun before is dropped.
        epochs: which leader epoch wrote what.
        producers: idempotent producers.
        tombstones: those that compaction removed.
        jobs: work to run elsewhere.
        write_checkpoints: writes the offset checkpoints of all logs of the disk; called where the one on disk would
            hide or trust what it must not, before the log is cut or grows.
    """

    __slots__ = (
        "_active", "_after_ms", "_before_ms", "_config", "_leader_epoch", "_recovery_point", "_segments",
        "compacted_offset", "directory", "epochs", "high_watermark", "is_compacted", "is_flushing",
        "is_leaving", "is_looking_inside", "jobs", "log_end_offset", "log_start_offset", "offline", "producers",
        "start_in_checkpoints", "start_on_disk", "tombstones", "topic_partition", "truncation_count",
        "was_compacted", "write_checkpoints",
    )  # fmt: skip

    def __init__(
        self,
        directory: Path,
        topic_partition: TopicPartition,
        config: LogConfig,
        loaded: LoadedLog,
        jobs: deque[Job],
        write_checkpoints: Callable[[], None],
    ) -> None:
        self.directory = directory
        self.topic_partition = topic_partition
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.tombstones = RemovedTombstones(directory)
        self.jobs = jobs
        self.write_checkpoints = write_checkpoints
        self.offline: StorageError | None = None
        self.is_leaving = False
        self.was_compacted = False
        self._segments = Segments(directory, loaded.segments)
        self._active = self._segments.active
        self._leader_epoch = self.epochs.latest
        self.truncation_count = 0
        self.compacted_offset: Offset = 0
        self.log_end_offset: Offset = self._active.next_offset
        self.log_start_offset: Offset = self._segments.base_offset
        self.start_on_disk: Offset = 0
        self.start_in_checkpoints: Offset = 0
        self.high_watermark: Offset = self.log_start_offset
        self._recovery_point = RecoveryPoint(self.log_start_offset)
        self.tombstones.load(self.log_end_offset)
        self.configure(config)

    @classmethod
    def open(
        cls,
        directory: Path,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        now_ms: int,
        clean: bool,
        recovery_point: Offset = 0,
        log_start_offset: Offset = 0,
        high_watermark: Offset = 0,
        jobs: deque[Job] | None = None,
        write_checkpoints: Callable[[], None] = lambda: None,
        on_segment: Callable[[], None] = lambda: None,
    ) -> "Log":
        """Open the log in *directory*, which is made if missing.

        Args:
            directory: the partition's own.
            topic_partition: whose log it is.
            config: its settings.
            now_ms: the time.
            clean: the last stop was clean; otherwise everything from *recovery_point* on is checked.
            recovery_point: from the checkpoint; everything below survived a sync; NOWHERE if that file is lost.
            log_start_offset: from the checkpoint.
            high_watermark: from the checkpoint; brought into the log's bounds.
            jobs: where work for other threads goes; without it, whoever opened the log takes it from `jobs`.
            write_checkpoints: see the attribute; raises StorageError if the disk refuses.
            on_segment: called after each segment whose batches were checked.

        Raises:
            StorageError: the partition is offline: the disk fails, or synced data is damaged.
        """
        loaded = load_log(
            directory,
            config,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            on_segment=on_segment,
        )
        try:
            log = cls(directory, topic_partition, config, loaded, deque() if jobs is None else jobs, write_checkpoints)
            log.log_start_offset = max(log.log_start_offset, log_start_offset)
            log.start_on_disk = log.start_in_checkpoints = log_start_offset
            log.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
            # Recovery checked what is above the old recovery point, but synced nothing; a clean stop synced everything.
            checked = max(min(recovery_point, log.log_end_offset), log._segments.base_offset)
            log._recovery_point.offset = log.log_end_offset if clean else checked
            log.epochs.truncate_start(log.log_start_offset, save=bool(log.size_bytes))
            log.producers.begin_again(now_ms, config.producer_id_expiration_ms)
            if not clean and recovery_point == NOWHERE:
                log.flush()  # so that there is a point again, above whatever compaction did
            if not clean and log.size_bytes:
                # The check noted every producer; without this the next crash would make it read as much again.
                log.snapshot_producers()
        except BaseException as error:
            for segment in loaded.segments:
                segment.release()
            if isinstance(error, ApiError):
                raise StorageError(str(error)) from error.__cause__
            raise
        return log

    @property
    def config(self) -> LogConfig:
        """The settings in force."""
        return self._config

    @property
    def recovery_point(self) -> Offset:
        """Everything below survives a power cut."""
        return self._recovery_point.offset

    @property
    def lasting_start_offset(self) -> Offset:
        """The log start offset that survives a power cut: records below it are not shown again."""
        return min(self.log_start_offset, self.start_on_disk)

    @property
    def countable_end_offset(self) -> Offset:
        """The end that counts for the high watermark: the synced one where `flush.*` asks for syncs (rule 8)."""
        return self.recovery_point if self.is_flushing else self.log_end_offset

    @property
    def last_stable_offset(self) -> Offset:
        """Where read_committed consumers stop: before the first transaction that is not decided on all replicas.

        A decision counts once its marker is below the high watermark, since the next leader may lack it until then.
        """
        transactions = self.producers.transactions
        if transactions is None:
            return self.high_watermark
        transactions.replicated(self.high_watermark)
        return transactions.last_stable_offset(self.log_start_offset, self.high_watermark)

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return self._segments.size_bytes

    @property
    def segments(self) -> Sequence[Segment]:
        """All segments, oldest first; the last is active."""
        return tuple(self._segments)

    def configure(self, config: LogConfig) -> None:
        """Take new settings; they hold from the next append on."""
        self._config = config
        self.is_compacted = config.is_compacting
        self.was_compacted = self.was_compacted or self.is_compacted
        self.is_looking_inside = config.is_looking_inside
        self.is_flushing = config.is_flushing
        # Here too, because they are compared for every batch; those of log append time are all to be treated.
        self._before_ms = config.message_timestamp_before_max_ms
        self._after_ms = -_ALWAYS if config.is_log_append_time else config.message_timestamp_after_max_ms
        self._active.limit(config)

    # Appending

    def check_size(self, size_bytes: int) -> None:
        """Refuse a batch that is larger than the topic allows.

        Raises:
            ApiError: MESSAGE_TOO_LARGE.
        """
        if size_bytes > self._config.max_message_bytes:
            message = f"{size_bytes} bytes; max.message.bytes is {self._config.max_message_bytes}"
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, message)

    def find_stored(self, header: BatchHeader) -> AppendResult | None:
        """Return where a producer's batch is, if it was stored before; None if it was not.

        Raises:
            ApiError: NOT_LEADER_OR_FOLLOWER: nobody can say yet, since a truncation took the producer's last batches.
        """
        if header.producer_id < 0:
            return None
        try:
            stored = self.producers.check(header)
        except ApiError as error:
            if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise
            return None
        return None if stored is None else AppendResult(stored.base_offset, stored.last_offset, is_duplicate=True)

    def append_as_leader(
        self,
        batch: memoryview,
        header: BatchHeader,
        leader_epoch: int,
        now_ms: int,
        marker: Marker | None = None,
        *,
        is_coordinators: bool = False,
        allowed_bytes: int = 0,
    ) -> AppendResult:
        """Append one checked batch from a producer, or a marker from the coordinator of its transactions.

        Base offset and leader epoch are patched into *batch* itself, and the bytes are written from there: nothing is
        copied.

        Args:
            batch: writable view of exactly the batch.
            header: what `check_batch` returned for it.
            leader_epoch: the epoch under which this broker leads.
            now_ms: the time.
            marker: what the batch says, if it ends a transaction.
            is_coordinators: a group coordinator wrote the batch in the name of a producer, whose own sequence numbers
                it does not have: it is no repetition of another one, whatever its sequence.
            allowed_bytes: a batch of this size is taken, however little the topic allows.

        Raises:
            ApiError: the batch is refused, or the disk is full; nothing was appended.
            StorageError: the partition is offline.
        """
        if self.offline is not None:
            raise self.offline
        size_bytes = len(batch)
        if size_bytes > self._config.max_message_bytes and size_bytes > allowed_bytes and marker is None:
            self.check_size(size_bytes)  # without a marker of any size, readers would wait for ever
        if marker is not None:
            self.producers.check_marker(header, marker)
        elif is_coordinators:
            self.producers.check_epoch(header)
        elif header.producer_id >= 0:
            stored = self.producers.check(header)
            if stored is not None:
                return AppendResult(stored.base_offset, stored.last_offset, is_duplicate=True)
        log_append_time_ms = -1
        if (
            header.attributes & LOG_APPEND_TIME
            or header.max_timestamp - now_ms > self._after_ms
            or now_ms - header.base_timestamp > self._before_ms
        ):
            log_append_time_ms = treat_time(batch, header, self._config, now_ms)
        max_timestamp = header.max_timestamp
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        segment = self._active
        if (
            segment.size_bytes + size_bytes > segment.roll_bytes
            or max_timestamp > segment.roll_timestamp
            or last_offset > segment.last_possible_offset
        ):
            segment = self._make_room(base_offset, 0 if size_bytes <= allowed_bytes else size_bytes)
        if leader_epoch != self._leader_epoch:
            self._begin_epoch(leader_epoch)
        _FRONT.pack_into(batch, 0, base_offset, header.batch_length, leader_epoch)
        try:
            written = os.pwrite(segment.fd, batch, segment.size_bytes)
        except OSError as error:
            self._undo_write(segment, error)
        if written != size_bytes:
            self._write_rest(segment, batch, written)
        if not segment.size_bytes:
            segment.begin(max_timestamp if max_timestamp >= 0 else now_ms, self._config)
        segment.add(last_offset, size_bytes, max_timestamp, self._config.index_interval_bytes)
        self.log_end_offset = last_offset + 1
        if header.producer_id >= 0:
            aborted = self.producers.note(header, base_offset, now_ms, marker)
            if aborted is not None:
                self._index_aborted(aborted)
        return AppendResult(base_offset, last_offset, log_append_time_ms)

    def _index_aborted(self, aborted: AbortedTransaction) -> None:
        """Note an aborted transaction in the index of the active segment, which has its marker."""
        try:
            self._active.add_aborted(aborted)
        except StorageError as error:
            raise self.go_offline(str(error)) from error

    def append_as_follower(self, batches: memoryview, now_ms: int = UNKNOWN) -> AppendResult:
        """Append what the leader sent, byte for byte; a partial batch at the end is dropped.

        Args:
            batches: one or more batches whose offsets and epochs the leader has set.
            now_ms: the time, from which the age of their idempotent producers counts.

        Returns:
            First and last offset appended; last is below first if there was no whole batch.

        Raises:
            ApiError: a batch is damaged or does not follow what is here; those before it were appended.
            StorageError: the partition is offline.
        """
        if self.offline is not None:
            raise self.offline
        start_offset = self.log_start_offset
        base_offset = end_offset = self.log_end_offset
        run: list[BatchHeader] = []
        markers = _NO_MARKERS
        begin = end = 0  # of the run in *batches*
        try:
            for position, header in iter_batches(batches):
                check_stored_batch(batches, position)
                if header.base_offset < end_offset and (run or not self._begins_inside(header)):
                    raise CorruptRecords(f"leader sent offset {header.base_offset}, {end_offset} is next")
                if run and not (self._active.has_room(run[0]) and self._active.has_room(header, end - begin)):
                    done, run = run, []
                    self._append_stored(batches[begin:end], done, now_ms, markers)
                if header.attributes & CONTROL:
                    if markers is _NO_MARKERS:
                        markers = {}
                    markers[header.base_offset] = decode_marker(batches, header, position)
                if not run:
                    begin = position
                run.append(header)
                end, end_offset = position + header.size_bytes, header.last_offset + 1
        finally:
            # Also what stands before a damaged batch.
            if run and self.offline is None:
                self._append_stored(batches[begin:end], run, now_ms, markers)
                if self.log_start_offset < start_offset:  # it began inside the first batch
                    self.log_start_offset = start_offset
                    self.high_watermark = max(self.high_watermark, start_offset)
        return AppendResult(base_offset, self.log_end_offset - 1)

    def _begins_inside(self, header: BatchHeader) -> bool:
        """Whether an empty log gets the batch that holds its first offset, after DeleteRecords cut into it.

        Then the log begins anew at that batch, and begins later again once the batch is written: the disk may refuse.
        """
        if self.size_bytes or header.last_offset < self.log_end_offset:
            return False
        self.truncate_fully_and_start_at(header.base_offset, self.producers.encode(header.base_offset))
        return True

    def _append_stored(
        self,
        batches: memoryview,
        headers: Sequence[BatchHeader],
        now_ms: int,
        markers: Mapping[Offset, Marker | None],
    ) -> None:
        """Append batches of one segment, the active one or, if the first has no room there, the next.

        What those that end transactions say is in *markers*, by base offset.
        """
        segment = self._active
        if not segment.has_room(headers[0]):
            # Named for the log end, not for a batch after a gap: then a hole between two files is damage.
            segment = self._make_room(self.log_end_offset)
        end_offset = self.log_end_offset
        for header in headers:
            if header.partition_leader_epoch > self._leader_epoch:
                # Where the batch before ends, see `LeaderEpochs`.
                self._begin_epoch(header.partition_leader_epoch, end_offset)
            end_offset = header.last_offset + 1
        self._save_epochs()  # if refused at a truncation; a start would take the old ones for the truth
        self._save_lower_start()
        self._write_rest(segment, batches, 0)
        for header in headers:
            if not segment.size_bytes:
                segment.begin(header.max_timestamp, self._config)
            if header.base_offset > segment.next_offset:
                segment.skip_to(header.base_offset)
            segment.add(header.last_offset, header.size_bytes, header.max_timestamp, self._config.index_interval_bytes)
            self.log_end_offset = header.last_offset + 1
            if header.producer_id >= 0:
                marker = markers.get(header.base_offset) if markers else None
                aborted = self.producers.note(header, header.base_offset, now_ms, marker)
                if aborted is not None:
                    self._index_aborted(aborted)

    def begin_leader_epoch(self, leader_epoch: int) -> None:
        """Note that this broker leads under *leader_epoch* from the log end on.

        It is written down with its first batch: until then nothing on any disk is of it, and a broker that takes over
        thousands of partitions has no time for thousands of files.
        """
        self.epochs.assign(leader_epoch, self.log_end_offset, save=False)

    def remember_epoch(self, epoch: int) -> None:
        """Let an empty log keep the epoch of the record before it: without one it would lose every comparison.

        Raises:
            StorageError: the disk refuses the file; the log keeps the epoch, and the next append writes it.
        """
        if epoch >= 0 and self.log_start_offset == self.log_end_offset and not self.epochs.entries():
            self.epochs.assign(epoch, self.log_end_offset, save=False)
            self.epochs.save(durable=True)  # nothing else says it

    def _begin_epoch(self, leader_epoch: int, start_offset: Offset | None = None) -> None:
        self._save_lower_start()  # if refused at a truncation
        self.epochs.assign(leader_epoch, self.log_end_offset if start_offset is None else start_offset, save=False)
        self._save_epochs()
        self._leader_epoch = leader_epoch

    def _save_epochs(self) -> None:
        """Write the file of epochs if it is behind; whatever the disk says, what is in memory is right (rule 7)."""
        if not self.epochs.is_saved:
            self.epochs.save()

    def _save_lower_start(self) -> None:
        """Write a checkpoint if the log begins earlier than one says: a start would hide the records between.

        An older one that is still being written is void from then on.

        Raises:
            StorageError: the disk refuses.
        """
        if self.start_in_checkpoints > self.log_start_offset:
            self.write_checkpoints()
            self.start_in_checkpoints = self.log_start_offset

    def _make_room(self, base_offset: Offset, size_bytes: int = 0) -> Segment:
        """Begin a segment at *base_offset*, unless the active one does and is empty."""
        if size_bytes > self._config.segment_bytes:
            message = f"batch of {size_bytes} bytes, a segment has {self._config.segment_bytes}"
            raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, message)
        self.roll(base_offset)
        return self._active

    def _write_rest(self, segment: Segment, batch: memoryview, written: int) -> None:
        try:
            while written < len(batch):
                written += os.pwrite(segment.fd, batch[written:], segment.size_bytes + written)
        except OSError as error:
            self._undo_write(segment, error)

    def _undo_write(self, segment: Segment, error: OSError) -> NoReturn:
        """Cut off what a failed write left, before anything else (rule 7).

        Raises:
            ApiError: the disk is full; reads go on, and the next append tries again.
            StorageError: anything else; the partition is offline.
        """
        try:
            os.ftruncate(segment.fd, segment.size_bytes)
        except OSError as second:
            raise self.go_offline(f"{segment.path}: {error.strerror}, then cannot cut: {second.strerror}") from error
        if error.errno in DISK_FULL:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{segment.path}: {error.strerror}") from error
        raise self.go_offline(f"{segment.path}: write failed: {error.strerror}") from error

    def go_offline(self, message: str) -> StorageError:
        """Refuse everything from now on; return the error to raise."""
        self.offline = StorageError(message)
        with contextlib.suppress(OSError):
            # The kernel may have dropped what it could not write: the next process must not trust the page cache.
            (self.directory.parent / BOOT_ID).unlink(missing_ok=True)
        return self.offline

    # Reading

    def read(
        self, offset: Offset, max_bytes: int, *, upper_bound_offset: Offset, min_one_batch: bool
    ) -> FileSlice | None:
        """Return the bytes from the batch that holds *offset* on, of one segment, or None if there are none yet.

        The slice may end inside a batch; it begins with a whole one.

        Args:
            offset: wanted first.
            max_bytes: limit, which only the first batch may exceed.
            upper_bound_offset: nothing at or above it is returned: the high watermark for a consumer.
            min_one_batch: return the first batch even if it alone exceeds *max_bytes*.

        Raises:
            OffsetOutOfRange: below the log start or above the log end.
            StorageError: the partition is offline, or its file is damaged.
        """
        if self.offline is not None:
            raise self.offline
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(f"offset {offset} is outside [{self.log_start_offset}, {self.log_end_offset}]")
        if offset >= upper_bound_offset:
            return None
        try:
            return self._segments.slice(offset, max_bytes, upper_bound_offset, min_one_batch)
        except StorageError as error:
            self.offline = error
            raise

    def aborted_transactions(self, offset: Offset, found: FileSlice) -> list[tuple[int, Offset]]:
        """Return (producer id, first offset) of each aborted transaction that may have records in *found*.

        Args:
            offset: what `read` was asked for.
            found: what it returned.

        Raises:
            OutOfDescriptors: not now.
            StorageError: an index is damaged, and the partition is offline.
        """
        with self._going_offline():
            end_offset = found.segment.offset_above(found.position + found.size_bytes)
            rows = self._segments.aborted(found.segment, offset, end_offset)
        return [(row.producer_id, row.first_offset) for row in rows]

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, Offset] | None:
        """Return (timestamp, offset) of the first record not older than *timestamp*, or None.

        Raises:
            StorageError: the file is damaged.
            CorruptRecords: the batch in question does not decode.
        """
        for part in self.parts_not_older(timestamp):
            with self._going_offline():
                found = search.first_not_older(part, timestamp, self.log_start_offset)
            if found is not None:
                return found
        return None

    def parts_not_older(self, timestamp: int) -> Iterator[FileSlice]:
        """Yield parts of segments to look through for a record of *timestamp* or later, in order; see `search`.

        Raises:
            StorageError: the file is damaged.
        """
        offset = self.log_start_offset
        while True:
            with self._going_offline():
                part = self._segments.part_not_older(timestamp, offset)
            if part is None:
                return
            offset = part.segment.next_offset
            yield part

    @property
    def max_timestamp(self) -> int:
        """Largest timestamp of all records, -1 if there is none."""
        return self._segments.max_timestamp

    def offset_of_max_timestamp(self) -> tuple[int, Offset] | None:
        """Return (timestamp, offset) of the first record with the largest timestamp, or None if there is none.

        Raises:
            StorageError: the file is damaged.
            CorruptRecords: the batch in question does not decode.
        """
        largest = self.max_timestamp
        return self.offset_for_timestamp(largest) if largest >= 0 else None

    def offset_for_leader_epoch(self, epoch: int) -> tuple[int, Offset]:
        """Return (largest known epoch not above *epoch*, offset after its last record); (-1, -1) if unknown."""
        return self.epochs.end_offset(epoch, self.log_end_offset)

    def readable_end_of_epoch(self, epoch: int) -> tuple[int, Offset]:
        """Return the same for a consumer, which takes an end below its position for a sign that records were lost.

        Where compaction left a gap, the end is behind it: a consumer may have read what was there.

        Raises:
            StorageError: the partition is offline, or its file is damaged.
        """
        found, end_offset = self.offset_for_leader_epoch(epoch)
        if found < 0 or end_offset >= self.log_end_offset:
            return found, end_offset
        if self.offline is not None:
            raise self.offline
        with self._going_offline():
            following = self._segments.next_batch_offset(end_offset)
        return found, end_offset if following is None else max(end_offset, following)

    # Upkeep

    def roll(self, base_offset: Offset | None = None) -> None:
        """Close the active segment and begin the next; an empty one stays.

        Raises:
            ApiError: the disk is full, or there is no descriptor for another file; the active segment stays.
            StorageError: the partition is offline.
        """
        base_offset = self.log_end_offset if base_offset is None else base_offset
        if base_offset == self._active.base_offset:
            return
        with self._beginning():
            self._segments.begin(base_offset)
        self._activate()
        self.snapshot_producers()
        with contextlib.suppress(ApiError):  # a later sync makes up for it
            job = self.begin_sync(until=base_offset)
            if job is not None:
                self.jobs.append(job)

    def _end_roll(self, base_offset: Offset, lowered_count: int, truncation_count: int) -> None:
        """Take note that everything below *base_offset* is synced, and the snapshot there."""
        self._recovery_point.end_sync(base_offset, lowered_count)
        if truncation_count == self.truncation_count:
            self.producers.note_synced(base_offset)

    @contextmanager
    def _beginning(self) -> Iterator[None]:
        """Refuse to begin a segment for want of room or descriptors; nothing has changed then."""
        try:
            yield
        except OSError as error:
            if error.errno in DISK_FULL | NO_DESCRIPTORS:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.directory}: {error.strerror}") from error
            raise self.go_offline(f"{self.directory}: cannot begin a segment: {error.strerror}") from error

    def snapshot_producers(self) -> None:
        """Write down who has sent what, unless the disk refuses: then the next start reads more batches."""
        with contextlib.suppress(StorageError):
            self.producers.snapshot(self.log_end_offset)

    def _activate(self) -> None:
        self._active = self._segments.active
        self._active.limit(self._config)

    def is_sync_due(self, now_ms: int) -> bool:
        """Whether `flush.messages` or `flush.ms` asks for a sync; see `RecoveryPoint`."""
        return self._recovery_point.is_sync_due(self.log_end_offset, self._config, now_ms)

    def begin_sync(self, until: Offset | None = None, *, records_only: bool = False) -> SyncJob | None:
        """Return the job that syncs everything written up to now, or None if nothing is unsynced.

        A log that is leaving has nothing to sync either, but for `flush`: its files may be gone in the next moment.

        Args:
            until: stop there instead, where a segment has just begun; the job then syncs the snapshot of producers
                there too, also if all records are synced already.
            records_only: leave out the indexes, which an unclean start makes again.

        Raises:
            ApiError: the rows of aborted transactions cannot be written for want of room or descriptors.  The recovery
                point waits for them, since a start makes only those above it again.
            StorageError: the disk fails, and the partition is offline.
        """
        return None if self.is_leaving else self._begin_sync(until, records_only=records_only)

    def _begin_sync(self, until: Offset | None = None, *, records_only: bool = False) -> SyncJob | None:
        end_offset = self.log_end_offset if until is None else until
        segments = self._segments.between(self.recovery_point, end_offset)
        if (not segments and until is None) or self.offline is not None:
            return None
        try:
            self._segments.flush_aborted(segments)
        except StorageError as error:
            raise self.go_offline(str(error)) from error
        lowered_count = self._recovery_point.begin_sync()
        # Without the file that says whose records these are a start would set all of them aside.
        names = [self.directory / PARTITION_METADATA, self.directory]
        if until is not None:
            # Retention may take the batches that say the same before a power cut takes the file.
            names.insert(0, self.producers.path(until))
        if self.recovery_point <= self._segments.base_offset:
            # Nothing here was ever synced, and the directory itself may be as new.
            names.append(self.directory.parent)
        aborted_paths = [segment.aborted.path for segment in segments if segment.aborted is not None]
        if records_only and not aborted_paths:
            # An earlier sync of the same segment made its name survive.
            is_named = self.recovery_point > segments[-1].base_offset
            return self._sync_job(segments, [] if is_named else names, end_offset, lowered_count)
        if records_only:
            return self._sync_job(segments, [*aborted_paths, *names], end_offset, lowered_count)
        paths = [path for segment in segments for path in segment.index_paths]
        for segment in segments:
            segment.index.flush()
            segment.time_index.flush()
        if until is None:
            return self._sync_job(segments, [*paths, *names], end_offset, lowered_count)
        on_done = partial(self._end_roll, until, lowered_count, self.truncation_count)
        return self._sync_job(segments, [*paths, *names], end_offset, lowered_count, on_done)

    def _sync_job(
        self,
        segments: Sequence[Segment],
        paths: Sequence[Path],
        end_offset: Offset,
        lowered_count: int,
        on_done: Callable[[], None] | None = None,
    ) -> SyncJob:
        return SyncJob(
            segments,
            paths,
            on_done=on_done or partial(self._recovery_point.end_sync, end_offset, lowered_count),
            on_error=lambda error: self.go_offline(f"{self.directory}: sync failed: {error.strerror}"),
        )

    def flush(self) -> None:
        """Sync everything here and now.

        Raises:
            ApiError: no room or no descriptor for a file now.
            StorageError: the disk failed, and the partition is offline.
        """
        job = self._begin_sync()  # whoever closes the log holds its files, also where it is leaving
        if job is not None:
            job.run()
            job.finish()

    def begin_deletion(self, now_ms: int) -> Job | None:
        """Return the job after which `delete_expired` waits for no disk, or None if it need not wait.

        Raises:
            StorageError: the disk fails, and the partition is offline.
        """
        return self._keep_job(self._deletable_count(self._expired(now_ms)))

    def delete_expired(self, now_ms: int, dry_run: bool = False) -> list[DeletedSegment]:
        """Delete segments that have outlived retention; with *dry_run* only name them.

        What has to be on disk before is synced here and now, unless the job of `begin_deletion` has done so.

        Raises:
            StorageError: the disk fails, and the partition is offline.
        """
        expired = self._expired(now_ms)
        return expired if dry_run else expired[: self._drop_first(self._deletable_count(expired))]

    def _expired(self, now_ms: int) -> list[DeletedSegment]:
        if self.offline is not None:
            raise self.offline
        self.producers.expire(now_ms, self._config.producer_id_expiration_ms)
        with self._going_offline():
            facts = self._segments.facts()
        return expired_segments(
            facts,
            self._config,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            now_ms=now_ms,
        )

    def _deletable_count(self, expired: Sequence[DeletedSegment]) -> int:
        """Return how many segments can go; if all are expired another one begins, for which a disk may have no room."""
        if not expired or len(expired) < len(self._segments):
            return len(expired)
        try:
            self.roll()
        except ApiError as error:
            _logger.warning("cannot begin a segment, keeps the last one log=%s reason=%s", self.directory, error)
            return len(expired) - 1
        return len(expired)

    def delete_records_before(self, offset: Offset) -> Offset:
        """Let the log begin at *offset*, or at the high watermark if it is -1; return the new log start offset.

        Raises:
            OffsetOutOfRange: above the high watermark.
            StorageError: the disk fails, and the partition is offline.
        """
        if self.offline is not None:
            raise self.offline
        if offset == -1:
            offset = self.high_watermark
        if not 0 <= offset <= self.high_watermark:
            raise OffsetOutOfRange(f"offset {offset} is outside [0, {self.high_watermark}]")
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self._forget_epochs_below(offset)
            self._drop_below_start()
        return self.log_start_offset

    def _forget_epochs_below(self, offset: Offset) -> None:
        with contextlib.suppress(StorageError):  # a file that says more does no harm, and a full disk needs deletions
            self.epochs.truncate_start(offset)

    def has_segments(self, segments: Sequence[Segment]) -> bool:
        """Whether all of *segments* are still part of the log."""
        return self._segments.holds(segments)

    def replace_segments(self, old: Sequence[Segment], new: Segment) -> None:
        """Put a compacted segment in the place of those it was made of.

        Raises:
            StorageError: the disk fails, and the partition is offline.
        """
        with self._going_offline():
            self._remove(self._segments.replace(old, new))

    def _drop_below_start(self) -> None:
        """Delete the segments below the log start: now, or after the job that they have to wait for."""
        count = self._segments.wholly_below(self.log_start_offset)
        job = self._keep_job(count, partial(self._drop_kept, self._segments.first_offset_after(count)))
        if job is None:
            self._drop_first(count)
        else:
            self.jobs.append(job)

    def _drop_kept(self, first: Offset) -> None:
        """Delete the segments below *first* that are below the log start too: a truncation may have changed both."""
        if self.offline is not None or self.is_leaving:
            return
        try:
            self._drop_first(self._segments.wholly_below(min(first, self.log_start_offset)))
        except (ApiError, StorageError) as error:
            _logger.error("cannot delete segments log=%s reason=%s", self.directory, error)

    def _keep_job(self, count: int, on_done: Callable[[], None] = lambda: None) -> Job | None:
        """Return the job that syncs what `_drop_first` needs on disk, or None if all of it is there.

        Nor if the disk refuses a file: `_drop_first` finds that out itself, and deletes less.

        Args:
            count: how many segments are to go.
            on_done: called when all of it is synced.
        """
        if not count:
            return None
        first, snapshot_offset, paths = self._segments.first_offset_after(count), -1, []
        try:
            if not self.producers.is_empty and not self.producers.is_kept_from(first, self.recovery_point):
                snapshot_offset = self.producers.keepable_from(first, self.recovery_point)
                if snapshot_offset < 0:
                    return None
                paths.append(self.producers.path(snapshot_offset))
            if first == self.log_end_offset and not self.epochs.is_synced:
                self._save_epochs()
                paths.append(self.epochs.path)
        except StorageError:
            return None
        if not paths:
            return None
        counts = (self.truncation_count, self.producers.write_count, self.epochs.save_count)
        return SyncJob(
            [],
            [*paths, self.directory],
            on_done=partial(self._end_keeping, snapshot_offset, counts, on_done),
            on_error=lambda error: self.go_offline(f"{self.directory}: sync failed: {error.strerror}"),
        )

    def _end_keeping(self, snapshot_offset: Offset, counts: tuple[int, int, int], on_done: Callable[[], None]) -> None:
        """Take note of what was synced, as far as the files are still those that were there."""
        truncation_count, write_count, save_count = counts
        if (truncation_count, write_count) == (self.truncation_count, self.producers.write_count):
            self.producers.note_synced(snapshot_offset)
        if self.epochs.path.exists():
            self.epochs.note_synced(save_count)
        on_done()

    def _drop_first(self, count: int) -> int:
        """Delete the oldest *count* segments, or fewer while the disk refuses a file; return how many."""
        count = self._keep_epochs(self._keep_producers(count))
        if not count:
            return 0
        first = self._segments.first_offset_after(count)
        is_emptied = first == self.log_end_offset
        with self._going_offline():
            self._remove(self._segments.drop_first(count))
        self._recovery_point.offset = max(self.recovery_point, first)  # what is gone needs no sync
        if first > self.log_start_offset:
            self.log_start_offset = first
            if is_emptied:  # its file is synced, and stays: a start takes from it what is needed
                self.epochs.truncate_start(first, save=False)
            else:
                self._forget_epochs_below(first)
        with self._going_offline():
            self.producers.delete_snapshots(before=first)
        return count

    def _keep_epochs(self, count: int) -> int:
        """Have the epochs on disk if no batch is left to say them: without any the log would lose every election.

        Returns:
            How many of the oldest *count* segments may be deleted: without room for the file the last batches stay.
        """
        is_emptied = count > 0 and self._segments.first_offset_after(count) == self.log_end_offset
        if not is_emptied or self.epochs.is_synced:
            return count
        try:
            self.epochs.save(durable=True)
        except StorageError as error:
            _logger.warning("cannot write down epochs, keeps a segment log=%s reason=%s", self.directory, error)
            return count - 1
        return count

    def _keep_producers(self, count: int) -> int:
        """Have a snapshot that outlives the oldest *count* segments: nothing else will say what was stored there.

        Mostly the snapshot of a roll does, which was synced long ago.

        Returns:
            How many of the segments may be deleted: without room for a new snapshot those below an earlier one.
        """
        if not count or self.producers.is_empty:
            return count
        first, lasting = self._segments.first_offset_after(count), self.producers.lasting_offset
        try:
            if self.producers.keep_from(first, self.recovery_point):
                return count
        except StorageError as error:
            cause = error.__cause__
            if isinstance(cause, OSError) and cause.errno not in DISK_FULL | NO_DESCRIPTORS:
                # A second sync may say that all is well, and the pages are gone.
                raise self.go_offline(str(error)) from error
            _logger.warning("cannot write down producers, keeps segments log=%s reason=%s", self.directory, error)
        return self._segments.wholly_below(lasting) if lasting <= self.recovery_point else 0

    def _remove(self, paths: Sequence[Path]) -> None:
        if paths:
            self.jobs.append(UnlinkJob(paths))

    @contextmanager
    def _going_offline(self) -> Iterator[None]:
        """Take the partition offline if the disk or what it holds fails; want of descriptors passes."""
        try:
            yield
        except OSError as error:
            if error.errno in NO_DESCRIPTORS:
                raise OutOfDescriptors(error.filename or self.directory, error) from error
            raise self.go_offline(f"{error.filename or self.directory}: {error.strerror or error}") from error
        except StorageError as error:
            self.offline = error
            raise

    # Truncation

    def lower_recovery_point(self, offset: Offset) -> int | None:
        """Let the recovery point, and what counts as compacted, fall to where a truncation is about to cut (rule 8).

        The point falls to the last record that is kept, so that the segment with that record is synced and checked too:
        until its file is synced, a power cut may bring back what was cut, also if the next segment begins at *offset*.
        Where a segment begins there already, the one before is not cut, and may end with a gap that compaction left.
        What is written above the cut was not compacted, and a start must not believe that it was.

        The truncation does so itself.  A caller with many logs to cut lowers all their points first, writes one
        checkpoint for all of them, and hands each log what it returned here to `note_checkpoint`.

        Returns:
            None if no checkpoint is needed.
        """
        self.compacted_offset = min(self.compacted_offset, offset)
        is_between = offset <= self._segments.base_offset or self._segments.begins_at(offset)
        return self._recovery_point.lower(offset if is_between else offset - 1)

    def note_checkpoint(self, lowered_count: int) -> None:
        """Take note that a checkpoint was written since `lower_recovery_point` returned *lowered_count*."""
        self._recovery_point.note_written(lowered_count)

    def truncate_to(self, offset: Offset) -> None:
        """Drop everything at or above *offset*; a batch that reaches across goes whole.

        Raises:
            OutOfDescriptors: nothing has been cut.
            StorageError: the disk refuses a checkpoint, or it fails, and the partition is offline.
        """
        if self.offline is not None:
            raise self.offline
        if offset >= self.log_end_offset:
            # An epoch that this broker led without writing may stand at the end.  The new leader knows nothing of it,
            # and would send us here again and again.
            self.epochs.truncate_end(self.log_end_offset, save=False)
            self._leader_epoch = self.epochs.latest
            self._save_epochs()
            return
        if offset < self._segments.base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        with self._going_offline():
            offset = self._segments.cut_offset(offset)
            transactions = self._transactions_at(offset)
        with self._truncating(offset, self.lower_recovery_point(offset)):
            self.producers.delete_snapshots(after=offset)
            self._remove(self._segments.cut(offset, self._config.index_interval_bytes))
        self.producers.transactions = transactions
        self._end_truncation()

    def _transactions_at(self, offset: Offset) -> Transactions | None:
        """Return what is to be known of transactions once the log is cut at *offset*.

        Mostly what is known now is enough.  Where a marker is cut off that consumers saw, as only an unclean election
        can ask for, the batches since the snapshot before it are read: before the cut, which may be refused until then.
        """
        transactions = self.producers.transactions
        if transactions is None or offset > transactions.decided_offset:
            return transactions
        earlier = Producers(self.directory)
        replay_producers(earlier, self.segments, earlier.read(offset), offset)
        return Transactions() if earlier.transactions is None else earlier.transactions

    def truncate_fully_and_start_at(self, offset: Offset, producers: bytes = b"") -> None:
        """Drop everything and begin again, empty, at *offset*.

        Args:
            offset: where to begin.
            producers: what idempotent producers wrote below *offset*, as `Producers.encode` returned it.  Those batches
                will not be copied, and without it a batch that is sent again would be stored twice.

        Raises:
            ApiError: no room or no descriptor for a file; nothing has been dropped.
            StorageError: the disk refuses a checkpoint, or it fails, and the partition is offline.
        """
        if self.offline is not None:
            raise self.offline
        with self._truncating(offset, self._recovery_point.lower(offset)):
            with self._beginning():
                spare = self._segments.spare(offset)
            try:
                self._begin_producers(offset, producers)
            except (OSError, ApiError):
                spare.release()
                spare.path.unlink()
                raise
            self._remove(self._segments.begin_anew(spare))
        self.log_start_offset = offset
        self.epochs.clear(save=False)
        self._end_truncation()
        self._save_lower_start()  # last: the disk may refuse, and then the next append writes it

    def _begin_producers(self, offset: Offset, data: bytes) -> None:
        """Take over what is known of producers at *offset*; the disk's want of room or descriptors passes."""
        try:
            self.producers.begin_at(offset, data)
        except StorageError as error:
            cause = error.__cause__
            if isinstance(cause, OSError) and cause.errno in DISK_FULL | NO_DESCRIPTORS:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
            raise

    @contextmanager
    def _truncating(self, offset: Offset, lowered_count: int | None) -> Iterator[None]:
        # Syncs and compactions that are under way cover bytes that are about to change.
        self.truncation_count += 1
        is_stale = self.compacted_offset > offset  # a compaction ended since the points were lowered
        self.compacted_offset = min(self.compacted_offset, offset)
        try:
            if lowered_count is not None or is_stale:
                self.write_checkpoints()
            if lowered_count is not None:
                self.note_checkpoint(lowered_count)
            self._recovery_point.begin_truncation()
            with self._going_offline():
                yield
        except (ApiError, StorageError):
            # Nothing was cut, but the job of an earlier truncation no longer counts, and its producers wait for it.
            if self.offline is None:
                self._replay_unsure()
            raise

    def _end_truncation(self) -> None:
        self._activate()
        end_offset = self.log_end_offset = self._active.next_offset
        self._recovery_point.offset = min(self.recovery_point, end_offset)
        self.log_start_offset = min(self.log_start_offset, end_offset)
        self.high_watermark = min(max(self.high_watermark, self.log_start_offset), end_offset)
        self.epochs.truncate_end(end_offset, save=False)
        self._leader_epoch = self.epochs.latest
        self._replay_unsure()
        self._save_epochs()  # late: the disk may refuse
        self.tombstones.cut(end_offset)

    def _replay_unsure(self) -> None:
        if self.producers.truncate(self.log_end_offset):
            self.jobs.append(self._replay_job())

    def _replay_job(self) -> ReplayJob:
        count = self.truncation_count

        def is_current() -> bool:
            return self.offline is None and self.truncation_count == count

        def fail(error: StorageError) -> None:
            self.offline = error

        return ReplayJob(
            self.producers,
            Producers(self.directory),
            self.segments,
            self.log_end_offset,
            is_current=is_current,
            is_kept=lambda segment: self._segments.holds([segment]),
            retry=self.jobs.append,
            on_error=fail,
        )

    def close(self) -> None:
        """Sync and close everything; readers that hold a slice keep their file until they are done.

        Raises:
            StorageError: the disk failed; the stop was not clean.
        """
        try:
            self._segments.flush_aborted()
            self.flush()
            if self.offline is not None:
                raise self.offline
            self._segments.close_indexes()
            self._save_epochs()
            self.producers.snapshot(self.log_end_offset)
        except OSError as error:
            raise self.go_offline(f"{error.filename}: {error.strerror}") from error
        except ApiError as error:
            raise self.go_offline(str(error)) from error
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of all files without syncing them, because they are about to be deleted."""
        self.offline = self.offline or StorageError(f"{self.directory}: is closed")
        self.tombstones.settle()
        self._segments.release()
