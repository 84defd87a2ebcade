"""Retention in the data directory of a broker that does not run.

retention.json => {"version": 1, "partitions": {"<topic>-<partition>": {"cleanup.policy", "retention.ms",
                   "retention.bytes"}}}

The broker keeps that file up to date; with it and the checkpointed high watermarks the same decision is made as in the
broker, by closed segments alone.
"""

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from pylog.errors import ConfigError, StorageError
from pylog.log import checkpoint
from pylog.log.aborted import SUFFIX as ABORTED_SUFFIX
from pylog.log.config import LogConfig
from pylog.log.index import TimeIndex
from pylog.log.layout import locked, partitions_in
from pylog.log.producers import Producers
from pylog.log.retention import DeletedSegment, SegmentFacts, expired_segments
from pylog.log.segment import NO_TIMESTAMP
from pylog.model import Offset, TopicPartition

FORMAT = 1

_NO_END = 2**63 - 1

Policies = Mapping[str, LogConfig]
"""What retention goes by, by name of the partition's directory."""


class OfflineRetention(NamedTuple):
    """What retention did, or would do.

    Attributes:
        deleted: the segments, by partition.
        skipped: (partition, why) of those that were left alone.
        files: what is left to be removed, which needs no lock any more.
    """

    deleted: list[tuple[TopicPartition, DeletedSegment]]
    skipped: list[tuple[TopicPartition, str]]
    files: list[Path]


def encode_policies(policies: Policies) -> bytes:
    """Return the content of `retention.json`."""
    partitions = {
        name: {
            "cleanup.policy": config.cleanup_policy,
            "retention.ms": config.retention_ms,
            "retention.bytes": config.retention_bytes,
        }
        for name, config in policies.items()
    }
    return json.dumps({"version": FORMAT, "partitions": partitions}, separators=(",", ":")).encode()


def read_policies(path: Path) -> dict[str, LogConfig]:
    """Return what `retention.json` in the data directory *path* says, by directory name; {} where there is none.

    Raises:
        StorageError: the file is not what a broker of this release or the one before writes.
    """
    file = path / checkpoint.RETENTION
    try:
        document = json.loads(file.read_bytes())
        if document["version"] != FORMAT:
            raise StorageError(f"{file}: version {document['version']!r}; {FORMAT} is known")
        return {
            name: LogConfig(
                cleanup_policy=str(found["cleanup.policy"]),
                retention_ms=int(found["retention.ms"]),
                retention_bytes=int(found["retention.bytes"]),
            )
            for name, found in document["partitions"].items()
        }
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise StorageError(f"{file}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, ConfigError) as error:
        raise StorageError(f"{file}: {error!r}; a broker that starts writes it anew") from error


def retain(path: Path, now_ms: int, *, dry_run: bool = False) -> OfflineRetention:
    """Take expired closed segments out of the data directory *path*, or only name them.

    What is taken out is renamed; the caller removes it, after the lock of the directory is free for a broker again.

    Raises:
        StorageError: a broker has the directory open, or the disk fails.
    """
    try:
        with locked(path):
            return _retain(path, now_ms, dry_run=dry_run)
    except OSError as error:
        raise StorageError(f"{error.filename or path}: {error.strerror}") from error


def remove(files: list[Path]) -> None:
    """Remove what `retain` took out.

    Raises:
        StorageError: the disk fails.
    """
    try:
        for file in files:
            file.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(f"{error.filename}: {error.strerror}") from error


def _retain(path: Path, now_ms: int, *, dry_run: bool) -> OfflineRetention:
    policies = read_policies(path)
    high_watermarks = checkpoint.read_offsets(path / checkpoint.HIGH_WATERMARKS)
    log_start_offsets = checkpoint.read_offsets(path / checkpoint.LOG_START_OFFSETS)
    recovery_points = checkpoint.read_offsets(path / checkpoint.RECOVERY_POINTS)
    was_clean = (path / checkpoint.CLEAN_SHUTDOWN).exists()
    done = OfflineRetention([], [], [])
    for key, directory in partitions_in(path).items():
        config, high_watermark = policies.get(directory.name), high_watermarks.get(key)
        if config is None or high_watermark is None:
            lacking = checkpoint.RETENTION if config is None else checkpoint.HIGH_WATERMARKS
            done.skipped.append((key, f"{lacking} does not name it"))
            continue
        expired = expired_segments(
            _facts(directory, was_clean=was_clean),
            config,
            log_start_offset=log_start_offsets.get(key, 0),
            high_watermark=high_watermark,
            now_ms=now_ms,
        )
        if expired:
            kept_offset = _keep_producers(directory, _NO_END if was_clean else recovery_points.get(key, 0))
            expired = [segment for segment in expired if _end_offset(directory, segment) <= kept_offset]
        done.deleted.extend((key, segment) for segment in expired)
        if not dry_run:
            for segment in expired:
                done.files.extend(_take_out(directory, segment.base_offset))
    return done


def _keep_producers(directory: Path, recovery_point: Offset) -> Offset:
    """Sync the newest snapshot of producers whose records are synced; return where it is, -1 if there is none.

    Once the batches below are gone, nothing else says what was stored.
    """
    producers = Producers(directory)
    offset = producers.read(recovery_point)
    if offset >= 0:
        checkpoint.sync_path(producers.path(offset))
        checkpoint.sync_path(directory)
    return offset


def _end_offset(directory: Path, segment: DeletedSegment) -> Offset:
    """Return where the segment behind *segment* begins."""
    return min(_base_offset(file) for file in directory.glob("*.log") if _is_behind(file, segment))


def _is_behind(file: Path, segment: DeletedSegment) -> bool:
    return file.stem.isdigit() and _base_offset(file) > segment.base_offset


def _facts(directory: Path, *, was_clean: bool) -> list[SegmentFacts]:
    """Return what retention decides by; the last segment was active, has no end that is known, and so never goes."""
    files = sorted(file for file in directory.glob("*.log") if file.stem.isdigit())
    facts: list[SegmentFacts] = []
    for file, following in pairwise([*files, None]):
        assert file is not None
        found = file.stat()
        end_offset = _NO_END if following is None else _base_offset(following)
        # After a power cut the end of a time index may be missing, and what is left names too old a time.
        newest = _newest_timestamp(file.with_suffix(".timeindex")) if was_clean else NO_TIMESTAMP
        modified_ms = found.st_mtime_ns // 1_000_000
        facts.append(SegmentFacts(_base_offset(file), end_offset, found.st_size, newest, modified_ms))
    return facts


def _newest_timestamp(path: Path) -> int:
    count = TimeIndex.count_on_disk(path)
    last = TimeIndex(path, count).last() if count > 0 else None
    return NO_TIMESTAMP if last is None else last[0]


def _base_offset(file: Path) -> Offset:
    return int(file.stem)


def _take_out(directory: Path, base_offset: Offset) -> list[Path]:
    taken: list[Path] = []
    for suffix in (".log", ".index", ".timeindex", ABORTED_SUFFIX):
        file = directory / f"{base_offset:020d}{suffix}"
        gone = file.with_name(file.name + ".deleted")
        try:
            file.rename(gone)
        except FileNotFoundError:
            continue
        taken.append(gone)
    return taken
