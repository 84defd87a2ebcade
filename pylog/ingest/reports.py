"""Reports over the lake, as DataFrames: what landed by hour, and a sample of what the paper's readers asked for.

python -m pylog.ingest.reports counts --lake DIR [--topic NAME]
python -m pylog.ingest.reports sessions --lake DIR --topic pageviews

Read through the lake's commits, so that a compaction in between changes nothing.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  everyone calls it so

from pylog.errors import PylogError
from pylog.faults import code_of
from pylog.ingest.lake import Lake, LakeError
from pylog.ingest.spark import DEFAULT_MASTER, error_of, session


def records(spark: SparkSession, lake: Path, topic: str | None = None) -> DataFrame:
    """Return what the lake holds, with topic, date and hour from the paths.

    Raises:
        LakeError: there is no lake, or nothing of that topic in it.
    """
    files = [f for f in Lake.open(lake).visible().files.values() if topic is None or f.topic == topic]
    if not files:
        raise LakeError(f"lake {lake} holds nothing{'' if topic is None else f' of topic {topic!r}'}; load it first")
    paths = [f"file://{lake / file.path}" for file in files]
    return spark.read.option("basePath", f"file://{lake}").parquet(*paths)


def hourly_counts(found: DataFrame) -> DataFrame:
    """Columns of the lake -> topic string, hour timestamp, partitions long, records long, value_bytes long."""
    hour = F.date_trunc("hour", "timestamp").alias("hour")
    return found.groupBy(F.col("topic").cast("string").alias("topic"), hour).agg(
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


REPORTS: dict[str, tuple[Callable[[DataFrame], DataFrame], tuple[str, ...]]] = {
    "counts": (hourly_counts, ("topic", "hour")),
    "sessions": (sessions_per_page, ("hour", "page")),
}
"""Name -> what makes it, and the columns it is sorted by."""


def run(name: str, lake: Path, topic: str | None, master: str, limit: int) -> list[dict[str, object]]:
    """Return a report's rows, in order.

    Raises:
        PylogError: the message says what is wrong.
    """
    make, order = REPORTS[name]
    try:
        found = make(records(session(master, f"pylog-{name}"), lake, topic)).orderBy(*order).limit(limit)
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
    parser.add_argument("--limit", type=int, default=1000, metavar="N", help="most rows (default: %(default)s)")
    given = parser.parse_args(arguments)
    try:
        rows = run(given.name, given.lake.absolute(), given.topic, given.master, given.limit)
    except PylogError as error:
        print(f"pylog reports: {error} [{code_of(error)}]", file=sys.stderr)
        return 1
    for row in rows:
        print(json.dumps(row, default=str))
    return 0


if __name__ == "__main__":
    sys.exit(main())
