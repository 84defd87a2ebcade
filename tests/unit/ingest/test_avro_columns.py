"""Framed Avro becomes columns, whatever schema it was written under; what does not decode is null with a reason."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pylog.client.avro import AvroSerializer, RegistryClient, RegistryUnreachable, SchemaError
from pylog.ingest.avro import AvroColumns, column_type, latest_schema
from tests.servers.web import WebAnswer, WebRequest, WebServer, json_answer


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


# -- all values at a time, against fastavro, which reads one after the other -------------------------------------------

INNER = {"type": "record", "name": "Inner", "fields": [
    {"name": "x", "type": "int"}, {"name": "note", "type": ["null", "string"], "default": None}]}  # fmt: skip
NAMED: dict[str, Any] = {
    "enum": {"type": "enum", "name": "Kind", "symbols": ["A", "B", "C"]},
    "fewer": {"type": "enum", "name": "Kind", "symbols": ["B", "A"]},
    "fixed": {"type": "fixed", "name": "Mac", "size": 3},
    "inner": INNER,
    "day": {"type": "int", "logicalType": "date"},
    "millis": {"type": "long", "logicalType": "timestamp-millis"},
    "micros": {"type": "long", "logicalType": "timestamp-micros"},
    "tags": {"type": "array", "items": "string"},
}
INT32S, INT64S = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
TIMES = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": INT32S,
    "long": INT64S,
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": st.text(max_size=70),
    "bytes": st.binary(max_size=70),
    "enum": st.sampled_from("ABC"),
    "fixed": st.binary(min_size=3, max_size=3),
    "inner": st.fixed_dictionaries({"x": INT32S, "note": st.none() | st.text(max_size=5)}),
    "day": st.dates(),
    "millis": TIMES.map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)),
    "micros": TIMES,
    "tags": st.lists(st.text(max_size=3), max_size=3),
}
# What each may be read as; the first is itself.
READ_AS = {"int": ["int", "long", "float", "double"], "long": ["long", "float", "double", "int"],
           "float": ["float", "double"], "string": ["string", "bytes"], "bytes": ["bytes", "string"],
           "enum": ["enum", "fewer"]}  # fmt: skip
SHAPES = ("plain", "nullable", "nullable, null last")


def shaped(kind: str, shape: str) -> Any:
    named = NAMED.get(kind, kind)
    return {"plain": named, "nullable": ["null", named], "nullable, null last": [named, "null"]}[shape]


@st.composite
def topics(draw: st.DrawFn) -> tuple[str, str, list[dict[str, Any]]]:
    """A writer's schema, a reader's, and values of the writer's."""
    kinds = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=6, unique=True))
    fields = [(f"f{number}", kind, draw(st.sampled_from(SHAPES))) for number, kind in enumerate(kinds)]
    wanted = []
    for name, kind, shape in fields:
        if draw(st.integers(0, 3)):
            read_as = draw(st.sampled_from(READ_AS.get(kind, [kind])))
            other = draw(st.sampled_from(SHAPES)) if shape == "plain" else shape
            wanted.append({"name": name, "type": shaped(read_as, other)})
    if draw(st.booleans()) or not wanted:
        wanted.append({"name": "added", "type": ["null", "long"], "default": None})
    if draw(st.booleans()):
        wanted.append({"name": "more", "type": "string", "default": "dé"})
    row = st.fixed_dictionaries(
        {name: VALUES[kind] if shape == "plain" else st.none() | VALUES[kind] for name, kind, shape in fields}
    )
    writer = record(*({"name": name, "type": shaped(kind, shape)} for name, kind, shape in fields))
    return writer, record(*draw(st.permutations(wanted))), draw(st.lists(row, max_size=8))


def without_addresses(reasons: pa.Array) -> list[str | None]:
    return [reason and re.sub("0x[0-9a-f]+", "", reason) for reason in reasons.to_pylist()]


def test_columns_are_what_fastavro_reads_one_by_one(url: str) -> None:
    client = RegistryClient(url)
    by_column: list[object] = []

    @settings(max_examples=300, deadline=None)
    @given(topics(), st.randoms(use_true_random=False), st.booleans())
    def check(topic: tuple[str, str, list[dict[str, Any]]], chance: Random, is_damaged: bool) -> None:
        writer, reader, rows = topic
        serialize = AvroSerializer(client, "s", writer)
        values: list[bytes | None] = [serialize(row) for row in rows]
        for number, value in enumerate(values if is_damaged else ()):
            if value and chance.random() < 0.5:
                torn = bytearray(value)
                torn[chance.randrange(5, len(torn) + 1) :] = chance.randbytes(chance.randrange(4))
                values[number] = chance.choice([None, bytes(torn), value[:3], b"\1" + value[1:]])
        columns = AvroColumns([url], reader)
        array = pa.array([b"before", *values], pa.binary())[1:]
        found, reasons = columns.decode(array)
        wanted, said = columns._one_by_one(array.filter(array.is_valid()))
        by_column.extend(one is not None for one in columns._readers.values())
        there = array.is_valid()
        assert found.filter(there).equals(wanted), (writer, reader, values)
        assert without_addresses(reasons.filter(there)) == without_addresses(said)
        assert found.filter(pc.invert(there)).null_count == len(array) - len(wanted)
        assert found.type == column_type(reader)
        found.validate(full=True)

    check()
    assert by_column.count(True) > len(by_column) // 3, "hardly anything was read by column"


def test_a_column_that_cannot_hold_an_int_says_so(url: str) -> None:
    fits, wide = record({"name": "n", "type": "int"}), record({"name": "n", "type": "long"})
    payload = AvroSerializer(RegistryClient(url), "s", fits)({"n": 1})
    large = payload[:5] + AvroSerializer(RegistryClient(url), "s", wide)({"n": 1 << 40})[5:]
    decoded, errors = AvroColumns([url], fits).decode(pa.array([payload, large]))
    assert decoded.to_pylist() == [{"n": 1}, None]
    assert "cannot hold" in (errors.to_pylist()[1] or "")


def test_two_schemas_and_torn_values_keep_their_places(url: str) -> None:
    client = RegistryClient(url)
    old, new = AvroSerializer(client, "s", OLD), AvroSerializer(client, "s", NEW)
    values = [(old if n % 3 else new)({"member": n, "ip": "", "country": "CH"})[: 6 if n % 7 == 6 else None]
              for n in range(64, 264)]  # fmt: skip
    decoded, errors = AvroColumns([url], NEW).decode(pa.array(values))
    for n, row, reason in zip(range(64, 264), decoded.to_pylist(), errors.to_pylist(), strict=True):
        assert (row is None) == (reason is not None) == (n % 7 == 6)
        assert row is None or row == {"member": n, "country": None if n % 3 else "CH"}
