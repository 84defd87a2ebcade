"""Framed Avro: what fits, what does not, and how often the registry is asked."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pylog.client.avro import AvroDeserializer, AvroSerializer, RegistryClient, RegistryUnreachable, SchemaError
from tests.servers.web import WebAnswer, WebRequest, WebServer, json_answer

RECORD = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'


class Registry:
    """Knows one schema, and counts who asks."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, request: WebRequest) -> WebAnswer:
        with self._lock:
            self.asked[f"{request.method} {request.target}"] += 1
        if request.method == "POST":
            fits = json.loads(json.loads(request.body)["schema"]) == json.loads(RECORD)
            return json_answer(200, {"id": 7}) if fits else json_answer(409, {"error_code": 409, "message": "no"})
        if request.parts == ("schemas", "ids", "7"):
            return json_answer(200, {"schema": RECORD})
        return json_answer(404, {"error_code": 40403, "message": "Schema not found"})


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
def url(registry: Registry) -> Iterator[str]:
    with WebServer("127.0.0.1", 0, registry) as server:
        yield f"http://127.0.0.1:{server.port}"


def test_a_value_comes_back_and_each_schema_is_looked_up_once(registry: Registry, url: str) -> None:
    client = RegistryClient(url)
    write, read = AvroSerializer(client, "s", RECORD), AvroDeserializer(client)
    with ThreadPoolExecutor(8) as threads:
        values = list(threads.map(lambda number: read(write({"a": number})), range(200)))
    assert values == [{"a": number} for number in range(200)]
    assert registry.asked == {"POST /subjects/s/versions": 1, "GET /schemas/ids/7": 1}


def test_t37_schemas_that_were_met_go_on_while_the_registry_is_down(registry: Registry) -> None:
    with WebServer("127.0.0.1", 0, registry) as server:
        client = RegistryClient(f"http://127.0.0.1:{server.port}")
        write, read = AvroSerializer(client, "s", RECORD), AvroDeserializer(client)
        payload = write({"a": 1})
        assert read(payload) == {"a": 1}
    assert read(write({"a": 2})) == {"a": 2}
    with pytest.raises(RegistryUnreachable, match="Connection refused"):
        read(b"\0\0\0\0\x08\x02")


def test_another_instance_is_asked_when_the_first_is_down(registry: Registry, url: str) -> None:
    client = RegistryClient(["http://127.0.0.1:1", url])
    assert AvroDeserializer(client)(b"\0\0\0\0\x07\x02") == {"a": 1}


def test_the_reader_s_fields_are_given(url: str) -> None:
    wider = json.dumps({"type": "record", "name": "R", "fields": [{"name": "b", "type": "int", "default": 5}]})
    assert AvroDeserializer(RegistryClient(url), wider)(b"\0\0\0\0\x07\x02") == {"b": 5}


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\0",
        b"\1\0\0\0\7\2",
        b"\0\0\0\0\7",
        b"\0\0\0\0\7\2\2",
        b"\0\0\0\0\7" + b"\xff" * 20,
        b"\0\0\0\0\x08\2",
    ],
)
def test_a_payload_that_does_not_decode_is_a_schema_error(url: str, payload: bytes) -> None:
    with pytest.raises(SchemaError):
        AvroDeserializer(RegistryClient(url))(payload)


def test_nothing_is_kept_of_ids_that_nobody_knows(url: str) -> None:
    client = RegistryClient(url)
    for number in range(100, 110):
        with pytest.raises(SchemaError):
            client.schema(number)
    assert not client._schemas._asking


def test_a_value_that_does_not_fit_is_a_schema_error(url: str) -> None:
    with pytest.raises(SchemaError, match="does not fit"):
        AvroSerializer(RegistryClient(url), "s", RECORD)({"a": "text"})


def test_a_refusal_carries_the_registry_s_code(url: str) -> None:
    with pytest.raises(SchemaError) as caught:
        AvroSerializer(RegistryClient(url), "s", '"int"')(3)
    assert caught.value.code == 409
