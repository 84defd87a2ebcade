"""Avro columns hold what Spark's own ``from_avro`` makes of the same values: the second judge, after Avro's Java."""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq

from tests.interop.test_avro_java import columns, framed, sized, varint
from tests.servers.maven import jars

SPARK_AVRO = ("org.apache.spark:spark-avro_2.13:4.1.1",)
SCHEMAS = 40
DATUMS = 5

Schema = Any
"""JSON."""

_LOGICAL: dict[str, tuple[str, ...]] = {
    "int": ("date",),
    "long": ("timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros"),
}
_PROMOTED = {"int": ("long", "double"), "long": ("double",), "float": ("double",), "string": ("bytes",)}
_PLAIN = ("boolean", "int", "long", "float", "double", "string", "bytes")


class Lots:
    """Draws types that both make the same columns of: Spark has its own for times, other unions and long decimals."""

    def __init__(self, seed: int) -> None:
        self._lot = Random(seed)
        self._names = 0

    def record(self, depth: int = 0) -> Schema:
        self._names += 1
        name = f"R{self._names}"
        fields = [{"name": f"f{number}", "type": self.type(depth + 1)} for number in range(self._lot.randint(2, 5))]
        return {"type": "record", "name": name, "fields": fields}

    def type(self, depth: int) -> Schema:
        drawn = self._lot.random()
        if drawn < 0.15:
            return ["null", self._one(depth)]
        return self._one(depth)

    def _one(self, depth: int) -> Schema:
        drawn = self._lot.random()
        if depth > 2 or drawn < 0.45:
            return self._lot.choice(_PLAIN)
        if drawn < 0.6:
            kind = self._lot.choice(("int", "long"))
            return {"type": kind, "logicalType": self._lot.choice(_LOGICAL[kind])}
        if drawn < 0.7:
            precision, scale = self._lot.choice(((9, 2), (18, 0), (38, 10)))
            return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
        self._names += 1
        match self._lot.randrange(5):
            case 0:
                return {"type": "enum", "name": f"E{self._names}", "symbols": ["A", "B", "C"]}
            case 1:
                return {"type": "fixed", "name": f"F{self._names}", "size": 4}
            case 2:
                return {"type": "array", "items": self.type(depth + 1)}
            case 3:
                return {"type": "map", "values": self.type(depth + 1)}
            case _:
                return self.record(depth + 1)

    def evolved(self, record: Schema) -> Schema:
        kept = []
        for field in record["fields"]:
            drawn = self._lot.random()
            if drawn < 0.15:
                continue
            kind = field["type"]
            if isinstance(kind, str) and kind in _PROMOTED and drawn < 0.5:
                field = {**field, "type": self._lot.choice(_PROMOTED[kind])}
            elif kind == "long":
                # The commonest change there is: a number turns out to be a time.
                field = {**field, "type": {"type": "long", "logicalType": "timestamp-millis"}}
            elif drawn > 0.85:
                field = {**field, "name": "g" + field["name"], "aliases": [field["name"]]}
            kept.append(field)
        for number, (kind, default) in enumerate(
            (
                ({"type": "long", "logicalType": "timestamp-millis"}, 1_700_000_000_123),
                ({"type": "int", "logicalType": "date"}, 20_000),
                ("bytes", "\u00ff\u0001"),
                ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "\u0001\u00ff"),
                (["null", "string"], None),
            )
        ):
            if self._lot.random() < 0.5:
                kept.append({"name": f"n{number}", "type": kind, "default": default})
        self._lot.shuffle(kept)
        return {**record, "fields": kept or record["fields"]}

    def datum(self, schema: Schema) -> bytes:
        lot = self._lot
        if isinstance(schema, list):
            number = lot.randrange(2)
            return varint(number) + (self.datum(schema[1]) if number else b"")
        kind = schema if isinstance(schema, str) else schema["type"]
        logical = "" if isinstance(schema, str) else schema.get("logicalType", "")
        match kind:
            case "boolean":
                return bytes([lot.randrange(2)])
            case "int":
                return varint(lot.randrange(-20_000, 40_000))
            case "long":
                scale = 1000 if logical.endswith("micros") else 1
                return varint(lot.randrange(-1_000_000_000_000, 4_000_000_000_000) * scale)
            case "float":
                return struct.pack("<f", lot.choice((0.0, -1.5, lot.random())))
            case "double":
                return struct.pack("<d", lot.choice((0.0, -1.5, lot.random() * 1e300)))
            case "string":
                return sized(lot.choice(("", "a", "dé", "x" * 70, "\U0001f600")).encode())
            case "bytes" if logical:
                return sized(
                    lot.randrange(-(10 ** schema["precision"]) + 1, 10 ** schema["precision"]).to_bytes(20, signed=True)
                )
            case "bytes":
                return sized(lot.randbytes(lot.randint(0, 9)))
            case "fixed":
                return lot.randbytes(schema["size"])
            case "enum":
                return varint(lot.randrange(3))
            case "array":
                items = [self.datum(schema["items"]) for _ in range(lot.randrange(4))]
                return (varint(len(items)) + b"".join(items) if items else b"") + b"\0"
            case "map":
                return varint(1) + sized(b"k") + self.datum(schema["values"]) + b"\0"
            case _:
                return b"".join(self.datum(field["type"]) for field in schema["fields"])


def test_columns_are_what_sparks_from_avro_makes(tmp_path: Path) -> None:
    questions = []
    for seed in range(SCHEMAS):
        lots = Lots(seed)
        writer = lots.record()
        reader = lots.evolved(writer) if seed % 4 else writer
        questions.append({"writer": writer, "reader": reader, "data": [lots.datum(writer) for _ in range(DATUMS)]})
    asked = [
        {
            "writer": json.dumps(one["writer"]),
            "reader": json.dumps(one["reader"]),
            "data": [d.hex() for d in one["data"]],
        }
        for one in questions
    ]
    (tmp_path / "questions.json").write_text(json.dumps(asked))
    [jar] = jars("spark-avro", SPARK_AVRO, transitive=False).glob("*.jar")
    environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": f"--jars {jar} pyspark-shell", "TZ": "UTC"}
    subprocess.run([sys.executable, "-c", _ASK, str(tmp_path)], check=True, env=environment)
    for number, one in enumerate(questions):
        [theirs] = pq.read_table(tmp_path / str(number)).columns
        found, reasons = columns(one["writer"], one["reader"]).decode(framed(one["data"]))
        assert reasons.null_count == len(reasons), (one, reasons.to_pylist())
        assert found.to_pylist() == theirs.to_pylist(), one
        assert found.null_count == 0


_ASK = """
import json, sys
from pathlib import Path
from pyspark.sql.avro.functions import from_avro
from pylog.ingest.spark import session

directory = Path(sys.argv[1])
spark = session("local[1]")
for number, one in enumerate(json.loads((directory / "questions.json").read_text())):
    rows = [(index, bytearray.fromhex(text)) for index, text in enumerate(one["data"])]
    values = spark.createDataFrame(rows, "number INT, value BINARY").coalesce(1).orderBy("number")
    found = from_avro("value", one["writer"], {"avroSchema": one["reader"], "mode": "FAILFAST"})
    values.select(found.alias("value")).write.parquet(str(directory / str(number)))
"""
