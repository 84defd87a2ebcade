"""Whose a checkpoint is, how far it is, and how it begins anew."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pylog.client.connection import Connection
from pylog.errors import PylogError
from pylog.ingest.plan import Position, PositionError
from pylog.ingest.stream.checkpoint import (
    CheckpointInUse,
    Owner,
    StreamCheckpoint,
    committed,
    last_batch,
)
from pylog.ingest.stream.config import Input, StreamConfig
from pylog.model import TopicPartition

IDS = {"words": "id-1", "more": "id-2"}


def config(tmp_path: Path) -> StreamConfig:
    return StreamConfig(
        name="q", cluster=Connection(bootstrap="b:9092"), sql="SELECT value FROM words",
        inputs={"words": Input(topic="words")}, output="out", checkpoint=tmp_path / "q",
    )  # fmt: skip


def batch(directory: Path, number: int, *streams: dict[tuple[str, int], int], is_committed: bool = True) -> None:
    """Write what Spark writes of a micro-batch."""
    lines = ["v1", json.dumps({"batchWatermarkMs": 0})]
    for offsets in streams:
        found = {TopicPartition(*partition): offset for partition, offset in offsets.items()}
        lines.append(json.dumps(Position(found, {topic: IDS[topic] for topic, _ in offsets}).to_json()))
    for name in ("offsets", "commits"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    (directory / "offsets" / str(number)).write_text("\n".join(lines))
    if is_committed:
        (directory / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        (directory / "commits" / f".{number}.crc").write_text("")


def test_the_position_is_that_of_the_last_micro_batch_that_ended(tmp_path: Path) -> None:
    assert (committed(tmp_path), last_batch(tmp_path)) == (None, -1)
    batch(tmp_path, 9, {("words", 0): 5})
    batch(tmp_path, 10, {("words", 0): 7, ("words", 1): 3}, {("words", 0): 6, ("more", 0): 1})
    batch(tmp_path, 11, {("words", 0): 99}, is_committed=False)
    found = committed(tmp_path)
    assert last_batch(tmp_path) == 10
    assert found is not None
    assert found.offsets == {("words", 0): 6, ("words", 1): 3, ("more", 0): 1}
    assert found.topic_ids == IDS


@pytest.mark.parametrize("text", ["v2\n{}\n{}", "", "v1\n{}\nnonsense", "v1\n{}\n[]", 'v1\n{}\n{"version": 9}', None])
def test_a_file_of_spark_that_cannot_be_read_is_named_and_no_older_position_stands_for_it(
    tmp_path: Path, text: str | None
) -> None:
    checkpoint = StreamCheckpoint(tmp_path)
    owner = Owner(name="q", cluster="c", starts=Position({TopicPartition("words", 0): 1}, IDS).to_json())
    directory = checkpoint.spark_directory(owner)
    batch(directory, 7, {("words", 0): 5})
    path = directory / "offsets" / "7"
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    for ask in (checkpoint.position, checkpoint.rebase):
        with pytest.raises(PositionError, match=rf"^position of micro-batch 7 cannot be read from {path}: "):
            ask(owner)
    assert checkpoint.owner() is None, "a rebase writes"


def test_a_checkpoint_is_of_one_query_of_one_cluster(tmp_path: Path) -> None:
    mine = config(tmp_path)
    checkpoint = StreamCheckpoint(mine.checkpoint)
    assert checkpoint.checked(mine, "c").generation == 1
    assert not mine.checkpoint.exists()
    owner = checkpoint.claim(mine, "c")
    assert checkpoint.checked(mine, "c") == checkpoint.owner() == owner
    for other, cluster, message in (
        (replace(mine, name="r"), "c", "belongs to query 'q', not to 'r'"),
        (mine, "d", "belongs to cluster 'c'"),
        (replace(mine, sql="SELECT key AS value FROM words"), "c", "changed since checkpoint"),
    ):
        with pytest.raises(PositionError, match=message):
            checkpoint.claim(other, cluster)
    assert checkpoint.owner() == owner


def test_a_rebase_keeps_the_position_and_a_reset_nothing(tmp_path: Path) -> None:
    mine = config(tmp_path)
    checkpoint = StreamCheckpoint(mine.checkpoint)
    first = checkpoint.claim(mine, "c")
    with pytest.raises(PositionError, match="no micro-batch has ended yet"):
        checkpoint.rebase(first)
    batch(checkpoint.spark_directory(first), 0, {("words", 0): 5})
    position = checkpoint.rebase(first)
    changed = replace(mine, sql="SELECT key AS value FROM words")
    second = checkpoint.claim(changed, "c")
    assert second.generation == 2
    assert second.starts == position.to_json()
    assert last_batch(checkpoint.spark_directory(second)) == -1
    # Another one before any micro-batch has ended begins where the first did.
    assert checkpoint.rebase(second) == position
    third = checkpoint.owner()
    assert third is not None
    checkpoint.reset(third)
    fourth = checkpoint.owner()
    assert fourth == Owner(name="q", cluster="", generation=4)
    assert checkpoint.checked(mine, "another") == Owner(name="q", cluster="another", generation=4)
    assert checkpoint.position(fourth) is None
    assert not checkpoint.spark_directory(first).exists()  # older than the former one


def test_two_processes_never_run_one_query(tmp_path: Path) -> None:
    checkpoint = StreamCheckpoint(tmp_path / "q")
    refused = pytest.raises(CheckpointInUse, match="another process runs the query")
    with checkpoint.held(), refused, checkpoint.held():
        pass
    with checkpoint.held():
        pass


@pytest.mark.parametrize("text", ["", "[]", '{"kind": "pylog lake checkpoint", "version": 1}', "{}"])
def test_a_file_that_is_no_checkpoint_of_a_query_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "stream.json").write_text(text)
    with pytest.raises(PylogError, match=r"stream\.json"):
        StreamCheckpoint(tmp_path).owner()


def test_the_checkpoint_of_another_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text("{}")
    with pytest.raises(PositionError, match="checkpoint of something else"):
        StreamCheckpoint(tmp_path).owner()
