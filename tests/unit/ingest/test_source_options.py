"""The options of format("pylog")."""

from pathlib import Path

import pytest

from pylog.errors import ConfigError
from pylog.ingest.options import parse_options
from pylog.wire.api.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

MINIMAL = {"bootstrap": "h:9092", "topic": "logins"}


def test_defaults_are_those_of_sparks_kafka_connector() -> None:
    batch = parse_options(MINIMAL, is_stream=False)
    assert (batch.starting.default, batch.ending.default) == (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
    assert parse_options(MINIMAL, is_stream=True).starting.default == LATEST_TIMESTAMP
    assert batch.fail_on_data_loss
    assert not batch.include_headers
    assert batch.max_offsets_per_trigger is None


def test_names_are_read_without_case_and_in_kafkas_words() -> None:
    found = parse_options(
        {"kafka.bootstrap.servers": "h:1", "SUBSCRIBE": "a, b,a", "MAXOFFSETSPERTRIGGER": "7"}, is_stream=True
    )
    assert (found.bootstrap, found.topics, found.max_offsets_per_trigger) == ("h:1", ("a", "b"), 7)


def test_offsets_are_given_by_partition() -> None:
    given = {**MINIMAL, "startingOffsets": '{"logins": {"0": 17, "1": -1}}', "endingOffsets": "latest"}
    assert parse_options(given, is_stream=False).starting.by_partition == {"logins": {0: 17, 1: LATEST_TIMESTAMP}}


def test_a_password_stays_in_its_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("of alice\n")
    file.chmod(0o600)
    block = {"protocol": "SASL_PLAINTEXT", "mechanism": "SCRAM-SHA-256", "user": "alice", "password_file": str(file)}
    found = parse_options(MINIMAL | {f"Security.{key}": value for key, value in block.items()}, is_stream=True)
    assert found.security == block
    assert "of alice" not in repr(found)
    assert found.client_security().password == "of alice"


BAD = [
    ({"tpoic": "x"}, "'tpoic' is unknown"),
    ({"topic": " , "}, "names no topic"),
    ({"topic": ""}, "'topics' is missing"),
    ({"bootstrap": "h"}, "'h' is not host:port"),
    ({"security.protocol": "SASL"}, "security.protocol=SASL: must be one of"),
    ({"security.password": "secret"}, "'security.password' is unknown"),
    ({"security.password_file": "/no/such"}, "security.password_file: /no/such"),
    ({"startingOffsets": "soonest"}, "'startingOffsets' is 'soonest'"),
    ({"startingOffsets": '{"logins": {"0": -3}}'}, "'startingOffsets' is"),
    ({"startingOffsets": '{"logins": {"0": true}}'}, "'startingOffsets' is"),
    ({"startingOffsets": '{"logins": 5}'}, "'startingOffsets' is"),
    ({"endingOffsets": "[]"}, "'endingOffsets' is"),
    ({"includeHeaders": "yes"}, "true or false"),
    ({"isolationLevel": "committed"}, "read_committed or read_uncommitted"),
    ({"maxOffsetsPerTrigger": "0"}, "a number from 1"),
    ({"maxRecordsPerPartition": "-5"}, "a number from 1"),
]


@pytest.mark.parametrize(("changed", "said"), BAD)
def test_a_wrong_option_says_what_is_wanted(changed: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_options({**MINIMAL, **changed}, is_stream=False)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(ConfigError, match="a stream has no end"):
        parse_options({**MINIMAL, "endingOffsets": "latest"}, is_stream=True)


def test_what_spark_itself_adds_is_let_through() -> None:
    assert parse_options({**MINIMAL, "path": "/x", "serialization.format": "1"}, is_stream=False).topics == ("logins",)


@pytest.mark.parametrize("value", ["fail", "Drop", "KEEP"])
def test_a_mode_says_what_becomes_of_batches_that_do_not_decode(value: str) -> None:
    assert parse_options({"bootstrap": "h:1", "topic": "t", "mode": value}, is_stream=True).mode == value.lower()


def test_an_unknown_mode_is_named() -> None:
    with pytest.raises(ConfigError, match="option 'mode' is 'skip'; fail, drop, keep are wanted"):
        parse_options({"bootstrap": "h:1", "topic": "t", "mode": "skip"}, is_stream=True)
