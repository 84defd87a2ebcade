"""Hours by a field of the payload: Avro of several types, JSON, and the record's own time where there is none."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pylog.client.avro import AvroSerializer, RegistryClient, RegistryUnreachable, SchemaError
from pylog.daemon.web import WebServer as ServiceServer
from pylog.errors import ConfigError
from pylog.ingest.decode import whole_batches
from pylog.ingest.event_time import EventTime, EventTimes, with_schema
from pylog.ingest.fetch import Fetched
from pylog.ingest.landing import Landing, Task
from pylog.ingest.plan import Range
from pylog.metrics import Metrics
from pylog.model import TopicPartition
from pylog.registry.api import new_app
from pylog.wire.records import Record, encode_batch
from tests.servers.web import WebServer
from tests.unit.ingest.test_avro_columns import Registry, record
from tests.unit.registry.test_api import InMemory

THEN = datetime(2026, 1, 2, 3, 4, 5, 6000, UTC)
THEN_MS = int(THEN.timestamp() * 1000)


@pytest.fixture
def url() -> Iterator[str]:
    with WebServer("127.0.0.1", 0, Registry()) as server:
        yield f"http://127.0.0.1:{server.port}"


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ({"type": "long", "logicalType": "timestamp-millis"}, THEN, THEN),
        (["null", {"type": "long", "logicalType": "timestamp-micros"}], THEN, THEN),
        (["null", {"type": "long", "logicalType": "timestamp-micros"}], None, None),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, THEN.replace(tzinfo=None), THEN),
        ({"type": "int", "logicalType": "date"}, THEN.date(), datetime(2026, 1, 2, tzinfo=UTC)),
        ("long", THEN_MS, THEN),
        ("long", 1 << 62, None),
    ],
)
def test_a_field_of_avro_says_when(url: str, kind: Any, value: Any, expected: datetime | None) -> None:
    text = record({"name": "id", "type": "string"}, {"name": "at", "type": kind})
    payload = AvroSerializer(RegistryClient(url), "logins-value", text)({"id": "x", "at": value})
    times = with_schema("logins", "at", (url,)).times(pa.array([payload, b"none", None], pa.binary()))
    assert times.to_pylist() == [expected, None, None]


@pytest.mark.parametrize(("name", "said"), [("id", "string"), ("other", "no such field")])
def test_a_field_that_is_no_time_is_named(url: str, name: str, said: str) -> None:
    AvroSerializer(RegistryClient(url), "logins-value", record({"name": "id", "type": "string"}))({"id": ""})
    with pytest.raises(ConfigError, match=f"'logins' has no time in field '{name}': {said}"):
        with_schema("logins", name, (url,))


def test_a_topic_whose_schema_is_missing_keeps_no_other_from_its_times() -> None:
    with ServiceServer("127.0.0.1", 0, new_app(InMemory(), Metrics())) as server:
        url = f"http://127.0.0.1:{server.port}"
        text = record({"name": "at", "type": "long"})
        RegistryClient(url).schema_id("logins-value", text)
        times = EventTimes({"deleted": "at", "logins": "at", "idle": "at"}, (url,), {})
        failed = times.learn(["deleted", "logins", "without-a-field"])
        assert {topic: type(error) for topic, error in failed.items()} == {"deleted": SchemaError}
        assert times.known.keys() == {"logins"}
        RegistryClient(url).schema_id("deleted-value", text)
        assert times.learn(["deleted", "logins"]) == {}
        assert times.known.keys() == {"deleted", "logins"}


def test_a_registry_that_is_down_is_asked_for_one_topic_alone() -> None:
    with WebServer("127.0.0.1", 0, Registry()) as gone:
        url = f"http://127.0.0.1:{gone.port}"
    failed = EventTimes({"logins": "at", "views": "at"}, (url,), {}).learn(["logins", "views"])
    assert isinstance(failed["logins"], RegistryUnreachable)
    assert failed["views"] is failed["logins"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (THEN_MS, THEN),
        ("2026-01-02T03:04:05.006Z", THEN),
        ("2026-01-02T04:04:05.006+01:00", THEN),
        ("2026-01-02T03:04:05.006", THEN),
        (True, None),
        (1e300, None),
        ("soon", None),
        (None, None),
        ({}, None),
    ],
)
def test_a_field_of_json_says_when(value: object, expected: datetime | None) -> None:
    payload = json.dumps({"at": value}).encode()
    assert EventTime("at").times(pa.array([payload, b"{", b"[1]", None], pa.binary()))[0].as_py() == expected


def test_hours_follow_from_the_payload_and_else_from_the_record(tmp_path: Path) -> None:
    own_ms = 1000
    values = [json.dumps({"at": THEN_MS}).encode(), b"not JSON"]
    stored = encode_batch([Record(n, own_ms, None, value, []) for n, value in enumerate(values)], base_offset=0)
    task = Task(
        Landing(
            bootstrap="",
            directory=tmp_path,
            prefix="1",
            fail_on_data_loss=True,
            event_times={"logins": EventTime("at")},
        )
    )
    task.begin(Range(TopicPartition("logins", 0), 0, 2))
    task.take(Fetched(memoryview(stored), whole_batches(stored), 0))
    landed = task.end()
    assert sorted(file.group for file in landed.files) == [
        "topic=logins/date=1970-01-01/hour=00",
        "topic=logins/date=2026-01-02/hour=03",
    ]
