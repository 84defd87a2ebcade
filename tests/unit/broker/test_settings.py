"""The table of settings: defaults, bounds, precedence, and that topics and brokers agree on it."""

import dataclasses
import re
from typing import Any

import pytest

from pylog.broker.apis import APIS
from pylog.broker.broker import BrokerSettings
from pylog.broker.control.cluster import TopicPolicy
from pylog.broker.control.membership import ControllerConfig
from pylog.broker.data.path import FetchConfig
from pylog.broker.data.replication import ReplicationConfig
from pylog.broker.groups.coordinator import CoordinatorConfig
from pylog.broker.listeners import ListenerLimits
from pylog.broker.maintenance import MaintenanceConfig
from pylog.broker.settings import (
    SETTINGS,
    Kind,
    Source,
    broker_places,
    broker_setting,
    broker_settings,
    check_broker_configs,
    check_topic_configs,
    log_config,
    parse_broker_settings,
    topic_settings,
    typed,
)
from pylog.errors import ConfigError
from pylog.log.config import LogConfig
from pylog.wire.api.table import SERVED, ApiKey


def test_every_default_is_within_its_own_bounds() -> None:
    for setting in SETTINGS.values():
        assert setting.parse(setting.default) == setting.default, setting.name


def test_every_setting_says_what_it_does() -> None:
    assert all(setting.doc.endswith(".") for setting in SETTINGS.values())


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_broker_settings({"nonsense": 1, "num.partitions": "many", "auto.create.topics.enable": "yes"})
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize("more", ["replica.lag.time.max.ms", "replica.socket.timeout.ms"])
def test_a_follower_s_fetch_waits_for_less_than_whoever_waits_for_it(more: str) -> None:
    with pytest.raises(ConfigError, match=rf"^replica.fetch.wait.max.ms=500: wanted less than {more}=500$"):
        parse_broker_settings({more: 500})
    assert parse_broker_settings({more: 500, "replica.fetch.wait.max.ms": 499})[more] == 500


def test_milliseconds_win_over_hours() -> None:
    values = parse_broker_settings({"log.retention.hours": 1, "log.retention.ms": 5})
    assert values["log.retention.ms"] == 5


def test_unlimited_retention_in_hours_stays_unlimited() -> None:
    assert parse_broker_settings({"log.retention.hours": -1})["log.retention.ms"] == -1


def test_a_topic_setting_wins_over_the_broker_and_the_broker_over_the_default() -> None:
    broker = parse_broker_settings({"log.segment.bytes": 4096, "log.retention.ms": 7})
    found = topic_settings(broker_settings(broker, {}, 1), {"segment.bytes": "2048"})
    assert (found["segment.bytes"].value, found["segment.bytes"].source) == (2048, Source.TOPIC)
    assert (found["retention.ms"].value, found["retention.ms"].source) == (7, Source.STATIC_BROKER)
    assert found["index.interval.bytes"].source is Source.DEFAULT


def test_a_topic_is_refused_what_no_topic_has() -> None:
    for name, value in (("num.partitions", "3"), ("segment.bytes", "1"), ("cleanup.policy", "shred")):
        with pytest.raises(ConfigError):
            check_topic_configs({name: value})


def test_a_log_gets_the_topics_settings() -> None:
    inherited = broker_settings(parse_broker_settings({}), {}, 1)
    config = log_config(inherited, {"segment.bytes": "2048", "retention.ms": "-1"})
    assert isinstance(config, LogConfig)
    assert (config.segment_bytes, config.retention_ms) == (2048, -1)
    assert config.retention_bytes == LogConfig().retention_bytes


def test_every_served_api_has_a_handler_and_no_other_has() -> None:
    assert set(APIS) | {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.API_VERSIONS} == set(SERVED)
    assert all(request.api_key is key for key, (request, _) in APIS.items())


def test_what_is_set_for_one_broker_counts_before_what_is_set_for_all_and_its_file() -> None:
    values = parse_broker_settings({"log.retention.ms": 7})
    dynamic = {"1": {"log.retention.ms": "1"}, "<default>": {"log.retention.ms": "2", "message.max.bytes": "3000"}}
    places = [(one.value, one.source) for one in broker_places("log.retention.ms", values, dynamic, 1)]
    assert places == [
        (1, Source.DYNAMIC_BROKER), (2, Source.DYNAMIC_DEFAULT_BROKER), (7, Source.STATIC_BROKER),
        (168 * 3_600_000, Source.DEFAULT),
    ]  # fmt: skip
    other = broker_settings(values, dynamic, 2)
    assert (other["log.retention.ms"].value, other["message.max.bytes"].value) == (2, 3000)
    assert log_config(other, {"retention.ms": "9"}).max_message_bytes == 3000
    assert log_config(other, {"retention.ms": "9"}).retention_ms == 9


def test_only_what_topics_inherit_and_what_comes_with_a_task_is_set_while_running() -> None:
    fixed = {"num.partitions", "socket.request.max.bytes", "max.connections", "group.max.size", "fetch.max.bytes"}
    assert {name for name, setting in SETTINGS.items() if setting.topic and not setting.is_dynamic} == set()
    assert fixed <= {name for name, setting in SETTINGS.items() if not setting.is_dynamic}


PART_CONFIGS = [
    BrokerSettings,
    FetchConfig,
    ControllerConfig,
    CoordinatorConfig,
    ListenerLimits,
    MaintenanceConfig,
    ReplicationConfig,
    TopicPolicy,
]


@pytest.mark.parametrize("config", PART_CONFIGS)
def test_a_part_s_own_settings_have_the_names_and_types_of_the_table(config: Any) -> None:
    types = {Kind.BOOLEAN: bool, Kind.STRING: str, Kind.INT: int, Kind.LONG: int, Kind.DOUBLE: float}
    values = typed(config, parse_broker_settings({}))
    for field in dataclasses.fields(config):
        setting = SETTINGS[field.name.replace("_", ".")]
        assert field.type is types[setting.kind], field.name
        assert getattr(values, field.name) == setting.default


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("retention.ms", "abc", "retention.ms=abc: must be a whole number"),
        ("segment.bytes", "1", "segment.bytes=1: must be between 1024 and 2147483647"),
        ("min.cleanable.dirty.ratio", "2", "min.cleanable.dirty.ratio=2: must be between 0 and 1"),
        ("cleanup.policy", "delete, shred", "cleanup.policy=delete,shred: may list delete, compact"),
        ("cleanup.policy", "delete,delete", "cleanup.policy=delete,delete: duplicate in list"),
        ("validate.records", "yes", "validate.records=yes: must be true or false"),
        ("preallocate", "true", "preallocate=true: must be false"),
        ("remote.storage.enable", "true", "remote.storage.enable=true: must be false"),
        ("segment.jitter.ms", "1", "segment.jitter.ms=1: must be 0"),
        ("file.delete.delay.ms", "0", "file.delete.delay.ms=0: must be 60000"),
        ("message.format.version", "new", r"message.format.version=new: must match"),
    ],
)
def test_a_refused_topic_setting_is_named_as_it_was_sent(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match="^" + re.escape(message)):
        check_topic_configs({name: value})


def test_lists_are_stripped_and_may_be_empty() -> None:
    inherited = broker_settings(parse_broker_settings({}), {}, 1)
    both = log_config(inherited, {"cleanup.policy": " delete, compact "})
    assert both.cleanup_policy == "delete,compact"
    assert both.is_deleting
    assert both.is_compacting
    neither = log_config(inherited, {"cleanup.policy": ""})
    assert not neither.is_deleting
    assert not neither.is_compacting


def test_topic_settings_of_kafka_3_9_are_accepted_with_the_values_that_hold_here() -> None:
    check_topic_configs(
        {
            "file.delete.delay.ms": "60000",
            "max.compaction.lag.ms": "1000",
            "segment.jitter.ms": "0",
            "preallocate": "false",
            "message.downconversion.enable": "false",
            "message.format.version": "3.0-IV1",
            "remote.storage.enable": "false",
        }
    )


def test_the_cleaner_s_backoff_changes_while_the_broker_runs() -> None:
    values = parse_broker_settings({"log.cleaner.backoff.ms": 9_000})
    assert broker_setting("log.cleaner.backoff.ms", values, {}, 1) == 9_000
    assert broker_setting("log.cleaner.backoff.ms", values, {"<default>": {"log.cleaner.backoff.ms": "50"}}, 1) == 50
    check_broker_configs({"log.cleaner.backoff.ms": "50"})
