"""Rows into Parquet per CPU second: the load job, ``format("pylog")``, and Spark's own Kafka connector.

python -m bench.pipeline.ingest [--records N] [--codec none|zstd] [--rounds N]
                       [--ways decoder,avro,fastavro,job,source,connector]

The cost of a way is the CPU of everything it starts, JVM, Python workers and start of Spark included; the broker's is
left out.  The decoder runs alone, over bytes that were fetched before.  So do the two that make columns of Avro: values
of eight fields and about 190 bytes, all of a chunk at a time, and one after the other as fastavro reads them.
"""

import argparse
import ctypes
import io
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.dataset as ds
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from pylog.client.avro import RegistryClient, parse
from pylog.client.raw import RawClient, RawConfig
from pylog.ingest.avro import AvroColumns, column_for
from pylog.ingest.decode import decode, whole_batches
from pylog.ingest.fetch import positions, read_range
from pylog.ingest.plan import Range
from pylog.ingest.spark import DEFAULT_MASTER, session
from pylog.testing import BrokerProcess
from pylog.wire.api.offsets import LATEST_TIMESTAMP
from tests.servers.maven import jars
from tests.servers.web import WebServer, json_answer

TOPIC = "events"
PARTITIONS = 8
VALUE_BYTES = 200
_DISTINCT_VALUES = 20_000

CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.0",
)

_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run took."""

    rows: int
    wall_s: float
    cpu_s: float

    def line(self, way: str) -> str:
        """Return the run as one line."""
        return (
            f"{way:<10} rows={self.rows} wall_s={self.wall_s:.1f} cpu_s={self.cpu_s:.1f} "
            f"rows/s={self.rows / self.wall_s:,.0f} rows/cpu-s={self.rows / self.cpu_s:,.0f}"
        )


def fill(bootstrap: str, records: int, codec: str) -> None:
    """Produce *records* messages of 8 and 200 bytes, evenly over the partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(20)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50, "batch.num.messages": 1200,
         "queue.buffering.max.messages": 1_000_000}
    )  # fmt: skip
    values = [os.urandom(VALUE_BYTES // 2).hex().encode() for _ in range(_DISTINCT_VALUES)]
    for number in range(records):
        while True:
            try:
                producer.produce(TOPIC, values[number % _DISTINCT_VALUES], b"%08d" % number, number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    left = producer.flush(60)
    assert left == 0, f"{left} records were not acknowledged"


def measured(command: Sequence[str]) -> tuple[float, float]:
    """Run *command*; return wall seconds and the CPU seconds of it and all it started, orphans included."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        # Orphans, such as a JVM whose driver has gone, come to us instead of to init, and are counted.
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        began = time.monotonic()
        code = subprocess.call(command)
        wall_s = time.monotonic() - began
        while True:
            try:
                os.wait()
            except ChildProcessError:
                break
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        os.write(write, json.dumps([code, wall_s, used.ru_utime + used.ru_stime]).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        code, wall_s, cpu_s = json.loads(pipe.read())
    os.waitpid(pid, 0)
    assert code == 0, f"{command} ended with {code}"
    return wall_s, cpu_s


def run_job(bootstrap: str, directory: Path, records: int) -> Cost:
    """The load job, from nothing to its exit."""
    lake = directory / "lake"
    wall_s, cpu_s = measured([
        sys.executable, "-m", "pylog.ingest.job", f"--bootstrap={bootstrap}", f"--topics={TOPIC}", f"--lake={lake}",
        f"--checkpoint={directory / 'checkpoint'}", f"--max-offsets-per-batch={records}",
    ])  # fmt: skip
    return Cost(ds.dataset(lake, format="parquet", partitioning="hive").count_rows(), wall_s, cpu_s)


def run_query(way: str) -> Callable[[str, Path, int], Cost]:
    """A streaming query that drains the topic into Parquet; as the load job once was, and as most people's are."""

    def run(bootstrap: str, directory: Path, records: int) -> Cost:
        command = [sys.executable, "-m", "bench.pipeline.ingest", f"--query={way}", f"--bootstrap={bootstrap}"]
        wall_s, cpu_s = measured([*command, f"--directory={directory}"])
        return Cost(ds.dataset(directory / "out", format="parquet").count_rows(), wall_s, cpu_s)

    return run


def query(way: str, bootstrap: str, directory: Path) -> None:
    """Drain the topic with one of the two sources; runs in a process of its own."""
    options = {"startingOffsets": "earliest"}
    if way == "connector":
        found = sorted(jars("spark-kafka", CONNECTOR, transitive=False).glob("*.jar"))
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {','.join(map(str, found))} pyspark-shell"
        options |= {"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC}
    else:
        options |= {"bootstrap": bootstrap, "topic": TOPIC}
    stream = session(DEFAULT_MASTER).readStream.format("kafka" if way == "connector" else "pylog").options(**options)
    running = (
        stream.load().writeStream.format("parquet").option("path", str(directory / "out"))
        .option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    running.awaitTermination()


def run_decoder(bootstrap: str, directory: Path, records: int) -> Cost:
    """The decoder alone, over all partitions' bytes."""
    config = RawConfig()
    fetched = []
    with RawClient(bootstrap, config) as client:
        for partition, end in positions(client, [TOPIC], LATEST_TIMESTAMP).offsets.items():
            fetched += [bytes(one.records) for one in read_range(client, Range(partition, 0, end), config)]
    began, cpu = time.monotonic(), time.process_time()
    rows = sum(chunk.num_rows for view in fetched for chunk in decode(view, whole_batches(view)))
    return Cost(rows, time.monotonic() - began, time.process_time() - cpu)


_LOGIN = json.dumps(
    {
        "type": "record",
        "name": "Login",
        "fields": [
            {"name": "member", "type": "long"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "page", "type": "string"},
            {"name": "referrer", "type": ["null", "string"], "default": None},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["WEB", "APP", "API"]}},
            {"name": "seconds", "type": "double"},
            {"name": "is_new", "type": "boolean"},
            {"name": "agent", "type": "string"},
        ],
    }
)
_CHUNK_ROWS = 20_000


def _logins() -> tuple[list[bytes], str]:
    """Return framed values of one chunk, and their schema."""
    parsed = parse(_LOGIN, {})
    began = datetime(2026, 1, 1, tzinfo=UTC)
    values = []
    for number in range(_CHUNK_ROWS):
        out = io.BytesIO()
        out.write(b"\0\0\0\0\0")
        fastavro.schemaless_writer(
            out,
            parsed,
            {
                "member": number * 7919,
                "at": began + timedelta(milliseconds=number),
                "page": f"/jobs/view/{number}",
                "referrer": None if number % 3 else f"https://example.com/search?q={number:020}",
                "seconds": number / 7,
                "kind": ("WEB", "APP", "API")[number % 3],
                "is_new": number % 2 == 0,
                "agent": f"agent {number:<120}",
            },
        )
        values.append(out.getvalue())
    return values, _LOGIN


def run_avro(_bootstrap: str, _directory: Path, records: int) -> Cost:
    """Columns of Avro values, a chunk at a time."""
    values, text = _logins()
    chunk, rows = pa.array(values, pa.binary()), 0
    with WebServer("127.0.0.1", 0, lambda _: json_answer(200, {"schema": text})) as registry:
        columns = AvroColumns(RegistryClient(f"http://127.0.0.1:{registry.port}"), [text])
        columns.decode(chunk)
        began, cpu = time.monotonic(), time.process_time()
        while rows < records:
            decoded, reasons = columns.decode(chunk[: records - rows])
            assert decoded.null_count == 0, reasons
            rows += len(decoded)
        return Cost(rows, time.monotonic() - began, time.process_time() - cpu)


def run_fastavro(_bootstrap: str, _directory: Path, records: int) -> Cost:
    """The same columns of one value after the other."""
    values, text = _logins()
    parsed, kind, rows = parse(text, {}), column_for([text]).kind, 0
    began, cpu = time.monotonic(), time.process_time()
    while rows < records:
        chunk = (io.BytesIO(value[5:]) for value in values[: records - rows])
        decoded = [fastavro.schemaless_reader(value, parsed, None) for value in chunk]
        rows += len(pa.array(decoded, kind))
    return Cost(rows, time.monotonic() - began, time.process_time() - cpu)


WAYS: dict[str, Callable[[str, Path, int], Cost]] = {
    "decoder": run_decoder,
    "avro": run_avro,
    "fastavro": run_fastavro,
    "job": run_job,
    "source": run_query("source"),
    "connector": run_query("connector"),
}


def main() -> None:
    """Fill one topic and run every way over it, by turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--codec", default="none")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--rounds", type=int, default=1)
    for name in ("query", "bootstrap", "directory"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.query:
        query(given.query, given.bootstrap, Path(given.directory))
        return
    work = Path(tempfile.mkdtemp(prefix="pylog-bench-"))
    try:
        with BrokerProcess(work / "broker") as broker:
            fill(broker.bootstrap, given.records, given.codec)
            for number in range(given.rounds):
                for way in given.ways.split(","):
                    directory = work / f"{way}-{number}"
                    directory.mkdir()
                    cost = WAYS[way](broker.bootstrap, directory, given.records)
                    assert cost.rows == given.records, f"{way}: {cost.rows} of {given.records} rows"
                    print(cost.line(way), f"load={os.getloadavg()[0]:.1f}", flush=True)
                    shutil.rmtree(directory)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
