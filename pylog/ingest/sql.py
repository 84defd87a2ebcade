"""SQL over topics: ``topic('name')`` in a query stands for the records of that topic.

A query without ``--follow`` reads what the topics hold now; with it, what arrives, and prints each micro-batch's rows.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

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


def views_of(query: str) -> tuple[str, dict[str, str]]:
    """Return *query* with names of views for its ``topic('…')``, and the topic of each view.

    Raises:
        ConfigError: it names no topic.
    """
    views: dict[str, str] = {}

    def named(found: re.Match[str]) -> str:
        topic = found["name"]
        if topic is None:
            return found[0]
        view = next((view for view, of in views.items() if of == topic), f"topic_{len(views)}")
        views[view] = topic
        return view

    rewritten = _TOKENS.sub(named, query)
    if not views:
        raise ConfigError("the query names no topic; write FROM topic('name')")
    return rewritten, views


def rows(query: str, bootstrap: str, options: dict[str, str], master: str) -> tuple[list[str], Iterator[list[Any]]]:
    """Run *query* over what its topics hold now.

    Args:
        query: Spark's SQL with ``topic('…')``.
        bootstrap: brokers.
        options: further options of ``format("pylog")``.
        master: Spark's master URL.

    Returns:
        The columns' names, and the rows as they come.

    Raises:
        PylogError: the message says what is wrong.
    """
    found = _planned(query, bootstrap, {**options, "filterPushdown": "true"}, master, is_stream=False)
    try:
        return found.columns, iter([list(row) for row in found.collect()])
    except PySparkException as error:
        raise error_of(str(error)) from error


def follow(
    query: str, bootstrap: str, options: dict[str, str], master: str,
    show: Callable[[list[str], list[list[Any]]], None],
) -> None:  # fmt: skip
    """Run *query* as a stream until it is stopped; *show* gets the columns and the rows of each micro-batch.

    A query that aggregates shows the groups that changed.

    Raises:
        PylogError: the message says what is wrong.
    """
    found = _planned(query, bootstrap, options, master, is_stream=True)

    def shown(batch: DataFrame, _: int) -> None:
        show(batch.columns, [list(row) for row in batch.collect()])

    try:
        found.writeStream.foreachBatch(shown).outputMode("update").start().awaitTermination()
    except PySparkException as error:
        raise error_of(str(error)) from error


def _planned(query: str, bootstrap: str, options: dict[str, str], master: str, *, is_stream: bool) -> DataFrame:
    rewritten, views = views_of(query)
    spark = session(master, "pylog-sql")
    try:
        for view, topic in views.items():
            _load(spark, {**options, "bootstrap": bootstrap, "topic": topic}, is_stream).createOrReplaceTempView(view)
        return spark.sql(rewritten)
    except PySparkException as error:
        raise error_of(str(error)) from error


def _load(spark: SparkSession, options: dict[str, str], is_stream: bool) -> DataFrame:
    reader = spark.readStream if is_stream else spark.read
    return reader.format("pylog").options(**options).load()
