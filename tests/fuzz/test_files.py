"""Every file of a data directory, damaged at will, then opened, read, written and closed.

Never an unhandled exception, a hang, or memory by claim: the partition opens, or is offline with a reason.
"""

import contextlib
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.errors import PylogError
from pylog.log import checkpoint, offline
from pylog.log.config import LogConfig
from pylog.log.directory import LogDirectory
from pylog.log.log import Log
from pylog.log.segment import FileSlice
from pylog.model import TopicPartition
from pylog.store.embedded import EmbeddedTree
from pylog.wire.records import check_batch
from tests.fuzz.effort import damaged, effort
from tests.unit.log.batches import append, batch, content

KEY = TopicPartition("clicks", 0)
TOPIC_ID = uuid.UUID(int=5)
CONFIG = LogConfig(segment_bytes=2048, index_interval_bytes=100, cleanup_policy="delete", retention_bytes=6000)


def fill(path: Path) -> None:
    """Write a log of several segments with producers, epochs, and everything a clean stop leaves."""
    directory = LogDirectory.open(path, broker_id=1)
    directory.join("a-cluster")
    log = directory.get_or_create(KEY, TOPIC_ID, CONFIG, now_ms=0)
    for number in range(40):
        append(log, epoch=number // 10, timestamp=number, producer_id=7, producer_epoch=0, base_sequence=number)
    directory.run_jobs()
    directory.checkpoint()
    directory.close()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "data"
    fill(path)
    return path


@contextlib.contextmanager
def copy_of(whole: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "data"
        shutil.copytree(whole, path)
        yield path


def use(path: Path) -> None:
    """Do with a data directory what a broker does; a PylogError is an answer, anything else is not."""
    with contextlib.suppress(PylogError):
        offline.retain(path, 1_000, dry_run=True)
    directory = LogDirectory.open(path, broker_id=1)
    try:
        with contextlib.suppress(PylogError):
            log = directory.get_or_create(KEY, TOPIC_ID, CONFIG, now_ms=1_000)
            with contextlib.suppress(PylogError):
                read_everything(log)
            with contextlib.suppress(PylogError):
                view = batch()
                log.append_as_leader(view, check_batch(view), max(log.epochs.latest, 0), 1_000)
            for work in (log.roll, log.flush, lambda: log.delete_expired(1_000), lambda: log.truncate_to(10)):
                with contextlib.suppress(PylogError):
                    work()
            directory.run_jobs()
    finally:
        directory.close()


def read_everything(log: Log) -> None:
    assert 0 <= log.log_start_offset <= log.high_watermark <= log.log_end_offset
    for offset in (log.log_start_offset, 5, 17, log.log_end_offset - 1):
        with contextlib.suppress(PylogError):
            found: FileSlice | None = log.read(
                offset, 1 << 20, upper_bound_offset=log.log_end_offset, min_one_batch=True
            )
            if found is not None:
                assert len(content(found)) == found.size_bytes, "a slice promises bytes that are not there"
    for timestamp in (0, 20, 1 << 40):
        with contextlib.suppress(PylogError):
            log.offset_for_timestamp(timestamp)
    log.offset_for_leader_epoch(2)


@given(data=st.data())
@effort(350)
def test_damaged_files_of_a_log_are_repaired_or_named(whole: Path, data: st.DataObject) -> None:
    with copy_of(whole) as path:
        if data.draw(st.booleans()):
            (path / checkpoint.CLEAN_SHUTDOWN).unlink()
        files = sorted(file for file in path.rglob("*") if file.is_file() and file.name != ".lock")
        for file in data.draw(st.lists(st.sampled_from(files), min_size=1, max_size=3, unique=True)):
            if data.draw(st.integers(0, 9)) == 0:
                file.unlink(missing_ok=True)
            else:
                file.write_bytes(data.draw(damaged(file.read_bytes())))
        with contextlib.suppress(PylogError):
            use(path)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "store"
    tree = EmbeddedTree(path)
    session = tree.session()
    session.connect(1)
    for number in range(30):
        session.create(f"/a/{number}", b"x" * number, make_parents=True)
        session.set(f"/a/{number}", b"y")
    session.close()
    tree.close()
    return path


@given(data=st.data())
@effort(250)
def test_a_damaged_store_opens_or_is_named(store: Path, data: st.DataObject) -> None:
    with copy_of(store) as path:
        files = sorted(file for file in path.rglob("*") if file.is_file())
        file = data.draw(st.sampled_from(files))
        file.write_bytes(data.draw(damaged(file.read_bytes())))
        with contextlib.suppress(PylogError):
            tree = EmbeddedTree(path)
            session = tree.session()
            session.connect(1)
            session.create("/new", b"")
            session.close()
            tree.close()


CONTENT = st.binary(max_size=60) | st.text("0123456789- \n.abc", max_size=40).map(str.encode)


@given(content=CONTENT)
@effort(400)
def test_any_text_is_a_checkpoint_or_is_named(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "checkpoint"
    path.write_bytes(content)
    for read in (checkpoint.read_offsets, checkpoint.read_lines, checkpoint.read_properties):
        with contextlib.suppress(PylogError):
            read(path)
