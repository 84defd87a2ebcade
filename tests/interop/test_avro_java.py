"""Avro columns hold what Apache Avro's own GenericDatumReader reads: schemas, readers' schemas and datums by lot."""

import json
import struct
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from pylog.ingest.avro import AvroColumns
from pylog.ingest.resolve import column_of
from pylog.ingest.schemas import Type, parse
from tests.servers.maven import classpath, jars

AVRO = ("org.apache.avro:avro:1.12.1",)
SOURCE = Path(__file__).with_name("clients") / "AvroJudge.java"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SEEDS = 300
DATUMS = 6

Schema = Any
"""JSON."""


class Judge:
    """Apache Avro in a Java process that answers line by line."""

    def __init__(self, classes: Path) -> None:
        path = classpath(jars("avro-java", AVRO))
        # The compiler as a module of the runtime: the package with the command `javac` is not among local/packages.txt.
        compiler = ["java", "-m", "jdk.compiler/com.sun.tools.javac.Main"]
        subprocess.run([*compiler, "-cp", path, "-d", str(classes), str(SOURCE)], check=True)
        self._process = subprocess.Popen(
            ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{path}:{classes}", "AvroJudge"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def read(self, writer: Schema, reader: Schema, data: list[bytes]) -> list[dict[str, Any]]:
        """Return what each datum is: {"value"} or {"error"}."""
        question = {"writer": json.dumps(writer), "reader": json.dumps(reader), "data": [one.hex() for one in data]}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "error" not in answer, (answer, question)
        values: list[dict[str, Any]] = answer["values"]
        return values

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    found = Judge(tmp_path_factory.mktemp("classes"))
    yield found
    found.close()


class Registry:
    """Knows one schema."""

    def __init__(self, writer: Schema) -> None:
        self._text = json.dumps(writer)

    def texts(self, _: int, subject: str | None = None) -> tuple[str, ...]:
        return (self._text,)


def columns(writer: Schema, reader: Schema) -> AvroColumns:
    return AvroColumns(Registry(writer), [json.dumps(reader)])  # type: ignore[arg-type]


def framed(data: list[bytes]) -> pa.Array:
    return pa.array([b"\0\0\0\0\1" + datum for datum in data], pa.binary())


# -- what both read, compared ------------------------------------------------------------------------------------------


def is_same(schema: Type, java: Any, ours: Any) -> bool:
    """Return whether a column's value is what Java read; fields that the column leaves out are not compared."""
    if schema.kind == "union":
        return is_same_union(schema, java["branch"], java["of"][0], ours)
    if java is None or ours is None:
        return java is None and ours is None
    match schema.logical:
        case "decimal" | "big-decimal":
            return bool(java == (f"{ours:f}" if isinstance(ours, Decimal) else ours))
        case "duration":
            return bool(java == [ours["months"], ours["days"], ours["milliseconds"]])
        case "date":
            return bool(date(1970, 1, 1) + timedelta(days=java) == ours)
        case "time-millis" | "time-micros":
            digits = 3 if schema.logical == "time-millis" else 6
            seconds, nanos = divmod(java, 10**9)
            shown = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{nanos:09}"
            return bool(shown[: 9 + digits] == ours)
        case "uuid" if schema.kind == "fixed":
            return bool(java == ours.replace("-", ""))
        case str(name) if "timestamp" in name:
            at = ours.replace(tzinfo=UTC) if ours.tzinfo is None else ours
            return bool(int(java) == (at - EPOCH) // timedelta(microseconds=1))
    match schema.kind:
        case "float" | "double":
            return same_float(java, ours)
        case "bytes" | "fixed":
            return bool(java == ours.hex())
        case "array":
            pairs = zip(java, ours, strict=True)
            return len(java) == len(ours) and all(is_same(schema.inner[0], a, b) for a, b in pairs)
        case "map":
            other = dict(ours)
            return java.keys() == other.keys() and all(is_same(schema.inner[0], java[k], other[k]) for k in java)
        case "record":
            kept = [one for one in schema.fields if one.name in ours]
            return all(is_same(one.type, java[one.name], ours[one.name]) for one in kept)
    return bool(java == ours and type(java) is type(ours))


def same_float(java: dict[str, int], ours: float) -> bool:
    if "float" in java:
        return struct.pack(">i", java["float"]) == struct.pack(">f", ours) or ours != ours
    return struct.pack(">q", java["double"]) == struct.pack(">d", ours) or ours != ours


def is_same_union(schema: Type, number: int, java: Any, ours: Any) -> bool:
    branch = schema.inner[number]
    others = [one for one in schema.inner if one.kind != "null"]
    if branch.kind == "null":
        return ours is None
    kinds = {one.kind for one in others}
    if len(others) == 1 or (kinds in ({"int", "long"}, {"float", "double"}) and not any(o.logical for o in others)):
        if isinstance(java, dict) and "float" in java and kinds == {"float", "double"}:
            return bool(struct.unpack(">f", struct.pack(">i", java["float"]))[0] == ours or ours != ours)
        return is_same(branch, java, ours)
    if ours is None:
        return False
    values = list(ours.values())
    mine = values.pop(others.index(branch))
    return values == [None] * len(values) and is_same(branch, java, mine)


# -- schemas and datums by lot -----------------------------------------------------------------------------------------

LOGICAL: dict[str, list[dict[str, Any]]] = {
    "int": [{"logicalType": "date"}, {"logicalType": "time-millis"}, {"logicalType": "timestamp-millis"}],
    "long": [{"logicalType": name} for name in (
        "timestamp-millis", "timestamp-micros", "timestamp-nanos", "local-timestamp-millis", "local-timestamp-micros",
        "local-timestamp-nanos", "time-micros", "date", "nonsense")],
    "string": [{"logicalType": "uuid"}, {"logicalType": "date"}],
    "bytes": [
        {"logicalType": "decimal", "precision": 9, "scale": 2},
        {"logicalType": "decimal", "precision": 38, "scale": 10},
        {"logicalType": "decimal", "precision": 64, "scale": 5}, {"logicalType": "decimal"},
        {"logicalType": "decimal", "precision": 18}, {"logicalType": "big-decimal"}, {"logicalType": "uuid"},
        {"logicalType": "decimal", "precision": 2, "scale": 5}],
}  # fmt: skip
FIXED: list[dict[str, Any]] = [
    {"size": 3},
    {"size": 16, "logicalType": "uuid"},
    {"size": 12, "logicalType": "duration"},
    {"size": 5, "logicalType": "decimal", "precision": 9, "scale": 3},
    {"size": 20, "logicalType": "decimal", "precision": 38, "scale": 3},
    {"size": 2, "logicalType": "decimal", "precision": 12},
    {"size": 4, "logicalType": "duration"},
]
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
PROMOTED = {"int": ("long", "float", "double"), "long": ("float", "double"), "float": ("double",),
            "string": ("bytes",), "bytes": ("string",)}  # fmt: skip
WORDS = ("", "a", "dé", "x" * 70, "\U0001f600")


class Lots:
    """Draws schemas, what they evolve to, and datums."""

    def __init__(self, seed: int) -> None:
        self.lot = Random(seed)
        self._names = 0

    def record(self, depth: int = 0) -> Schema:
        name = self._name("R")
        namespace = self.lot.choice(("", "a.", "b.c."))
        count = self.lot.randint(0 if depth else 1, 4)
        return {
            "type": "record",
            "name": namespace + name,
            "fields": [{"name": f"f{number}", "type": self.type(depth + 1)} for number in range(count)],
        }

    def type(self, depth: int, *, is_branch: bool = False) -> Schema:
        drawn = self.lot.random()
        if depth > 3 or drawn < 0.5:
            return self._primitive(self.lot.choice(PRIMITIVES))
        if drawn < 0.6:
            return {"type": "fixed", "name": self._name("F"), **self.lot.choice(FIXED)}
        if drawn < 0.68:
            return {"type": "enum", "name": self._name("E"), "symbols": list("ABC")[: self.lot.randint(1, 3)]}
        if drawn < 0.75:
            return {"type": "array", "items": self.type(depth + 1)}
        if drawn < 0.8:
            return {"type": "map", "values": self.type(depth + 1)}
        if drawn < 0.87 or is_branch:
            return self.record(depth)
        return self._union(depth)

    def _primitive(self, kind: str) -> Schema:
        if kind in LOGICAL and self.lot.random() < 0.5:
            return {"type": kind, **self.lot.choice(LOGICAL[kind])}
        return kind

    def _union(self, depth: int) -> Schema:
        branches: dict[str, Schema] = {"null": "null"} if self.lot.random() < 0.7 else {}
        for _ in range(self.lot.randint(1, 3)):
            branch = self.type(depth + 1, is_branch=True)
            kind = branch if isinstance(branch, str) else branch["type"]
            branches.setdefault(branch["name"] if kind in ("record", "fixed", "enum") else kind, branch)
        drawn = list(branches.values())
        self.lot.shuffle(drawn)
        return drawn

    def _name(self, letter: str) -> str:
        self._names += 1
        return f"{letter}{self._names}"

    # -- evolution --

    def evolved(self, schema: Schema) -> Schema:
        if isinstance(schema, list):
            found = [branch for branch in map(self.evolved, schema) if not isinstance(branch, list)]
            return self._distinct(found) or schema
        if self.lot.random() < 0.08:
            other = self._distinct(["null", schema] if self.lot.random() < 0.5 else [schema, "string", "double"])
            return other if schema != "null" else schema
        kind = schema if isinstance(schema, str) else schema["type"]
        body: dict[str, Any] = {"type": schema} if isinstance(schema, str) else deepcopy(schema)
        if kind in PRIMITIVES:
            return self._other_primitive(kind, schema)
        if kind == "record":
            return self._evolved_record(body)
        if kind == "array":
            body["items"] = self.evolved(body["items"])
        elif kind == "map":
            body["values"] = self.evolved(body["values"])
        elif kind == "enum" and self.lot.random() < 0.4:
            body["symbols"] = self.lot.sample("ABCD", self.lot.randint(1, 4))
            if self.lot.random() < 0.5:
                body["default"] = body["symbols"][0]
        if kind in ("enum", "fixed") and self.lot.random() < 0.15:
            self._rename(body)
        if kind == "fixed" and self.lot.random() < 0.1:
            body["size"] += 1
        return body

    def _other_primitive(self, kind: str, schema: Schema) -> Schema:
        drawn = self.lot.random()
        if drawn < 0.3:
            return self._primitive(kind)
        if drawn < 0.5 and kind in PROMOTED:
            return self._primitive(self.lot.choice(PROMOTED[kind]))
        return self._primitive(self.lot.choice(PRIMITIVES)) if drawn < 0.53 else schema

    def _evolved_record(self, body: dict[str, Any]) -> Schema:
        kept = []
        for field in body["fields"]:
            if self.lot.random() < 0.15:
                continue
            field["type"] = self.evolved(field["type"])
            if self.lot.random() < 0.15:
                field["aliases"] = [field["name"]]
                field["name"] = "g" + field["name"]
            kept.append(field)
        for number in range(self.lot.choice((0, 0, 1, 2))):
            added: dict[str, Any] = {"name": f"n{number}", "type": self.type(3)}
            if self.lot.random() < 0.95:
                added["default"] = self.default(added["type"])
            kept.append(added)
        self.lot.shuffle(kept)
        body["fields"] = kept
        if self.lot.random() < 0.2:
            self._rename(body)
        return body

    def _rename(self, body: dict[str, Any]) -> None:
        if self.lot.random() < 0.7:
            body["aliases"] = [body["name"] if "." in body["name"] else "." + body["name"]]
            body["aliases"] = [name.lstrip(".") for name in body["aliases"]]
        body["name"] = self.lot.choice(("z.", "")) + self._name("Z")
        if "aliases" in body and "." not in body["aliases"][0]:
            body["name"] = body["name"].rpartition(".")[2]

    def _distinct(self, branches: list[Schema]) -> list[Schema]:
        kinds: dict[str, Schema] = {}
        for branch in branches:
            kind = branch if isinstance(branch, str) else branch["type"]
            kinds.setdefault(branch["name"] if kind in ("record", "fixed", "enum") else kind, branch)
        return list(kinds.values())

    def default(self, schema: Schema) -> Any:
        if isinstance(schema, list):
            return self.default(self.lot.choice(schema[:1]))
        kind = schema if isinstance(schema, str) else schema["type"]
        match kind:
            case "null":
                return None
            case "boolean":
                return self.lot.random() < 0.5
            case "int" | "long":
                return self.lot.choice((0, 1, 17, 86_399_999))
            case "float" | "double":
                return self.lot.choice((0, 0.1, -3.5, 1e20))
            case "bytes":
                if isinstance(schema, dict) and schema.get("logicalType") == "big-decimal":
                    return "\u0004\u0001\u00ff\u0004"
                return self.lot.choice(("\u00ff\u0001", "a", "\u0000\u0080"))
            case "string":
                return self.lot.choice(WORDS)
            case "fixed":
                return "".join(chr(self.lot.randrange(256)) for _ in range(schema["size"]))
            case "enum":
                return schema["symbols"][0]
            case "array":
                return [self.default(schema["items"])] * self.lot.randint(0, 2)
            case "map":
                return {"k": self.default(schema["values"])} if self.lot.random() < 0.5 else {}
            case _:
                return {field["name"]: self.default(field["type"]) for field in schema["fields"]}

    # -- datums --

    def datum(self, schema: Schema) -> bytes:
        if isinstance(schema, list):
            number = self.lot.randrange(len(schema))
            return varint(number) + self.datum(schema[number])
        kind = schema if isinstance(schema, str) else schema["type"]
        logical = schema.get("logicalType", "") if isinstance(schema, dict) else ""
        lot = self.lot
        match kind:
            case "null":
                return b""
            case "boolean":
                return bytes([lot.randrange(2)])
            case "int":
                return varint(lot.choice((0, -1, lot.randrange(86_400_000), lot.randrange(-(1 << 31), 1 << 31))))
            case "long":
                wide = lot.randrange(-(1 << 63), 1 << 63) if lot.random() < 0.5 else lot.randrange(86_400_000_000)
                return varint(lot.choice((0, -1, 1_700_000_000_123, 1_700_000_000_123_456, wide)))
            case "float":
                return struct.pack("<f", lot.choice((0.0, -1.5, float("nan"), lot.random())))
            case "double":
                return struct.pack("<d", lot.choice((0.0, -1.5, float("inf"), lot.random() * 1e300)))
            case "string":
                return sized(lot.choice(WORDS).encode())
            case "bytes":
                if logical == "big-decimal":
                    raw = sized(lot.randbytes(lot.randint(1, 20))) + varint(lot.randint(-3, 12))
                    return sized(raw)
                return sized(lot.choice((lot.randbytes(lot.randint(0, 5)), lot.randbytes(30), b"\x00" * 18 + b"\x07")))
            case "fixed":
                return lot.choice((lot.randbytes(schema["size"]), bytes(schema["size"] - 1) + b"\x05"))
            case "enum":
                return varint(lot.randrange(len(schema["symbols"])))
            case "array":
                return self._blocks(lambda: self.datum(schema["items"]))
            case "map":
                return self._blocks(lambda: sized(lot.choice(WORDS).encode()) + self.datum(schema["values"]))
            case _:
                return b"".join(self.datum(field["type"]) for field in schema["fields"])

    def _blocks(self, item: Callable[[], bytes]) -> bytes:
        out = b""
        for _ in range(self.lot.choice((0, 1, 1, 2))):
            items = [item() for _ in range(self.lot.choice((1, 2, 3, 90) if self.lot.random() < 0.1 else (1, 2)))]
            body = b"".join(items)
            out += (varint(-len(items)) + varint(len(body)) if self.lot.random() < 0.3 else varint(len(items))) + body
        return out + b"\0"

    def damaged(self, datum: bytes) -> bytes:
        torn = bytearray(datum)
        match self.lot.randrange(3):
            case 0:
                del torn[self.lot.randrange(len(torn) + 1) :]
            case 1:
                torn += self.lot.randbytes(1)
            case _ if torn:
                torn[self.lot.randrange(len(torn))] = self.lot.randrange(256)
        return bytes(torn)


def varint(number: int) -> bytes:
    raw = ((number << 1) ^ (number >> 63)) & ((1 << 64) - 1)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


def sized(raw: bytes) -> bytes:
    return varint(len(raw)) + raw


def is_beyond_a_column(reason: str | None) -> bool:
    """Return whether Java holds what a column cannot: other years, more digits, bytes as text that is no UTF-8."""
    return reason is not None and any(said in reason for said in ("cannot hold", "longer than", "is not UTF-8"))


def test_columns_are_what_java_reads(judge: Judge) -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        lots = Lots(seed)
        writer = lots.record()
        reader = lots.evolved(writer) if seed % 4 else writer
        data = [lots.datum(writer) for _ in range(DATUMS)]
        compare(judge, writer, reader, data, f"seed {seed}", seen)
    assert seen["values"] > SEEDS * DATUMS // 2, seen
    assert seen["refused"] > SEEDS // 4, seen


def test_damaged_datums_are_what_java_reads_or_nothing(judge: Judge) -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS // 2):
        lots = Lots(seed + 10_000)
        writer = lots.record()
        data = [lots.damaged(lots.datum(writer)) for _ in range(DATUMS)]
        compare(judge, writer, writer, data, f"seed {seed}", seen, is_damaged=True)
    assert seen["refused"] > SEEDS // 4, seen


def compare(
    judge: Judge,
    writer: Schema,
    reader: Schema,
    data: list[bytes],
    where: str,
    seen: Counter[str],
    *,
    is_damaged: bool = False,
) -> None:
    schema = parse([json.dumps(reader)])
    decoder = columns(writer, reader)
    found, reasons = decoder.decode(framed(data))
    found.validate(full=True)
    alone, said = decoder._one_by_one(framed(data))
    # As text, because NaN is not NaN.
    assert repr(found.to_pylist()) == repr(alone.to_pylist()), (where, data, json.dumps(writer), json.dumps(reader))
    assert reasons.equals(said), where
    assert found.type == column_of(schema).kind
    java = judge.read(writer, reader, data)
    for datum, theirs, ours, reason in zip(data, java, found.to_pylist(), reasons.to_pylist(), strict=True):
        story = (where, datum, theirs, ours, reason, json.dumps(writer), json.dumps(reader))
        assert (ours is None) == (reason is not None), story
        if "error" in theirs:
            assert ours is None, story
            seen["refused"] += 1
        elif ours is None:
            assert is_damaged or is_beyond_a_column(reason), story
            seen["beyond"] += 1
        else:
            assert is_same(schema, theirs["value"], ours), story
            seen["values"] += 1
