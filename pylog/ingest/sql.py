"""SQL over topics: a table that Spark does not know is the topic of that name, and so is ``topic('name')``.

A query without ``--follow`` reads what the topics hold now; with it, what arrives.  Rows are shown, and come to the
driver part by part, never all at once; or they are written to a topic by Spark's tasks.
"""

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as spark_functions

from pylog.errors import ConfigError
from pylog.ingest.spark import error_of, session

_TOKENS = re.compile(
    r"""
    (?P<other> '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.)*" | `(?:[^`]|``)*` | --[^\n]* | /\*.*?\*/ )
    | \b topic \s* \( \s* '(?P<name>[A-Za-z0-9._-]+)' \s* \)
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
# A topic() inside a string, a quoted name or a comment is none.
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
MAX_RECORDS_PER_PARTITION = 200_000
"""Offsets that one task reads of a topic: the driver holds the rows of one task or two at a time."""

_MAX_STATE_PARTS = 8
# Each round of the analysis names one missing table.
_MAX_TABLES = 100
# Columns that say where a record goes or what it carries beside its value.
_BESIDE_THE_VALUE = ("key", "topic", "partition", "headers", "timestamp", "offset", "timestampType")
# An operator of Spark's plan that keeps rows until their time is over.
_JOIN = re.compile(r"^[\s:+~-]*Join ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Target:
    """Where the rows of a query go.

    Attributes:
        topic: must exist.
        options: further options of the ``format("pylog")`` that writes.
        checkpoint: a directory from which a stream goes on when it is started again; without it, it begins anew each
            time.
    """

    topic: str
    options: Mapping[str, str] = field(default_factory=dict)
    checkpoint: str = ""


def views_of(query: str) -> tuple[str, dict[str, str]]:
    """Return *query* with names of views for its ``topic('…')``, and the topic of each view."""
    views: dict[str, str] = {}

    def named(found: re.Match[str]) -> str:
        topic = found["name"]
        if topic is None:
            return found[0]
        view = next((view for view, of in views.items() if of == topic), f"topic_{len(views)}")
        views[view] = topic
        return view

    return _TOKENS.sub(named, query), views


def topic_of(relation: str) -> str | None:
    """Return the topic that a missing *relation* of Spark's error names, as in ```clicks```; None if no topic can.

    The parts of a name without backticks, as of ``host.journal``, are taken together.
    """
    name = ".".join(re.findall(r"`((?:[^`]|``)*)`", relation))
    return name if _TOPIC_NAME.fullmatch(name) else None


def rows(query: str, bootstrap: str, options: dict[str, str], master: str) -> tuple[list[str], Iterator[list[Any]]]:
    """Run *query* over what its topics hold now.

    Args:
        query: Spark's SQL; its tables are topics.
        bootstrap: brokers.
        options: further options of ``format("pylog")``.
        master: Spark's master URL.

    Returns:
        The columns' names, and the rows as they come.

    Raises:
        PylogError: the message says what is wrong.
    """
    own = {"filterPushdown": "true", "maxRecordsPerPartition": str(MAX_RECORDS_PER_PARTITION)}
    names = {name.lower() for name in options}
    own = {name: value for name, value in own.items() if name.lower() not in names}
    found, _ = _planned(query, bootstrap, {**options, **own}, master, {}, is_stream=False)
    return found.columns, _rows(found)


def write(query: str, bootstrap: str, options: dict[str, str], master: str, target: Target) -> int:
    """Run *query* over what its topics hold now, and write its rows to a topic; return how many.

    For the arguments see `rows`, for the records `records_of`.

    Raises:
        PylogError: the message says what is wrong.
    """
    frame, _ = _planned(query, bootstrap, options, master, {}, is_stream=False)
    written = Observation("written")
    counted = records_of(frame, target).observe(written, spark_functions.count(spark_functions.lit(1)).alias("records"))
    try:
        writer = counted.write.format("pylog").options(**_write_options(bootstrap, options, target))
        writer.mode("append").save()
    except PySparkException as error:
        raise error_of(str(error)) from error
    return int(written.get["records"])


def records_of(frame: DataFrame, target: Target) -> DataFrame:
    """Return the rows of *frame* as records.

    A column ``value`` is the record's value.  Without one, all columns that no record has make a JSON object of each
    row, or where *target* has a schema registry, a record of its Avro schema.

    Raises:
        ConfigError: no column is left for the value.
    """
    if "value" in frame.columns:
        return frame
    inside = [name for name in frame.columns if name not in _BESIDE_THE_VALUE]
    if not inside:
        raise ConfigError(
            f"the query has no column for the record's value: 'value', or any but {', '.join(_BESIDE_THE_VALUE)}"
        )
    row = spark_functions.struct(*(f"`{name}`" for name in inside))
    is_avro = any(name.lower() == "schemaregistry" for name in target.options)
    value = row if is_avro else spark_functions.to_json(row, {"ignoreNullFields": "false"})
    return frame.withColumn("value", value).drop(*inside)


def _write_options(bootstrap: str, options: Mapping[str, str], target: Target) -> dict[str, str]:
    security = {name: value for name, value in options.items() if name.startswith("security.")}
    return {**security, **target.options, "bootstrap": bootstrap, "topic": target.topic}


def _rows(frame: DataFrame) -> Iterator[list[Any]]:
    """Yield the rows of *frame*, those of one task after the other."""
    try:
        for row in frame.toLocalIterator(prefetchPartitions=True):
            yield list(row)
    except PySparkException as error:
        raise error_of(str(error)) from error


def follow(
    query: str, bootstrap: str, options: dict[str, str], master: str,
    show: Callable[[list[str], Iterator[list[Any]]], None],
    watermarks: Mapping[str, tuple[str, str]] | None = None,
) -> None:  # fmt: skip
    """Run *query* as a stream until it is stopped; *show* gets the columns and the rows of each micro-batch.

    A query that aggregates shows the groups that changed; one that joins streams, rows that are final.

    Args:
        query: Spark's SQL; its tables are topics.
        bootstrap: brokers.
        options: further options of ``format("pylog")``.
        master: Spark's master URL.
        show: gets the columns and the rows, which it must use up.
        watermarks: by topic, a column and how much later than the latest a row may be: what waits for later ones ends.

    Raises:
        PylogError: the message says what is wrong.
    """
    found, _ = _planned(query, bootstrap, options, master, watermarks or {}, is_stream=True)

    def shown(batch: DataFrame, _: int) -> None:
        show(batch.columns, _rows(batch))

    writer = found.writeStream.foreachBatch(shown)
    try:
        try:
            running = writer.outputMode("update").start()
        except AnalysisException:
            # Spark before 4.3 takes no update of a join between streams: its rows come once and stay.
            running = writer.outputMode("append").start()
        running.awaitTermination()
    except PySparkException as error:
        raise error_of(str(error)) from error


def follow_into(
    query: str,
    bootstrap: str,
    options: dict[str, str],
    master: str,
    target: Target,
    watermarks: Mapping[str, tuple[str, str]],
) -> None:
    """Run *query* as a stream until it is stopped, and write its rows to a topic once they are final.

    For the arguments see `follow`, for the records `records_of`.

    Raises:
        ConfigError: the query reads the topic that it writes, or joins topics and nothing says for how long their rows
            are to be kept.
        PylogError: the message says what is wrong.
    """
    frame, topics = _planned(query, bootstrap, options, master, watermarks, is_stream=True)
    if target.topic in topics:
        raise ConfigError(f"the query reads topic {target.topic!r} and would read what it writes there, without end")
    try:
        if (endless := sorted(topics - watermarks.keys())) and _JOIN.search(_plan_of(frame)):
            raise ConfigError(
                f"the query joins topics and would keep all rows of {endless[0]!r}: "
                f"give --watermark '{endless[0]}=timestamp 10 minutes', and a range of time in the join's condition"
            )
        writer = records_of(frame, target).writeStream.format("pylog").outputMode("append")
        writer = writer.options(**_write_options(bootstrap, options, target))
        with tempfile.TemporaryDirectory(prefix="pylog-sql-") as of_this_run:
            # Spark's state needs a place even if nobody comes back to it.
            writer.option("checkpointLocation", target.checkpoint or of_this_run).start().awaitTermination()
    except PySparkException as error:
        raise error_of(str(error)) from error


def _plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().analyzed().toString())


def _planned(
    query: str,
    bootstrap: str,
    options: dict[str, str],
    master: str,
    watermarks: Mapping[str, tuple[str, str]],
    *,
    is_stream: bool,
) -> tuple[DataFrame, set[str]]:
    """Return the planned query and the topics that it reads."""
    rewritten, views = views_of(query)
    spark = session(master, "pylog-sql")
    if is_stream:
        # Each has its state kept and written down: Spark's 200 would take seconds a micro-batch on a few cores.
        parts = min(_MAX_STATE_PARTS, spark.sparkContext.defaultParallelism)
        spark.conf.set("spark.sql.shuffle.partitions", str(parts))
    met: set[str] = set()

    def define(view: str, topic: str) -> None:
        met.add(topic)
        frame = _load(spark, {**options, "bootstrap": bootstrap, "topic": topic}, is_stream)
        if topic in watermarks:
            frame = frame.withWatermark(*watermarks[topic])
        frame.createOrReplaceTempView(view)

    def checked(frame: DataFrame) -> tuple[DataFrame, set[str]]:
        if unused := sorted(watermarks.keys() - met):
            raise ConfigError(f"--watermark names topic {unused[0]}, which the query does not read")
        return frame, met

    try:
        for view, topic in views.items():
            define(view, topic)
        # Spark alone knows which names a query leaves open: those of its own views, subqueries and CTEs are none.
        for _ in range(_MAX_TABLES):
            try:
                return checked(spark.sql(rewritten))
            except AnalysisException as error:
                parameters = error.getMessageParameters() or {}
                named = topic_of(parameters.get("relationName", ""))
                if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND" or named is None:
                    raise
                if parameters["relationName"].count("`") > 2:
                    raise ConfigError(
                        f"write topic('{named}') or `{named}` for a topic with a dot in its name"
                    ) from error
                define(f"`{named}`", named)
        raise ConfigError(f"the query names more than {_MAX_TABLES} topics")
    except PySparkException as error:
        raise error_of(str(error)) from error


def _load(spark: SparkSession, options: dict[str, str], is_stream: bool) -> DataFrame:
    reader = spark.readStream if is_stream else spark.read
    return reader.format("pylog").options(**options).load()
