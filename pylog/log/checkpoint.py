r"""Small text files that outlive a crash: checkpoints, `meta.properties`, `partition.metadata`.

checkpoint => version "\n" count "\n" line*        (version 0; count lines follow)
offsets    => topic " " partition " " offset "\n"
epochs     => leader_epoch " " start_offset "\n"
properties => ("#" comment "\n" | name "=" value "\n")*

All are Kafka's own formats.  A file is replaced by write, sync, rename, sync of the directory: a reader sees the old
content or the new one, never half.

Source: Kafka's CheckpointFile, OffsetCheckpointFile, LeaderEpochCheckpointFile, PartitionMetadataFile.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from pylog.errors import StorageError
from pylog.model import Offset, TopicPartition

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
COMPACTED_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
REMOVED_TOMBSTONES = "removed-tombstone-checkpoint"
RETENTION_CLOCK = "retention-clock-checkpoint"
"""What time it was; see `pylog.broker.retention_clock`."""
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
BOOT_ID = ".pylog_boot_id"
"""Which start of the host the last process ran under; gone once the disk has failed."""
RETENTION = "retention.json"
"""What retention goes by while the broker is down; see `pylog.log.offline`."""

_VERSION = "0"


def boot_id() -> str:
    """Return what the kernel calls this start of the host, "" if it does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def sync_path(path: Path) -> None:
    """Sync one file or directory by name.

    Raises:
        OSError: the disk refuses, or nothing has that name.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_atomically(path: Path, content: str | bytes, *, durable: bool = True) -> None:
    """Replace *path* by *content*.

    Args:
        path: the file.
        content: text or bytes of the whole file.
        durable: wait until it survives a power cut; without, only a crash of the process is survived.

    Raises:
        StorageError: the disk refuses; the old file is still there.
    """
    new_path = path.with_name(path.name + ".tmp")
    data = content.encode() if isinstance(content, str) else content
    try:
        with new_path.open("wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        new_path.replace(path)
        if durable:
            sync_path(path.parent)
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}") from error


def read_lines(path: Path) -> list[str] | None:
    """Return the lines of a checkpoint, or None where there is none.

    Raises:
        StorageError: the file contradicts itself; it was not written by this module.
    """
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"{path}: {error}") from error
    if not text.endswith("\n"):
        # Torn inside a number it would still count right: "4 1" is what is left of "4 164".
        raise StorageError(f"{path}: its last line has no end")
    lines = text.splitlines()
    if len(lines) < 2 or lines[0] != _VERSION or lines[1] != str(len(lines) - 2):
        raise StorageError(f"{path}: wanted version {_VERSION} and a count of {len(lines) - 2}, found {lines[:2]}")
    return lines[2:]


def write_lines(path: Path, lines: Iterable[str], *, durable: bool = True) -> None:
    """Write a checkpoint.

    Raises:
        StorageError: the disk refuses; the old file is still there.
    """
    found = list(lines)
    write_atomically(path, "\n".join([_VERSION, str(len(found)), *found, ""]), durable=durable)


def read_offsets(path: Path) -> dict[TopicPartition, Offset]:
    """Return what an offset checkpoint holds; nothing where there is none.

    Raises:
        StorageError: the file contradicts itself.
    """
    offsets: dict[TopicPartition, Offset] = {}
    for line in read_lines(path) or ():
        try:
            topic, partition, offset = line.split(" ")
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError as error:
            raise StorageError(f"{path}: {line!r} is not 'topic partition offset'") from error
    return offsets


def write_offsets(path: Path, offsets: Mapping[TopicPartition, Offset]) -> None:
    """Write an offset checkpoint.

    Raises:
        StorageError: the disk refuses; the old file is still there.
    """
    write_lines(path, (f"{key.topic} {key.partition} {offset}" for key, offset in offsets.items()))


def read_properties(path: Path, separator: str = "=") -> dict[str, str] | None:
    """Return the pairs of a properties file, or None where there is none.

    Raises:
        StorageError: a line is not a pair.
    """
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"{path}: {error}") from error
    pairs: dict[str, str] = {}
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        name, found, value = line.partition(separator)
        if not found:
            raise StorageError(f"{path}: {line!r} is not 'name{separator}value'")
        pairs[name.strip()] = value.strip()
    return pairs


def write_properties(path: Path, pairs: Mapping[str, str], separator: str = "=", *, durable: bool = True) -> None:
    """Write a properties file.

    Raises:
        StorageError: the disk refuses; the old file is still there.
    """
    text = "".join(f"{name}{separator}{value}\n" for name, value in pairs.items())
    write_atomically(path, text, durable=durable)
