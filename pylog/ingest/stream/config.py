"""What one deployed query reads, asks and writes."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pylog.errors import ConfigError

if TYPE_CHECKING:
    from pylog.client.connection import Connection

NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")
"""Of a query: it is also that of a unit, a directory and a part of a group's id."""

ALIAS = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
TRIGGER = re.compile(r"[1-9][0-9]{0,5} (milliseconds?|seconds?|minutes?|hours?)")
WATERMARK = re.compile(r"[A-Za-z_][A-Za-z0-9_]* [0-9]{1,6} (seconds?|minutes?|hours?|days?)")
MASTER = re.compile(r"local\[([1-9][0-9]{0,2}|\*)\]")
DEFAULT_MASTER = "local[2]"
DEFAULT_TRIGGER = "1 second"
FORMATS = ("parquet", "json", "csv", "orc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A table of the query: a topic as a stream, the latest record of each key of a topic, or files.

    Attributes:
        topic: the topic that is read; empty for files.
        watermark: a column and how much later than the latest a row may be, as ``timestamp 10 minutes``; empty without.
        is_table: whether the latest record of each key stands for the topic, read anew for each micro-batch.
        path: directory or file of the files; empty for a topic.
        format: of the files, one of `FORMATS`.
        options: further options of ``format("pylog")``, or of Spark's reader of the files.
    """

    topic: str = ""
    watermark: str = ""
    is_table: bool = False
    path: str = ""
    format: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_stream(self) -> bool:
        """Whether the query waits for its rows."""
        return bool(self.topic) and not self.is_table


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """One query.

    Attributes:
        name: matches `NAME`.
        cluster: the brokers, for what this process asks them itself.
        security: how Spark's tasks connect: keys of `pylog.client.security.SECURITY_KEYS`.
        sql: the query, Spark's SQL over the names of *inputs*.
        inputs: by the name that the query has for it.
        output: the topic that is written; it must exist.
        options: further options of the ``format("pylog")`` that writes.
        checkpoint: directory of the query's own.
        trigger: time between two micro-batches' beginnings, as ``10 seconds``.
        group: consumer group that is told how far the query is; empty for none.
        metrics_file: written as the query goes on, in Prometheus's text format; None for none.
        master: Spark's, ``local[N]``.
    """

    name: str
    cluster: "Connection"
    sql: str
    inputs: Mapping[str, Input]
    output: str
    checkpoint: Path
    security: Mapping[str, str] = field(default_factory=dict, repr=False)
    options: Mapping[str, str] = field(default_factory=dict)
    trigger: str = DEFAULT_TRIGGER
    group: str = ""
    metrics_file: Path | None = None
    master: str = DEFAULT_MASTER

    def __post_init__(self) -> None:
        """Check what is seen without asking anybody.

        Raises:
            ConfigError: the message begins with the key.
        """
        if not self.checkpoint.is_absolute():
            raise ConfigError(f"checkpoint: must be an absolute path, got {self.checkpoint}")
        check_query(self.name, self.sql, self.inputs, self.output, self.trigger, self.master)

    @property
    def topics(self) -> set[str]:
        """Names of all topics that are read."""
        return {one.topic for one in self.inputs.values() if one.topic}

    @property
    def stream_topics(self) -> set[str]:
        """Names of the topics that are read as streams."""
        return {one.topic for one in self.inputs.values() if one.is_stream}

    def fingerprint(self) -> str:
        """Return what changes if the query's state would mean something else: its text and its inputs.

        Blanks count, since they do inside of literals.  What says how brokers are reached, and from where on is read at
        first, does not.
        """
        inputs = {
            alias: [one.topic, one.watermark, one.is_table, one.path, one.format, _columns_from(one.options)]
            for alias, one in sorted(self.inputs.items())
        }
        text = json.dumps({"sql": self.sql.strip(), "inputs": inputs})
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _columns_from(options: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the options that say which columns and rows an input has."""
    others = {"startingoffsets", "startingtimestamp", "maxoffsetspertrigger", "failondataloss"}
    return sorted(
        (name, value)
        for name, value in options.items()
        if not name.lower().startswith(("kafka.", "schemaregistry.")) and name.lower() not in others
    )


def check_query(name: str, sql: str, inputs: Mapping[str, Input], output: str, trigger: str, master: str) -> None:
    """Check what is seen of a query without asking anybody; for the arguments see `StreamConfig`.

    Raises:
        ConfigError: the message begins with the key.
    """
    if not NAME.fullmatch(name):
        raise ConfigError(f"name: must be small letters, digits and dashes, at most 63, got {name!r}")
    if not sql.strip():
        raise ConfigError("sql: is empty")
    if not TOPIC.fullmatch(output):
        raise ConfigError(f"output: must be the name of a topic, got {output!r}")
    if not TRIGGER.fullmatch(trigger):
        raise ConfigError(f"trigger: must be a time such as 10 seconds, got {trigger!r}")
    if not MASTER.fullmatch(master):
        raise ConfigError(f"master: must be local[N], got {master!r}: checkpoint and state of a query are on one host")
    for alias, one in inputs.items():
        _check_input(alias, one)
    if not any(one.is_stream for one in inputs.values()):
        raise ConfigError("inputs: none of them is a stream: a topic without table: true")
    if output in {one.topic for one in inputs.values()}:
        raise ConfigError(f"output: topic {output!r} is an input too: the query would read what it writes")


_INPUT_KEYS = {"topic", "watermark", "table", "path", "format", "options"}


def wrong_query(query: Mapping[str, Any], master: str) -> str:
    """Return what is wrong with a query as an inventory has it; empty if nothing is.

    Imports nothing that a control machine may lack.

    Args:
        query: keys name, sql, inputs, output and trigger; what has another type than text where text is wanted is left
            to other checks.
        master: Spark's.
    """
    try:
        given = query.get("inputs")
        if not isinstance(given, Mapping) or not all(isinstance(one, Mapping) for one in given.values()):
            raise ConfigError("inputs: wanted names with topic or path each")
        inputs = {}
        for alias, one in given.items():
            if unknown := sorted({*map(str, one)} - _INPUT_KEYS):
                known = ", ".join(sorted(_INPUT_KEYS))
                raise ConfigError(f"inputs.{alias}.{unknown[0]}: unknown key; known here: {known}")
            options = one.get("options") or {}
            if not isinstance(options, Mapping):
                raise ConfigError(f"inputs.{alias}.options: wanted keys and values")
            inputs[str(alias)] = Input(
                topic=str(one.get("topic", "")),
                watermark=str(one.get("watermark", "")),
                is_table=one.get("table") in (True, "true"),
                path=str(one.get("path", "")),
                format=str(one.get("format", "parquet")),
                options={str(name): str(value) for name, value in options.items()},
            )
        texts = [str(query.get(key, "")) for key in ("name", "sql", "output")]
        check_query(texts[0], texts[1], inputs, texts[2], str(query.get("trigger", DEFAULT_TRIGGER)), master)
    except ConfigError as error:
        return str(error)
    return ""


def _check_input(alias: str, one: Input) -> None:
    if not ALIAS.fullmatch(alias):
        raise ConfigError(f"inputs.{alias}: must be letters, digits and underscores")
    if bool(one.topic) == bool(one.path):
        raise ConfigError(f"inputs.{alias}: wanted topic, or path")
    if one.topic and not TOPIC.fullmatch(one.topic):
        raise ConfigError(f"inputs.{alias}.topic: must be the name of a topic, got {one.topic!r}")
    if one.watermark and not one.is_stream:
        raise ConfigError(f"inputs.{alias}.watermark: only a stream has one")
    if one.watermark and not WATERMARK.fullmatch(one.watermark):
        raise ConfigError(
            f"inputs.{alias}.watermark: must be a column and a time, as timestamp 10 minutes, got {one.watermark!r}"
        )
    if one.path and one.is_table:
        raise ConfigError(f"inputs.{alias}.table: is for a topic; files are a table")
    if one.format not in FORMATS:
        raise ConfigError(f"inputs.{alias}.format: must be one of {', '.join(FORMATS)}, got {one.format!r}")
    own = {"bootstrap", "topic", "topics", "topicpattern", "kafka.bootstrap.servers", "subscribe", "subscribepattern"}
    if one.topic and (named := sorted(name for name in one.options if name.lower() in own)):
        raise ConfigError(f"inputs.{alias}.options.{named[0]}: the input's topic and the query's brokers say it")
