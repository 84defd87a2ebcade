"""Reports over the lake, as DataFrames: what landed by hour, what is missing, a sample of what readers ask for.

python -m pylog.ingest.reports counts --lake DIR [--topic NAME]
python -m pylog.ingest.reports sessions --lake DIR --topic pageviews
python -m pylog.ingest.reports completeness --lake DIR --ledger HOST:PORT [--window-ms N] [--topic NAME]

Read through the lake's commits, so that a compaction in between changes nothing.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  everyone calls it so

from pylog.audit.counting import AUDIT_TOPIC
from pylog.errors import ConfigError, PylogError
from pylog.faults import code_of
from pylog.ingest.completeness import ORDER, completeness
from pylog.ingest.lake import Lake, LakeError
from pylog.ingest.spark import DEFAULT_MASTER, error_of, session

DEFAULT_WINDOW_MS = 60_000
DEFAULT_LIMIT = 1000


def records(spark: SparkSession, lake: Path, topic: str | None = None) -> DataFrame:
    """Return what the lake holds, with topic, date and hour from the paths.

    Raises:
        LakeError: there is no lake, or nothing of that topic in it.
    """
    files = [f for f in Lake.open(lake).visible().files.values() if topic is None or f.topic == topic]
    if not files:
        raise LakeError(f"lake {lake} holds nothing{'' if topic is None else f' of topic {topic!r}'}; load it first")
    paths = [f"file://{lake / file.path}" for file in files]
    # Spark would take a topic named 007 for the number 7; Iceberg and the commits know it by its name.
    spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    found = spark.read.option("basePath", f"file://{lake}").parquet(*paths)
    return found.withColumns({"date": F.col("date").cast("date"), "hour": F.col("hour").cast("int")})


def hourly_counts(found: DataFrame) -> DataFrame:
    """Columns of the lake -> topic string, hour timestamp, partitions long, records long, value_bytes long."""
    hour = F.date_trunc("hour", "timestamp").alias("hour")
    return found.groupBy("topic", hour).agg(
        F.countDistinct("partition").alias("partitions"),
        F.count("*").alias("records"),
        F.sum(F.coalesce(F.octet_length("value"), F.lit(0))).alias("value_bytes"),
    )


def sessions_per_page(found: DataFrame) -> DataFrame:
    """Columns of the lake, value JSON with page and session -> hour timestamp, page string, sessions long, views long.

    Records that are no such JSON are left out.
    """
    event = F.from_json(F.col("value").cast("string"), "page STRING, session STRING").alias("event")
    hour = F.date_trunc("hour", "timestamp").alias("hour")
    events = found.select(hour, event).where("event.page IS NOT NULL AND event.session IS NOT NULL")
    return events.groupBy("hour", F.col("event.page").alias("page")).agg(
        F.countDistinct("event.session").alias("sessions"), F.count("*").alias("views")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportConfig:
    """What is asked.

    Attributes:
        name: of the report.
        lake: directory.
        topic: only this one.
        ledger: brokers of the cluster whose `_audit` the producers report to; for completeness.
        window_ms: how long the audit's windows are.
        master: Spark's master URL.
        limit: most rows.
    """

    name: str
    lake: Path
    topic: str | None = None
    ledger: str = ""
    window_ms: int = DEFAULT_WINDOW_MS
    master: str = DEFAULT_MASTER
    limit: int = DEFAULT_LIMIT


def _completeness(config: ReportConfig, found: DataFrame) -> DataFrame:
    if not config.ledger:
        raise ConfigError("a report of completeness wants --ledger: the brokers that the producers report to")
    source = found.sparkSession.read.format("pylog").option("bootstrap", config.ledger).option("topic", AUDIT_TOPIC)
    # Read once: who is known to have reported, and what, must be of the same moment.
    rows = completeness(found, source.load().select("value").localCheckpoint(), config.window_ms)
    return rows if config.topic is None else rows.where(F.col("topic") == config.topic)


REPORTS: dict[str, tuple[Callable[[ReportConfig, DataFrame], DataFrame], tuple[str, ...]]] = {
    "counts": (lambda _, found: hourly_counts(found), ("topic", "hour")),
    "sessions": (lambda _, found: sessions_per_page(found), ("hour", "page")),
    "completeness": (_completeness, ORDER),
}
"""Name -> what makes it, and the columns it is sorted by."""


def run(config: ReportConfig) -> list[dict[str, object]]:
    """Return a report's rows, in order.

    Raises:
        PylogError: the message says what is wrong.
    """
    make, order = REPORTS[config.name]
    spark = session(config.master, f"pylog-{config.name}")
    try:
        found = make(config, records(spark, config.lake, config.topic)).orderBy(*order).limit(config.limit)
        return [row.asDict() for row in found.collect()]
    except PySparkException as error:
        raise error_of(str(error)) from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a report as lines of JSON."""
    parser = argparse.ArgumentParser(prog="python -m pylog.ingest.reports", description="Reports over the lake.")
    parser.add_argument("name", choices=sorted(REPORTS))
    parser.add_argument("--lake", required=True, type=Path, metavar="DIR")
    parser.add_argument("--topic", metavar="NAME")
    parser.add_argument("--master", default=DEFAULT_MASTER, help="Spark's master (default: %(default)s)")
    parser.add_argument(
        "--limit", type=int, default=DEFAULT_LIMIT, metavar="N", help="most rows (default: %(default)s)"
    )
    parser.add_argument("--ledger", default="", metavar="HOST:PORT,..", help="completeness: who keeps the `_audit`")
    parser.add_argument(
        "--window-ms", type=int, default=DEFAULT_WINDOW_MS, metavar="N",
        help="completeness: how long the audit's windows are (default: %(default)s)",
    )  # fmt: skip
    given = parser.parse_args(arguments)
    try:
        rows = run(ReportConfig(
            name=given.name, lake=given.lake.absolute(), topic=given.topic, ledger=given.ledger,
            window_ms=given.window_ms, master=given.master, limit=given.limit,
        ))  # fmt: skip
    except PylogError as error:
        print(f"pylog reports: {error} [{code_of(error)}]", file=sys.stderr)
        return 1
    for row in rows:
        print(json.dumps(row, default=str))
    return 0


if __name__ == "__main__":
    sys.exit(main())
