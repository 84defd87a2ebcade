"""Framed Avro: what fits, what does not, and how often the registry is asked."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pylog.client.avro import AvroDeserializer, AvroSerializer, RegistryClient, RegistryUnreachable, SchemaError, parse
from pylog.client.avro_bounds import is_bounded
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


def varint(number: int) -> bytes:
    number = number << 1 ^ number >> 63
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def own(name: str, *fields: object) -> dict[str, object]:
    named = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(fields)]
    return {"type": "record", "name": name, "fields": named}


LIST = own("L", ["null", "L"])
DOUBLED: list[dict[str, object]] = [own("D0", "null")]
for _number in range(1, 30):
    DOUBLED.append(own(f"D{_number}", DOUBLED[-1], f"D{_number - 1}"))
EMPTY = own("E")
TREE = own("T", "int", {"type": "array", "items": "T"})


class Anything:
    """Knows one schema, by every id."""

    def __init__(self, schema: object) -> None:
        self._text = json.dumps(schema)

    def __call__(self, request: WebRequest) -> WebAnswer:
        return json_answer(200, {"schema": self._text})


def read(schema: object, datum: bytes) -> object:
    with WebServer("127.0.0.1", 0, Anything(schema)) as server:
        return AvroDeserializer(RegistryClient(f"http://127.0.0.1:{server.port}"))(b"\0\0\0\0\1" + datum)


@pytest.mark.parametrize(
    ("schema", "datum", "said"),
    [
        ({"type": "array", "items": "null"}, varint(1 << 40) + b"\0", "more than 1000000 values"),
        ({"type": "array", "items": EMPTY}, varint(-(1 << 40)) + b"\0\0", "more than 1000000 values"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, varint(1 << 40), "more than 1000000"),
        ({"type": "array", "items": own("N", "null", EMPTY)}, varint(1 << 40), "more than 1000000 values"),
        ({"type": "array", "items": own("M", "boolean", *["null"] * 999)}, varint(9999) + bytes(9999), "more than"),
        (DOUBLED[-1], b"", "more than 1000000 values"),
        (LIST, b"\2" * 5000 + b"\0", "deeper than 100 values"),
        (own("O", LIST), b"\2" * 5000 + b"\0", "deeper than 100 values"),
        (TREE, b"\2\2" * 5000 + b"\0" * 5000, "deeper than 100 values"),
        (
            {"type": "map", "values": own("P", "null", {"type": "map", "values": "P"})},
            b"\2\0" * 5000,
            "deeper than 100",
        ),
        (LIST, b"\4", "branch 2 of a union of 2"),
        (LIST, b"", "ends too early"),
    ],
    ids=range(12),
)
def test_a_small_payload_that_would_fill_memory_or_the_stack_is_refused(
    schema: object, datum: bytes, said: str
) -> None:
    with pytest.raises(SchemaError, match=said):
        read(schema, datum)


@pytest.mark.parametrize(
    ("schema", "datum", "value"),
    [
        (LIST, b"\2\2\0", {"f0": {"f0": {"f0": None}}}),
        (TREE, b"\2\4\4\0\6\0\0", {"f0": 1, "f1": [{"f0": 2, "f1": []}, {"f0": 3, "f1": []}]}),
        ({"type": "array", "items": "null"}, b"\6\0", [None] * 3),
        (own("V", LIST, "string", "bytes", "float", "double", "boolean", "long"),
         b"\0\2a\2b" + bytes(4 + 8 + 1) + b"\x80\1",
         {"f0": {"f0": None}, "f1": "a", "f2": b"b", "f3": 0.0, "f4": 0.0, "f5": False, "f6": 64}),
        (own("W", LIST, {"type": "enum", "name": "Y", "symbols": ["a", "b"]}, {"type": "fixed", "name": "X", "size": 2},
             {"type": "map", "values": "int"}, {"type": "long", "logicalType": "unknown"}),
         b"\0\2xy\1\6\2k\4\0\2",
         {"f0": {"f0": None}, "f1": "b", "f2": b"xy", "f3": {"k": 2}, "f4": 1}),
    ],
    ids=range(5),
)  # fmt: skip
def test_a_payload_that_is_walked_first_is_read_as_any_other(schema: object, datum: bytes, value: object) -> None:
    assert read(schema, datum) == value


def test_a_schema_whose_bytes_bound_its_values_is_not_walked() -> None:
    of_nullable = own("S", *[["null", "long"]] * 40)
    of_nulls = own("R", *["null"] * 16)
    for schema in (json.loads(RECORD), of_nullable, of_nulls, {"type": "array", "items": own("Q", "null", "int")}):
        named: dict[str, object] = {}
        assert is_bounded(parse(json.dumps(schema), named), named)
