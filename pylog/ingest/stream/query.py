"""Runs a query until it is told to stop: plans it, starts it on Spark, and says how far it is.

Spark does the work: this process looks at its checkpoint and its progress, commits the position as a consumer group
does, so that lag is seen where every other lag is, and writes the metrics.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as spark_functions
from pyspark.sql.streaming.query import StreamingQuery

from pylog.client.admin.cluster import Admin
from pylog.client.admin.groups import GroupAdmin
from pylog.client.raw import RawClient, RawConfig
from pylog.client.security import security_of
from pylog.errors import ApiError, ConfigError, ErrorCode, PylogError, StorageError
from pylog.faults import code_of
from pylog.ingest import plan, sql
from pylog.ingest.fetch import positions
from pylog.ingest.plan import Position, PositionError
from pylog.ingest.spark import error_of, session
from pylog.ingest.sql import Target, check_endless, write_options
from pylog.ingest.status import replace_text
from pylog.ingest.stream.checkpoint import Owner, StreamCheckpoint, last_batch
from pylog.ingest.stream.config import Input, StreamConfig
from pylog.ingest.stream.progress import Progress
from pylog.model import Offset, TopicPartition
from pylog.wire.api.offsets import EARLIEST_TIMESTAMP

_FIRST_ANSWER_MS = 15_000
"""How long brokers may take to answer before Spark is started at all: a restart's worth."""

_LOOK_S = 0.5
_HEARTBEAT_S = 10.0
"""How often metrics are written of a query that has nothing to do."""

_END_S = 30.0
"""How long a stop waits for the micro-batch that runs; what one wrote that did not end is written again later."""
_CUT_OFF_S = 30
"""How long it waits for Spark to cut one off. With `_END_S` and this, the unit's time to stop suffices."""
_END_LOOK_S = 0.02


class Stop(Protocol):
    """Says when to end."""

    def wait(self, timeout_s: float) -> bool:
        """Wait at most so long, and return whether the end is wanted."""
        ...


def check(config: StreamConfig) -> list[str]:
    """Plan the query as `run` would, and change nothing; return the columns of its records.

    Raises:
        PylogError: as `run`, of what is seen before the first micro-batch.
    """
    cluster = _check_topics(config)
    owner = StreamCheckpoint(config.checkpoint).checked(config, cluster)
    return _records(_session(config), config, owner).columns


def run(
    config: StreamConfig, stop: Stop, *, is_once: bool = False, on_start: Callable[[], None] = lambda: None
) -> None:
    """Run the query until *stop*, or with *is_once* until it has written what the topics hold now.

    *on_start* is called once, when Spark has taken the query.

    Raises:
        CheckpointInUse: another process runs it.
        PositionError: the checkpoint belongs to another query or cluster, or a topic was deleted and made again.
        ConfigError: the query does not fit its inputs, or would keep rows for ever.
        ApiError: UNKNOWN_TOPIC_OR_PARTITION, an input or the output does not exist.
        PylogError: the message says what is wrong.
    """
    # Before Spark, which takes seconds to start.
    cluster = _check_topics(config)
    checkpoint = StreamCheckpoint(config.checkpoint)
    with checkpoint.held():
        owner = checkpoint.checked(config, cluster)
        frame = _records(_session(config), config, owner)
        if stop.wait(0):  # Spark took its time to start
            return
        owner = checkpoint.claim(config, cluster)
        target = Target(config.output, config.options)
        writer = frame.writeStream.format("pylog").outputMode("append").queryName(config.name)
        writer = writer.options(**write_options(config.cluster.bootstrap, _security(config), target))
        writer = writer.option("checkpointLocation", str(checkpoint.spark_directory(owner)))
        if is_once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=config.trigger)
        try:
            running = writer.start()
            print(f"pylog stream: query {config.name!r} runs, into topic {config.output!r}", file=sys.stderr)
            on_start()
            _Watch(config, checkpoint, owner, running).until(stop)
        except PySparkException as error:
            raise error_of(str(error)) from error


class _Watch:
    """Looks at a query that runs, and tells others how far it is."""

    def __init__(
        self, config: StreamConfig, checkpoint: StreamCheckpoint, owner: Owner, running: StreamingQuery
    ) -> None:
        self._config = config
        self._checkpoint = checkpoint
        self._owner = owner
        self._running = running
        self._directory = checkpoint.spark_directory(owner)
        self._groups = GroupAdmin(config.cluster)
        self._progress = Progress(config.name)
        self._seen = -2
        self._position: Position | None = None
        self._told: dict[TopicPartition, Offset] = {}
        self._written_s = float("-inf")
        self._complained = ""

    def until(self, stop: Stop) -> None:
        """Return once the query has ended, or *stop* is wanted and it was ended between two micro-batches.

        Raises:
            PySparkException: it failed.
        """
        while not stop.wait(_LOOK_S):
            if not self._running.isActive:
                self._running.awaitTermination()  # raises why, if it failed
                self.look(is_last=True)
                return
            self.look()
        self._end()
        self.look(is_last=True)

    def look(self, *, is_last: bool = False) -> None:
        """Commit the position if it moved, and write the metrics if there is something new, or if it is time."""
        number = last_batch(self._directory)
        is_new = number != self._seen
        if is_new:
            self._seen = number
            try:
                self._position = self._checkpoint.position(self._owner) or self._position
            except PositionError as error:  # Spark reads its files itself
                self._complain(f"group {self._config.group} is told no offsets: {error} [{code_of(error)}]")
        self._commit()
        now_s = time.monotonic()
        if is_new or is_last or now_s - self._written_s >= _HEARTBEAT_S:
            self._written_s = now_s
            self._write(number)

    def _commit(self) -> None:
        wanted = dict(self._position.offsets) if self._position is not None else {}
        if not self._config.group or not wanted or wanted == self._told:
            return
        try:
            self._groups.commit(self._config.group, wanted)
            self._told = wanted
        except PylogError as error:
            # The checkpoint knows better than the group; the next look tells it again.
            self._complain(f"group {self._config.group} was not told the offsets: {error} [{code_of(error)}]")

    def _write(self, number: int) -> None:
        for body in self._running.recentProgress:
            self._progress.add(json.loads(body.json) if hasattr(body, "json") else body)
        if self._config.metrics_file is None:
            return
        try:
            replace_text(self._config.metrics_file, self._progress.metrics(number, int(time.time() * 1000)))
        except StorageError as error:  # what was written is written
            self._complain(f"{error} [{code_of(error)}]")

    def _complain(self, text: str) -> None:
        if text != self._complained:
            self._complained = text
            print(f"pylog stream: {text}", file=sys.stderr)

    def _end(self) -> None:
        """End the query between two micro-batches, unless one takes too long."""
        deadline_s = time.monotonic() + _END_S
        before = last_batch(self._directory)
        while self._running.isActive and time.monotonic() < deadline_s:
            if not self._running.status["isTriggerActive"] or last_batch(self._directory) != before:
                break
            time.sleep(_END_LOOK_S)
        try:
            self._running.stop()
        except Py4JJavaError as error:  # the process ends, and Spark's with it
            self._complain(f"micro-batch {before + 1} was left behind: {error.java_exception.getMessage()}")


def _check_topics(config: StreamConfig) -> str:
    """Check that all topics are there; return the cluster's id."""
    found = Admin(config.cluster).cluster()
    with _client(config) as client:
        present = client.present_topics({*config.topics, config.output})
    for topic in sorted(config.topics - present.keys()):
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r}, an input, does not exist")
    if config.output not in present:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {config.output!r}, the output, does not exist: a query makes none",
        )
    return found.cluster_id


def _client(config: StreamConfig) -> RawClient:
    raw = RawConfig(retry_ms=_FIRST_ANSWER_MS)
    return RawClient(config.cluster.bootstrap, raw, security_of(config.security))


def _session(config: StreamConfig) -> SparkSession:
    spark = session(config.master, f"pylog-stream-{config.name}")
    spark.conf.set("spark.sql.streaming.stopTimeout", f"{_CUT_OFF_S}s")
    sql.set_state_parts(spark)
    return spark


def _security(config: StreamConfig) -> dict[str, str]:
    return {f"security.{key}": value for key, value in config.security.items()}


def _records(spark: SparkSession, config: StreamConfig, owner: Owner) -> DataFrame:
    """Return the planned query, as records.

    Raises:
        ConfigError: as `run`.
    """
    starts = _starts(config, owner)
    try:
        for alias, one in config.inputs.items():
            _table(spark, config, one, starts).createOrReplaceTempView(f"`{alias}`")
        frame = sql.analysed(spark, config.sql, _refused(config))
        marked = {one.topic for one in config.inputs.values() if one.watermark}
        if not frame.isStreaming:
            raise ConfigError("the query reads none of its inputs that are streams: it would end at once")
        target = Target(config.output, config.options)
        check_endless(frame, config.stream_topics, marked, target)
        _check_supported(spark, frame)
        return sql.records_of(frame, target)
    except PySparkException as error:
        raise error_of(str(error)) from error
    except PylogError as error:
        if type(error) is PylogError and isinstance(error.__cause__, AnalysisException):
            raise ConfigError(f"sql: {error}") from error
        raise


def _refused(config: StreamConfig) -> Any:  # noqa: ANN401
    def define(_view: str, name: str) -> None:
        raise ConfigError(f"the query reads {name!r}, which is none of its inputs: {', '.join(sorted(config.inputs))}")

    return define


def _check_supported(spark: SparkSession, frame: DataFrame) -> None:
    """Have Spark refuse now what it would refuse at the start: an aggregation without a watermark, say."""
    jvm: Any = spark._jvm
    mode = jvm.org.apache.spark.sql.streaming.OutputMode.Append()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), mode)


def _table(spark: SparkSession, config: StreamConfig, one: Input, starts: Mapping[str, str]) -> DataFrame:
    if one.path:
        return spark.read.format(one.format).options(**one.options).load(one.path)
    options = {**_security(config), **one.options, "bootstrap": config.cluster.bootstrap, "topic": one.topic}
    if one.is_table:
        frame = sql.load(spark, options, is_stream=False)
        newest = spark_functions.max_by(spark_functions.struct("*"), spark_functions.struct("timestamp", "offset"))
        # A record without a value deletes its key, as it does in a compacted topic.
        return frame.groupBy("key").agg(newest.alias("newest")).select("newest.*").where("value IS NOT NULL")
    names = {name.lower() for name in options}
    if one.topic in starts:
        options = {name: value for name, value in options.items() if name.lower() != "startingtimestamp"}
        options["startingOffsets"] = starts[one.topic]
    elif not {"startingoffsets", "startingtimestamp"} & names:
        # Spark's own default, the end, would leave out what came between the deployment and the first start.
        options["startingOffsets"] = "earliest"
    frame = sql.load(spark, options, is_stream=True)
    if one.watermark:
        frame = frame.withWatermark(*one.watermark.split(" ", 1))
    return frame


def _starts(config: StreamConfig, owner: Owner) -> dict[str, str]:
    """Return by topic where the streams of a rebased query begin, as option ``startingOffsets`` has it.

    Raises:
        PositionError: a topic was deleted and made again since.
    """
    directory = StreamCheckpoint(config.checkpoint).spark_directory(owner)
    if owner.starts is None or last_batch(directory) >= 0:
        return {}
    begin = Position.from_json(owner.starts)
    known = [topic for topic in config.stream_topics if topic in begin.topic_ids]
    with _client(config) as client:
        # Partitions that were added since begin at their beginning.
        now = positions(client, sorted(known), EARLIEST_TIMESTAMP) if known else Position()
    found: dict[str, dict[str, Offset]] = {topic: {} for topic in known}
    for topic in known:
        if begin.topic_ids[topic] != now.topic_ids[topic]:
            raise plan.made_again(topic, begin.topic_ids[topic], now.topic_ids[topic])
    for partition, offset in now.offsets.items():
        found[partition.topic][str(partition.partition)] = begin.offsets.get(partition, offset)
    return {topic: json.dumps({topic: offsets}) for topic, offsets in found.items()}
