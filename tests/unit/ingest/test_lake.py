"""The lake's commits, with drivers killed and paused at every step they take on the disk."""

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pylog.errors import StorageError
from pylog.ingest import lake as lake_module
from pylog.ingest.lake import Attempt, File, Kind, Lake, LakeError, Lost, State, path_of
from pylog.ingest.plan import Position
from pylog.model import TopicPartition

P = TopicPartition("logins", 0)
HOUR = 490_000


class Killed(BaseException):
    """Stands for kill -9: no handler of the code under test may run on it."""


def write(attempt: Attempt, name: str, offsets: list[int]) -> File:
    path = attempt.directory / name
    pq.write_table(pa.table({"offset": pa.array(offsets, pa.int64())}), path)
    return File(path_of("logins", HOUR, name), len(offsets), path.stat().st_size)


def load(root: Path, end: int) -> None:
    """One driver: load logins-0 up to *end*, unless that is done."""
    lake = Lake.create(root)
    state = lake.finish()
    lake.clean(state)
    start = state.position.offsets.get(P, 0)
    if start >= end:
        return
    attempt = lake.begin(Kind.LOAD, state)
    name = f"{attempt.directory.name}.parquet"
    position = Position({P: end}, {"logins": "id-1"})
    lake.commit(attempt, [write(attempt, name, list(range(start, end)))], more={"position": position.to_json()})


def compact(root: Path) -> None:
    """One driver: make one file of all."""
    lake = Lake.create(root)
    state = lake.finish()
    lake.clean(state)
    lake.purge(state, 0)
    if len(state.files) < 2:
        return
    attempt = lake.begin(Kind.COMPACTION, state)
    offsets = [o for path in state.files for o in pq.read_table(root / path)["offset"].to_pylist()]
    new = write(attempt, f"{attempt.directory.name}.parquet", sorted(offsets))
    lake.commit(attempt, [new], replaces=state.files, more={})


def listed(root: Path) -> list[int]:
    """What a reader of the manifest sees; it fails on a file that is not there or torn."""
    files = Lake.open(root).visible().files
    return sorted(o for path in files for o in pq.read_table(root / path)["offset"].to_pylist())


def plain(root: Path) -> list[int]:
    """What a reader of the directory sees."""
    return sorted(o for path in root.glob("topic=*/*/*/*") for o in pq.read_table(path)["offset"].to_pylist())


STEPS = (
    (os, "fsync"), (os, "link"), (Path, "replace"), (Path, "unlink"), (Path, "mkdir"), (shutil, "rmtree"),
    (pq, "write_table"),
)  # fmt: skip


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    # Still a step that a driver may die at; waiting for the disk thousands of times would only take long.
    monkeypatch.setattr(os, "fsync", lambda fd: None)


@contextmanager
def at_each_step(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]) -> Iterator[None]:
    """Call *happens* before each call that changes the disk."""

    def wrapped(call: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*args: Any, **kwargs: Any) -> Any:
            happens()
            return call(*args, **kwargs)

        return stepping

    with monkeypatch.context() as patch:
        for owner, name in STEPS:
            patch.setattr(owner, name, wrapped(getattr(owner, name)))
        yield


def killed_at(step: int, monkeypatch: pytest.MonkeyPatch, work: Callable[[], None]) -> bool:
    """Run *work* until its step number *step*; return whether it was done before."""
    left = step

    def happens() -> None:
        nonlocal left
        if left <= 0:
            raise Killed
        left -= 1

    try:
        with at_each_step(monkeypatch, happens):
            work()
    except Killed:
        return False
    return True


class Paused:
    """A driver in a thread of its own, held before its step number *step*."""

    def __init__(self, step: int, monkeypatch: pytest.MonkeyPatch, work: Callable[[], None]) -> None:
        self._left = step
        self._work = work
        self._monkeypatch = monkeypatch
        self._reached, self._go_on = threading.Event(), threading.Event()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001  whatever ended it is what the test looks at
            self.error = error
        self._reached.set()

    def _happens(self) -> None:
        if threading.current_thread() is not self._thread:
            return
        if self._left == 0:
            self._reached.set()
            assert self._go_on.wait(60)
        self._left -= 1

    def across(self, others: Callable[[], None]) -> bool:
        """Run the driver, with *others* while it is paused; return whether it was done before."""
        with at_each_step(self._monkeypatch, self._happens):
            self._thread.start()
            assert self._reached.wait(60)
            was_done = not self._thread.is_alive() and self._left > 0
            others()
            self._go_on.set()
            self._thread.join(60)
        return was_done


def test_a_load_becomes_visible_with_its_commit(tmp_path: Path) -> None:
    load(tmp_path, 3)
    load(tmp_path, 5)
    lake = Lake.open(tmp_path)
    state = lake.visible()
    assert (state.number, state.last) == (2, {Kind.LOAD: 2, Kind.COMPACTION: 0, Kind.RETRY: 0})
    assert state.position == Position({P: 5}, {"logins": "id-1"})
    assert all(path.startswith("topic=logins/date=2025-11-24/hour=16/0000") for path in state.files)
    assert all((tmp_path / file.path).stat().st_size == file.size_bytes for file in state.files.values())
    assert listed(tmp_path) == plain(tmp_path) == list(range(5))
    assert lake.staged() == []
    assert lake.commit_of(2)["kind"] == "load"


def test_a_load_killed_at_any_step_lands_exactly_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step, is_done = 0, False
    while not is_done:
        root = tmp_path / str(step)
        load(root, 2)
        is_done = killed_at(step, monkeypatch, lambda root=root: load(root, 4))
        assert listed(root) in ([0, 1], [0, 1, 2, 3])  # a batch is visible as a whole or not at all
        assert plain(root) in ([0, 1], [0, 1, 2, 3])
        load(root, 4)
        load(root, 6)
        assert listed(root) == plain(root) == list(range(6))
        assert Lake.open(root).staged() == []
        step += 1
    assert step > 10  # or the steps were not those that are taken


def test_a_compaction_killed_at_any_step_changes_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step, is_done = 0, False
    while not is_done:
        root = tmp_path / str(step)
        load(root, 2)
        load(root, 4)
        is_done = killed_at(step, monkeypatch, lambda root=root: compact(root))
        assert listed(root) == [0, 1, 2, 3]
        compact(root)
        assert len(Lake.open(root).visible().files) == 1
        load(root, 5)
        compact(root)  # also deletes what the first replaced
        assert listed(root) == [0, 1, 2, 3, 4]
        step += 1
    assert step > 10


def test_killed_twice_it_lands_exactly_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for first in range(0, 20, 3):
        for second in range(0, 20, 5):
            root = tmp_path / f"{first}-{second}"
            for step in (first, second):
                killed_at(step, monkeypatch, lambda root=root: load(root, 2))
            load(root, 2)
            assert listed(root) == plain(root) == [0, 1]


@pytest.mark.parametrize("paused", [load, compact])
def test_a_driver_paused_at_any_step_across_the_others_commit_and_compaction(
    paused: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = set()
    step, was_done = 0, False
    while not was_done:
        root = tmp_path / str(step)
        load(root, 2)
        load(root, 3)

        def others(root: Path = root) -> None:
            load(root, 5)
            compact(root)
            load(root, 6)
            compact(root)  # grace time 0: what the first compaction replaced is deleted, too

        arguments = (root, 4) if paused is load else (root,)
        driver = Paused(step, monkeypatch, lambda arguments=arguments: paused(*arguments))
        was_done = driver.across(others)
        ended.add(type(driver.error))
        assert listed(root) == list(range(6))
        load(root, 7)
        compact(root)
        compact(root)
        assert listed(root) == plain(root) == list(range(7))
        assert Lake.open(root).staged() == []
        step += 1
    assert step > 10
    assert Lost in ended
    # A directory that was cleaned away before the driver wrote into it fails the write; the rest is told.
    assert ended <= {type(None), Lost, StorageError, FileNotFoundError}


def test_loads_and_compactions_do_not_disturb_each_other(tmp_path: Path) -> None:
    load(tmp_path, 2)
    load(tmp_path, 4)
    lake = Lake.open(tmp_path)
    attempt = lake.begin(Kind.COMPACTION, state := lake.state())
    load(tmp_path, 6)
    after = lake.commit(attempt, [write(attempt, "all.parquet", [0, 1, 2, 3])], replaces=state.files, more={})
    assert after.number == 4  # planned as 3, which the load took
    assert listed(tmp_path) == list(range(6))
    assert len(after.files) == 2


def test_two_loads_of_the_same_offsets_land_once_and_the_slower_driver_stops(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    slower = lake.begin(Kind.LOAD, lake.state())
    load(tmp_path, 3)
    with pytest.raises(Lost, match="another driver made commit 1 of lake"):
        lake.commit(slower, [File(path_of("logins", HOUR, "x"), 1, 1)], more={"position": Position().to_json()})
    assert listed(tmp_path) == [0, 1, 2]
    assert lake.staged() == []


def test_replaced_files_stay_for_the_grace_time(tmp_path: Path) -> None:
    load(tmp_path, 2)
    load(tmp_path, 4)
    compact(tmp_path)
    lake = Lake.open(tmp_path)
    made_s = (tmp_path / "_commits" / "0000000003.json").stat().st_mtime
    assert lake.purge(lake.state(), 100, now_s=lambda: made_s + 99) == 0
    assert plain(tmp_path) == [0, 0, 1, 1, 2, 2, 3, 3]  # a plain reader sees both generations meanwhile
    assert lake.purge(lake.state(), 100, now_s=lambda: made_s + 100) == 2
    assert plain(tmp_path) == listed(tmp_path) == [0, 1, 2, 3]


def test_a_snapshot_says_what_the_commits_before_it_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_module, "SNAPSHOT_EVERY", 3)
    for end in range(2, 16, 2):
        load(tmp_path, end)
        compact(tmp_path)
    lake = Lake.open(tmp_path)
    with_snapshot = lake.state()
    assert len(list((tmp_path / "_snapshots").glob("*.json"))) == 3  # the oldest are gone
    shutil.rmtree(tmp_path / "_snapshots")
    without = State().after(lake._commits_after(0))
    assert (with_snapshot.files, with_snapshot.position, with_snapshot.last, with_snapshot.number) == (
        without.files, without.position, without.last, without.number,
    )  # fmt: skip
    assert State.from_json(json.loads(json.dumps(without.to_json()))) == without


def aged(root: Path) -> None:
    """Make all commits old."""
    for path in (root / "_commits").iterdir():
        os.utime(path, (0, 0))


def test_a_driver_knows_from_load_to_load_what_it_read_and_forgets_it_when_the_lake_is_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "lake"
    for end in (10, 20):
        load(root, end)
    shutil.copytree(root, tmp_path / "backup")
    compact(root)
    first = Lake.create(root)
    assert first.purge(first.finish(), 0) == 2
    reads: list[str] = []
    read = lake_module._read

    def counted(path: Path) -> dict[str, Any]:
        reads.append(path.parent.name)
        return read(path)

    monkeypatch.setattr(lake_module, "_read", counted)
    second = Lake.create(root, first)
    second.state()
    assert "_commits" not in reads
    shutil.rmtree(root)
    shutil.copytree(tmp_path / "backup", root)
    compact(root)
    third = Lake.create(root, second)
    assert third.purge(third.finish(), 0) == 2
    assert listed(root) == plain(root) == list(range(20))


def test_commits_that_a_snapshot_holds_are_pruned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_module, "SNAPSHOT_EVERY", 4)
    for end in range(1, 12):
        load(tmp_path, end)
    lake = Lake.open(tmp_path)
    before = lake.visible()
    assert lake.prune() == 0  # all of them are young
    aged(tmp_path)
    assert lake.prune() == 3
    left = sorted(int(path.stem) for path in (tmp_path / "_commits").iterdir())
    assert left == list(range(4, 12))
    assert Lake.open(tmp_path).visible() == Lake.open(tmp_path).state() == before
    assert listed(tmp_path) == list(range(11))
    load(tmp_path, 12)
    assert listed(tmp_path) == list(range(12))


def test_a_driver_paused_before_its_commit_finds_its_number_taken_though_commits_are_pruned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_module, "SNAPSHOT_EVERY", 2)
    for end in range(1, 4):
        load(tmp_path, end)
    create = lake_module._create
    paused = iter([True])

    def late(path: Path, body: Any, temporary: Path) -> None:
        if path.parent.name == "_commits" and body["kind"] == Kind.COMPACTION and next(paused, False):
            for end in range(4, 20):
                load(tmp_path, end)
            aged(tmp_path)
            Lake.open(tmp_path).prune()
        create(path, body, temporary)

    monkeypatch.setattr(lake_module, "_create", late)
    compact(tmp_path)
    assert listed(tmp_path) == list(range(19))
    assert Lake.open(tmp_path).state().last[Kind.COMPACTION] == 20


def test_a_state_is_copied_once_however_many_commits_follow_the_snapshot(tmp_path: Path) -> None:
    for end in range(1, 4):
        load(tmp_path, end)
    lake = Lake.open(tmp_path)
    state = lake.state()
    assert lake.state() is state
    load(tmp_path, 4)
    assert lake.state().number == 4
    # A lake that is set back under a driver's hands is seen as it is.
    (tmp_path / "_commits" / "0000000004.json").unlink()
    assert lake.state() == state


def test_a_commit_whose_answer_was_lost_is_known_as_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def link_twice(source: Path, target: Path) -> None:
        link(source, target)
        raise FileExistsError(17, "File exists")  # as NFS does when it repeats a request

    Lake.create(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", link_twice)
        load(tmp_path, 2)
    load(tmp_path, 3)
    assert listed(tmp_path) == plain(tmp_path) == [0, 1, 2]


def test_a_lake_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"file/lake cannot be written: .*Not a directory"):
        Lake.create(tmp_path / "file" / "lake")


def test_a_disk_that_refuses_is_a_storage_error_and_the_next_driver_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", refuse)
        with pytest.raises(StorageError, match="No space left"):
            load(tmp_path, 2)
    assert listed(tmp_path) == []
    load(tmp_path, 2)
    assert listed(tmp_path) == plain(tmp_path) == [0, 1]


def test_a_committed_file_that_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(Killed):
            load(tmp_path, 2)
    next((tmp_path / "_staging").rglob("*.parquet")).unlink()
    with pytest.raises(StorageError, match="was written and is gone"):
        load(tmp_path, 2)


@pytest.mark.parametrize("name", ["_lock", "_commits/0123abcd-00000000.json", "_spark_metadata/0", "topic=logins/x"])
def test_a_lake_of_another_kind_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    with pytest.raises(LakeError, match=r"it was written by something else, or by an earlier kind of job"):
        Lake.create(tmp_path)


def test_a_lake_of_a_later_release_is_refused(tmp_path: Path) -> None:
    load(tmp_path, 2)
    (tmp_path / "_commits" / "0000000002.json").write_text('{"version": 3}')
    with pytest.raises(LakeError, match="version 3"):
        load(tmp_path, 3)


def test_a_directory_that_is_no_lake_is_named(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match=r"is no lake: it has no _lake\.json"):
        Lake.open(tmp_path)


def test_paths_follow_the_hour_of_the_event() -> None:
    assert path_of("logins", 0, "x") == "topic=logins/date=1970-01-01/hour=00/x"
    assert path_of("logins", -1, "x") == "topic=logins/date=1969-12-31/hour=23/x"
    assert path_of("logins", -17_259_888, "x") == "topic=logins/date=0001-01-01/hour=00/x"
    assert path_of("logins", None, "x").startswith("topic=logins/date=__HIVE_DEFAULT_PARTITION__/hour=__HIVE")
