"""Every setting of a broker and its topics, under Kafka's names: type, default, bounds, one sentence.

This table is what configuration files are checked against, what DescribeConfigs answers, and what fills the parts' own
dataclasses.  A setting that is not here does not exist: an unknown name is an error, never ignored.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

from pylog.cluster.topics import UNCLEAN_ELECTION
from pylog.errors import ConfigError
from pylog.log.config import COMPRESSION_TYPES, LogConfig
from pylog.security.authorizer import parse_super_users

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

ConfigT = TypeVar("ConfigT", bound="DataclassInstance")

_HOUR_MS = 3_600_000
_MAX_INT32 = 2**31 - 1
_MAX_INT64 = 2**63 - 1
_REPLICA_LIST = r"\*|\d+:\d+"

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
ENFORCE, REPORT = "enforce", "report"
DEFAULT_BROKER = "<default>"
"""Entity whose dynamic settings hold for all brokers."""


class Kind(IntEnum):
    """How a value is written; the numbers are DescribeConfigs'."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Source(IntEnum):
    """Where a value comes from; the numbers are DescribeConfigs'."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


Value = int | float | bool | str


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting; *topic* is its name on a topic, None if topics cannot set it.

    One that *is_dynamic* may be set for a running broker, or all; *pattern* is what each part of a list must match.
    """

    name: str
    kind: Kind
    default: Value
    doc: str
    topic: str | None = None
    low: int = -1
    high: int = _MAX_INT64
    choices: tuple[str, ...] = ()
    is_dynamic: bool = False
    pattern: str = ""

    def parse(self, text: object, name: str = "") -> Value:
        """Return *text* as a value of this setting; the parts of a list are stripped of blanks.

        Args:
            text: the value as it was given.
            name: under which it was given, the broker's if "".

        Raises:
            ConfigError: wrong type, outside the bounds, or not one of the choices.
        """
        name, raw = name or self.name, str(text).strip()
        if self.kind is Kind.LIST:
            return self._parse_list([part.strip() for part in raw.split(",")] if raw else [], name)
        if self.kind is Kind.BOOLEAN:
            allowed = self.choices or ("true", "false")
            if raw.lower() not in allowed:
                raise ConfigError(f"{name}={raw}: must be {' or '.join(allowed)}")
            return raw.lower() == "true"
        if self.kind is Kind.STRING:
            if self.choices and raw not in self.choices:
                raise ConfigError(
                    f"{name}={raw}: must be one of {', '.join(choice or '(empty)' for choice in self.choices)}"
                )
            if self.pattern and not re.fullmatch(self.pattern, raw):
                raise ConfigError(f"{name}={raw}: must match {self.pattern}")
            return raw
        return self._parse_number(raw, name)

    def _parse_number(self, raw: str, name: str) -> Value:
        is_double = self.kind is Kind.DOUBLE
        try:
            number = float(raw) if is_double else int(raw)
        except ValueError:
            raise ConfigError(f"{name}={raw}: must be a {'number' if is_double else 'whole number'}") from None
        if not self.low <= number <= self.high:
            allowed = f"{self.low}" if self.low == self.high else f"between {self.low} and {self.high}"
            raise ConfigError(f"{name}={raw}: must be {allowed}")
        return number

    def _parse_list(self, parts: list[str], name: str) -> str:
        text = ",".join(parts)
        if self.choices and not set(parts) <= set(self.choices):
            raise ConfigError(f"{name}={text}: may list {', '.join(self.choices)}")
        if len(set(parts)) < len(parts):
            raise ConfigError(f"{name}={text}: duplicate in list")
        if self.pattern and not all(re.fullmatch(self.pattern, part) for part in parts):
            raise ConfigError(f"{name}={text}: each part must match {self.pattern}")
        return text


def _table(*settings: Setting) -> dict[str, Setting]:
    # What topics may set may also be set for the topics of a running broker, as with Kafka.
    return {
        setting.name: replace(setting, is_dynamic=True) if setting.topic is not None else setting
        for setting in settings
    }


SETTINGS: Mapping[str, Setting] = _table(
    Setting("auto.create.topics.enable", Kind.BOOLEAN, True, "Create a topic when a client first asks for it."),
    Setting("num.partitions", Kind.INT, 1, "Partitions of a topic that names no number.", low=1, high=100_000),
    Setting("default.replication.factor", Kind.INT, 1, "Replicas of a topic that names no number.", low=1, high=32767),
    Setting("delete.topic.enable", Kind.BOOLEAN, True, "Whether topics may be deleted."),
    Setting(
        "socket.request.max.bytes", Kind.INT, 100 << 20, "Largest frame a client may send.", low=1, high=_MAX_INT32
    ),
    Setting("max.connections", Kind.INT, 10_000, "Connections open at once on one listener.", low=1, high=1_000_000),
    Setting("fetch.max.bytes", Kind.INT, 55 << 20, "Most bytes one fetch reply carries.", low=1024, high=_MAX_INT32),
    Setting(
        "group.min.session.timeout.ms",
        Kind.INT,
        6_000,
        "Shortest session a member may ask for.",
        low=1,
        high=_MAX_INT32,
    ),
    Setting(
        "group.max.session.timeout.ms",
        Kind.INT,
        1_800_000,
        "Longest session a member may ask for.",
        low=1,
        high=_MAX_INT32,
    ),
    Setting("group.max.size", Kind.INT, _MAX_INT32, "Members one group may have.", low=1, high=_MAX_INT32),
    Setting(
        "group.initial.rebalance.delay.ms",
        Kind.INT,
        3_000,
        "How long the first member of a group waits for the others.",
        low=0,
        high=_MAX_INT32,
    ),
    Setting(
        "offset.metadata.max.bytes", Kind.INT, 4096, "Longest note beside a committed offset.", low=0, high=_MAX_INT32
    ),
    Setting(
        "offsets.topic.num.partitions",
        Kind.INT,
        50,
        "Partitions of the topic that keeps groups; fixed once it exists.",
        low=1,
        high=10_000,
    ),
    Setting(
        "offsets.topic.replication.factor",
        Kind.INT,
        3,
        "Replicas of the topic that keeps groups; it is made once so many brokers are there.",
        low=1,
        high=32767,
    ),
    Setting(
        "transaction.state.log.num.partitions",
        Kind.INT,
        50,
        "Partitions of the topic that keeps transactional ids; fixed once it exists.",
        low=1,
        high=10_000,
    ),
    Setting(
        "transaction.state.log.replication.factor",
        Kind.INT,
        -1,
        "Replicas of the topic that keeps transactional ids; -1 for as many as that of groups has.",
        low=-1,
        high=32767,
    ),
    Setting(
        "transaction.max.timeout.ms",
        Kind.INT,
        900_000,
        "Longest time-out that a transactional producer may ask for.",
        low=1,
        high=_MAX_INT32,
    ),
    Setting(
        "transactional.id.expiration.ms",
        Kind.LONG,
        168 * _HOUR_MS,
        "A transactional id without a transaction is forgotten when it was not used for so long.",
        low=1,
    ),
    Setting(
        "log.disk.high.watermark.percent",
        Kind.INT,
        95,
        "Use of the data disk above which produce is refused; fetches go on.",
        low=1,
        high=100,
    ),
    Setting(
        "log.disk.alarm.percent",
        Kind.INT,
        85,
        "Use of the data disk from which on pylog_disk_alarm is 1 and the log warns, while there is time to act.",
        low=1,
        high=100,
    ),
    Setting(
        "log.flush.offset.checkpoint.interval.ms",
        Kind.INT,
        60_000,
        "How often written logs are synced, and recovery points and high watermarks written down.",
        low=100,
        high=_MAX_INT32,
    ),
    Setting(
        "log.scrub.interval.ms",
        Kind.LONG,
        168 * _HOUR_MS,
        "How often a closed segment is read again to find damage; -1 for never.",
    ),
    Setting(
        "log.segment.bytes", Kind.INT, 1 << 30, "Size at which a segment is closed.", "segment.bytes", 1024, _MAX_INT32
    ),
    Setting("log.roll.ms", Kind.LONG, 168 * _HOUR_MS, "Age at which a segment is closed.", "segment.ms", 1),
    Setting(
        "log.flush.interval.messages",
        Kind.LONG,
        _MAX_INT64,
        "Records after which a log is synced, a second later at most; nobody sees or is told of a record before.",
        "flush.messages",
        1,
    ),
    Setting(
        "log.flush.interval.ms",
        Kind.LONG,
        _MAX_INT64,
        "Time after which a record is synced; nobody sees or is told of it before.",
        "flush.ms",
        0,
    ),
    Setting(
        "log.index.interval.bytes",
        Kind.INT,
        4096,
        "Bytes of log between two index entries.",
        "index.interval.bytes",
        0,
        _MAX_INT32,
    ),
    Setting(
        "log.index.size.max.bytes",
        Kind.INT,
        10 << 20,
        "Size of an index at which its segment is closed.",
        "segment.index.bytes",
        12,
        _MAX_INT32,
    ),
    Setting(
        "log.retention.ms",
        Kind.LONG,
        168 * _HOUR_MS,
        "Age of its newest record at which a segment is deleted.",
        "retention.ms",
    ),
    Setting("log.retention.bytes", Kind.LONG, -1, "Size above which the oldest segments go.", "retention.bytes"),
    Setting(
        "message.max.bytes", Kind.INT, 1_048_588, "Largest record batch accepted.", "max.message.bytes", 0, _MAX_INT32
    ),
    Setting(
        "log.message.timestamp.type",
        Kind.STRING,
        "CreateTime",
        "Whether a record carries its producer's time or the broker's.",
        "message.timestamp.type",
        choices=("CreateTime", "LogAppendTime"),
    ),
    Setting(
        "log.message.timestamp.before.max.ms",
        Kind.LONG,
        _MAX_INT64,
        "How far behind the broker's clock a record may be.",
        "message.timestamp.before.max.ms",
        0,
    ),
    Setting(
        "log.message.timestamp.after.max.ms",
        Kind.LONG,
        _HOUR_MS,
        "How far ahead of the broker's clock a record may be; a future time would hold its segment for ever.",
        "message.timestamp.after.max.ms",
        0,
    ),
    Setting(
        "log.cleanup.policy",
        Kind.LIST,
        "delete",
        "What becomes of old records.",
        "cleanup.policy",
        choices=("delete", "compact"),
    ),
    Setting(
        "log.cleaner.backoff.ms",
        Kind.LONG,
        15_000,
        "How often logs are looked through for something to compact.",
        low=1,
        high=_MAX_INT32,
        is_dynamic=True,
    ),
    Setting(
        "log.cleaner.min.cleanable.ratio",
        Kind.DOUBLE,
        0.5,
        "Share of a log's closed segments that were never compacted from which on it is compacted.",
        "min.cleanable.dirty.ratio",
        0,
        1,
    ),
    Setting(
        "log.cleaner.min.compaction.lag.ms",
        Kind.LONG,
        0,
        "Age before which a record is not compacted.",
        "min.compaction.lag.ms",
        0,
    ),
    Setting(
        "log.cleaner.max.compaction.lag.ms",
        Kind.LONG,
        _MAX_INT64,
        "Age at which a record is compacted, however little of its log was never compacted.",
        "max.compaction.lag.ms",
        1,
    ),
    Setting(
        "log.cleaner.delete.retention.ms",
        Kind.LONG,
        24 * _HOUR_MS,
        "How long compaction leaves a record without value, so that readers learn of the deletion.",
        "delete.retention.ms",
        0,
    ),
    Setting(
        "compression.type",
        Kind.STRING,
        "producer",
        "Codec of stored batches; producer keeps what came, any other costs unpacking and packing where it differs.",
        "compression.type",
        choices=COMPRESSION_TYPES,
    ),
    Setting(
        "log.validate.records",
        Kind.BOOLEAN,
        False,
        "Whether each record of a batch is looked at before it is stored, not only the batch's header and CRC.",
        "validate.records",
    ),
    Setting(
        "min.insync.replicas",
        Kind.INT,
        1,
        "In-sync replicas without which acks=all is refused.",
        "min.insync.replicas",
        1,
        32767,
    ),
    Setting(
        "replica.lag.time.max.ms",
        Kind.INT,
        30_000,
        "How long a replica may lag before it is no longer in sync.",
        low=100,
        high=_MAX_INT32,
    ),
    Setting(
        "controlled.shutdown.max.wait.ms",
        Kind.INT,
        10_000,
        "How long a broker that is told to stop waits for others to lead what it led.",
        low=0,
        high=_MAX_INT32,
    ),
    Setting(
        UNCLEAN_ELECTION,
        Kind.BOOLEAN,
        False,
        "Whether a replica that is not in sync may lead when no other lives: records that only those had are lost.",
        UNCLEAN_ELECTION,
    ),
    Setting(
        "unclean.recovery.wait.ms",
        Kind.INT,
        300_000,
        "How long a partition waits for its in-sync replicas if all stopped uncleanly; then the longest log leads. "
        "One of __transaction_state waits until all are heard.",
        low=0,
        high=_MAX_INT32,
    ),
    Setting(
        "replica.fetch.max.bytes", Kind.INT, 1 << 20, "Most bytes of one partition a follower fetches at once.", low=1
    ),
    Setting(
        "replica.fetch.wait.max.ms",
        Kind.INT,
        500,
        "How long a leader holds a follower's fetch that would be empty; less than `replica.lag.time.max.ms`.",
        low=10,
        high=_MAX_INT32,
    ),
    Setting(
        "replica.socket.timeout.ms",
        Kind.INT,
        10_000,
        "How long a follower waits for all of an answer before it connects anew; above `replica.fetch.wait.max.ms`.",
        low=100,
        high=_MAX_INT32,
    ),
    Setting(
        "replica.selector.class",
        Kind.STRING,
        "",
        "Which replica consumers read from: the leader, or with Kafka's RackAwareReplicaSelector one in their rack.",
        choices=("", RACK_AWARE_SELECTOR),
    ),
    Setting(
        "leader.replication.throttled.rate",
        Kind.LONG,
        _MAX_INT64,
        "Bytes a second that a leader sends to throttled replicas that are not in sync.",
        low=1,
        is_dynamic=True,
    ),
    Setting(
        "follower.replication.throttled.rate",
        Kind.LONG,
        _MAX_INT64,
        "Bytes a second that a follower fetches of throttled replicas that are not in sync.",
        low=1,
        is_dynamic=True,
    ),
    Setting(
        "leader.replication.throttled.replicas",
        Kind.LIST,
        "",
        "Replicas (`partition:broker`, or `*`) to which the leader's rate holds.",
        "leader.replication.throttled.replicas",
        pattern=_REPLICA_LIST,
    ),
    Setting(
        "follower.replication.throttled.replicas",
        Kind.LIST,
        "",
        "Replicas (`partition:broker`, or `*`) to which the follower's rate holds.",
        "follower.replication.throttled.replicas",
        pattern=_REPLICA_LIST,
    ),
    Setting(
        "log.message.downconversion.enable",
        Kind.BOOLEAN,
        True,
        "Without effect: record batches are never converted; accepted because Kafka's tools set it.",
        "message.downconversion.enable",
    ),
    Setting(
        "log.message.format.version",
        Kind.STRING,
        "3.0-IV1",
        "Without effect: records are always kept in the format of Kafka 0.11 and later, as in Kafka since 3.0.",
        "message.format.version",
        pattern=r"\d+\.\d+(\.\d+)*(-IV\d+)?",
    ),
    Setting(
        "log.segment.delete.delay.ms",
        Kind.LONG,
        60_000,
        "Only the default: files are deleted as soon as no reader needs them.",
        "file.delete.delay.ms",
        60_000,
        60_000,
    ),
    Setting("log.roll.jitter.ms", Kind.LONG, 0, "Only 0: segments roll at their age.", "segment.jitter.ms", 0, 0),
    Setting(
        "log.preallocate",
        Kind.BOOLEAN,
        False,
        "Only false: files grow as they are written.",
        "preallocate",
        choices=("false",),
    ),
    Setting(
        "remote.log.storage.system.enable",
        Kind.BOOLEAN,
        False,
        "Only false: there is no tiered storage.",
        "remote.storage.enable",
        choices=("false",),
    ),
    Setting(
        "authorizer.class.name",
        Kind.STRING,
        "",
        "Empty lets every client do everything; Kafka's AclAuthorizer has every request decided by ACLs.",
        choices=("", ACL_AUTHORIZER),
    ),
    Setting(
        "authorizer.mode",
        Kind.STRING,
        ENFORCE,
        "Whether what ACLs do not allow is refused, or only reported in log and metrics.",
        choices=(ENFORCE, REPORT),
    ),
    Setting(
        "authorizer.log.allowed",
        Kind.BOOLEAN,
        False,
        "Whether the log of decisions also has those in favor of a client; costs a decision for each topic asked.",
    ),
    Setting(
        "super.users",
        Kind.STRING,
        "",
        "Principals who may do everything, such as `User:admin;User:CN=broker,O=example`.",
    ),
    Setting(
        "allow.everyone.if.no.acl.found",
        Kind.BOOLEAN,
        False,
        "Whether everybody may use a resource that no ACL is about.",
    ),
    Setting(
        "producer.id.expiration.ms",
        Kind.INT,
        24 * _HOUR_MS,
        "Time without a batch after which an idempotent producer is forgotten.",
        low=1,
        high=_MAX_INT32,
    ),
)

_BY_TOPIC_NAME = {setting.topic: setting for setting in SETTINGS.values() if setting.topic}

# Kafka spells some times in hours or minutes too; the finer unit wins there and here.
_COARSER = {
    "log.retention.hours": ("log.retention.ms", _HOUR_MS),
    "log.retention.minutes": ("log.retention.ms", 60_000),
    "log.roll.hours": ("log.roll.ms", _HOUR_MS),
}

# LogConfig's fields are the topic's names with `_` for `.`; the rest of a topic's settings belong to other parts.
_LOG_FIELDS = {name: name.replace(".", "_") for name in _BY_TOPIC_NAME if name.replace(".", "_") in LogConfig.__slots__}


_LESS_THAN = (
    # A leader that holds an idle follower's fetch for longer takes it for one that lags.
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    # An idle follower would connect anew for ever.
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
)


def parse_broker_settings(given: Mapping[str, object]) -> dict[str, Value]:
    """Return the value of every setting, defaults included.

    Raises:
        ConfigError: all unknown names and wrong values of *given* at once, one a line.
    """
    values: dict[str, Value] = {name: setting.default for name, setting in SETTINGS.items()}
    faults: list[str] = []
    for name, text in given.items():
        target, factor = _COARSER.get(name, (name, 1))
        setting = SETTINGS.get(target)
        if setting is None:
            faults.append(f"{name}: unknown; topics' settings carry `log.` here, see docs/settings.md")
            continue
        if target != name and target in given:
            continue
        try:
            value = setting.parse(text, name)
        except ConfigError as error:
            faults.append(str(error))
            continue
        values[target] = value * factor if factor > 1 and isinstance(value, int) and value > 0 else value
    for less, more in _LESS_THAN:
        if int(values[less]) >= int(values[more]):
            faults.append(f"{less}={values[less]}: wanted less than {more}={values[more]}")
    try:
        parse_super_users(str(values["super.users"]))
    except ConfigError as error:
        faults.append(str(error))
    if faults:
        raise ConfigError("\n".join(faults))
    return values


def typed(config: type[ConfigT], settings: Mapping[str, Value]) -> ConfigT:
    """Return a part's own dataclass, filled from *settings*.

    Args:
        config: each field is named after a setting, with ``_`` for ``.``.
        settings: of a broker, all of them.
    """
    return config(**{field.name: settings[field.name.replace("_", ".")] for field in fields(config)})


def check_topic_configs(configs: Mapping[str, str | None]) -> None:
    """Check a topic's own settings.

    Raises:
        ConfigError: an unknown name, or a value outside its bounds.
    """
    for name, text in configs.items():
        setting = _BY_TOPIC_NAME.get(name)
        if setting is None:
            raise ConfigError(f"{name}: no such topic setting")
        if text is None:
            raise ConfigError(f"{name}: has no value")
        setting.parse(text, name)


@dataclass(frozen=True, slots=True)
class Effective:
    """One setting's value in force, and why."""

    name: str
    value: Value
    source: Source
    setting: Setting

    @property
    def text(self) -> str:
        """The value as the protocol writes it."""
        return str(self.value).lower() if isinstance(self.value, bool) else str(self.value)


def broker_places(
    name: str, broker: Mapping[str, Value], dynamic: Mapping[str, Mapping[str, str]], broker_id: int
) -> list[Effective]:
    """Return every place that has a say in a broker's setting, the one that counts first.

    Args:
        name: of the setting.
        broker: values of its file, defaults included.
        dynamic: values set in the cluster, by broker id as text or ``<default>``.
        broker_id: whose setting.
    """
    setting = SETTINGS[name]
    places: list[Effective] = []
    for entity, source in ((str(broker_id), Source.DYNAMIC_BROKER), (DEFAULT_BROKER, Source.DYNAMIC_DEFAULT_BROKER)):
        text = dynamic.get(entity, {}).get(name)
        if text is not None and setting.is_dynamic:
            places.append(Effective(name, setting.parse(text), source, setting))
    if broker[name] != setting.default:
        places.append(Effective(name, broker[name], Source.STATIC_BROKER, setting))
    return [*places, Effective(name, setting.default, Source.DEFAULT, setting)]


def broker_setting(
    name: str, broker: Mapping[str, Value], dynamic: Mapping[str, Mapping[str, str]], broker_id: int
) -> Value:
    """Return the value in force of a broker's setting; see `broker_places`."""
    return broker_places(name, broker, dynamic, broker_id)[0].value


def topic_setting(broker: Mapping[str, Effective], configs: Mapping[str, str], name: str) -> Value:
    """Return one setting of a topic, by its name there; see `topic_settings`."""
    setting = _BY_TOPIC_NAME[name]
    return setting.parse(configs[name]) if name in configs else broker[setting.name].value


def broker_settings(
    broker: Mapping[str, Value], dynamic: Mapping[str, Mapping[str, str]], broker_id: int
) -> dict[str, Effective]:
    """Return every setting of a broker; see `broker_places`."""
    return {name: broker_places(name, broker, dynamic, broker_id)[0] for name in SETTINGS}


def topic_settings(broker: Mapping[str, Effective], configs: Mapping[str, str]) -> dict[str, Effective]:
    """Return every setting of a topic with *configs* of its own on a broker with the settings *broker*."""
    found: dict[str, Effective] = {}
    for name, setting in _BY_TOPIC_NAME.items():
        if name in configs:
            found[name] = Effective(name, setting.parse(configs[name]), Source.TOPIC, setting)
        else:
            inherited = broker[setting.name]
            found[name] = Effective(name, inherited.value, inherited.source, setting)
    return found


def check_broker_configs(configs: Mapping[str, str | None]) -> None:
    """Check dynamic settings of a broker; None unsets one, and may name any.

    Raises:
        ConfigError: an unknown name, a value outside its bounds, or a setting that is read from the broker's file.
    """
    for name, text in configs.items():
        if text is None:
            continue
        setting = SETTINGS.get(name)
        if setting is None:
            raise ConfigError(f"{name}: no such broker setting")
        if not setting.is_dynamic:
            raise ConfigError(f"{name}: is read from the broker's file: change `config:` there and restart it")
        setting.parse(text)


def log_config(broker: Mapping[str, Effective], configs: Mapping[str, str]) -> LogConfig:
    """Return the log settings of a topic with *configs* of its own."""
    effective = topic_settings(broker, configs)
    values = {field: effective[name].value for name, field in _LOG_FIELDS.items()}
    return LogConfig(**values, producer_id_expiration_ms=broker["producer.id.expiration.ms"].value)  # type: ignore[arg-type]
