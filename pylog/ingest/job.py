"""The ingestion job: topics -> Parquet, all that is there now, then exit; started by a timer.

The stream's checkpoint says which offsets make up batch N, always the same; the lake lands batch N once
(`pylog.ingest.lake`).  Together they are exactly once, whenever the job is killed.
"""

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  everyone calls it so

from pylog.client.raw import RawClient, RawConfig
from pylog.errors import PylogError
from pylog.faults import code_of
from pylog.ingest.lake import Batch, Lake, LakeError
from pylog.ingest.plan import Position
from pylog.ingest.source import positions
from pylog.wire.api.offsets import LATEST_TIMESTAMP

_FIRST_ANSWER_MS = 15_000
"""How long brokers may take to answer before Spark is started at all: a restart's worth."""

DEFAULT_MASTER = "local[2]"
DEFAULT_OFFSETS_PER_BATCH = 2_000_000

_OURS = re.compile(r"^pylog\.[\w.]+: (.+)$", re.MULTILINE)
# The last line of a traceback of ours, which Spark quotes in the middle of its own.


@dataclass(frozen=True, slots=True, kw_only=True)
class JobConfig:
    """What to land where.

    Attributes:
        bootstrap: brokers, ``host:port`` separated by commas.
        topics: names.
        lake: directory for the Parquet files; every Spark executor must see it under this path.
        checkpoint: directory for the stream's progress; belongs to this lake alone.
        master: Spark's master URL.
        max_offsets_per_batch: bounds what one micro-batch holds; between two of them the job may be stopped for free.
        fail_on_data_loss: whether offsets that retention deleted before they were read stop the job.
    """

    bootstrap: str
    topics: tuple[str, ...]
    lake: Path
    checkpoint: Path
    master: str = DEFAULT_MASTER
    max_offsets_per_batch: int = DEFAULT_OFFSETS_PER_BATCH
    fail_on_data_loss: bool = True


def dated(records: DataFrame) -> DataFrame:
    """Columns of the source -> the same with ``date string``: the UTC day of the record's own timestamp."""
    return records.withColumn("date", F.date_format("timestamp", "yyyy-MM-dd")).drop("timestampType")


def run(config: JobConfig) -> int:
    """Land all that the topics hold now; return how many records that was.

    Raises:
        PylogError: the message says what is wrong and what to do.
    """
    with RawClient(config.bootstrap, RawConfig(retry_ms=_FIRST_ANSWER_MS)) as client:
        latest = positions(client, config.topics, LATEST_TIMESTAMP)
    lake = Lake(config.lake)
    with lake.locked():
        checkpoint = Checkpoint(config.checkpoint)
        lake.check_checkpoint(checkpoint.query_id(), checkpoint.last_batch_id())
        if latest == checkpoint.position():
            return 0  # a timer finds nothing new most of the time; starting Spark costs it 15 CPU seconds
        return _drain(session(config.master), config, lake, checkpoint)


def session(master: str) -> SparkSession:
    """Return a Spark session with all that exactness and pyarrow's readers need."""
    # Tasks must run this interpreter, where pylog is installed, and not whatever `python3` is on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("pylog-ingest")
    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # Spark's default, INT96, is deprecated and carries no unit; readers see timestamp[us, UTC] this way.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # Each task holds one topic and mostly one day: open writers side by side spare a sort of every row.
        "spark.sql.maxConcurrentOutputFileWriters": "8",
    }
    if master.startswith("local"):
        options |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
        # A run is short, and the compiler takes most of it: the first tier alone needs 37 instead of 46 CPU seconds to
        # land a million records of 200 bytes.
        options["spark.driver.extraJavaOptions"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    for name, value in options.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


class Checkpoint:
    """The parts of a stream's checkpoint directory that the lake is checked against; written by Spark alone."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def query_id(self) -> str | None:
        """Return the query's id; None while the checkpoint is new."""
        try:
            return str(json.loads((self.path / "metadata").read_text())["id"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError) as error:
            raise LakeError(f"checkpoint {self.path} cannot be read: {error!r}") from error

    def last_batch_id(self) -> int | None:
        """Return the number of the last micro-batch that Spark holds for done."""
        done = [int(path.name) for path in (self.path / "commits").glob("[0-9]*") if path.name.isdecimal()]
        return max(done, default=None)

    def position(self) -> Position | None:
        """Return where the last run ended; None when it did not end, or there was none."""
        done = self.last_batch_id()
        if done is None or (self.path / "offsets" / str(done + 1)).exists():
            return None
        return Position.from_json(self.batch(done).position)

    def batch(self, batch_id: int) -> Batch:
        """Return micro-batch *batch_id*, which Spark wrote down before it began."""
        query_id = self.query_id()
        assert query_id is not None, f"{self.path} has no metadata while batch {batch_id} runs"
        # Version, metadata, then one line of JSON per source; ours is the only one.
        lines = (self.path / "offsets" / str(batch_id)).read_text().splitlines()
        return Batch(query_id, batch_id, json.loads(lines[-1]))


def _drain(spark: SparkSession, config: JobConfig, lake: Lake, checkpoint: Checkpoint) -> int:
    landed: list[int] = []
    failed: list[PylogError] = []

    def land(records: DataFrame, batch_id: int) -> None:
        write: Callable[[Path], None] = lambda path: (  # noqa: E731
            dated(records).write.partitionBy("topic", "date").parquet(path.as_uri())
        )
        try:
            landed.append(lake.land(checkpoint.batch(batch_id), write))
        except PylogError as error:
            failed.append(error)  # Spark would wrap it beyond recognition
            raise

    stream = (
        spark.readStream.format("pylog")
        .option("bootstrap", config.bootstrap)
        .option("topics", ",".join(config.topics))
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", config.max_offsets_per_batch)
        .option("failOnDataLoss", str(config.fail_on_data_loss).lower())
        .option("includeHeaders", "true")
        .load()
    )
    try:
        query = (
            stream.writeStream.foreachBatch(land)
            .option("checkpointLocation", str(config.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    except PySparkException as error:
        raise failed[0] if failed else PylogError(cause_of(str(error))) from error
    return sum(landed)


def cause_of(message: str) -> str:
    """Return our own error that Spark's *message* quotes, or its first line."""
    ours = _OURS.findall(message)
    return ours[-1] if ours else message.strip().splitlines()[0]


def parse(arguments: Sequence[str] | None = None) -> JobConfig:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m pylog.ingest.job",
        description="Land all that topics hold now as Parquet, exactly once, and exit.",
    )
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT[,...]")
    parser.add_argument("--topics", required=True, metavar="NAME[,...]")
    parser.add_argument("--lake", required=True, type=Path, metavar="DIR")
    parser.add_argument("--checkpoint", required=True, type=Path, metavar="DIR", help="belongs to this lake alone")
    parser.add_argument("--master", default=DEFAULT_MASTER, help="Spark's master (default: %(default)s)")
    parser.add_argument(
        "--max-offsets-per-batch", type=int, default=DEFAULT_OFFSETS_PER_BATCH, metavar="N",
        help="offsets of one micro-batch (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--allow-data-loss", action="store_true",
        help="go on behind offsets that retention deleted before they were read, instead of failing",
    )  # fmt: skip
    given = parser.parse_args(arguments)
    topics = tuple(filter(None, map(str.strip, given.topics.split(","))))
    if not topics:
        parser.error("--topics names no topic")
    if given.max_offsets_per_batch < 1:
        parser.error(f"--max-offsets-per-batch is {given.max_offsets_per_batch}; a number from 1 is wanted")
    return JobConfig(
        bootstrap=given.bootstrap,
        topics=topics,
        lake=given.lake.absolute(),
        checkpoint=given.checkpoint.absolute(),
        master=given.master,
        max_offsets_per_batch=given.max_offsets_per_batch,
        fail_on_data_loss=not given.allow_data_loss,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; 0 when everything landed, 1 with one line on stderr when not."""
    config = parse(arguments)
    began = time.monotonic()
    try:
        count = run(config)
    except PylogError as error:
        print(f"pylog ingest: {error} [{code_of(error)}]", file=sys.stderr)
        return 1
    elapsed_s = time.monotonic() - began
    print(f"landed records={count} topics={','.join(config.topics)} elapsed_s={elapsed_s:.1f}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
