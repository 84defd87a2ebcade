"""What a load leaves word of, and what an operator tells the next one."""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pylog.cli.app import run as pylog
from pylog.errors import StorageError
from pylog.ingest.lake import File, Lake, LakeError, State, as_owner
from pylog.ingest.status import Status, StatusFiles, Stop, metrics_of

STATUS = Status(
    at_ms=1_700_000_000_000,
    commit=7,
    records=12,
    lag={"clicks": 3, "logins": 0},
    stopped={"clicks": Stop("PYLOG-0307", "retention deleted clicks-0 offsets 1 to 2", 1_600_000_000_000)},
)


def test_a_status_is_read_as_it_was_written(tmp_path: Path) -> None:
    files = StatusFiles(tmp_path)
    assert files.read() == Status()
    files.write(STATUS)
    assert files.read() == STATUS


@pytest.mark.parametrize("text", ["", "[]", '{"version": 9}'])
def test_a_status_of_another_kind_is_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "_status").mkdir()
    (tmp_path / "_status" / "load.json").write_text(text)
    assert StatusFiles(tmp_path).read() == Status()


def test_only_a_topic_that_stopped_can_be_accepted_and_only_once(tmp_path: Path) -> None:
    files = StatusFiles(tmp_path)
    files.write(STATUS)
    with pytest.raises(LakeError, match="'logins' did not stop"):
        files.accept("logins")
    assert files.accept("clicks") == STATUS.stopped["clicks"]
    assert files.accepted() == {"clicks"}
    files.carried_out(["clicks", "logins"])
    assert files.accepted() == frozenset()


UNREACHABLE = Stop("PYLOG-0100", "no registry answers", 1_600_000_000_000)


def test_a_topic_that_misses_nothing_cannot_be_accepted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Lake.create(tmp_path)
    files = StatusFiles(tmp_path)
    cut = Stop("PYLOG-0310", "logins-0 ends at 3, before 5", 1_600_000_000_000)
    files.write(replace(STATUS, stopped={**STATUS.stopped, "logins": cut, "searches": UNREACHABLE}))
    with pytest.raises(LakeError, match=r"once its fault is mended: no registry answers \[PYLOG-0100\]"):
        files.accept("searches")
    assert files.accepted() == frozenset()
    assert pylog(["lake", "status", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"topic searches is stopped since 2020-09-13T12:26:40+00:00: {UNREACHABLE.reason} [PYLOG-0100]" in lines
    assert [line.split()[-1] for line in lines if "lake accept" in line] == ["clicks", "logins"]
    for topic in ("clicks", "logins"):
        files.accept(topic)
    assert files.accepted() == {"clicks", "logins"}


def test_the_load_names_the_command_only_where_something_is_missing() -> None:
    lake = Path("/lake")
    told = UNREACHABLE.describe("searches", lake)
    assert told == "topic 'searches' is stopped, the others are loaded: no registry answers [PYLOG-0100]"
    assert "`pylog lake accept /lake clicks`" in STATUS.stopped["clicks"].describe("clicks", lake)


@pytest.fixture
def of_another() -> Iterator[Path]:
    """A lake that the user who runs this test does not own, if that is root; other users own it."""
    with tempfile.TemporaryDirectory() as name:  # that of pytest is closed to other users
        root = Path(name)
        Lake.create(root)
        StatusFiles(root).write(STATUS)
        if os.geteuid() == 0:
            for path in (root, *root.rglob("*")):
                os.chown(path, 65_534, 65_534)
        yield root


@pytest.mark.skipif(os.geteuid() != 0, reason="only root writes as another user")
def test_what_root_accepts_can_be_forgotten_by_the_lake_s_owner(of_another: Path) -> None:
    assert pylog(["lake", "accept", str(of_another), "clicks"]) == 0
    with as_owner(of_another):
        files = StatusFiles(of_another)
        assert files.accepted() == {"clicks"}
        files.carried_out(["clicks"])
        assert files.accepted() == frozenset()
    owner = of_another.stat().st_uid
    assert {path.stat().st_uid for path in of_another.rglob("*")} == {owner}


def test_what_could_not_be_forgotten_is_not_accepted(of_another: Path) -> None:
    """An earlier release left a directory of root's behind."""
    directory = of_another / "_status" / "accepted"
    directory.mkdir()
    (directory / "clicks").touch()
    directory.chmod(0o555)
    try:
        with as_owner(of_another):
            files = StatusFiles(of_another)
            with pytest.raises(
                StorageError, match=r"accepted cannot be written by uid \d+: .*'clicks'.* not carried out"
            ):
                files.accepted()
            with pytest.raises(StorageError, match=r"stays accepted, also in later loads.*Permission denied"):
                files.carried_out(["clicks"])
    finally:
        directory.chmod(0o755)


def test_metrics_name_what_stopped_and_how_far_behind_the_lake_is() -> None:
    state = State(
        number=7,
        files={"topic=logins/x": File("topic=logins/x", 5, 100)},
        dead_letters={"_dead_letters/topic=clicks/x": File("_dead_letters/topic=clicks/x", 2, 10)},
    )
    lines = metrics_of(STATUS, state).splitlines()
    for line in (
        "pylog_ingest_last_run_timestamp_seconds 1700000000",
        "pylog_ingest_stopped_topics 1",
        'pylog_ingest_topic_stopped_timestamp_seconds{code="PYLOG-0307",topic="clicks"} 1600000000',
        'pylog_ingest_lag_offsets{topic="clicks"} 3',
        'pylog_lake_dead_letters{topic="clicks"} 2',
        "pylog_lake_bytes 100",
    ):
        assert line in lines


def test_the_command_says_when_the_last_load_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Lake.create(tmp_path)
    assert pylog(["lake", "status", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("never loaded to its end, commit 0, ")
    StatusFiles(tmp_path).write(STATUS)
    assert pylog(["lake", "status", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("loaded at 2023-11-14T22:13:20+00:00, commit 0, ")
