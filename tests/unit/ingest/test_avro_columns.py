"""Framed Avro becomes columns, whatever schema it was written under; what does not decode is null with a reason."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from pylog.client.avro import AvroSerializer, RegistryClient, RegistryUnreachable, SchemaError
from pylog.daemon.web import WebAnswer, WebRequest, WebServer, json_answer
from pylog.ingest.avro import AvroColumns, column_type, latest_schema


def record(*fields: dict[str, Any], name: str = "Login") -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields)})


MEMBER = {"name": "member", "type": "long"}
OLD = record(MEMBER, {"name": "ip", "type": "string"})
NEW = record(MEMBER, {"name": "country", "type": ["null", "string"], "default": None})


class Registry:
    """Gives ids in order; the last schema is the latest of every subject."""

    def __init__(self) -> None:
        self.schemas: list[str] = []

    def __call__(self, request: WebRequest) -> WebAnswer:
        if request.method == "POST":
            text = json.loads(request.body)["schema"]
            if text not in self.schemas:
                self.schemas.append(text)
            return json_answer(200, {"id": self.schemas.index(text)})
        if request.parts[-1] == "latest":
            return json_answer(200, {"schema": self.schemas[-1]})
        if int(request.parts[-1]) < len(self.schemas):
            return json_answer(200, {"schema": self.schemas[int(request.parts[-1])]})
        return json_answer(404, {"error_code": 40403, "message": "Schema not found"})


@pytest.fixture
def url() -> Iterator[str]:
    with WebServer("127.0.0.1", 0, Registry()) as server:
        yield f"http://127.0.0.1:{server.port}"


def test_values_of_two_schemas_become_the_latest_ones_columns(url: str) -> None:
    client = RegistryClient(url)
    old, new = AvroSerializer(client, "s", OLD), AvroSerializer(client, "s", NEW)
    values = [old({"member": 1, "ip": "10.0.0.1"}), new({"member": 2, "country": "CH"}), None]
    decoded, errors = AvroColumns([url], latest_schema(client, "logins")).decode(pa.array(values, pa.binary()))
    assert decoded.to_pylist() == [{"member": 1, "country": None}, {"member": 2, "country": "CH"}, None]
    assert decoded.type == pa.struct([("member", pa.int64()), ("country", pa.string())])
    assert errors.to_pylist() == [None] * 3


def test_what_does_not_decode_is_null_with_the_reason(url: str) -> None:
    good = AvroSerializer(RegistryClient(url), "s", OLD)({"member": 1, "ip": ""})
    values = [b"no frame", good[:-1], good + b"x", b"\0\0\0\0\x09" + good[5:], good]
    decoded, errors = AvroColumns([url], OLD).decode(pa.array(values, pa.binary()))
    assert [one is None for one in decoded.to_pylist()] == [True, True, True, True, False]
    reasons = errors.to_pylist()
    assert reasons[4] is None
    wanted = ("begins with", "does not fit schema 0", "1 more than", "not found")
    for reason, said in zip(reasons[:4], wanted, strict=True):
        assert said in (reason or "")


def test_a_registry_that_is_away_is_not_the_messages_fault(url: str) -> None:
    payload = AvroSerializer(RegistryClient(url), "s", OLD)({"member": 1, "ip": ""})
    with pytest.raises(RegistryUnreachable):
        AvroColumns(["http://127.0.0.1:1"], OLD).decode(pa.array([payload]))


def test_every_type_that_a_column_can_hold(url: str) -> None:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "float"}]}
    fields = {
        "flag": ("boolean", True, pa.bool_()),
        "small": ("int", 1, pa.int32()),
        "ratio": ("double", 0.5, pa.float64()),
        "raw": ("bytes", b"1", pa.binary()),
        "kind": ({"type": "enum", "name": "Kind", "symbols": ["A", "B"]}, "B", pa.string()),
        "mac": ({"type": "fixed", "name": "Mac", "size": 2}, b"ab", pa.binary()),
        "day": ({"type": "int", "logicalType": "date"}, date(2026, 1, 2), pa.date32()),
        "at": ({"type": "long", "logicalType": "timestamp-millis"}, datetime(2026, 1, 2, tzinfo=UTC),
               pa.timestamp("us", "UTC")),
        "price": ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, Decimal("1.25"),
                  pa.decimal128(9, 2)),
        "tags": ({"type": "array", "items": "string"}, ["a"], pa.list_(pa.string())),
        "inner": (inner, {"x": 0.5}, pa.struct([("x", pa.float32())])),
        "again": (["null", "Inner"], None, pa.struct([("x", pa.float32())])),
    }  # fmt: skip
    text = record(*({"name": name, "type": kind} for name, (kind, _, _) in fields.items()))
    assert {field.name: field.type for field in column_type(text)} == {n: t for n, (_, _, t) in fields.items()}
    row = {name: value for name, (_, value, _) in fields.items()}
    payload = AvroSerializer(RegistryClient(url), "s", text)(row)
    assert AvroColumns([url], text).decode(pa.array([payload]))[0].to_pylist() == [row]


def test_a_map_becomes_a_map(url: str) -> None:
    text = record({"name": "m", "type": {"type": "map", "values": {"type": "map", "values": "int"}}})
    payload = AvroSerializer(RegistryClient(url), "s", text)({"m": {"a": {"b": 1}}})
    decoded, _ = AvroColumns([url], text).decode(pa.array([payload]))
    assert decoded.to_pylist() == [{"m": [("a", [("b", 1)])]}]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (record({"name": "u", "type": ["int", "string"]}), r"field value\.u is a union"),
        (record({"name": "t", "type": {"type": "int", "logicalType": "time-millis"}}), r"field value\.t is a time"),
        (record({"name": "next", "type": ["null", "Login"]}), r"field value\.next holds itself"),
        ('"string"', "a record is wanted"),
        ("{", "no Avro schema"),
    ],
)
def test_what_no_column_can_hold_is_refused_by_name(schema: str, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        column_type(schema)
