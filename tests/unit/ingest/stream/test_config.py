"""The configuration of a query, and what of it is refused before anybody is asked."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pylog.client.connection import Connection
from pylog.config import load_stream_config
from pylog.errors import ConfigError
from pylog.ingest.stream.config import Input, StreamConfig

WORDS = Input(topic="words")


def config(**more: Any) -> StreamConfig:
    given: dict[str, Any] = {
        "name": "q",
        "output": "out",
        "sql": "SELECT value FROM words",
        "inputs": {"words": WORDS},
    } | more
    return StreamConfig(cluster=Connection(bootstrap="b:9092"), checkpoint=Path("/var/lib/q"), **given)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"name": "Q"}, "name: must be small letters"),
        ({"name": "a/b"}, "name: must be small letters"),
        ({"sql": " \n"}, "sql: is empty"),
        ({"output": "a b"}, "output: must be the name of a topic"),
        ({"output": "words"}, "output: topic 'words' is an input too"),
        ({"trigger": "0 seconds"}, "trigger: must be a time such as 10 seconds, got '0 seconds'"),
        ({"master": "spark://h:7077"}, "master: must be local"),
        ({"inputs": {}}, "inputs: none of them is a stream"),
        ({"inputs": {"words": Input(topic="words", is_table=True)}}, "inputs: none of them is a stream"),
        ({"inputs": {"words": Input()}}, "inputs.words: wanted topic, or path"),
        ({"inputs": {"words": Input(topic="words", path="/x")}}, "inputs.words: wanted topic, or path"),
        ({"inputs": {"my-words": WORDS}}, "inputs.my-words: must be letters"),
        ({"inputs": {"words": Input(topic="w", watermark="10 minutes")}}, "watermark: must be a column and a time"),
        ({"inputs": {"w": WORDS, "f": Input(path="/x", watermark="timestamp 1 minute")}}, "only a stream has one"),
        ({"inputs": {"w": WORDS, "f": Input(path="/x", is_table=True)}}, "files are a table"),
        ({"inputs": {"w": WORDS, "f": Input(path="/x", format="exe")}}, "format: must be one of parquet"),
        ({"inputs": {"w": Input(topic="w", options={"Topic": "x"})}}, "inputs.w.options.Topic: the input's topic"),
    ],
)
def test_what_cannot_be_is_refused_by_its_key(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config(**more)
    assert message in str(refused.value)


def test_a_query_is_the_same_as_long_as_its_text_and_inputs_are() -> None:
    mine = config().fingerprint()
    assert config(sql=f"{config().sql}\n").fingerprint() == mine
    assert config(sql=config().sql.replace(" ", "  ")).fingerprint() != mine, "it may be inside of a literal"
    columns = config(inputs={"words": replace(WORDS, options={"schemaRegistry": "http://h:8081"})})
    assert columns.fingerprint() != mine
    how = {"kafka.sasl.password": "x", "schemaRegistry.password": "x", "startingOffsets": "latest"}
    assert config(inputs={"words": replace(WORDS, options=how)}).fingerprint() == mine
    assert config(output="elsewhere", trigger="1 minute").fingerprint() == mine
    fewer = config(inputs={"words": replace(WORDS, options={"maxOffsetsPerTrigger": "9"})})
    assert fewer.fingerprint() == mine
    assert config(sql="SELECT key AS value FROM words").fingerprint() != mine
    assert config(inputs={"words": replace(WORDS, watermark="timestamp 1 minute")}).fingerprint() != mine
    assert config(inputs={"words": Input(topic="others")}).fingerprint() != mine


@pytest.mark.parametrize("path", sorted(Path("examples/streams").glob("*.yml")), ids=lambda path: path.stem)
def test_each_example_is_a_good_configuration_named_as_its_file(path: Path) -> None:
    found = load_stream_config(path)
    assert (found.name, found.output, found.group) == (path.stem, path.stem, f"stream-{path.stem}")


BODY = """
version: 1
name: q
bootstrap: b:9092
sql_file: q.sql
inputs: {words: {topic: words, table: "TABLE"}, more: {topic: more, options: {startingOffsets: latest}}}
output: out
options: {compression: zstd}
checkpoint: /var/lib/q
group: none
"""


def test_the_query_may_be_in_a_file_beside_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text("SELECT value FROM more")
    path = tmp_path / "q.yml"
    path.write_text(BODY.replace("TABLE", "true"))
    found = load_stream_config(path)
    assert (found.sql, found.group, found.options) == ("SELECT value FROM more", "", {"compression": "zstd"})
    assert found.inputs["words"].is_table
    assert found.inputs["more"].options == {"startingOffsets": "latest"}
    assert found.stream_topics == {"more"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (BODY, r"q.yml:6: inputs.words.table: must be true or false, got TABLE"),
        (BODY.replace("TABLE", "true") + "query: x\n", "q.yml:11: query: unknown key"),
        (BODY.replace("TABLE", "true") + "sql: x\n", "wanted sql or sql_file, got both"),
        (BODY.replace("TABLE", "true").replace("q.sql", "none.sql"), "none.sql cannot be read"),
        (BODY.replace("TABLE", "true").replace("/var", "var"), "checkpoint: must be an absolute path"),
    ],
)
def test_a_mistake_in_the_file_is_told_with_its_place(tmp_path: Path, wrong: str, message: str) -> None:
    (tmp_path / "q.sql").write_text("SELECT value FROM more")
    path = tmp_path / "q.yml"
    path.write_text(wrong)
    with pytest.raises(ConfigError) as refused:
        load_stream_config(path)
    assert message in str(refused.value)
