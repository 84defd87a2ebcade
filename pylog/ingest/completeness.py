"""The completeness report as a DataFrame job: what producers promised, beside what of it stands in the lake.

It reads the lake's own rows and the producers' reports, and shares no code with `pylog audit report`, which compares
the counts of all tiers: the two must agree.  Both sides are sets of numbers, so one lost beside one doubled shows as
both.

rows => topic string, window timestamp, producer string, host string, is_known boolean, produced long, landed long,
        missing long, doubled long
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  everyone calls it so

from pylog.audit.counting import STAMP_HEADER

ORDER = ("topic", "window", "producer")

_REPORT = (
    "kind STRING, tier STRING, topic STRING, who STRING, number BIGINT, complete_ms BIGINT, is_closed BOOLEAN, windows "
    "ARRAY<STRUCT<producer: STRING, host: STRING, window_ms: BIGINT, ranges: ARRAY<ARRAY<BIGINT>>>>"
)
_KEY = ["topic", "producer", "window_ms"]
_FOR_EVER_MS = 1 << 62


def completeness(landed: DataFrame, ledger: DataFrame, window_ms: int) -> DataFrame:
    """Return how complete each producer's windows are.

    Args:
        landed: columns of the lake; records without a stamp are left out.
        ledger: the topic `_audit`, column value.
        window_ms: how long a window is, the same everywhere.

    Returns:
        The rows.  *landed* counts each number once, *missing* those that were promised and are not there; what a
        window is about to become is not known before its producer has said so.
    """
    reports = _reports(ledger)
    ranges = _ranges(reports)
    stamps = _stamps(landed, window_ms)
    produced = ranges.groupBy(*_KEY).agg(
        F.sum(F.col("last") - F.col("first") + 1).alias("produced"), F.first("host").alias("host")
    )
    is_promised = [stamps[name] == ranges[name] for name in _KEY]
    is_promised.append(stamps["sequence"].between(ranges["first"], ranges["last"]))
    found = (
        stamps.join(ranges, is_promised, "left")
        .groupBy(*(stamps[name] for name in _KEY))
        .agg(
            F.count("*").alias("landed"),
            F.sum(F.col("copies") - 1).alias("doubled"),
            F.count("first").alias("kept"),
            F.first("landed_host").alias("landed_host"),
        )
    )
    known = reports.groupBy("topic", F.col("who").alias("producer")).agg(
        F.max(F.when(F.col("is_closed"), _FOR_EVER_MS).otherwise(F.col("complete_ms"))).alias("known_ms")
    )
    joined = produced.join(found, _KEY, "full").join(known, ["topic", "producer"], "left")
    return joined.select(
        "topic",
        F.timestamp_millis("window_ms").alias("window"),
        "producer",
        F.coalesce("host", "landed_host").alias("host"),
        F.coalesce(F.col("known_ms") >= F.col("window_ms") + window_ms, F.lit(False)).alias("is_known"),
        _count("produced").alias("produced"),
        _count("landed").alias("landed"),
        (_count("produced") - _count("kept")).alias("missing"),
        _count("doubled").alias("doubled"),
    )


def _reports(ledger: DataFrame) -> DataFrame:
    """Return the producers' reports, each once however often it was written."""
    report = F.from_json(F.col("value").cast("string"), _REPORT).alias("report")
    found = ledger.select(report).where("report.kind = 'count' AND report.tier = 'producer'").select("report.*")
    return found.dropDuplicates(["topic", "who", "number"])


def _ranges(reports: DataFrame) -> DataFrame:
    """Return the numbers that were acknowledged, as ranges that do not overlap."""
    windows = reports.select("topic", F.explode("windows").alias("window")).select("topic", "window.*")
    one = windows.select(*_KEY, "host", F.explode("ranges").alias("range"))
    return one.select(*_KEY, "host", F.get("range", 0).alias("first"), F.get("range", 1).alias("last"))


def _stamps(landed: DataFrame, window_ms: int) -> DataFrame:
    """Return each number of each producer once, with how many copies of it there are."""
    header = F.try_element_at(F.filter("headers", lambda one: one["key"] == STAMP_HEADER), F.lit(-1))
    stamp = landed.select(
        F.col("topic").cast("string").alias("topic"), F.split(header["value"].cast("string"), " ", 4).alias("stamp")
    )
    numbers = stamp.select(
        "topic",
        F.get("stamp", 0).alias("producer"),
        F.get("stamp", 1).try_cast("bigint").alias("sequence"),
        F.get("stamp", 2).try_cast("bigint").alias("timestamp_ms"),
        F.get("stamp", 3).alias("landed_host"),
    ).where("sequence IS NOT NULL AND timestamp_ms IS NOT NULL")
    window = (F.col("timestamp_ms") - F.col("timestamp_ms") % window_ms).alias("window_ms")
    return numbers.groupBy("topic", "producer", window, "sequence").agg(
        F.count("*").alias("copies"), F.first("landed_host").alias("landed_host")
    )


def _count(name: str) -> Column:
    return F.coalesce(F.col(name), F.lit(0))
