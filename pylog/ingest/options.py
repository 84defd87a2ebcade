"""The options of ``format("pylog")``, read once into types."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pylog.client.raw import parse_bootstrap
from pylog.client.security import SECURITY_KEYS, ClientSecurity, security_of
from pylog.errors import ConfigError
from pylog.model import IsolationLevel, Offset
from pylog.wire.api.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

NAMED_OFFSETS = {"earliest": EARLIEST_TIMESTAMP, "latest": LATEST_TIMESTAMP}

DECODED, DECODE_ERROR = "decoded", "decodeError"
"""The columns that option ``schemaRegistry`` adds."""

DEFAULT_DELIVERY_TIMEOUT_MS = 120_000
"""How long a write waits for a record's acknowledgement."""

_FOR_SPARK = frozenset({"path", "serialization.format"})
# Spark itself adds these to a table's options.

_SYNONYMS = {
    "kafka.bootstrap.servers": "bootstrap",
    "subscribe": "topics",
    "topic": "topics",
    "subscribepattern": "topicpattern",
    "kafka.isolation.level": "isolationlevel",
}
# Spark's own Kafka connector says it so; a query moves over by its format name alone.


@dataclass(frozen=True, slots=True, kw_only=True)
class StartingOffsets:
    """Where to begin or end: at a named offset, at a time, or partition by partition.

    Attributes:
        default: for every partition not named: `EARLIEST_TIMESTAMP`, `LATEST_TIMESTAMP`, or milliseconds since 1970
            for the first record of that time or later.
        by_partition: topic -> partition -> offset; the two timestamps are allowed here too.
    """

    default: int
    by_partition: Mapping[str, Mapping[int, Offset]]


class Mode(StrEnum):
    """What becomes of batches that do not decode."""

    FAIL = "fail"
    DROP = "drop"
    KEEP = "keep"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What to read and how.

    Attributes:
        bootstrap: ``host:port``, several separated by commas.
        topics: names, in order; empty when a pattern is given.
        topic_pattern: regular expression that the whole name of a topic must match; topics that come up while a stream
            runs are read too, `OWN_TOPICS` never.
        starting: where a first run begins.
        ending: where a batch query ends; a stream has no end.
        include_headers: adds the column ``headers``.
        fail_on_data_loss: whether offsets that are gone stop the query; otherwise it goes on behind the hole.
        max_offsets_per_trigger: most offsets of one micro-batch, over all partitions; None is no limit.
        max_bytes_per_trigger: about the most bytes of record batches of one micro-batch, by what the next batch of each
            topic shows; None is no limit.
        max_records_per_partition: most offsets of one Spark task, so that one fat partition does not hold the job.
        filter_pushdown: whether a batch query's filters on topic, partition, offset and timestamp choose what is
            fetched; Spark wants ``spark.sql.python.filterPushdown.enabled`` set for it, and refuses it otherwise.
        registry: URLs of a schema registry's instances; adds the columns ``decoded`` and ``decodeError``.
        mode: what becomes of batches that do not decode: the query fails, they are dropped with a word on stderr, or
            each becomes a row of its own whose column ``deadLetter`` is not null.
        min_partitions: fewest Spark tasks that ranges are split into; None leaves them as they are, and puts small ones
            together where there are more than `pylog.ingest.plan.MIN_QUERY_TASKS`.
        security: keys of `pylog.client.security.SECURITY_KEYS`; its files must be on each host of Spark, so that no
            password travels with a task.
        isolation_level: whether records of open and aborted transactions are read.
        schema_subject: whose latest schema the values are read under; empty for the topic's name and ``-value``.
    """

    bootstrap: str
    topics: tuple[str, ...]
    starting: StartingOffsets
    ending: StartingOffsets
    include_headers: bool = False
    fail_on_data_loss: bool = True
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    max_records_per_partition: int | None = None
    topic_pattern: re.Pattern[str] | None = None
    filter_pushdown: bool = False
    registry: tuple[str, ...] = ()
    schema_subject: str = ""
    mode: Mode = Mode.FAIL
    min_partitions: int | None = None
    security: Mapping[str, str] = field(default_factory=dict)
    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED

    def client_security(self) -> ClientSecurity:
        """Return how to connect; the files of `security` are read now, on this host.

        Raises:
            ConfigError: a key or a file is not right.
        """
        return security_of(self.security)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Where to write and how.

    Attributes:
        bootstrap: ``host:port``, several separated by commas.
        topic: of all rows; empty where a column ``topic`` names that of each.
        compression: none, gzip, snappy, lz4 or zstd.
        delivery_timeout_ms: after which a record that nobody acknowledged fails its task.
        registry: URLs of a schema registry's instances: the column ``value`` is written in Avro; empty for bytes.
        schema_subject: whose latest schema that is; empty for the topic's name and ``-value``.
        schema_text: that schema, once the driver has asked for it; a write is of one schema.
        security: keys of `pylog.client.security.SECURITY_KEYS`; its files must be on each host of Spark.
    """

    bootstrap: str
    topic: str = ""
    compression: str = "none"
    delivery_timeout_ms: int = DEFAULT_DELIVERY_TIMEOUT_MS
    registry: tuple[str, ...] = ()
    schema_subject: str = ""
    schema_text: str = ""
    security: Mapping[str, str] = field(default_factory=dict)


_SECURITY = "security."
_SINK_SYNONYMS = {
    "kafka.bootstrap.servers": "bootstrap",
    "kafka.compression.type": "compression",
    "kafka.delivery.timeout.ms": "deliverytimeoutms",
}
_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
_SINK_KNOWN = frozenset(
    {
        "bootstrap",
        "topic",
        "compression",
        "deliverytimeoutms",
        "schemaregistry",
        "schemasubject",
        *(f"{_SECURITY}{key}" for key in SECURITY_KEYS),
    }
)
_KNOWN = frozenset(
    {
        "bootstrap",
        "topics",
        "topicpattern",
        "startingoffsets",
        "endingoffsets",
        "startingtimestamp",
        "endingtimestamp",
        "filterpushdown",
        "schemaregistry",
        "schemasubject",
        "mode",
        "minpartitions",
        "includeheaders",
        "failondataloss",
        "maxoffsetspertrigger",
        "maxbytespertrigger",
        "maxrecordsperpartition",
        "isolationlevel",
        *(f"{_SECURITY}{key}" for key in SECURITY_KEYS),
    }
)


def parse_options(options: Mapping[str, str], *, is_stream: bool) -> SourceOptions:
    """Return *options* checked and typed; names are compared without case, as Spark does.

    Args:
        options: as Spark hands them over.
        is_stream: a stream begins at the latest offset unless told otherwise, a batch at the earliest.

    Raises:
        ConfigError: an option is unknown, missing or malformed; the message says what was found and what is wanted.
    """
    given = {_SYNONYMS.get(name.lower(), name.lower()): value for name, value in options.items()}
    unknown = given.keys() - _KNOWN - _FOR_SPARK
    if unknown:
        raise ConfigError(f"option {sorted(unknown)[0]!r} is unknown; known are {', '.join(sorted(_KNOWN))}")
    topics, pattern = _topics(given)
    parse_bootstrap(_required(given, "bootstrap"))
    for name in ("endingOffsets", "endingTimestamp"):
        if is_stream and name.lower() in given:
            raise ConfigError(f"option {name!r} is for batch queries; a stream has no end")
    return SourceOptions(
        bootstrap=given["bootstrap"],
        topics=topics,
        topic_pattern=pattern,
        starting=_offsets(given, "starting", "latest" if is_stream else "earliest"),
        ending=_offsets(given, "ending", "latest"),
        include_headers=_boolean(given, "includeHeaders", default=False),
        fail_on_data_loss=_boolean(given, "failOnDataLoss", default=True),
        max_offsets_per_trigger=_count(given, "maxOffsetsPerTrigger"),
        max_bytes_per_trigger=_count(given, "maxBytesPerTrigger"),
        max_records_per_partition=_count(given, "maxRecordsPerPartition"),
        filter_pushdown=_boolean(given, "filterPushdown", default=False),
        registry=_registry(given, topics),
        schema_subject=given.get("schemasubject", "").strip(),
        mode=_mode(given),
        min_partitions=_count(given, "minPartitions"),
        security=_security(given),
        isolation_level=_isolation_level(given),
    )


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Return the options of a write checked and typed; names are compared without case, as Spark does.

    Raises:
        ConfigError: an option is unknown, missing or malformed; the message says what was found and what is wanted.
    """
    given = {_SINK_SYNONYMS.get(name.lower(), name.lower()): value for name, value in options.items()}
    # Spark's own: where the stream's checkpoint is, and the query's name.
    unknown = given.keys() - _SINK_KNOWN - _FOR_SPARK - {"checkpointlocation", "queryname"}
    if unknown:
        raise ConfigError(
            f"option {sorted(unknown)[0]!r} is unknown to a write; known are {', '.join(sorted(_SINK_KNOWN))}"
        )
    parse_bootstrap(_required(given, "bootstrap"))
    topic = given.get("topic", "").strip()
    compression = given.get("compression", "none").strip().lower()
    if compression not in _COMPRESSIONS:
        raise ConfigError(f"option 'compression' is {compression!r}; one of {', '.join(_COMPRESSIONS)} is wanted")
    urls = tuple(filter(None, map(str.strip, given.get("schemaregistry", "").split(","))))
    if urls and not topic:
        raise ConfigError("option 'schemaRegistry' needs option 'topic': values of one write have one schema")
    return SinkOptions(
        bootstrap=given["bootstrap"],
        topic=topic,
        compression=compression,
        delivery_timeout_ms=_count(given, "deliveryTimeoutMs") or DEFAULT_DELIVERY_TIMEOUT_MS,
        registry=urls,
        schema_subject=given.get("schemasubject", "").strip(),
        security=_security(given),
    )


def _security(given: Mapping[str, str]) -> dict[str, str]:
    block = {name.removeprefix(_SECURITY): value for name, value in given.items() if name.startswith(_SECURITY)}
    security_of(block)  # a mistake shows now, by name, and not in a task
    return block


def _registry(given: Mapping[str, str], topics: tuple[str, ...]) -> tuple[str, ...]:
    urls = tuple(filter(None, map(str.strip, given.get("schemaregistry", "").split(","))))
    if urls and len(topics) != 1:
        raise ConfigError("option 'schemaRegistry' needs exactly one topic: its schema gives the columns")
    return urls


def _mode(given: Mapping[str, str]) -> Mode:
    value = given.get("mode", Mode.FAIL).strip().lower()
    if value not in tuple(Mode):
        raise ConfigError(f"option 'mode' is {value!r}; {', '.join(Mode)} are wanted")
    return Mode(value)


def _isolation_level(given: Mapping[str, str]) -> IsolationLevel:
    value = given.get("isolationlevel", IsolationLevel.READ_COMMITTED).strip().lower()
    if value not in tuple(IsolationLevel):
        raise ConfigError(f"option 'isolationLevel' is {value!r}; {' or '.join(IsolationLevel)} is wanted")
    return IsolationLevel(value)


def _topics(given: Mapping[str, str]) -> tuple[tuple[str, ...], re.Pattern[str] | None]:
    if "topicpattern" not in given:
        topics = tuple(filter(None, (name.strip() for name in _required(given, "topics").split(","))))
        if not topics:
            raise ConfigError("option 'topics' names no topic")
        return tuple(dict.fromkeys(topics)), None
    if "topics" in given:
        raise ConfigError("options 'topics' and 'topicPattern' exclude each other")
    try:
        return (), re.compile(_required(given, "topicPattern"))
    except re.error as error:
        raise ConfigError(
            f"option 'topicPattern' is {given['topicpattern']!r}, which is no regular expression: {error}"
        ) from error


def _required(given: Mapping[str, str], name: str) -> str:
    value = given.get(name.lower(), "")
    if not value.strip():
        raise ConfigError(f"option {name!r} is missing")
    return value


def _boolean(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = given.get(name.lower(), str(default)).lower()
    if value not in ("true", "false"):
        raise ConfigError(f"option {name!r} is {value!r}; true or false is wanted")
    return value == "true"


def _count(given: Mapping[str, str], name: str) -> int | None:
    value = given.get(name.lower())
    if value is None:
        return None
    if not value.isdecimal() or int(value) == 0:
        raise ConfigError(f"option {name!r} is {value!r}; a number from 1 is wanted")
    return int(value)


def _offsets(given: Mapping[str, str], end: str, default: str) -> StartingOffsets:
    name, timestamp = f"{end}Offsets", given.get(f"{end}timestamp")
    if timestamp is not None:
        if name.lower() in given:
            raise ConfigError(f"options {name!r} and '{end}Timestamp' exclude each other")
        if not timestamp.strip().isdecimal():
            raise ConfigError(f"option '{end}Timestamp' is {timestamp!r}; milliseconds since 1970 are wanted")
        return StartingOffsets(default=int(timestamp), by_partition={})
    value = given.get(name.lower(), default).strip()
    if value.lower() in NAMED_OFFSETS:
        return StartingOffsets(default=NAMED_OFFSETS[value.lower()], by_partition={})
    wanted = 'earliest, latest or JSON such as {"topic": {"0": 17, "1": -2}} is wanted (-2 earliest, -1 latest)'
    try:
        body = json.loads(value)
        by_partition = {
            str(topic): {int(partition): _offset(offset) for partition, offset in partitions.items()}
            for topic, partitions in body.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigError(f"option {name!r} is {value!r}; {wanted}") from error
    return StartingOffsets(default=NAMED_OFFSETS[default], by_partition=by_partition)


def _offset(value: object) -> Offset:
    if not isinstance(value, int) or isinstance(value, bool) or value < EARLIEST_TIMESTAMP:
        raise ValueError(f"{value!r} is no offset")
    return value
