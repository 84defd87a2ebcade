"""The lake's commits, with the writer killed at every step it takes on the disk."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from pylog.errors import StorageError
from pylog.ingest.lake import Batch, Lake, LakeError

QUERY = "0123abcd-1111-2222-3333-444444444444"


class Killed(BaseException):
    """Stands for kill -9: no handler of the code under test may run on it."""


def batch(number: int, end: int = 10) -> Batch:
    return Batch(QUERY, number, {"version": 1, "topics": {"logins": {"partitions": {"0": end}}}})


def writer(*offsets: int) -> Callable[[Path], None]:
    """Write as Spark does: one file for each of two days, and its own markers beside them."""

    def write(directory: Path) -> None:
        for half, date in enumerate(("2026-01-01", "2026-01-02")):
            day = directory / "topic=logins" / f"date={date}"
            day.mkdir(parents=True)
            rows = list(offsets)[half::2]
            pq.write_table(pa.table({"offset": pa.array(rows, pa.int64())}), day / f"part-{half}.snappy.parquet")
        (directory / "_SUCCESS").touch()

    return write


def offsets_in(root: Path) -> list[int]:
    """What a plain reader of the directory sees; it fails on a torn file."""
    if not any(root.glob("topic=*/*/*")):
        return []
    found = ds.dataset(root, format="parquet", partitioning="hive").to_table(columns=["offset"])
    return sorted(found["offset"].to_pylist())


@contextmanager
def killed_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let *steps* calls that change the disk through, then kill; nothing runs after that."""
    left = steps

    def counting(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            if left <= 0:
                raise Killed
            left -= 1
            return call(*args, **kwargs)

        return counted

    with monkeypatch.context() as patch:
        for owner, name in (
            (os, "fsync"), (os, "link"), (Path, "replace"), (Path, "unlink"), (Path, "mkdir"), (shutil, "rmtree"),
            (pq, "read_metadata"),
        ):  # fmt: skip
            patch.setattr(owner, name, counting(getattr(owner, name)))
        yield


def test_a_batch_lands_with_its_commit(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    with lake.locked():
        assert lake.land(batch(7), writer(1, 2, 3)) == 3
    files = sorted(str(path.relative_to(lake.root)) for path in lake.root.rglob("*.parquet"))
    assert files == [
        "topic=logins/date=2026-01-01/0123abcd-00000007-00000.parquet",
        "topic=logins/date=2026-01-02/0123abcd-00000007-00001.parquet",
    ]
    commit = json.loads((lake.root / "_commits" / "0123abcd-00000007.json").read_text())
    assert [(file["path"], file["rows"]) for file in commit["files"]] == [(files[0], 2), (files[1], 1)]
    assert all((lake.root / file["path"]).stat().st_size == file["size_bytes"] for file in commit["files"])
    assert (commit["query_id"], commit["batch_id"], commit["position"]) == (QUERY, 7, batch(7).position)
    assert list((lake.root / "_staging").iterdir()) == []


def test_a_batch_without_records_is_committed_too(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with lake.locked():
        assert lake.land(batch(0), lambda directory: directory.mkdir()) == 0
        lake.check_checkpoint(QUERY, 0)


def test_a_batch_lands_once(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with lake.locked():
        lake.land(batch(0), writer(1, 2))
        assert lake.land(batch(0), writer(1, 2)) == 0
    assert offsets_in(tmp_path) == [1, 2]


def test_killed_at_any_step_it_lands_exactly_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 0
    while True:
        lake = Lake(tmp_path / str(steps))
        with lake.locked():
            lake.land(batch(0), writer(1, 2))
        is_done = False
        try:
            with killed_after(steps, monkeypatch), lake.locked():
                lake.land(batch(1), writer(3, 4))
                is_done = True
        except Killed:
            pass
        # Between the kill and the next run a reader sees whole files, and nothing twice.
        assert offsets_in(lake.root) in ([1, 2], [1, 2, 3], [1, 2, 4], [1, 2, 3, 4])
        with lake.locked():
            lake.land(batch(1), writer(3, 4))
            lake.land(batch(2), writer(5, 6))
        assert offsets_in(lake.root) == [1, 2, 3, 4, 5, 6]
        assert len(list((lake.root / "_commits").glob("*.json"))) == 3
        assert list((lake.root / "_staging").iterdir()) == []
        if is_done:
            break
        steps += 1
    assert steps > 15  # or the steps were not those that are taken


def test_killed_at_any_two_steps_it_lands_exactly_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for first in range(0, 24, 4):
        for second in range(0, 24, 7):
            lake = Lake(tmp_path / f"{first}-{second}")
            for steps in (first, second):
                try:
                    with killed_after(steps, monkeypatch), lake.locked():
                        lake.land(batch(0), writer(1, 2))
                except Killed:
                    pass
            with lake.locked():
                lake.land(batch(0), writer(1, 2))
            assert offsets_in(lake.root) == [1, 2]


def test_two_writers_keep_each_other_out(tmp_path: Path) -> None:
    with Lake(tmp_path).locked(), pytest.raises(LakeError, match="another job is writing"), Lake(tmp_path).locked():
        pass
    with Lake(tmp_path).locked():  # free again
        pass


def test_a_lake_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    lake = Lake(tmp_path / "file" / "lake")
    with pytest.raises(StorageError, match=r"file/lake cannot be written: .*Not a directory"), lake.locked():
        pass


def test_a_disk_that_refuses_is_a_storage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(tmp_path)

    def refuse(path: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    with lake.locked():
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", refuse)
            with pytest.raises(StorageError, match="No space left"):
                lake.land(batch(0), writer(1, 2))
        lake.land(batch(0), writer(1, 2))
    assert offsets_in(tmp_path) == [1, 2]


def test_a_promised_file_that_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(tmp_path)

    def killed(*_: object) -> None:
        raise Killed

    with lake.locked():
        with monkeypatch.context() as patch:
            patch.setattr(lake, "_publish", killed)
            with pytest.raises(Killed):
                lake.land(batch(0), writer(1, 2))
        next((tmp_path / "_staging").rglob("*.parquet")).unlink()
        with pytest.raises(StorageError, match="is gone"):
            lake.land(batch(0), writer(1, 2))


def test_a_new_checkpoint_on_a_written_lake_is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with lake.locked():
        lake.land(batch(0), writer(1, 2))
        lake.check_checkpoint(QUERY, 0)
        with pytest.raises(LakeError, match="written with another checkpoint"):
            lake.check_checkpoint(None, None)
        with pytest.raises(LakeError, match="written with another checkpoint"):
            lake.check_checkpoint("ffff0000-1", None)


def test_a_lake_that_lost_its_commits_is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with lake.locked(), pytest.raises(LakeError, match="lacks commit 0123abcd-00000004"):
        lake.check_checkpoint(QUERY, 4)


def test_a_checkpoint_set_back_is_refused(tmp_path: Path) -> None:
    # Batch 1 of the older checkpoint would hold other offsets: skipping it would lose them, landing it double them.
    lake = Lake(tmp_path)
    with lake.locked():
        lake.land(batch(1, end=10), writer(1, 2))
        with pytest.raises(LakeError, match="set back or copied"):
            lake.land(batch(1, end=15), writer(1, 2))


def test_a_commit_of_a_later_release_is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with lake.locked():
        (tmp_path / "_commits" / f"{batch(0).name}.json").write_text('{"version": 2}')
        with pytest.raises(LakeError, match="version 2"):
            lake.land(batch(0), writer(1))
