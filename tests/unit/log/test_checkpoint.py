import errno
import os
from pathlib import Path

import pytest

from pylog.errors import ConfigError, StorageError
from pylog.log import checkpoint
from pylog.log.config import LogConfig
from pylog.model import TopicPartition


def test_offsets_are_written_in_kafka_s_format(tmp_path: Path) -> None:
    path = tmp_path / checkpoint.RECOVERY_POINTS
    offsets = {TopicPartition("clicks", 0): 7, TopicPartition("a-b.c_d", 12): 1 << 40}
    checkpoint.write_offsets(path, offsets)
    assert path.read_text() == "0\n2\nclicks 0 7\na-b.c_d 12 1099511627776\n"
    assert checkpoint.read_offsets(path) == offsets
    assert list(tmp_path.iterdir()) == [path]


def test_no_file_means_no_offsets(tmp_path: Path) -> None:
    assert checkpoint.read_offsets(tmp_path / "none") == {}
    assert checkpoint.read_properties(tmp_path / "none") is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"0",
        b"1\n0\n",
        b"0\n2\na 0 1\n",
        b"0\n1\na 0\n",
        b"0\n1\na b c\n",
        b"0\n1\na 0 1 2\n",
        b"0\n1\na 0 1",
        b"\xff\xfe",
    ],
)
def test_a_damaged_checkpoint_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "points"
    path.write_bytes(content)
    with pytest.raises(StorageError, match="points"):
        checkpoint.read_offsets(path)


def test_a_refused_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "points"
    checkpoint.write_atomically(path, "old")

    def refuse(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StorageError, match="points"):
        checkpoint.write_atomically(path, "new")
    assert path.read_text() == "old"


def test_properties_keep_order_and_skip_comments(tmp_path: Path) -> None:
    path = tmp_path / checkpoint.META_PROPERTIES
    path.write_text("#Sat Nov 21\n\nversion=0\ncluster.id=a=b\n")
    assert checkpoint.read_properties(path) == {"version": "0", "cluster.id": "a=b"}
    path.write_text("version\n")
    with pytest.raises(StorageError, match="name=value"):
        checkpoint.read_properties(path)


@pytest.mark.parametrize(
    "wrong",
    [
        {"segment_bytes": 1_023},
        {"segment_bytes": 1 << 31},
        {"segment_ms": 0},
        {"retention_ms": -2},
        {"flush_messages": 0},
        {"message_timestamp_type": "Never"},
        {"cleanup_policy": "keep"},
        {"cleanup_policy": "delete,delete"},
    ],
)
def test_settings_outside_their_bounds_are_named(wrong: dict[str, int]) -> None:
    (name,) = wrong
    with pytest.raises(ConfigError, match=name.replace("_", ".")):
        LogConfig(**wrong)  # type: ignore[arg-type]
