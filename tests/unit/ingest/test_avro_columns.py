"""Framed Avro becomes columns, whatever schema it was written under; what does not decode is null with a reason."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from pylog.client.avro import (
    UNKNOWN_FOR_S,
    AvroSerializer,
    RegistryClient,
    RegistryDenied,
    RegistryUnreachable,
    SchemaError,
)
from pylog.ingest.avro import AvroColumns, column_for
from pylog.ingest.event_time import with_schema
from pylog.ingest.schemas import parse
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
    decoded, errors = AvroColumns(client, client.latest("logins-value")).decode(pa.array(values, pa.binary()))
    assert decoded.to_pylist() == [{"member": 1, "country": None}, {"member": 2, "country": "CH"}, None]
    assert decoded.type == pa.struct([("member", pa.int64()), ("country", pa.string())])
    assert errors.to_pylist() == [None] * 3


def test_what_does_not_decode_is_null_with_the_reason(url: str) -> None:
    good = AvroSerializer(RegistryClient(url), "s", OLD)({"member": 1, "ip": ""})
    values = [b"no frame", good[:-1], good + b"x", b"\0\0\0\0\x09" + good[5:], good]
    decoded, errors = AvroColumns(RegistryClient(url), [OLD]).decode(pa.array(values, pa.binary()))
    assert [one is None for one in decoded.to_pylist()] == [True, True, True, True, False]
    reasons = errors.to_pylist()
    assert reasons[4] is None
    wanted = ("begins with", "does not fit schema 0", "1 more bytes than", "not found")
    for reason, said in zip(reasons[:4], wanted, strict=True):
        assert said in (reason or "")


def test_a_registry_that_is_away_is_not_the_messages_fault(url: str) -> None:
    payload = AvroSerializer(RegistryClient(url), "s", OLD)({"member": 1, "ip": ""})
    with pytest.raises(RegistryUnreachable):
        AvroColumns(RegistryClient("http://127.0.0.1:1"), [OLD]).decode(pa.array([payload]))


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
    assert {field.name: field.type for field in column_for([text]).kind} == {n: t for n, (_, _, t) in fields.items()}
    row = {name: value for name, (_, value, _) in fields.items()}
    payload = AvroSerializer(RegistryClient(url), "s", text)(row)
    assert AvroColumns(RegistryClient(url), [text]).decode(pa.array([payload]))[0].to_pylist() == [row]


def test_a_map_becomes_a_map(url: str) -> None:
    text = record({"name": "m", "type": {"type": "map", "values": {"type": "map", "values": "int"}}})
    payload = AvroSerializer(RegistryClient(url), "s", text)({"m": {"a": {"b": 1}}})
    decoded, _ = AvroColumns(RegistryClient(url), [text]).decode(pa.array([payload]))
    assert decoded.to_pylist() == [{"m": [("a", [("b", 1)])]}]


def only(writer: Any, reader: Any, datum: bytes) -> tuple[Any, str | None]:
    """Return what one datum of a field ``f`` of type *writer* is as *reader*, and why it is not."""
    texts = [record({"name": "f", "type": one}) if not isinstance(one, str) or one[:1] != "{" else one
             for one in (writer, reader)]  # fmt: skip
    values, reasons = AvroColumns(Known(texts[0]), [texts[1]]).decode(pa.array([b"\0\0\0\0\0" + datum]))
    row = values[0].as_py()
    return (None if row is None else row["f"]), reasons[0].as_py()


class Known(RegistryClient):
    """Knows one schema without asking."""

    def __init__(self, *texts: str) -> None:
        super().__init__([])
        self._known_texts = texts

    def texts(self, schema_id: int, subject: str | None = None) -> tuple[str, ...]:
        return self._known_texts


def logical(kind: str, means: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": means, **more}


def varint(number: int) -> bytes:
    raw = (number << 1) ^ (number >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


MILLIS = 1_700_000_000_123
THEN = datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)


def test_a_long_read_as_milliseconds_is_their_time_and_back() -> None:
    assert only("long", logical("long", "timestamp-millis"), varint(MILLIS)) == (THEN, None)
    assert only(logical("long", "timestamp-millis"), "long", varint(MILLIS)) == (MILLIS, None)


def defaulted(kind: Any, default: Any) -> Any:
    """Return a default as a column holds it, of a field that the writer lacks."""
    reader = record({"name": "f", "type": kind, "default": default})
    found, reason = only(record(), reader, b"")
    assert reason is None
    return found


def test_defaults_mean_what_values_of_their_type_mean() -> None:
    assert defaulted(logical("long", "timestamp-millis"), MILLIS) == THEN
    assert defaulted("bytes", "\u00ff\u0001") == b"\xff\x01"
    assert defaulted({"type": "fixed", "name": "F", "size": 3}, "\u00ff") == b"\xff\0\0"
    assert defaulted(logical("bytes", "decimal", precision=4, scale=2), "\u0001\u0000") == Decimal("2.56")
    assert defaulted(["null", "string"], "x") == "x"
    assert defaulted({"type": "array", "items": "int"}, [1, 2]) == [1, 2]
    assert defaulted({"type": "map", "values": "int"}, {"a": 1}) == [("a", 1)]


def test_a_field_without_a_default_that_the_writer_lacks_is_named() -> None:
    found, reason = only(record(), record({"name": "f", "type": "int"}), b"")
    assert found is None
    assert "the writer's record Login has no field f, and it has no default" in (reason or "")


@pytest.mark.parametrize(
    ("kind", "datum", "column", "value"),
    [
        (logical("string", "uuid"), b"\x02u", pa.string(), "u"),
        (logical("fixed", "uuid", name="U", size=16), bytes(range(16)), pa.string(),
         "00010203-0405-0607-0809-0a0b0c0d0e0f"),
        (logical("int", "time-millis"), varint(86_399_999), pa.string(), "23:59:59.999"),
        (logical("long", "time-micros"), varint(3_600_000_001), pa.string(), "01:00:00.000001"),
        (logical("long", "timestamp-nanos"), varint(-1), pa.timestamp("us", "UTC"),
         datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)),
        (logical("long", "local-timestamp-millis"), varint(1), pa.timestamp("us"), datetime(1970, 1, 1, 0, 0, 0, 1000)),
        (logical("long", "local-timestamp-micros"), varint(1), pa.timestamp("us"), datetime(1970, 1, 1, 0, 0, 0, 1)),
        (logical("bytes", "decimal", precision=38, scale=2), b"\x20" + b"\xff" * 16, pa.decimal128(38, 2),
         Decimal("-0.01")),
        (logical("bytes", "decimal", precision=64, scale=3), b"\x28" + b"\x01" + bytes(19), pa.string(),
         f"{1 << 152}"[:-3] + "." + f"{1 << 152}"[-3:]),
        (logical("bytes", "big-decimal"), b"\x06\x02\x7b\x04", pa.string(), "1.23"),
        (logical("fixed", "duration", name="D", size=12), b"\1\0\0\0\2\0\0\0\xff\xff\xff\xff",
         pa.struct([("months", pa.int64()), ("days", pa.int64()), ("milliseconds", pa.int64())]),
         {"months": 1, "days": 2, "milliseconds": (1 << 32) - 1}),
        ("null", b"", pa.null(), None),
        (["int", "string"], b"\x02\x02a", pa.struct([("member_int", pa.int32()), ("member_string", pa.string())]),
         {"member_int": None, "member_string": "a"}),
        (["null", "int", "long"], b"\x02\x02", pa.int64(), 1),
        # A logical type that does not fit its type, or lacks what it needs, is none.
        (logical("string", "date"), b"\x02a", pa.string(), "a"),
        (logical("bytes", "decimal"), b"\x02a", pa.binary(), b"a"),
        (logical("fixed", "duration", name="D", size=2), b"ab", pa.binary(), b"ab"),
    ],
)  # fmt: skip
def test_every_logical_type_has_a_column(kind: Any, datum: bytes, column: pa.DataType, value: Any) -> None:
    assert column_for([record({"name": "f", "type": kind})]).kind.field("f").type == column
    assert only(kind, kind, datum) == (value, None)


def test_a_type_that_contains_itself_is_left_out_by_name() -> None:
    text = record(MEMBER, {"name": "next", "type": ["null", "Login"]}, {"name": "x", "type": "int"})
    column = column_for([text])
    assert column.kind == pa.struct([("member", pa.int64()), ("x", pa.int32())])
    assert column.left_out == {"next": "Login contains itself"}
    chain = b"\x02\x02" * 40 + b"\x02\0" + b"\x06" * 41
    values, reasons = AvroColumns(Known(text), [text]).decode(pa.array([b"\0\0\0\0\0" + chain] * 2))
    assert values.to_pylist() == [{"member": 1, "x": 3}] * 2, reasons


def test_a_chain_without_end_is_refused_and_harms_nobody() -> None:
    text = record({"name": "next", "type": ["null", "Login"]}, {"name": "x", "type": "int"})
    bad, good = b"\0\0\0\0\0" + b"\x02" * 100_000, b"\0\0\0\0\0" + b"\0\x06"
    values, reasons = AvroColumns(Known(text), [text]).decode(pa.array([bad, good]))
    assert values.to_pylist() == [None, {"x": 3}]
    assert "nests deeper than" in (reasons[0].as_py() or "")


def test_a_schema_may_be_no_record() -> None:
    assert column_for(['"string"']).kind == pa.string()
    values, _ = AvroColumns(Known('"string"'), ['"string"']).decode(pa.array([b"\0\0\0\0\0\x02a"]))
    assert values.to_pylist() == ["a"]


def test_aliases_give_fields_and_types_their_earlier_names() -> None:
    writer = record({"name": "old", "type": {"type": "enum", "name": "Was", "symbols": ["A"]}}, name="Before")
    kind = {"type": "enum", "name": "Is", "aliases": ["Was"], "symbols": ["A"]}
    reader = json.dumps({"type": "record", "name": "Login", "aliases": ["Before"],
                         "fields": [{"name": "f", "type": kind, "aliases": ["old"]}]})  # fmt: skip
    assert only(writer, reader, b"\0") == ("A", None)


def test_a_schema_may_refer_to_others() -> None:
    inner = json.dumps({"type": "record", "name": "a.Inner", "fields": [{"name": "x", "type": "int"}]})
    outer = record({"name": "f", "type": "a.Inner"})
    values, _ = AvroColumns(Known(inner, outer), [inner, outer]).decode(pa.array([b"\0\0\0\0\0\x02"]))
    assert values.to_pylist() == [{"f": {"x": 1}}]


def test_a_long_array_beside_short_ones_is_read_alone() -> None:
    kind = {"type": "array", "items": {"type": "record", "name": "I", "fields": [{"name": "s", "type": "string"}]}}
    text = record({"name": "f", "type": kind})
    items = b"".join(b"\x02" + bytes([97 + n % 26]) for n in range(5000))
    values = [b"\0\0\0\0\0" + varint(5000) + items + b"\0", b"\0\0\0\0\0\x02\x02z\0"]
    found, reasons = AvroColumns(Known(text), [text]).decode(pa.array(values))
    assert reasons.null_count == 2
    assert [one["s"] for one in found[0].as_py()["f"]] == [chr(97 + n % 26) for n in range(5000)]
    assert found[1].as_py() == {"f": [{"s": "z"}]}


@pytest.mark.parametrize("datum", [varint(1 << 40), varint(-(1 << 40)) + varint(3), varint(-(1 << 63)) + b"\0"])
@pytest.mark.parametrize("items", ["null", "int", "double", {"type": "map", "values": "int"}])
def test_an_array_that_claims_more_items_than_there_are_bytes_is_refused(datum: bytes, items: Any) -> None:
    kind = {"type": "array", "items": items}
    found, reason = only(kind, kind, datum)
    assert found is None
    assert "does not fit schema" in (reason or "")


def test_a_key_named_twice_has_its_last_value() -> None:
    kind = {"type": "map", "values": "int"}
    assert only(kind, kind, b"\x06\x02a\x02\x02b\x04\x02a\x06\0") == ([("a", 3), ("b", 2)], None)


@pytest.mark.parametrize("text", ["{", "{}", '"nothing"', '{"type": "record"}', "[" * 300 + "]" * 300, "17"])
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(SchemaError, match="no Avro schema"):
        parse([text])


def test_an_unknown_schema_is_asked_for_once_in_a_while(url: str) -> None:
    now = [0.0]
    client = RegistryClient(url, clock=lambda: now[0])
    AvroSerializer(client, "s", OLD)({"member": 1, "ip": ""})
    before = client.lookups
    values = pa.array([b"\0\0\0\0\x09" + bytes([n % 256]) for n in range(1000)])
    for _ in range(2):
        decoded, reasons = AvroColumns(client, [OLD]).decode(values)
        assert (decoded.null_count, reasons.null_count) == (1000, 0)
    assert client.lookups == before + 1
    now[0] = UNKNOWN_FOR_S
    AvroColumns(client, [OLD]).decode(values)
    assert client.lookups == before + 2


class Guarded(Registry):
    """Shows nobody an id of *hidden*, nor the subject *own* to somebody without the right."""

    def __init__(self, own: str) -> None:
        super().__init__()
        self.own, self.hidden = own, set[int]()
        self.may_see_own = True
        self.asked: list[str] = []

    def __call__(self, request: WebRequest) -> WebAnswer:
        self.asked.append(request.target)
        is_own = request.parts[:2] == ("subjects", self.own) and request.method == "GET"
        is_hidden = request.parts[:2] == ("schemas", "ids") and int(request.parts[-1]) in self.hidden
        if is_hidden or (is_own and not self.may_see_own):
            return json_answer(403, {"error_code": 40301, "message": "User alice may not describe it"})
        if is_own and request.parts[-1] == "versions":
            return json_answer(200, [1])
        return super().__call__(request)


@pytest.fixture
def guarded() -> Iterator[tuple[Guarded, str]]:
    registry = Guarded("s")
    with WebServer("127.0.0.1", 0, registry) as server:
        url = f"http://127.0.0.1:{server.port}"
        AvroSerializer(RegistryClient(url), "s", OLD)({"member": 1, "ip": ""})
        AvroSerializer(RegistryClient(url), "others-value", NEW)({"member": 1, "country": None})
        registry.hidden = {1}
        yield registry, url


GOOD = b"\0\0\0\0\0" + b"\x02\x02a"
OF_OTHERS = b"\0\0\0\0\1" + b"\x02\0"


def test_a_value_that_names_a_schema_of_others_is_null_and_stops_nobody(guarded: tuple[Guarded, str]) -> None:
    registry, url = guarded
    now = [0.0]
    client = RegistryClient(url, clock=lambda: now[0])
    values = pa.array([GOOD, OF_OTHERS, GOOD, OF_OTHERS])
    for _ in range(2):
        decoded, reasons = AvroColumns(client, [OLD], "s").decode(values)
        assert [value and value["member"] for value in decoded.to_pylist()] == [1, None, 1, None]
        assert [bool(reason and "may not describe" in reason) for reason in reasons.to_pylist()] == [0, 1, 0, 1]
    assert registry.asked.count("/schemas/ids/1") == 2, "once more after the own subject was seen, and no more"
    registry.hidden.clear()
    now[0] = UNKNOWN_FOR_S
    reason = AvroColumns(client, [OLD], "s").decode(values)[1][1].as_py()
    assert "does not fit schema 1" in reason, "the right was given"


def test_a_user_who_may_not_see_the_own_subject_is_told_instead_of_nulls(guarded: tuple[Guarded, str]) -> None:
    registry, url = guarded
    registry.hidden, registry.may_see_own = {0, 1}, False
    with pytest.raises(RegistryDenied, match="may not describe"):
        AvroColumns(RegistryClient(url), [OLD], "s").decode(pa.array([GOOD]))
    with pytest.raises(RegistryDenied, match="may not describe"):
        AvroColumns(RegistryClient(url), [OLD]).decode(pa.array([GOOD]))


def test_a_right_that_is_given_between_two_questions_loses_no_value(guarded: tuple[Guarded, str]) -> None:
    registry, url = guarded
    registry.hidden = {0}

    class Given(RegistryClient):
        def _check_visible(self, subject: str) -> None:
            registry.hidden.clear()
            super()._check_visible(subject)

    decoded, _ = AvroColumns(Given(url), [OLD], "s").decode(pa.array([GOOD]))
    assert decoded.to_pylist() == [{"member": 1, "ip": "a"}]


def test_the_time_of_an_event_whose_schema_is_hidden_is_its_own_timestamp() -> None:
    text = record({"name": "at", "type": "long"})
    registry = Guarded("logins-value")
    with WebServer("127.0.0.1", 0, registry) as server:
        url = f"http://127.0.0.1:{server.port}"
        good = AvroSerializer(RegistryClient(url), "logins-value", text)({"at": 7000})
        event_time = with_schema("logins", "at", (url,))
        registry.hidden = {1}
        times = event_time.times(pa.array([good, OF_OTHERS]))
        assert times.to_pylist() == [datetime(1970, 1, 1, 0, 0, 7, tzinfo=UTC), None]


def test_an_int_is_not_read_from_a_long(url: str) -> None:
    fits, wide = record({"name": "n", "type": "int"}), record({"name": "n", "type": "long"})
    payload = AvroSerializer(RegistryClient(url), "s", fits)({"n": 1})
    large = payload[:5] + AvroSerializer(RegistryClient(url), "s", wide)({"n": 1 << 40})[5:]
    decoded, errors = AvroColumns(RegistryClient(url), [fits]).decode(pa.array([payload, large]))
    assert decoded.to_pylist() == [{"n": 1}, None]
    assert "cannot hold" in (errors.to_pylist()[1] or "")
    found, reason = only("long", "int", b"\x02")
    assert found is None
    assert "Avro does not allow" in (reason or "")


def test_two_schemas_and_torn_values_keep_their_places(url: str) -> None:
    client = RegistryClient(url)
    old, new = AvroSerializer(client, "s", OLD), AvroSerializer(client, "s", NEW)
    values = [(old if n % 3 else new)({"member": n, "ip": "", "country": "CH"})[: 6 if n % 7 == 6 else None]
              for n in range(64, 264)]  # fmt: skip
    decoded, errors = AvroColumns(RegistryClient(url), [NEW]).decode(pa.array(values))
    for n, row, reason in zip(range(64, 264), decoded.to_pylist(), errors.to_pylist(), strict=True):
        assert (row is None) == (reason is not None) == (n % 7 == 6)
        assert row is None or row == {"member": n, "country": None if n % 3 else "CH"}
