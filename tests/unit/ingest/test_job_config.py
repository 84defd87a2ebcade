"""The ingestion job's command line, its reading of Spark's checkpoint, and what it makes of Spark's errors."""

import json
from pathlib import Path

import pytest

from pylog.ingest.job import Checkpoint, cause_of, parse
from pylog.ingest.lake import Batch, LakeError
from pylog.ingest.plan import Position

ARGUMENTS = ["--bootstrap", "h:9092", "--topics", "a, b", "--lake", "lake", "--checkpoint", "/cp"]


def test_the_command_line_is_read() -> None:
    config = parse(ARGUMENTS)
    assert (config.topics, config.lake, config.checkpoint) == (("a", "b"), Path("lake").absolute(), Path("/cp"))
    assert (config.master, config.fail_on_data_loss) == ("local[2]", True)


@pytest.mark.parametrize("more", [["--topics", ","], ["--max-offsets-per-batch", "0"], ["--unknown", "x"]])
def test_a_wrong_command_line_ends_with_2(more: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse([*ARGUMENTS, *more])
    assert ended.value.code == 2


def test_a_new_checkpoint_has_neither_query_nor_batch(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "none")
    assert checkpoint.query_id() is None
    assert checkpoint.last_batch_id() is None
    assert checkpoint.position() is None


def test_a_checkpoint_is_read_as_spark_writes_it(tmp_path: Path) -> None:
    position = {"version": 1, "topics": {}}
    (tmp_path / "metadata").write_text('{"id":"61deed1f-c8e5"}')
    for directory in ("commits", "offsets"):
        (tmp_path / directory).mkdir()
        for name in ("9", "10", ".10.crc"):
            (tmp_path / directory / name).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(position)}')
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.last_batch_id() == 10
    assert checkpoint.batch(10) == Batch("61deed1f-c8e5", 10, position)
    assert checkpoint.position() == Position()


def test_a_run_that_did_not_end_has_no_position(tmp_path: Path) -> None:
    # Batch 11 was planned and not done: it must be run again before anybody may say that nothing is new.
    (tmp_path / "metadata").write_text('{"id":"61deed1f-c8e5"}')
    for name in ("commits/10", "offsets/10", "offsets/11"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('v1\n{}\n{"version": 1, "topics": {}}')
    assert Checkpoint(tmp_path).position() is None


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text("{")
    with pytest.raises(LakeError, match=f"checkpoint {tmp_path} cannot be read"):
        Checkpoint(tmp_path).query_id()


def test_our_own_error_is_found_in_sparks_message() -> None:
    said = "[STREAM_FAILED] Query\nTraceback:\n  File x\npylog.ingest.plan.DataLoss: gone\n more"
    assert cause_of(said) == "gone"


def test_sparks_own_error_is_cut_to_its_first_line() -> None:
    assert cause_of("[STREAM_FAILED] out of memory\n\tat java...") == "[STREAM_FAILED] out of memory"
