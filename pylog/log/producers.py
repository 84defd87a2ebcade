"""Idempotent producers of one partition: a batch sent twice is stored once.

snapshot  => version: int16 (1), crc: uint32, count: int32, entry*, extension
entry     => producer_id: int64, producer_epoch: int16, last_sequence: int32, last_offset: int64,
             offset_delta: int32, timestamp: int64, coordinator_epoch: int32, txn_first_offset: int64
extension => version: int16 (1), count: int32, (producer_id: int64, last_sequence: int32, last_offset: int64,
             offset_delta: int32, timestamp: int64)*, ended?  earlier batches of the window, oldest first
ended     => decided_offset: int64, count: int32, (producer_id: int64, first_offset: int64, marker_offset: int64)*

A producer without a batch in its epoch has last sequence -1, and as last offset that of its marker.

The CRC-32C covers everything after itself.  The coordinator epoch is that of the producer's last marker, and the first
offset that of its open transaction; both are -1 without one.  Kafka's format ends before the extension and Kafka
ignores it; without it a restart would forget four of the five batches that a producer may send again, and which
transactions have ended and may still be decided otherwise.  `ended` is there if the partition has had transactions.

Source: KIP-98; Kafka's ProducerStateManager.
"""

import logging
import os
import struct
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from pylog.errors import ApiError, CorruptRecords, ErrorCode, StorageError
from pylog.log import checkpoint
from pylog.log.batch_file import NO_DESCRIPTORS
from pylog.log.transactions import AbortedTransaction, EndedTransaction, Transactions
from pylog.model import Offset
from pylog.wire.markers import Marker
from pylog.wire.records import CONTROL, TRANSACTIONAL, BatchHeader

_logger = logging.getLogger(__name__)

WINDOW_BATCH_COUNT = 5
"""Batches of which the offsets are remembered: those a producer may have in flight on one connection.

It may send older ones again.  While a leader that was deposed holds back its answers to five batches, Kafka's own
producer sends new ones to the next leader, without a bound, and repeats the five when they fail; see `Producers.check`.
"""

MAX_PRODUCER_COUNT = 50_000
"""Producers remembered per partition, about 1 KiB each; at the limit the half that wrote longest ago is forgotten."""

UNKNOWN = -1
"""Time of a batch that was found in the log.  Its records' own times say nothing of when it was written: they are the
producer's business, and may be years old in a copy of old data."""

SEQUENCE_MASK = 2**31 - 1
"""Sequence numbers run from 0 to this and begin again."""

MAX_RUN = 2**30
"""Sequence numbers that are told apart from later ones: half of all, as they begin again."""

SUFFIX = ".snapshot"

_VERSION = 1
_FRONT = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_EXTENSION = struct.Struct(">hi")
_EARLIER = struct.Struct(">qiqiq")
_ENDED = struct.Struct(">qi")
_ENDED_ROW = struct.Struct(">qqq")

_OF_TRANSACTIONS = TRANSACTIONAL | CONTROL
_NO_COORDINATOR_EPOCH = -1
_NO_OFFSET = -1


class StoredBatch(NamedTuple):
    """One batch of the window, or with base offset -1 one before it, whose records are at or below *last_offset*."""

    first_sequence: int
    last_sequence: int
    base_offset: Offset
    last_offset: Offset
    timestamp: int


class ProducerFacts(NamedTuple):
    """What is told of a producer; the sequence is -1 before its first batch of this epoch.

    Attributes:
        coordinator_epoch: of its last marker, -1 without one.
        transaction_start: first offset of its open transaction, -1 without one.
    """

    producer_id: int
    epoch: int
    last_sequence: int
    timestamp: int
    coordinator_epoch: int = _NO_COORDINATOR_EPOCH
    transaction_start: Offset = _NO_OFFSET


class ProducerProgress(NamedTuple):
    """How far a producer has come in a partition; epoch and offset are -1 for one that is not known.

    Attributes:
        last_offset: of its last batch or marker.
        is_open: whether it has an open transaction.
    """

    epoch: int
    last_offset: Offset
    is_open: bool


MAX_PRODUCER_ID = 1 << 62
"""Producers have ids below it."""

MAX_COUNTED_PRODUCER_ID = 1 << 61
"""Ids from here on count for nothing where new ones are given above all that logs have: a producer has made them up.

No cluster gets there by giving ids, and those that are given after the highest that counts have room below the limit.
"""

NO_PROGRESS = ProducerProgress(-1, -1, is_open=False)
"""Of a producer that is not known."""


class _Producer:
    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_offset", "run", "timestamp")

    def __init__(self, epoch: int, timestamp: int, last_offset: Offset = -1) -> None:
        self.epoch = epoch
        self.coordinator_epoch = _NO_COORDINATOR_EPOCH
        self.last_offset = last_offset  # of its last batch, also of one that is not in the window
        self.timestamp = timestamp
        self.batches: deque[StoredBatch] = deque(maxlen=WINDOW_BATCH_COUNT)
        self.run = 0  # records up to its last one whose sequence numbers follow each other: each of them was stored

    def add(self, batch: StoredBatch) -> None:
        """Put a batch at the end of the window."""
        count = batch.last_offset - batch.base_offset + 1
        follows = self.batches and _distance(self.batches[-1].last_sequence, batch.first_sequence) == 1
        self.run = min(self.run + count, MAX_RUN) if follows else count
        self.batches.append(batch)

    def drop_last(self) -> None:
        """Take the last batch off, which was cut off the log."""
        batch = self.batches.pop()
        self.run -= batch.last_offset - batch.base_offset + 1
        if self.run <= 0 and self.batches:  # there is a gap before it
            self.run = self.batches[-1].last_offset - self.batches[-1].base_offset + 1

    def find_earlier(self, first: int, last: int) -> StoredBatch | None:
        """Return what is known of a batch that was stored before those of the window, None if it was not."""
        oldest, end = self.batches[0], self.batches[-1].last_sequence
        # Wholly before the window: inside it the bounds of batches are known, and this one has others.
        if _distance(oldest.first_sequence, end) < _distance(last, end) <= _distance(first, end) < self.run:
            return StoredBatch(first, last, -1, oldest.base_offset - 1, oldest.timestamp)
        return None


class Producers:
    """What is known of every idempotent producer of one partition.

    Attributes:
        transactions: those of the partition; None until it has its first one.
        lasting_offset: of the newest snapshot that is known to survive a power cut, -1 if none is.
        write_count: how many snapshots were written; one may have replaced a file that is being synced.
    """

    __slots__ = ("_directory", "_producers", "_unsure", "lasting_offset", "transactions", "write_count")

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._producers: dict[int, _Producer] = {}
        self._unsure: frozenset[int] = frozenset()
        self.transactions: Transactions | None = None
        self.lasting_offset: Offset = -1
        self.write_count = 0

    def __len__(self) -> int:
        return len(self._producers)

    def facts(self) -> list[ProducerFacts]:
        """Return what is known of everyone."""
        first_offsets = self._first_offsets()
        return [
            ProducerFacts(
                key,
                one.epoch,
                one.batches[-1].last_sequence if one.batches else -1,
                one.timestamp,
                one.coordinator_epoch,
                first_offsets.get(key, _NO_OFFSET),
            )
            for key, one in self._producers.items()
        ]

    def _first_offsets(self) -> Mapping[int, Offset]:
        """Return where open transactions begin, by producer id."""
        return {} if self.transactions is None else self.transactions.first_offsets()

    def _needed(self) -> frozenset[int]:
        """Return who has an open transaction, or one that a cut may open again."""
        ended = () if self.transactions is None else self.transactions.ended()
        return frozenset((*self._first_offsets(), *(row.producer_id for row in ended)))

    def last_written_ms(self) -> list[int]:
        """Return when each producer with an open transaction wrote last; `UNKNOWN` of one that nobody saw writing."""
        return [self._producers[key].timestamp for key in self._first_offsets() if key in self._producers]

    def last_offsets(self) -> dict[int, Offset]:
        """Return the last offset of everyone who has written."""
        return {key: one.batches[-1].last_offset for key, one in self._producers.items() if one.batches}

    def marker_epochs(self) -> dict[int, int]:
        """Return the epoch of each producer of which only a marker is known: the marker alone fences earlier epochs."""
        return {key: one.epoch for key, one in self._producers.items() if not one.batches}

    def check(self, header: BatchHeader) -> StoredBatch | None:
        """Return the stored batch that this one repeats, or None if it is new and next in line.

        A producer never seen, or forgotten, may begin with any sequence.  Of a batch that left the window nobody knows
        the offsets, but if all sequence numbers from its own to the last one were stored without a gap, it is there.

        Raises:
            ApiError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, or INVALID_TXN_STATE for a batch outside of
                transactions whose producer has, or had, one here; nothing may be appended.
                NOT_LEADER_OR_FOLLOWER, which a producer answers by sending again: a truncation took its last batches,
                and those before them are still being read.
        """
        producer = self._find(header)
        if producer is None:
            return None
        if header.attributes & TRANSACTIONAL:
            if self._is_outsider(producer, header.producer_id):
                return None
        elif self.transactions is not None and not self._is_outsider(producer, header.producer_id):
            first_offset = self.transactions.first_offset(header.producer_id)
            has = "had a transaction" if first_offset is None else f"has a transaction open since offset {first_offset}"
            message = f"producer {header.producer_id} {has} and sends a batch outside of any"
            raise ApiError(ErrorCode.INVALID_TXN_STATE, message)
        epoch, first = header.producer_epoch, header.base_sequence
        if epoch == producer.epoch and producer.batches:
            last = (first + header.last_offset_delta) & SEQUENCE_MASK
            for batch in producer.batches:
                if batch.last_sequence == last and batch.first_sequence == first:
                    return batch
            wanted = (producer.batches[-1].last_sequence + 1) & SEQUENCE_MASK
            if first != wanted:
                earlier = producer.find_earlier(first, last)
                if earlier is not None:
                    return earlier
        elif epoch < producer.epoch:
            message = f"producer {header.producer_id} sends epoch {epoch} after {producer.epoch}"
            raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, message)
        else:
            wanted = 0
        if first != wanted:
            message = f"producer {header.producer_id} sends sequence {first}, {wanted} is next"
            raise ApiError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message)
        return None

    def _is_outsider(self, producer: _Producer, producer_id: int) -> bool:
        """Say whether all that is known of a producer was written outside of transactions.

        Who writes like that may have guessed the id of a transactional producer, its epoch and its sequence numbers.
        The producer's own batches, of which its coordinator knows, neither repeat such batches nor follow them.
        """
        is_open = self.transactions is not None and self.transactions.first_offset(producer_id) is not None
        return not is_open and producer.coordinator_epoch == _NO_COORDINATOR_EPOCH

    def check_marker(self, header: BatchHeader, marker: Marker) -> None:
        """Refuse the marker of a coordinator, or of a producer's epoch, that was replaced since.

        Only what a coordinator sends now is checked: what is in another log is a fact.

        Raises:
            ApiError: INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED; NOT_LEADER_OR_FOLLOWER as `check`.
        """
        producer = self.check_epoch(header)
        if producer is not None and marker.coordinator_epoch < producer.coordinator_epoch:
            epochs = f"{marker.coordinator_epoch} after {producer.coordinator_epoch}"
            message = f"marker of producer {header.producer_id} has coordinator epoch {epochs}"
            raise ApiError(ErrorCode.TRANSACTION_COORDINATOR_FENCED, message)

    def check_epoch(self, header: BatchHeader) -> _Producer | None:
        """Refuse what a broker writes for an epoch of a producer that was replaced since.

        Returns:
            what is known of the producer, None if nothing is.

        Raises:
            ApiError: INVALID_PRODUCER_EPOCH; NOT_LEADER_OR_FOLLOWER as `check`.
        """
        producer = self._find(header)
        if producer is None or self._is_outsider(producer, header.producer_id):
            # Whatever epoch an outsider wrote says nothing of the producer's.  The marker has to be written: a batch
            # whose transaction was looked for before it ended is refused because something was written since.
            return producer
        if header.producer_epoch < producer.epoch:
            message = f"producer {header.producer_id} sends epoch {header.producer_epoch} after {producer.epoch}"
            raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, message)
        return producer

    def progress(self, producer_id: int) -> ProducerProgress:
        """Return how far a producer has come, which is another value after whatever it, or a marker of it, wrote."""
        producer = self._producers.get(producer_id)
        first_offset = None if self.transactions is None else self.transactions.first_offset(producer_id)
        if producer is None:
            return NO_PROGRESS
        return ProducerProgress(producer.epoch, producer.last_offset, is_open=first_offset is not None)

    def _find(self, header: BatchHeader) -> _Producer | None:
        if self._unsure and header.producer_id in self._unsure:
            message = f"the batches of producer {header.producer_id} are still being read after a truncation"
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, message)
        return self._producers.get(header.producer_id)

    def note(
        self, header: BatchHeader, base_offset: Offset, timestamp: int, marker: Marker | None = None
    ) -> AbortedTransaction | None:
        """Remember a batch that was appended.

        Args:
            header: of the batch.
            base_offset: where it was appended.
            timestamp: what its age counts from, or UNKNOWN.
            marker: what it says, if it ends a transaction.

        Returns:
            the row for the transaction index, if the marker aborts an open transaction.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            if len(self._producers) >= MAX_PRODUCER_COUNT:
                self._forget_older_half()
            producer = self._producers[header.producer_id] = _Producer(header.producer_epoch, timestamp)
        elif header.producer_epoch != producer.epoch or (
            header.attributes & TRANSACTIONAL and self._is_outsider(producer, header.producer_id)
        ):
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        producer.timestamp = timestamp
        delta = header.last_offset_delta
        producer.last_offset = last_offset = base_offset + delta
        if not header.attributes & CONTROL:
            first = header.base_sequence
            last = (first + delta) & SEQUENCE_MASK
            producer.add(StoredBatch(first, last, base_offset, last_offset, timestamp))
        if header.attributes & _OF_TRANSACTIONS:
            return self._note_transaction(producer, header, base_offset, marker)
        return None

    def _note_transaction(
        self, producer: _Producer, header: BatchHeader, base_offset: Offset, marker: Marker | None
    ) -> AbortedTransaction | None:
        if self.transactions is None:
            self.transactions = Transactions()
        if not header.attributes & CONTROL:
            self.transactions.begin(header.producer_id, base_offset)
        elif marker is not None:
            producer.coordinator_epoch = marker.coordinator_epoch
            return self.transactions.end(header.producer_id, base_offset, is_commit=marker.is_commit)
        return None

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers that wrote nothing for *expiration_ms*; an unknown age counts from the first look.

        One with an open transaction stays: without it the marker would end nothing, and consumers would wait for ever.
        """
        needed = self._needed()
        for found in self._producers.values():
            if found.timestamp == UNKNOWN:
                found.timestamp = now_ms
        late = [key for key, found in self._producers.items() if found.timestamp + expiration_ms <= now_ms]
        for producer_id in late:
            if producer_id not in needed:
                del self._producers[producer_id]

    def begin_again(self, now_ms: int, expiration_ms: int) -> None:
        """Give whoever seems late a whole time from now on, after a start: the clock may have been set meanwhile."""
        for found in self._producers.values():
            if found.timestamp == UNKNOWN or found.timestamp + expiration_ms <= now_ms:
                found.timestamp = now_ms

    @property
    def unsure(self) -> frozenset[int]:
        """Producers whose batches below a truncation must be read again; see `truncate` and `restore`."""
        return self._unsure

    def truncate(self, log_end_offset: Offset) -> frozenset[int]:
        """Drop batches at or above *log_end_offset*; return the producers whose earlier batches must be read again.

        A producer that keeps a batch below the cut needs no reading: what comes next is known from it, and of those
        that left the window that they were stored.  Nor does one that began above the cut, with the first sequence of
        its first epoch: the log held nothing of it before.

        Snapshots above the cut are the caller's to delete: that may be refused, and comes before the cut.  Before a cut
        below a transaction that is decided the caller reads `transactions` again; see `Transactions.truncate`.
        """
        if self.transactions is not None:
            self.transactions.truncate(log_end_offset)
        unsure = set(self._unsure)
        late = [(key, found) for key, found in self._producers.items() if found.last_offset >= log_end_offset]
        for producer_id, producer in late:
            batches = producer.batches
            is_new = bool(batches) and not producer.epoch and not batches[0].first_sequence
            while batches and batches[-1].last_offset >= log_end_offset:
                producer.drop_last()
            if batches:
                producer.last_offset = batches[-1].last_offset
                continue
            del self._producers[producer_id]
            if not is_new:
                unsure.add(producer_id)
        for producer_id in self._unsure:
            self._producers.pop(producer_id, None)  # what it wrote since the last cut will be read with the rest
        self._unsure = frozenset(unsure)
        return self._unsure

    def restore(self, earlier: "Producers") -> None:
        """Take what *earlier* knows of the producers in `unsure`, from batches before those noted since the cut."""
        for producer_id in self._unsure:
            before, now = earlier._producers.get(producer_id), self._producers.get(producer_id)
            if before is None:
                continue  # it began above the cut
            if now is None:
                self._producers[producer_id] = before
                continue
            now.coordinator_epoch = max(now.coordinator_epoch, before.coordinator_epoch)
            if now.epoch == before.epoch:
                later, now.batches, now.run = now.batches, before.batches, before.run
                for batch in later:
                    now.add(batch)
        self._unsure = frozenset()

    def snapshot(self, log_end_offset: Offset) -> None:
        """Write what holds at *log_end_offset*; a power cut may tear the file, and the CRC shows it.

        While `unsure` names anyone nothing is written: then the next start reads more batches.

        Raises:
            StorageError: the disk refuses.
        """
        if not self._unsure:
            self._write(log_end_offset)

    def _write(self, offset: Offset) -> None:
        if offset == self.lasting_offset:
            self.lasting_offset = -1  # the file that replaces it is not synced
        self.write_count += 1
        checkpoint.write_atomically(self.path(offset), self.encode(offset), durable=False)

    def note_synced(self, offset: Offset) -> None:
        """Take note that the snapshot at *offset*, if there is one, survives a power cut."""
        if offset > self.lasting_offset and self.path(offset).exists():
            self.lasting_offset = offset

    def keep_from(self, offset: Offset, recovery_point: Offset) -> bool:
        """Have a snapshot at or above *offset* that survives a power cut, before the batches below are deleted.

        Returns:
            Whether there is one; not while `unsure` names anyone and no roll has written one.

        Raises:
            StorageError: the disk refuses.
        """
        if self.is_kept_from(offset, recovery_point):
            return True
        found = self.keepable_from(offset, recovery_point)
        if found < 0:
            return False
        try:
            checkpoint.sync_path(self.path(found))
            checkpoint.sync_path(self._directory)
        except OSError as error:
            raise StorageError(f"{error.filename or self._directory}: {error.strerror}") from error
        self.lasting_offset = found
        return True

    def is_kept_from(self, offset: Offset, recovery_point: Offset) -> bool:
        """Whether `keep_from` has nothing to sync."""
        return offset <= self.lasting_offset <= max(offset, recovery_point)

    def keepable_from(self, offset: Offset, recovery_point: Offset) -> Offset:
        """Return where a snapshot is that `keep_from` can sync.

        Mostly a roll wrote one.  Without any, one at *offset* is written.  One above that and above the recovery point
        does not count: after a power cut the log may end below it, and then it is removed.

        Returns:
            -1 while `unsure` names anyone and no roll has written one.

        Raises:
            StorageError: the disk refuses.
        """
        try:
            for found in reversed(self.snapshot_offsets()):
                if offset <= found <= max(offset, recovery_point) and self._is_usable(found):
                    return found
        except OSError as error:
            raise StorageError(f"{error.filename or self._directory}: {error.strerror}") from error
        if self._unsure:
            return -1
        self._write(offset)
        return offset

    def _is_usable(self, offset: Offset) -> bool:
        """Whether a snapshot is whole: an earlier power cut may have torn one that no start had to read."""
        try:
            _parse(self.path(offset).read_bytes(), offset)
        except (ValueError, KeyError, struct.error):
            return False
        return True

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known of anybody, so that there is nothing to keep."""
        return not self._producers and not self._unsure and self.transactions is None

    def encode(self, offset: Offset) -> bytes:
        """Return the content of a snapshot at *offset*: what was written below it.

        It is also what a replica takes over that begins at *offset*, see `begin_at`; what was written from there on it
        learns from the batches that it copies.  A producer that wrote on both sides keeps its epoch in both, since the
        window has batches of one epoch only.
        """
        entries, earlier = bytearray(), bytearray()
        count = earlier_count = 0
        first_offsets = {} if self.transactions is None else self.transactions.open_at(offset)
        for producer_id, producer in self._producers.items():
            batches: Iterable[StoredBatch] = producer.batches
            if producer.last_offset >= offset:
                batches = [batch for batch in batches if batch.last_offset < offset]
                if not batches and producer_id not in first_offsets:
                    continue
            if not batches:
                # Known by a marker, or by a transaction that began below.  Where that was decides what a cut drops.
                known_at = producer.last_offset if producer.last_offset < offset else first_offsets[producer_id]
                batches = (StoredBatch(-1, -1, known_at, known_at, producer.timestamp),)
            *before, last = batches
            count += 1
            entries += _ENTRY.pack(
                producer_id, producer.epoch, last.last_sequence, last.last_offset,
                last.last_offset - last.base_offset, producer.timestamp, producer.coordinator_epoch,
                first_offsets.get(producer_id, _NO_OFFSET),
            )  # fmt: skip
            for batch in before:
                earlier_count += 1
                delta = batch.last_offset - batch.base_offset
                earlier += _EARLIER.pack(producer_id, batch.last_sequence, batch.last_offset, delta, batch.timestamp)
        body = _COUNT.pack(count) + entries + _EXTENSION.pack(_VERSION, earlier_count) + earlier
        if self.transactions is not None:
            body += _encode_ended(self.transactions, offset)
        return _FRONT.pack(_VERSION, crc32c(body)) + body

    def begin_at(self, offset: Offset, data: bytes) -> None:
        """Know what the snapshot *data* says, and nothing else, in a log that is about to begin anew at *offset*.

        The snapshot is on disk before those of the former log are removed: killed at any moment, the log either is the
        former one, which will begin anew again, or has the file.

        Args:
            offset: where the log will begin.
            data: as `encode` of the log that is copied returned it for *offset*; b"" if nothing is known.

        Raises:
            CorruptRecords: *data* is no snapshot.
            StorageError: the disk refuses.
            OSError: the directory cannot be read.
        """
        try:
            producers, transactions = _parse(data, offset) if data else ({}, None)
        except (ValueError, KeyError, struct.error) as error:
            raise CorruptRecords(f"snapshot of producers of {len(data)} bytes: {error}") from error
        if producers:
            checkpoint.write_atomically(self.path(offset), data)
            self.lasting_offset = offset
            self.delete_snapshots(before=offset)
        self.delete_snapshots(after=offset if producers else -1)
        self._producers, self.transactions = producers, transactions
        self._unsure = frozenset()

    def path(self, offset: Offset) -> Path:
        """Return where the snapshot at *offset* is kept."""
        return self._directory / f"{offset:020d}{SUFFIX}"

    def load(self, log_end_offset: Offset) -> Offset:
        """Take the newest usable snapshot not above *log_end_offset*; drop those above and those that are damaged.

        Returns:
            The offset from which batches must be noted again; -1 if there is no snapshot.
        """
        self.delete_snapshots(after=log_end_offset)
        return self.read(log_end_offset)

    def read(self, log_end_offset: Offset) -> Offset:
        """Take the newest usable snapshot not above *log_end_offset*; drop those that are damaged.

        Returns:
            The offset from which batches must be noted again; -1 if there is no snapshot.

        Raises:
            OSError: there is no descriptor now, or the directory cannot be read.
        """
        self._producers.clear()
        self.transactions = None
        for offset in reversed(self.snapshot_offsets()):
            if offset > log_end_offset:
                continue
            path = self.path(offset)
            try:
                self._producers, self.transactions = _parse(path.read_bytes(), offset)
            except (ValueError, KeyError, struct.error):
                path.unlink(missing_ok=True)
                continue
            except OSError as error:
                if error.errno in NO_DESCRIPTORS:
                    raise
                # What it says stands in the batches too.  It stays: it may be as good as ever at the next start.
                _logger.warning("cannot read snapshot file=%s reason=%s", path, error.strerror)
                continue
            return offset
        return -1

    def snapshot_offsets(self) -> list[Offset]:
        """Return the offsets of all snapshots, growing."""
        names = (name.removesuffix(SUFFIX) for name in os.listdir(self._directory) if name.endswith(SUFFIX))  # noqa: PTH208
        return sorted(int(name) for name in names if name.isdigit())

    def delete_snapshots(self, *, after: Offset = -1, before: Offset | None = None) -> None:
        """Remove snapshots above *after*, or with *before* those below it; without either all of them.

        Raises:
            OSError: the directory cannot be read.
            StorageError: the disk refuses to remove one.
        """
        for offset in self.snapshot_offsets():
            if offset < before if before is not None else offset > after:
                if offset == self.lasting_offset:
                    self.lasting_offset = -1
                path = self.path(offset)
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    raise StorageError(f"{path}: {error.strerror}") from error

    def _forget_older_half(self) -> None:
        needed = self._needed()
        forgettable = [producer_id for producer_id in self._producers if producer_id not in needed]
        # By offset, not by time: the time of what a follower copied or a start found in the log may be unknown.
        forgettable.sort(key=lambda producer_id: self._producers[producer_id].last_offset)
        for producer_id in forgettable[: MAX_PRODUCER_COUNT // 2]:
            del self._producers[producer_id]


def _distance(earlier: int, later: int) -> int:
    """Return how many sequence numbers *later* is after *earlier*, counting over their end."""
    return (later - earlier) & SEQUENCE_MASK


def newest_producer_id(directory: Path) -> int:
    """Return the highest producer id that a snapshot in *directory* knows, -1 if none does; nothing is changed."""
    newest = -1
    for path in directory.glob(f"*{SUFFIX}"):
        try:
            found = _parse(path.read_bytes(), _NO_OFFSET)[0]
            newest = max([newest, *(key for key in found if key < MAX_COUNTED_PRODUCER_ID)])
        except (ValueError, KeyError, struct.error, OSError):
            continue  # torn; what it said stands in the batches too
    return newest


def _encode_ended(transactions: Transactions, offset: Offset) -> bytes:
    """Return what a snapshot at *offset* says of transactions whose markers may not be on all replicas."""
    rows = [row for row in transactions.ended() if row.marker_offset < offset]
    packed = b"".join(_ENDED_ROW.pack(*row) for row in rows)
    return _ENDED.pack(min(transactions.decided_offset, offset - 1), len(rows)) + packed


def _parse(data: bytes, offset: Offset) -> tuple[dict[int, _Producer], Transactions | None]:
    """Return what the snapshot *data* at *offset* says."""
    version, crc = _FRONT.unpack_from(data)
    if version != _VERSION or crc32c(memoryview(data)[_FRONT.size :]) != crc:
        raise ValueError(f"version {version} or a bad CRC")
    (count,) = _COUNT.unpack_from(data, _FRONT.size)
    at = _FRONT.size + _COUNT.size
    if not 0 <= count * _ENTRY.size <= len(data) - at:
        raise ValueError(f"{count} entries in {len(data) - at} bytes")
    entries = list(_ENTRY.iter_unpack(data[at : at + count * _ENTRY.size]))
    producers = {entry[0]: _Producer(entry[1], entry[5], entry[3]) for entry in entries}
    # Earlier batches come first in the window, so they are added first.  A file Kafka wrote has none.
    earlier, ended = _parse_extension(data[at + count * _ENTRY.size :])
    for producer_id, last_sequence, last_offset, delta, timestamp in earlier:
        producers[producer_id].add(_stored(last_sequence, last_offset, delta, timestamp))
    first_offsets: dict[int, Offset] = {}
    for producer_id, _, last_sequence, last_offset, delta, timestamp, coordinator_epoch, first_offset in entries:
        if last_sequence >= 0:
            producers[producer_id].add(_stored(last_sequence, last_offset, delta, timestamp))
        producers[producer_id].coordinator_epoch = coordinator_epoch
        if first_offset >= 0:
            first_offsets[producer_id] = first_offset
    if ended:
        return producers, _parse_ended(ended, first_offsets)
    if first_offsets or any(one.coordinator_epoch >= 0 for one in producers.values()):
        # Kafka wrote it, and does not say which of the markers before it are replicated: all, after a clean stop.
        return producers, Transactions(first_offsets, decided_offset=offset - 1)
    return producers, None


def _parse_extension(data: bytes) -> tuple[list[tuple[int, int, int, int, int]], bytes]:
    """Return the earlier batches, and what follows them."""
    if len(data) < _EXTENSION.size:
        return [], b""
    version, count = _EXTENSION.unpack_from(data)
    end = _EXTENSION.size + count * _EARLIER.size
    if version != _VERSION or not _EXTENSION.size <= end <= len(data):
        return [], b""
    return [(a, b, c, d, e) for a, b, c, d, e in _EARLIER.iter_unpack(data[_EXTENSION.size : end])], data[end:]


def _parse_ended(data: bytes, first_offsets: Mapping[int, Offset]) -> Transactions:
    decided_offset, count = _ENDED.unpack_from(data)
    if len(data) != _ENDED.size + count * _ENDED_ROW.size:
        raise ValueError(f"{count} ended transactions in {len(data)} bytes")
    rows = [EndedTransaction(*row) for row in _ENDED_ROW.iter_unpack(data[_ENDED.size :])]
    return Transactions(first_offsets, rows, decided_offset)


def _stored(last_sequence: int, last_offset: Offset, delta: int, timestamp: int) -> StoredBatch:
    first_sequence = (last_sequence - delta) & SEQUENCE_MASK
    return StoredBatch(first_sequence, last_sequence, last_offset - delta, last_offset, timestamp)
