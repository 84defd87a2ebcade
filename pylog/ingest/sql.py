"""SQL over topics: a table that Spark does not know is the topic of that name, and so is ``topic('name')``.

A query without ``--follow`` reads what the topics hold now; with it, what arrives.  Rows are shown, and come to the
driver part by part, never all at once; or they are written to a topic by Spark's tasks.
"""

import re
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
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
# In the metadata of a column that a watermark was given for.
_WATERMARK = "spark.watermarkDelayMs"


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
        writer = counted.write.format("pylog").options(**write_options(bootstrap, options, target))
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


def write_options(bootstrap: str, options: Mapping[str, str], target: Target) -> dict[str, str]:
    """Return the options of the ``format("pylog")`` that writes to *target*; *options* are those of reading."""
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
    try:
        check_endless(frame, topics, watermarks.keys(), target)
        writer = records_of(frame, target).writeStream.format("pylog").outputMode("append")
        writer = writer.options(**write_options(bootstrap, options, target))
        with tempfile.TemporaryDirectory(prefix="pylog-sql-") as of_this_run:
            # Spark's state needs a place even if nobody comes back to it.
            writer.option("checkpointLocation", target.checkpoint or of_this_run).start().awaitTermination()
    except PySparkException as error:
        raise error_of(str(error)) from error


def check_endless(frame: DataFrame, topics: Collection[str], marked: Collection[str], target: Target) -> None:
    """Check that a stream ends somewhere: it neither reads what it writes, nor keeps rows for ever.

    Args:
        frame: the planned query.
        topics: that it reads as streams.
        marked: those of them that have a watermark.
        target: where its rows go.

    Raises:
        ConfigError: the message says what has no end, and what gives it one.
    """
    if target.topic in topics:
        raise ConfigError(f"the query reads topic {target.topic!r} and would read what it writes there, without end")
    plan = frame._jdf.queryExecution().analyzed()
    keeping = [one for one in _nodes(plan) if one.isStreaming() and one.nodeName() in ("Join", "Distinct")]
    joins = [one for one in keeping if one.nodeName() == "Join" and all(side.isStreaming() for side in _children(one))]
    if joins and (endless := sorted({*topics} - {*marked})):
        raise ConfigError(
            f"the query joins topics and would keep all rows of {endless[0]!r}: "
            f"give --watermark '{endless[0]}=timestamp 10 minutes', and a range of time in the join's condition"
        )
    # A condition in WHERE bounds a join as one in ON does, once Spark has pushed it down.
    filters = [one.condition() for one in _nodes(plan) if one.nodeName() == "Filter"]
    for join in joins:
        conditions = [*filters, *([join.condition().get()] if join.condition().isDefined() else [])]
        parts = [part for condition in conditions for part in _parts(condition)]
        # One comparison names both sides: two that compare either side with a constant bound nothing.
        if not any(all(_numbers(part.references()) & _times(side) for side in _children(join)) for part in parts):
            raise ConfigError(
                "the query joins topics without a range of time and would keep all their rows: compare the columns "
                "with watermarks in the join's condition, as in a.timestamp BETWEEN b.timestamp AND b.timestamp + "
                "INTERVAL 1 HOUR"
            )
    for distinct in keeping:
        if distinct.nodeName() == "Distinct" and not _times(distinct):
            raise ConfigError(
                "the query keeps every row that it has seen, for SELECT DISTINCT: select a column with a watermark too"
            )


def _parts(condition: Any) -> Iterator[Any]:  # noqa: ANN401  of Spark's plan, in the JVM
    """Yield what has to hold all together for a condition to hold."""
    if condition.nodeName() != "And":
        yield condition
        return
    for child in _children(condition):
        yield from _parts(child)


def _nodes(plan: Any) -> Iterator[Any]:  # noqa: ANN401  of Spark's plan, in the JVM
    yield plan
    for child in _children(plan):
        yield from _nodes(child)


def _children(plan: Any) -> list[Any]:  # noqa: ANN401
    children = plan.children()
    return [children.apply(number) for number in range(children.size())]


def _times(plan: Any) -> set[int]:  # noqa: ANN401
    """Return the numbers of the columns of *plan* that have a watermark."""
    columns = plan.output()
    found = [columns.apply(number) for number in range(columns.size())]
    return {column.exprId().id() for column in found if column.metadata().contains(_WATERMARK)}


def _numbers(references: Any) -> set[int]:  # noqa: ANN401
    columns = references.toSeq()
    return {columns.apply(number).exprId().id() for number in range(columns.size())}


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
    spark = session(master, "pylog-sql")
    if is_stream:
        set_state_parts(spark)
    met: set[str] = set()

    def define(view: str, topic: str) -> None:
        met.add(topic)
        frame = load(spark, {**options, "bootstrap": bootstrap, "topic": topic}, is_stream=is_stream)
        if topic in watermarks:
            frame = frame.withWatermark(*watermarks[topic])
        frame.createOrReplaceTempView(view)

    frame = analysed(spark, query, define)
    if unused := sorted(watermarks.keys() - met):
        raise ConfigError(f"--watermark names topic {unused[0]}, which the query does not read")
    return frame, met


def set_state_parts(spark: SparkSession) -> None:
    """Set how many parts the state of a stream has that begins anew."""
    # Each has its state kept and written down: Spark's 200 would take seconds a micro-batch on a few cores.
    parts = min(_MAX_STATE_PARTS, spark.sparkContext.defaultParallelism)
    spark.conf.set("spark.sql.shuffle.partitions", str(parts))


def analysed(spark: SparkSession, query: str, define: Callable[[str, str], None]) -> DataFrame:
    """Return the planned *query*.

    Args:
        spark: where it is to run.
        query: Spark's SQL.
        define: makes the view of a name, the first, over the topic of a name, the second; asked for each that the
            session does not know.

    Raises:
        PylogError: the message says what is wrong.
    """
    rewritten, views = views_of(query)
    try:
        for view, topic in views.items():
            define(view, topic)
        # Spark alone knows which names a query leaves open: those of its own views, subqueries and CTEs are none.
        for _ in range(_MAX_TABLES):
            try:
                return spark.sql(rewritten)
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


def load(spark: SparkSession, options: Mapping[str, str], *, is_stream: bool) -> DataFrame:
    """Return a topic as a table, or as a stream."""
    reader = spark.readStream if is_stream else spark.read
    return reader.format("pylog").options(**options).load()
