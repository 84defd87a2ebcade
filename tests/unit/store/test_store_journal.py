"""The embedded store's file: what survives, what is cut, what is refused."""

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from pylog.errors import ConfigError, StorageError
from pylog.store.base import Create, SessionLost, Set, Stat, StoreError, StoreFull
from pylog.store.embedded import EmbeddedStore, EmbeddedTree
from pylog.store.journal import Journal

Dump = dict[str, tuple[bytes, Stat]]


@contextmanager
def opened(directory: Path) -> Iterator[EmbeddedStore]:
    store = EmbeddedStore.open(directory)
    store.connect()
    try:
        yield store
    finally:
        store.close()


def dump(store: EmbeddedStore, path: str = "/") -> Dump:
    found = {path: store.get(path)}
    for name in store.children(path):
        found |= dump(store, f"{path.rstrip('/')}/{name}")
    return found


def filled(directory: Path) -> Dump:
    with opened(directory) as store:
        store.create("/a/b", b"one", make_parents=True)
        store.set("/a/b", b"two")
        store.create("/gone")
        store.delete("/gone")
        store.create("/seq")
        store.delete(store.create("/seq/n_", sequence=True))
        return dump(store)


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    before = filled(tmp_path)
    with opened(tmp_path) as store:
        assert dump(store) == before
        assert store.create("/seq/n_", sequence=True) == "/seq/n_0000000001", "numbers are not given twice"


def test_transactions_go_on_growing_after_a_restart(tmp_path: Path) -> None:
    before = filled(tmp_path)
    last = max(stat.mzxid for _, stat in before.values())
    with opened(tmp_path) as store:
        store.create("/later")
        assert store.get("/later")[1].czxid > last


def test_ephemeral_nodes_of_a_dead_process_are_gone(tmp_path: Path) -> None:
    script = (
        "import os, pathlib, sys\n"
        "from pylog.store.embedded import EmbeddedStore\n"
        "store = EmbeddedStore.open(pathlib.Path(sys.argv[1]))\n"
        "store.connect()\n"
        "store.create('/kept')\n"
        "store.create('/kept/e', ephemeral=True)\n"
        "print(store.session_id, flush=True)\n"
        "os._exit(9)\n"
    )
    died = subprocess.run([sys.executable, "-c", script, tmp_path], stdout=subprocess.PIPE, text=True, check=False)
    assert died.returncode == 9
    with opened(tmp_path) as store:
        assert store.children("/") == ["kept"]
        assert store.children("/kept") == []
        assert store.session_id != int(died.stdout), "a session id is never used again"


def test_a_torn_last_transaction_is_cut_off_at_every_byte(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    with opened(whole) as store:
        store.create("/a", b"first")
        before = dump(store)
        size_before = (whole / "store.journal").stat().st_size
        store.multi([Set("/a", b"second"), Create("/b", b"x" * 50)])
    content = (whole / "store.journal").read_bytes()
    for length in range(size_before, len(content)):
        torn = tmp_path / str(length)
        torn.mkdir()
        (torn / "store.journal").write_bytes(content[:length])
        with opened(torn) as store:
            assert dump(store) == before
            store.create("/b", b"after the cut")
        with opened(torn) as store:
            assert store.get("/b")[0] == b"after the cut"


def test_zeros_where_the_last_transaction_was_to_be_are_cut_off(tmp_path: Path) -> None:
    before = filled(tmp_path)
    journal = tmp_path / "store.journal"
    journal.write_bytes(journal.read_bytes() + bytes(300))
    with opened(tmp_path) as store:
        assert dump(store) == before


@pytest.mark.parametrize("offset", [0, 4, 9, 20])
def test_damage_before_a_whole_transaction_is_refused(tmp_path: Path, offset: int) -> None:
    with opened(tmp_path) as store:
        store.create("/a")
        damaged = (tmp_path / "store.journal").stat().st_size
        store.create("/b", b"x" * 20)
        store.create("/c", b"confirmed later")
    journal = tmp_path / "store.journal"
    content = bytearray(journal.read_bytes())
    content[damaged + offset] ^= 0x40
    journal.write_bytes(content)
    with pytest.raises(StorageError, match=f"damaged at byte {damaged}"):
        EmbeddedStore.open(tmp_path)
    assert journal.read_bytes() == content, "nothing is cut that may be needed"
    with pytest.raises(StorageError, match="damaged"):
        EmbeddedStore.open(tmp_path)


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store.journal").write_bytes(b"pylogstore\x00\x02 something newer")
    with pytest.raises(StorageError, match="not a store journal of format 1"):
        EmbeddedStore.open(tmp_path)


def test_a_journal_cut_within_its_first_bytes_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "store.journal").write_bytes(b"pylog")
    with opened(tmp_path) as store:
        store.create("/a")
    with opened(tmp_path) as store:
        assert store.children("/") == ["a"]


def test_a_second_process_is_kept_out(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(ConfigError, match="in use by another process"):
        EmbeddedTree(tmp_path)
    with opened(tmp_path):
        pass


def test_a_long_journal_is_compacted_and_says_the_same(tmp_path: Path) -> None:
    journal = tmp_path / "store.journal"
    largest = 0
    with opened(tmp_path) as store:
        for number in range(130):
            store.create(f"/n{number}", b"x" * number)
        store.create("/q/n_", sequence=True, make_parents=True)
        for number in range(60):
            store.set("/n5", bytes(200_000) + bytes([number]))
            largest = max(largest, journal.stat().st_size)
        before = dump(store)
        assert largest < 60 * 200_000 / 2
    with opened(tmp_path) as store:
        assert dump(store) == before
        assert store.create("/q/n_", sequence=True) == "/q/n_0000000001"


def test_a_compaction_that_was_interrupted_does_no_harm(tmp_path: Path) -> None:
    before = filled(tmp_path)
    (tmp_path / "store.new").write_bytes(b"half of a compacted journal")
    with opened(tmp_path) as store:
        assert dump(store) == before


def test_compaction_keeps_what_came_before_and_after(tmp_path: Path) -> None:
    before = filled(tmp_path)
    journal = Journal(tmp_path)
    nodes, zxid = journal.replay()
    journal.compact(zxid, nodes)
    journal.append(zxid + 1, {"/after": nodes["/a/b"]})
    journal.close()
    with opened(tmp_path) as store:
        found = dump(store)
        assert found.pop("/after") == before["/a/b"]
        assert found == before


@contextmanager
def full_disk(path: Path, spare_bytes: int) -> Iterator[None]:
    """Let no file of this process grow beyond *spare_bytes* more than *path* has: a write then fails part way."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + spare_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_without_room_changes_nothing_and_the_next_one_may_succeed(tmp_path: Path) -> None:
    journal = tmp_path / "store.journal"
    store = EmbeddedStore.open(tmp_path)
    store.connect()
    store.create("/a", b"kept")
    with full_disk(journal, 100):
        for _ in range(2):
            with pytest.raises(StoreFull, match="File too large"):
                store.set("/a", b"x" * 1000)
        assert store.get("/a")[0] == b"kept"
    store.create("/b", b"later")
    store.close()
    with opened(tmp_path) as again:
        assert again.get("/a")[0] == b"kept"
        assert again.get("/b")[0] == b"later"


def test_a_failed_write_changes_nothing_and_ends_all_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    store = EmbeddedStore.open(tmp_path)
    store.connect()
    store.create("/a", b"kept")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", fail)
        with pytest.raises(StorageError, match="Input/output error"):
            store.set("/a", b"x" * 1000)
        assert store.get("/a")[0] == b"kept"
    with pytest.raises(StorageError, match="an earlier write failed"):
        store.create("/b")
    store.close()


def refuse(*_: object) -> NoReturn:
    raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("cannot", [[], ["fsync"], ["fsync", "ftruncate"]], ids=["cut", "not synced", "not cut"])
def test_a_change_whose_sync_failed_is_not_there_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cannot: list[str]
) -> None:
    """The page cache has it, and so the next process would read it, although a client was told that it was refused."""
    store = EmbeddedStore.open(tmp_path)
    store.connect()
    store.create("/a", b"kept")
    with monkeypatch.context() as patched:
        for name in ["fdatasync", *cannot]:
            patched.setattr(os, name, refuse)
        with pytest.raises(StorageError, match="Input/output error"):
            store.set("/a", b"refused")
        with pytest.raises(StorageError, match="an earlier write failed"):
            store.set("/a", b"refused")
    with pytest.raises(StorageError, match="an earlier write failed"):
        store.set("/a", b"refused, also once the disk is whole again")
    store.close()
    with opened(tmp_path) as again:
        assert again.get("/a")[0] == b"kept"
        again.create("/b", b"later")
    with opened(tmp_path) as again:
        assert again.get("/a")[0] == b"kept"
        assert again.get("/b")[0] == b"later"


def test_a_write_that_failed_half_way_is_followed_by_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    store = EmbeddedStore.open(tmp_path)
    store.connect()
    store.create("/a", b"kept")

    def tear(fd: int, content: memoryview) -> int:
        monkeypatch.setattr(os, "write", refuse)
        return write(fd, content[: len(content) // 2])

    monkeypatch.setattr(os, "write", tear)
    with pytest.raises(StorageError, match="Input/output error"):
        store.set("/a", b"x" * 1000)
    monkeypatch.setattr(os, "write", write)
    with pytest.raises(StorageError, match="an earlier write failed"):
        store.create("/b")
    store.close()
    with opened(tmp_path) as again:
        assert again.get("/a")[0] == b"kept"
        again.create("/b", b"later")
    with opened(tmp_path) as again:
        assert again.get("/b")[0] == b"later"


def test_a_torn_write_that_could_not_be_cut_off_is_followed_by_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole transaction behind it would be taken for damage at the next start."""
    store = EmbeddedStore.open(tmp_path)
    store.connect()
    store.create("/a", b"kept")
    with monkeypatch.context() as patched, full_disk(tmp_path / "store.journal", 100):
        patched.setattr(os, "ftruncate", refuse)
        with pytest.raises(StorageError, match="File too large"):
            store.set("/a", b"x" * 1000)
    with pytest.raises(StorageError, match="an earlier write failed"):
        store.create("/b")
    store.close()
    with opened(tmp_path) as again:
        assert again.get("/a")[0] == b"kept"
        assert again.children("/") == ["a"]


def test_a_write_that_was_interrupted_is_followed_by_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(fd: int) -> None:
        raise KeyboardInterrupt

    store = EmbeddedStore.open(tmp_path)
    store.connect()
    store.create("/a", b"kept")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            store.set("/a", b"nobody knows")
    with pytest.raises(StorageError, match="an earlier write failed"):
        store.create("/b")
    store.close()


class Syncs:
    """What a power cut leaves of a directory: the content of each file at its last sync, by name at the last sync."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files: dict[int, bytes] = {}
        self.names: dict[Path, int] = {}
        self._real = os.fsync
        monkeypatch.setattr(os, "fsync", self.fsync)
        monkeypatch.setattr(os, "fdatasync", self.fsync)

    def fsync(self, fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").resolve()
        self._real(fd)
        if path.is_dir():
            self.names |= {file: file.stat().st_ino for file in path.iterdir()}
        else:
            self.files[path.stat().st_ino] = path.read_bytes()

    def left(self, path: Path) -> bytes:
        return self.files.get(self.names.get(path, 0), b"")


def test_a_start_believes_nothing_that_only_the_page_cache_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a killed process wrote, or one whose disk failed, is read as if it were on the disk."""
    before = filled(tmp_path / "store")
    syncs = Syncs(monkeypatch)
    store = EmbeddedStore.open(tmp_path / "store")
    after_power_cut = tmp_path / "after_power_cut"
    after_power_cut.mkdir()
    (after_power_cut / "store.journal").write_bytes(syncs.left(tmp_path / "store" / "store.journal"))
    with opened(after_power_cut) as again:
        assert dump(again) == before
    store.close()


def test_the_first_start_syncs_its_directory_and_the_name_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = Syncs(monkeypatch)
    with opened(tmp_path / "store") as store:
        store.create("/a")
        assert b"/a" in syncs.left(tmp_path / "store" / "store.journal")
        assert tmp_path / "store" in syncs.names


def test_a_start_leaves_the_journal_to_its_owner(tmp_path: Path) -> None:
    """A command of root opens the store of a broker that runs as another user."""
    filled(tmp_path)
    journal = tmp_path / "store.journal"
    owner = (os.geteuid() or 65_534, os.getegid() or 65_534)
    os.chown(journal, *owner)
    with opened(tmp_path):
        after = journal.stat()
        assert (after.st_uid, after.st_gid) == owner
        assert after.st_mode & 0o777 == 0o600


def test_a_start_on_a_disk_that_fails_is_refused_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = filled(tmp_path)
    content = (tmp_path / "store.journal").read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuse)
        with pytest.raises(StorageError, match="Input/output error"):
            EmbeddedTree(tmp_path)
    assert (tmp_path / "store.journal").read_bytes() == content
    with opened(tmp_path) as store:
        assert dump(store) == before


@pytest.mark.parametrize("step", ["rename", "sync"])
def test_a_change_is_not_refused_because_the_compaction_behind_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """It is synced, and everybody who asks is told so; what comes after it is refused."""
    monkeypatch.setattr("pylog.store.journal._COMPACT_BYTES", 2_000)
    store = EmbeddedStore.open(tmp_path)
    store.connect()
    store.create("/a")
    with monkeypatch.context() as patched:
        if step == "rename":
            patched.setattr(Path, "rename", refuse)
        else:
            patched.setattr("pylog.store.journal._sync_directory", refuse)
        store.set("/a", b"x" * 3_000)
    with pytest.raises(StorageError, match="an earlier write failed"):
        store.set("/a", b"refused")
    store.close()
    with opened(tmp_path) as again:
        assert again.get("/a")[0] == b"x" * 3_000


def test_a_journal_without_nodes_keeps_the_number_of_its_last_transaction(tmp_path: Path) -> None:
    """Session ids are made from it, and none may be given twice."""
    journal = Journal(tmp_path)
    journal.replay()
    journal.append(7, {"/a": None})
    journal.close()
    for _ in range(2):
        again = Journal(tmp_path)
        assert again.replay() == ({}, 7)
        again.close()


def test_a_session_ends_without_room_and_leaves_nothing_behind(tmp_path: Path) -> None:
    store = EmbeddedStore.open(tmp_path)
    store.connect()
    store.create("/e", ephemeral=True)
    with full_disk(tmp_path / "store.journal", 1):
        store.close()
    with opened(tmp_path) as again:
        assert again.children("/") == []


def test_a_start_without_room_to_write_the_journal_anew_says_what_to_free_and_leaves_none_of_it(tmp_path: Path) -> None:
    before = filled(tmp_path)
    journal = tmp_path / "store.journal"
    content = journal.read_bytes()
    with (
        full_disk(journal, 30 - len(content)),
        pytest.raises(StorageError, match=r"no room to start: .*free space on this disk"),
    ):
        EmbeddedTree(tmp_path)
    assert journal.read_bytes() == content
    assert not (tmp_path / "store.new").exists()
    with opened(tmp_path) as store:
        assert dump(store) == before


def test_a_start_without_room_for_a_second_journal_goes_on_with_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = filled(tmp_path)
    fresh, journal = tmp_path / "store.new", tmp_path / "store.journal"
    whole = journal.read_bytes()
    journal.write_bytes(whole + b"torn")
    fresh.symlink_to("/dev/full")
    with opened(tmp_path) as store:
        assert dump(store) == before
        store.create("/later")
        later = dump(store)
    assert journal.read_bytes().startswith(whole)
    fresh.symlink_to("/dev/full")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuse)
        with pytest.raises(StorageError, match="Input/output error"):
            EmbeddedTree(tmp_path)
    with opened(tmp_path) as again:
        assert dump(again) == later


def test_a_start_without_room_says_what_to_free(tmp_path: Path) -> None:
    store = EmbeddedStore.open(tmp_path)
    store.connect()
    store.create("/e", ephemeral=True)
    copy = (tmp_path / "store.journal").read_bytes()
    store.close()
    (tmp_path / "store.journal").write_bytes(copy)  # as a kill leaves it
    with (
        full_disk(tmp_path / "store.journal", 1),
        pytest.raises(StorageError, match=r"no room to start: .*free space on this disk"),
    ):
        EmbeddedTree(tmp_path)
    with opened(tmp_path) as again:
        assert again.children("/") == []


def test_a_journal_that_cannot_be_compacted_goes_on_and_is_compacted_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pylog.store.journal._COMPACT_BYTES", 2_000)
    fresh = tmp_path / "store.new"
    store = EmbeddedStore.open(tmp_path)
    store.connect()
    fresh.mkdir()  # so that no file can be made there
    store.create("/a")
    for number in range(40):
        store.set("/a", b"%d" % number * 50)
    assert "journal_not_compacted" in caplog.text
    fresh.rmdir()
    size_bytes = (tmp_path / "store.journal").stat().st_size
    for number in range(40):
        store.set("/a", b"%d" % number * 50)
    assert (tmp_path / "store.journal").stat().st_size < size_bytes
    store.close()
    with opened(tmp_path) as again:
        assert again.get("/a")[0] == b"39" * 50


def test_a_write_that_its_sessions_end_overtook_is_refused(tmp_path: Path) -> None:
    tree = EmbeddedTree(tmp_path)
    session_id = tree.begin_session()
    tree.end_session(session_id)
    with pytest.raises(SessionLost):
        tree.commit([Create("/e", ephemeral=True)], session_id)
    tree.close()


def test_a_suspended_session_refuses_and_comes_back(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.create("/e", ephemeral=True)
        store.suspend()
        with pytest.raises(StoreError, match="suspended"):
            store.exists("/e")
        store.resume()
        assert store.exists("/e") is not None
