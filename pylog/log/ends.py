"""How far the logs of a broker reach that does not run; nothing is changed.

What a broker that starts would find: after a clean stop by its indexes, otherwise by checking every batch above the
recovery point.  So the answer holds for the start that follows it.
"""

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pylog.errors import StorageError
from pylog.log import checkpoint
from pylog.log.epochs import LeaderEpochs
from pylog.log.index import OffsetIndex
from pylog.log.layout import locked, partitions_in, read_topic_id
from pylog.log.offline import read_policies
from pylog.log.producers import MAX_COUNTED_PRODUCER_ID, newest_producer_id
from pylog.log.recovery import NOWHERE, Damage, checked_batches
from pylog.log.segment import Segment
from pylog.log.swap import SWAP_SUFFIX, swap_end
from pylog.model import Offset, OnProgress, TopicPartition, nobody
from pylog.wire.records import BatchHeader


@dataclass(frozen=True, slots=True)
class LogEnd:
    """One partition's log.

    Attributes:
        topic_id: None where the directory names none.
        epochs: (leader epoch, first offset written under it), oldest first.
        start: log start offset.
        end: log end offset.
        newest_producer_id: highest id of an idempotent producer, -1 without one.
    """

    key: TopicPartition
    topic_id: uuid.UUID | None
    epochs: tuple[tuple[int, Offset], ...]
    start: Offset
    end: Offset
    newest_producer_id: int


@dataclass(frozen=True, slots=True)
class DirectoryEnds:
    """All logs of one data directory.

    Attributes:
        broker_id: of the broker whose data this is; None where no broker started in it yet, as with `cluster_id`.
        is_clean: the last stop was clean.
        policies: settings of topics that stand beside the logs, by partition: what retention goes by.
    """

    broker_id: int | None
    cluster_id: str | None
    is_clean: bool
    logs: tuple[LogEnd, ...]
    policies: dict[TopicPartition, dict[str, str]]

    def document(self) -> dict[str, Any]:
        """Return what `pylog log ends` writes and a restoration reads."""
        return {
            "version": 1,
            "broker_id": self.broker_id,
            "cluster_id": self.cluster_id,
            "is_clean": self.is_clean,
            "partitions": [
                {
                    "topic": log.key.topic,
                    "partition": log.key.partition,
                    "topic_id": None if log.topic_id is None else str(log.topic_id),
                    "epochs": [list(entry) for entry in log.epochs],
                    "start": log.start,
                    "end": log.end,
                    "newest_producer_id": log.newest_producer_id,
                    "config": self.policies.get(log.key, {}),
                }
                for log in self.logs
            ],
        }


def read_ends(path: Path, on_progress: OnProgress = nobody) -> DirectoryEnds:
    """Return how far the logs in the data directory *path* reach.

    Args:
        path: a broker's data directory.
        on_progress: told how many logs were read.

    Raises:
        StorageError: a broker has the directory open, a log is damaged below what was synced, or the disk fails.
    """
    try:
        with locked(path):
            return _read_ends(path, on_progress)
    except OSError as error:
        raise StorageError(f"{error.filename or path}: {error.strerror}") from error


def _read_ends(path: Path, on_progress: OnProgress) -> DirectoryEnds:
    properties = checkpoint.read_properties(path / checkpoint.META_PROPERTIES) or {}
    is_clean = (path / checkpoint.CLEAN_SHUTDOWN).exists()
    recovery_points = checkpoint.read_offsets(path / checkpoint.RECOVERY_POINTS)
    starts = checkpoint.read_offsets(path / checkpoint.LOG_START_OFFSETS)
    policies = read_policies(path)
    directories = partitions_in(path)
    # As at a start: without the file nobody knows what was compacted.
    default = 0 if (path / checkpoint.RECOVERY_POINTS).exists() else NOWHERE
    logs = []
    for key, directory in directories.items():
        point = None if is_clean else recovery_points.get(key, default)
        is_compacted = directory.name in policies and policies[directory.name].is_compacting
        logs.append(_read_log(key, directory, starts.get(key, 0), point, is_compacted=is_compacted))
        on_progress(len(logs), len(directories))
    found = properties.get("broker.id")
    return DirectoryEnds(
        None if found is None else int(found),
        properties.get("cluster.id"),
        is_clean,
        tuple(logs),
        {
            key: {
                "cleanup.policy": policies[directory.name].cleanup_policy,
                "retention.ms": str(policies[directory.name].retention_ms),
                "retention.bytes": str(policies[directory.name].retention_bytes),
            }
            for key, directory in directories.items()
            if directory.name in policies
        },
    )


def _segments_in(directory: Path) -> list[Segment]:
    """Return what a start finds: a compacted segment that was being put in place counts, not those it replaces."""
    files = {int(file.stem): file for file in directory.glob("*.log") if file.stem.isdigit()}
    for swap in sorted(directory.glob(f"*.log{SWAP_SUFFIX}")):
        name = swap.name.partition(".")[0]
        if name.isdigit():
            end = swap_end(swap)
            files = {base: file for base, file in files.items() if not int(name) <= base < end}
            files[int(name)] = swap
    segments = [Segment(directory, base) for base in sorted(files)]
    for segment in segments:
        segment.path = files[segment.base_offset]
    return segments


def _read_log(
    key: TopicPartition, directory: Path, start: Offset, recovery_point: Offset | None, *, is_compacted: bool
) -> LogEnd:
    epochs = LeaderEpochs(directory)
    segments = _segments_in(directory)
    first = max(start, segments[0].base_offset) if segments else start
    walk = _Walk(epochs, first, newest_producer_id(directory), is_compacted=is_compacted)
    try:
        is_known = epochs.load()
        saved = epochs.entries()
        if not is_known:
            walk.learn(segments)
            saved = epochs.entries()
        elif recovery_point is None:
            walk.follow(segments[-1:])
        else:
            walk.check(segments, recovery_point)
    finally:
        for segment in segments:
            segment.release()
    epochs.truncate_end(walk.end, save=False)
    if walk.end <= walk.start:
        epochs.keep_last(saved, walk.start, save=False)
    return LogEnd(key, read_topic_id(directory), tuple(epochs.entries()), walk.start, walk.end, walk.newest_producer_id)


class _Walk:
    """What the batches of one log say beyond its small files."""

    def __init__(self, epochs: LeaderEpochs, start: Offset, newest_producer_id: int, *, is_compacted: bool) -> None:
        self._is_compacted = is_compacted
        self.epochs = epochs
        self.start = self.end = start
        self._batch_end: Offset = start
        self.newest_producer_id = newest_producer_id

    def follow(self, segments: list[Segment]) -> None:
        """Take the batches of segments that were closed well, from the last one that an index names."""
        for segment in segments:
            self.end = max(self.end, segment.base_offset)
            size_bytes = segment.path.stat().st_size
            count = OffsetIndex.count_on_disk(segment.index.path)
            entry = OffsetIndex(segment.index.path, count).last() if count > 0 else None
            for _, header in segment.batches(entry[1] if entry else 0, size_bytes):
                self._take(header)

    def learn(self, segments: list[Segment]) -> None:
        """Take all batches, because the file of epochs is missing or torn."""
        self.epochs.clear(save=False)
        self.check(segments, 0)

    def check(self, segments: list[Segment], recovery_point: Offset) -> None:
        """Check the batches of segments that may not have been synced, up to the first that is not whole.

        Raises:
            StorageError: it lies below the recovery point.
        """
        following = [*(segment.base_offset for segment in segments[1:]), None]
        pairs = list(zip(segments, following, strict=True))
        unchecked = [pair for pair in pairs if pair[1] is None or pair[1] > recovery_point]
        if unchecked:
            # A power cut may leave a file of epochs that is newer than the log; what is not synced tells its own.
            self.epochs.truncate_end(unchecked[0][0].base_offset, save=False)
            self._batch_end = unchecked[0][0].base_offset
        for segment, next_base in unchecked:
            self.end = max(self.end, segment.base_offset)
            for found in checked_batches(segment, 0, segment.path.stat().st_size):
                # A batch of a former leader was truncated once, and brought back by the power cut.
                if isinstance(found, Damage) or found[1].partition_leader_epoch < self.epochs.latest:
                    if self.end < recovery_point:
                        raise StorageError(f"{segment.path}: damaged below the recovery point {recovery_point}")
                    return
                self._take(found[1])
            is_gap_compactions = recovery_point == NOWHERE and self._is_compacted
            if next_base is not None and recovery_point <= self.end < next_base and not is_gap_compactions:
                return

    def _take(self, header: BatchHeader) -> None:
        self.end = max(self.end, header.last_offset + 1)
        if header.producer_id < MAX_COUNTED_PRODUCER_ID:
            self.newest_producer_id = max(self.newest_producer_id, header.producer_id)
        if header.partition_leader_epoch > self.epochs.latest:
            self.epochs.assign(header.partition_leader_epoch, self._batch_end, save=False)
        self._batch_end = header.last_offset + 1
