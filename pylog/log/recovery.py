"""Opening a log: trust what was synced, check what was not, cut at the first batch that is not whole.

Source: design rule 3 and 7; the same promise as Kafka's LogLoader.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from crc32c import crc32c

from pylog.errors import ApiError, StorageError
from pylog.log.aborted import SUFFIX as ABORTED_SUFFIX
from pylog.log.aborted import TransactionIndex
from pylog.log.config import LogConfig
from pylog.log.epochs import LeaderEpochs
from pylog.log.index import OffsetIndex, TimeIndex
from pylog.log.producers import UNKNOWN, Producers
from pylog.log.replay import read_marker, replay_producers
from pylog.log.segment import Segment
from pylog.log.swap import finish_swaps
from pylog.log.transactions import Transactions
from pylog.model import Offset
from pylog.wire.records import CRC_START, HEADER, HEADER_BYTES, LENGTH_OVERHEAD, MAGIC, BatchHeader

NOWHERE = -1
"""Recovery point of a log that had one, before the file with all of them was lost."""

SCAN_BUFFER_BYTES = 4 << 20
"""Read at a time when checking CRCs."""

MAX_BATCH_BYTES = 128 << 20
"""No batch is larger, since no request may be (`socket.request.max.bytes` is 100 MB); a larger claim is damage."""

LEFTOVER_SUFFIXES = (".deleted", ".cleaned", ".tmp")
"""Files that a crash left half made or half deleted."""

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Damage:
    """Where a segment stops making sense, and why."""

    position: int
    reason: str


@dataclass(slots=True)
class LoadedLog:
    """What `load_log` found; `cut_bytes` were dropped.

    Attributes:
        saved_epochs: leader epochs as they stood in their file, before they were compared with the batches; those of
            the batches where there is no such file.
        checked_end_offset: offset after the last batch that was checked; compaction may have left a gap behind it.
    """

    segments: list[Segment]
    epochs: LeaderEpochs
    producers: Producers
    cut_bytes: int = 0
    saved_epochs: Sequence[tuple[int, Offset]] = ()
    checked_end_offset: Offset = 0


def load_log(
    directory: Path,
    config: LogConfig,
    *,
    clean: bool,
    recovery_point: Offset,
    log_start_offset: Offset,
    on_segment: Callable[[], None] = lambda: None,
) -> LoadedLog:
    """Open all segments of *directory*, oldest first; where there are none, begin one.

    Args:
        directory: the partition's directory, made if missing.
        config: its settings.
        clean: the last stop was clean, so that every file is whole.
        recovery_point: everything below survived a sync; NOWHERE if nobody knows any more.
        log_start_offset: from the checkpoint; nothing below may be read.
        on_segment: called after each segment whose batches were checked.

    Raises:
        StorageError: something below the recovery point is damaged, or the disk fails.
    """
    segments: list[Segment] = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        segments += _find_segments(directory)
        loaded = LoadedLog(segments, LeaderEpochs(directory), Producers(directory))
        known_epochs = _load_all(loaded, config, clean, recovery_point, on_segment) if segments else []
        if segments and segments[-1].next_offset < log_start_offset:
            # Nothing that may be read is left, as after a power cut that followed DeleteRecords.  The checkpoint names
            # no topic id (Kafka's format), and the files do not tell whether its row is of a deleted topic of the same
            # name.  So the broker writes the checkpoints before it uses a new log.
            for segment in segments:
                _remove(segment)
                segment.release()
            segments.clear()
        if not segments:
            segments.append(Segment(directory, log_start_offset))
            segments[0].create()
            if loaded.epochs.entries():
                loaded.epochs.clear(save=False)
        start = max(segments[0].base_offset, log_start_offset)
        is_empty = segments[-1].next_offset <= start
        if is_empty:
            loaded.epochs.keep_last(loaded.saved_epochs, start, save=False)
        if loaded.epochs.entries() != known_epochs:
            loaded.epochs.save(durable=is_empty)  # once: no file between may lack the epoch that an empty log keeps
    except BaseException as error:
        for segment in segments:
            segment.release()
        if isinstance(error, OSError):
            raise StorageError(f"{error.filename or directory}: {error.strerror or error}") from error
        if isinstance(error, ApiError):  # no descriptor now; by the cause whoever opens the log knows that it passes
            raise StorageError(str(error)) from error.__cause__
        raise
    return loaded


def _load_all(
    loaded: LoadedLog, config: LogConfig, clean: bool, recovery_point: Offset, on_segment: Callable[[], None]
) -> Sequence[tuple[int, Offset]]:
    """Look at every segment as far as it needs it; return the leader epochs that their file has."""
    segments = loaded.segments
    is_epochs_known = loaded.epochs.load()
    saved_epochs = loaded.epochs.entries()
    unchecked = [] if clean else _unchecked(segments, recovery_point)
    trusted = segments[: len(segments) - len(unchecked)]
    for segment, following in zip(trusted, [*segments[1:], None], strict=False):
        _trust(segment, following, config, is_clean=clean)
    for segment in unchecked:
        _start_check(segment, recovery_point)
    for segment in trusted:
        _trust_aborted(segment, segments)
    known = [*trusted, *unchecked[:1]]
    start = loaded.producers.load(known[-1].next_offset)
    replay_producers(loaded.producers, known, start, known[-1].next_offset)
    if unchecked:
        # A power cut may leave a file of epochs that is newer than the log, where a truncation was undone. What is not
        # synced tells its epochs itself.
        loaded.epochs.truncate_end(known[-1].next_offset, save=False)
        loaded.checked_end_offset = known[-1].next_offset
    for segment in unchecked:
        is_whole = _check(loaded, segment, config, recovery_point)
        on_segment()
        if not is_whole:
            break
    if not is_epochs_known:
        walk_epochs(loaded.epochs, segments)
    loaded.saved_epochs = saved_epochs if is_epochs_known else loaded.epochs.entries()
    loaded.epochs.truncate_end(segments[-1].next_offset, save=False)
    if loaded.producers.transactions is None and any(segment.aborted is not None for segment in segments):
        # All its producers are forgotten, and readers have to learn what was aborted all the same.
        loaded.producers.transactions = Transactions(decided_offset=segments[-1].next_offset - 1)
    for segment in segments[:-1]:
        segment.forget_recent()
        if segment.aborted is not None:
            segment.aborted.forget()
    return saved_epochs


def walk_epochs(epochs: LeaderEpochs, segments: Sequence[Segment]) -> None:
    """Find the leader epochs in the batches themselves, because their file is missing or torn."""
    epochs.clear(save=False)  # the check may have met a later batch of an epoch first
    end_offset = segments[0].base_offset if segments else 0
    for segment in segments:
        for _, header in segment.batches():
            if header.partition_leader_epoch > epochs.latest:
                epochs.assign(header.partition_leader_epoch, end_offset, save=False)
            end_offset = header.last_offset + 1


def checked_batches(segment: Segment, position: int, end: int) -> Iterator[tuple[int, BatchHeader] | Damage]:
    """Yield (position, header) of every whole batch, CRC checked; then, if bytes are left, the damage.

    Raises:
        OSError: the disk fails.
    """
    fd, buffer = segment.open(), bytearray(min(SCAN_BUFFER_BYTES, end - position))
    while position < end:
        filled = os.preadv(fd, [memoryview(buffer)[: end - position]], position)
        at = 0
        with memoryview(buffer) as view:
            while filled - at >= HEADER_BYTES:
                header = BatchHeader(*HEADER.unpack_from(buffer, at))
                size = header.batch_length + LENGTH_OVERHEAD
                if size > filled - at:
                    break
                reason = _fault(header, view[at : at + size])
                if reason:
                    yield Damage(position + at, reason)
                    return
                yield position + at, header
                at += size
        position += at
        if at == 0:
            wanted = HEADER_BYTES if filled < HEADER_BYTES else HEADER.unpack_from(buffer)[1] + LENGTH_OVERHEAD
            if wanted > min(end - position, MAX_BATCH_BYTES):
                yield Damage(position, f"a batch of {wanted} bytes in the last {end - position}")
                return
            buffer = bytearray(wanted)


def _fault(header: BatchHeader, batch: memoryview) -> str:
    if len(batch) < HEADER_BYTES or header.magic != MAGIC:
        return f"{len(batch)} bytes of magic {header.magic}"
    if crc32c(batch[CRC_START:]) != header.crc:
        return "bad CRC"
    if not 0 <= header.record_count <= header.last_offset_delta + 1 or header.last_offset_delta < 0:
        return f"{header.record_count} records over {header.last_offset_delta + 1} offsets"
    return ""


def _find_segments(directory: Path) -> list[Segment]:
    finish_swaps(directory)
    bases: list[Offset] = []
    others: list[tuple[str, str]] = []
    aborting: set[str] = set()
    for name in os.listdir(directory):  # noqa: PTH208  paths cost ten times this, and there may be thousands of partitions
        stem, suffix = os.path.splitext(name)  # noqa: PTH122
        if suffix in LEFTOVER_SUFFIXES:
            (directory / name).unlink()
        elif suffix == ".log" and stem.isdigit():
            bases.append(int(stem))
        elif suffix in (".index", ".timeindex"):
            others.append((stem, name))
        elif suffix == ABORTED_SUFFIX:
            others.append((stem, name))
            aborting.add(stem)
    known = set(bases)
    for stem, name in others:
        if not stem.isdigit() or int(stem) not in known:
            (directory / name).unlink()
    segments = [Segment(directory, base) for base in sorted(bases)]
    if aborting:
        for segment in segments:
            if segment.path.stem in aborting:
                segment.aborted = TransactionIndex(segment.path.with_suffix(ABORTED_SUFFIX))
    return segments


def _unchecked(segments: list[Segment], recovery_point: Offset) -> list[Segment]:
    """Return the segments that may hold anything at or above the recovery point."""
    for number, following in enumerate(segments[1:]):
        if following.base_offset > recovery_point:
            return segments[number:]
    return segments[-1:]


def _trust(segment: Segment, following: Segment | None, config: LogConfig, *, is_clean: bool) -> None:
    """Open a segment that was synced: batches are not read where the indexes say enough."""
    size_bytes = segment.path.stat().st_size
    is_indexed = _open_indexes(segment) and _are_true(segment, size_bytes, config.index_interval_bytes)
    if is_clean and is_indexed and following is not None:
        segment.size_bytes, segment.next_offset = size_bytes, following.base_offset
        segment.restore_timestamps()
        return
    if not is_indexed:
        segment.go_back_to(None)
    segment.walk_tail(size_bytes, config.index_interval_bytes)
    if following is not None:
        # Compaction may have taken the last records, or all: retention must not take an empty segment for one that ends
        # at the log start, and let the log begin later.
        segment.skip_to(following.base_offset)
        segment.close_indexes()
    segment.read_first_timestamp()


def _are_true(segment: Segment, size_bytes: int, interval_bytes: int) -> bool:
    """Compare the last entry of both indexes with the batches they name; the others were written before these."""
    entry, time_entry = segment.index.last(), segment.time_index.last()
    if entry is None and size_bytes > interval_bytes:
        return False  # or there are so few batches that looking at all of them costs nothing
    if time_entry is None:
        return size_bytes == 0  # a closed segment has one, unless its batches have no timestamps
    relative_offset, position = entry or (0, 0)
    timestamp, time_offset = time_entry
    floor = segment.index.floor(time_offset)
    try:
        _, last = next(segment.batches(position, size_bytes))
        for _, header in segment.batches(floor[1] if floor else 0, size_bytes):
            if header.last_offset >= segment.base_offset + time_offset:
                is_named = entry is None or last.last_offset == segment.base_offset + relative_offset
                return is_named and header.max_timestamp == timestamp
    except (StorageError, StopIteration):
        pass  # the entries, or the batches, are wrong: reading all batches tells which
    return False


def _open_indexes(segment: Segment) -> bool:
    """Believe both indexes if their sizes are right, else neither; return whether they are believed."""
    counts = OffsetIndex.count_on_disk(segment.index.path), TimeIndex.count_on_disk(segment.time_index.path)
    if min(counts) < 0:
        return False
    segment.index.flushed_count, segment.time_index.flushed_count = counts
    return True


def _check(loaded: LoadedLog, segment: Segment, config: LogConfig, recovery_point: Offset) -> bool:
    """Check every batch of a segment from the recovery point on; return whether the log goes on after it."""
    size_bytes = segment.path.stat().st_size
    damage = None
    for found in checked_batches(segment, segment.size_bytes, size_bytes):
        if isinstance(found, Damage):
            damage = found
            break
        position, header = found
        if header.partition_leader_epoch < loaded.epochs.latest:
            # Truncated for a later leader's batches once, and brought back by a power cut.
            damage = Damage(position, f"leader epoch {header.partition_leader_epoch} after {loaded.epochs.latest}")
            break
        try:
            segment.note(position, header, config.index_interval_bytes)
        except StorageError as error:
            damage = Damage(position, str(error))
            break
        _replay(loaded, segment, position, header)
    row = loaded.segments.index(segment)
    following = loaded.segments[row + 1] if row + 1 < len(loaded.segments) else None
    if damage is None and following is not None and not _follows(segment, following, config, recovery_point):
        damage = Damage(size_bytes, f"next is offset {segment.next_offset}, not {following.base_offset}")
    if segment.aborted is not None:
        with contextlib.suppress(ApiError):  # no room or no descriptor now: it is written before the next sync
            segment.aborted.flush()
    if damage is None:
        if following is not None:
            segment.skip_to(following.base_offset)  # equal, but for a gap that compaction left
            segment.close_indexes()
            # Retention may take the batches before it, and a transaction that is open there is known from here only.
            with contextlib.suppress(StorageError):
                loaded.producers.snapshot(following.base_offset)
        return True
    if segment.next_offset < recovery_point:
        raise StorageError(f"{segment.path}: damaged at {damage.position}, below the recovery point: {damage.reason}")
    _cut(loaded, row, size_bytes, damage)
    return False


def _follows(segment: Segment, following: Segment, config: LogConfig, recovery_point: Offset) -> bool:
    if recovery_point == NOWHERE and config.is_compacting:
        # The file with the recovery points is lost, and what looks like a loss may well be compaction's.
        return segment.next_offset <= following.base_offset
    # Compaction leaves gaps only below the recovery point, which was written down before it put anything in place.
    return segment.next_offset == following.base_offset


def _start_check(segment: Segment, recovery_point: Offset) -> None:
    """Go to the last index entry below the recovery point, if the index can be believed, else to the beginning."""
    try:
        entry = None
        if _open_indexes(segment) and recovery_point > segment.base_offset:
            keys = [key for key, _ in segment.index.entries()]
            if all(key < following for key, following in pairwise(keys)):
                entry = segment.index.floor(recovery_point - 1 - segment.base_offset)
        if segment.aborted is not None:
            segment.aborted.entries()
        segment.go_back_to(entry)
    except (StorageError, OSError):
        segment.go_back_to(None)
        if segment.aborted is not None:
            segment.aborted.clear()
    if segment.aborted is not None:
        # The check meets the markers from here on again.
        segment.aborted.truncate(segment.next_offset)


def _trust_aborted(segment: Segment, segments: Sequence[Segment]) -> None:
    """Read the index of aborted transactions of a segment that was synced; if it is damaged, make it again."""
    index = segment.aborted
    if index is None:
        return
    try:
        index.entries()
    except StorageError as error:
        _logger.warning("index made again file=%s reason=%s", index.path, error)
        index.clear()
        earlier = Producers(segment.path.parent)
        start = earlier.read(segment.base_offset)
        replay_producers(earlier, segments, start, segment.base_offset)
        for position, header in segment.batches():
            if header.producer_id >= 0:
                row = earlier.note(header, header.base_offset, UNKNOWN, read_marker(segment, position, header))
                if row is not None:
                    index.append(row)
        index.flush()
    if segment is not segments[-1]:
        index.forget()


def _cut(loaded: LoadedLog, row: int, size_bytes: int, damage: Damage) -> None:
    """Drop everything from the damage on; it was never synced, so it was never promised."""
    segment, dropped = loaded.segments[row], loaded.segments[row + 1 :]
    del loaded.segments[row + 1 :]
    loaded.cut_bytes = size_bytes - damage.position
    for later in dropped:
        loaded.cut_bytes += later.path.stat().st_size
        _remove(later)
        later.release()
    os.ftruncate(segment.open(), damage.position)
    os.fsync(segment.open())
    _logger.warning(
        "cut log=%s position=%d bytes=%d segments=%d reason=%r",
        segment.path, damage.position, loaded.cut_bytes, len(dropped), damage.reason,
    )  # fmt: skip


def _remove(segment: Segment) -> None:
    for path in segment.paths:
        path.unlink(missing_ok=True)


def _replay(loaded: LoadedLog, segment: Segment, position: int, header: BatchHeader) -> None:
    if header.partition_leader_epoch > loaded.epochs.latest:
        loaded.epochs.assign(header.partition_leader_epoch, loaded.checked_end_offset, save=False)
    loaded.checked_end_offset = header.last_offset + 1
    if header.producer_id >= 0:
        aborted = loaded.producers.note(header, header.base_offset, UNKNOWN, read_marker(segment, position, header))
        if aborted is not None:
            segment.add_aborted(aborted)
