"""The load job's command line, what it remembers outside the lake, and what it makes of Spark's errors."""

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from pylog.errors import StorageError
from pylog.ingest.checkpoint import Checkpoint
from pylog.ingest.job import parse
from pylog.ingest.lake import Lake, LakeError, State
from pylog.ingest.landing import Landed, report
from pylog.ingest.plan import DataLoss, Range
from pylog.ingest.spark import cause_of, error_of
from pylog.model import IsolationLevel, TopicPartition

ARGUMENTS = ["--bootstrap", "h:9092", "--topics", "a, b", "--lake", "lake", "--checkpoint", "/cp"]
P = TopicPartition("logins", 0)


def test_the_command_line_is_read() -> None:
    config = parse([*ARGUMENTS, "--recreated", "a"])
    assert (config.topics, config.lake, config.checkpoint) == (("a", "b"), Path("lake").absolute(), Path("/cp"))
    assert (config.master, config.fail_on_data_loss, config.group) == (None, True, "pylog-ingest")
    assert (config.recreated, config.every_s) == ({"a"}, None)


def test_committed_records_are_landed_unless_others_are_asked_for() -> None:
    assert parse(ARGUMENTS).isolation_level is IsolationLevel.READ_COMMITTED
    config = parse([*ARGUMENTS, "--isolation-level", "read_uncommitted"])
    assert config.isolation_level is IsolationLevel.READ_UNCOMMITTED


def test_security_is_read_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    password, file = tmp_path / "password", tmp_path / "security.yml"
    password.write_text("of alice\n")
    password.chmod(0o600)
    file.write_text(f"protocol: SASL_PLAINTEXT\nmechanism: SCRAM-SHA-256\nuser: alice\npassword_file: {password}\n")
    config = parse([*ARGUMENTS, "--security", str(file)])
    assert config.security["password_file"] == str(password)
    assert "of alice" not in repr(config)
    file.write_text("protocl: SSL\n")
    with pytest.raises(SystemExit):
        parse([*ARGUMENTS, "--security", str(file)])
    assert "security.protocl: unknown key" in capsys.readouterr().err


def test_a_pattern_stands_in_place_of_names() -> None:
    config = parse(["--bootstrap", "h:9092", "--topic-pattern", "web[.].*", "--lake", "lake", "--checkpoint", "/cp"])
    assert config.topics == ()
    assert config.topic_pattern is not None
    assert config.topic_pattern.fullmatch("web.clicks")


@pytest.mark.parametrize("more", [["--topic-pattern", "a.*"], ["--topic-pattern", "("]])
def test_a_pattern_that_is_none_or_stands_beside_names_is_refused(more: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse([*ARGUMENTS, *more])
    assert ended.value.code == 2


def test_a_checkpoint_is_on_disk_before_the_old_one_goes(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync, rename = os.fsync, Path.replace

    def noted(fd: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        fsync(fd)

    def checked(self: Path, target: Path) -> Path:
        assert str(self) in synced
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(Path, "replace", checked)
    Checkpoint(tmp_path / "cp").remember(lake, State())
    assert synced[-1] == str(tmp_path / "cp")
    Checkpoint(tmp_path / "cp").check(lake, State())


@pytest.mark.parametrize(
    "more", [["--topics", ","], ["--max-offsets-per-batch", "0"], ["--every", "0"], ["--unknown", "x"]]
)
def test_a_wrong_command_line_ends_with_2(more: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse([*ARGUMENTS, *more])
    assert ended.value.code == 2


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.create(tmp_path / "lake")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path / "checkpoint")


def test_a_new_checkpoint_goes_on_where_the_lake_is(lake: Lake, checkpoint: Checkpoint) -> None:
    checkpoint.check(lake, State(number=7))
    checkpoint.remember(lake, State(number=7))
    checkpoint.check(lake, State(number=7))
    checkpoint.check(lake, State(number=9))  # another driver went on


def test_a_lake_that_was_set_back_is_refused(lake: Lake, checkpoint: Checkpoint) -> None:
    checkpoint.remember(lake, State(number=7))
    with pytest.raises(LakeError, match="ends at commit 6, and commit 7 was there before"):
        checkpoint.check(lake, State(number=6))


def test_the_checkpoint_of_another_lake_is_refused(lake: Lake, checkpoint: Checkpoint, tmp_path: Path) -> None:
    # Such as the empty directory that is there while the lake's file system is not mounted.
    checkpoint.remember(lake, State(number=7))
    with pytest.raises(LakeError, match=r"belongs to another lake than .*/other: is the right file system mounted"):
        checkpoint.check(Lake.create(tmp_path / "other"), State(number=7))


def test_a_checkpoint_of_another_kind_is_refused(lake: Lake, checkpoint: Checkpoint, tmp_path: Path) -> None:
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    with pytest.raises(LakeError, match="holds offsets: it is the checkpoint of a Spark stream"):
        checkpoint.check(lake, State())


def test_a_checkpoint_of_a_later_release_is_refused(lake: Lake, checkpoint: Checkpoint, tmp_path: Path) -> None:
    checkpoint.remember(lake, State())
    path = tmp_path / "checkpoint" / "lake.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 2}))
    with pytest.raises(LakeError, match="of version 2; this release knows"):
        checkpoint.check(lake, State())


def test_a_damaged_checkpoint_is_named(lake: Lake, checkpoint: Checkpoint, tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "lake.json").write_text("{")
    with pytest.raises(StorageError, match=r"checkpoint/lake\.json cannot be read"):
        checkpoint.check(lake, State())


def test_a_commit_reports_ranges_holes_and_windows() -> None:
    one, other = Range(P, 5, 9), Range(P, 9, 12)
    first = Landed(rows={one: 4}, holes=[Range(P, 2, 5)])
    second = Landed(rows={other: 2}, dead_offsets=Counter({P: 1}))
    found = report([second, first], [Range(P, 0, 2)])
    place = {"topic": "logins", "partition": 0}
    assert found["ranges"] == [
        {**place, "start": 5, "end": 9, "rows": 4}, {**place, "start": 9, "end": 12, "rows": 2},
    ]  # fmt: skip
    assert found["holes"] == [{**place, "start": 0, "end": 2}, {**place, "start": 2, "end": 5}]
    assert found["dead_offsets"] == [{**place, "offsets": 1}]


def test_our_own_error_is_found_in_sparks_message() -> None:
    said = "[STREAM_FAILED] Query\nTraceback:\n  File x\npylog.ingest.plan.DataLoss: gone\n more"
    assert cause_of(said) == "gone"
    assert isinstance(error_of(said), DataLoss)  # and so has the code of its class


def test_sparks_own_error_is_cut_to_its_first_line() -> None:
    assert cause_of("[STREAM_FAILED] out of memory\n\tat java...") == "[STREAM_FAILED] out of memory"


def test_of_an_error_of_spark_the_reason_is_kept_and_not_the_method_that_was_called() -> None:
    said = "An error occurred while calling o2.sc.\n: java.lang.IllegalStateException: SparkContext is stopped\n\tat a"
    assert cause_of(said) == "java.lang.IllegalStateException: SparkContext is stopped"
