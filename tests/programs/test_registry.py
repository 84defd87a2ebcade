"""The registry as processes: confluent-kafka's own client and serializers, two instances, kills."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext

from pylog.client import avro
from pylog.client.admin.cluster import Admin
from pylog.testing import BrokerProcess
from tests.programs.program import Program, scrape, wait_until
from tests.servers.ports import free_ports
from tests.servers.zookeeper import ZooKeeper

RECORD = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
WIDER = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int","default":0}]}'
OTHER = '{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}'


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


class Instance(Program):
    def __init__(self, directory: Path, broker: BrokerProcess, **more: object) -> None:
        [self.port] = free_ports(1)
        super().__init__(
            directory,
            "registry",
            {"listen": f"127.0.0.1:{self.port}", "bootstrap": broker.bootstrap, "replication_factor": 1, **more},
        )
        self.url = f"http://127.0.0.1:{self.port}"

    def client(self) -> SchemaRegistryClient:
        return SchemaRegistryClient({"url": self.url, "max.retries": 0})

    @property
    def is_primary(self) -> bool:
        return scrape(self.port).get("pylog_registry_is_primary") == 1


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, broker: BrokerProcess) -> Iterator[Instance]:
    with Instance(tmp_path_factory.mktemp("registry"), broker, topic="_schemas_alone") as instance:
        instance.wait_log("event=primary")
        yield instance


def refusal(act: Any, *arguments: object) -> tuple[int, int]:
    with pytest.raises(SchemaRegistryError) as caught:
        act(*arguments)
    return caught.value.http_status_code, caught.value.error_code


def test_confluents_client_from_registering_to_deleting(alone: Instance) -> None:
    client = alone.client()
    first = client.register_schema("users-value", Schema(RECORD, "AVRO"))
    assert client.register_schema("users-value", Schema(RECORD, "AVRO")) == first
    assert client.test_compatibility("users-value", Schema(WIDER, "AVRO"))
    assert not client.test_compatibility("users-value", Schema(OTHER, "AVRO"))
    assert refusal(client.register_schema, "users-value", Schema(OTHER, "AVRO")) == (409, 409)
    second = client.register_schema("users-value", Schema(WIDER, "AVRO"))
    assert second == first + 1
    assert client.get_versions("users-value") == [1, 2]
    latest = client.get_latest_version("users-value")
    assert (latest.version, latest.schema_id) == (2, second)
    assert client.lookup_schema("users-value", Schema(RECORD, "AVRO")).version == 1
    assert client.get_schema(first).schema_str == RECORD
    assert client.delete_version("users-value", 1) == 1
    assert client.get_versions("users-value") == [2]
    assert client.delete_subject("users-value") == [2]
    assert "users-value" not in client.get_subjects()
    assert "users-value" in client.get_subjects(deleted=True)
    assert refusal(alone.client().get_latest_version, "users-value") == (404, 40401)  # the first one keeps answers
    assert client.delete_subject("users-value", permanent=True) == [1, 2]
    assert client.register_schema("users-value", Schema(OTHER, "AVRO")) > second


def test_what_does_not_fit_and_what_is_not_there_is_refused_with_the_reason(alone: Instance) -> None:
    client = alone.client()
    client.register_schema("refused-value", Schema(RECORD, "AVRO"))
    with pytest.raises(SchemaRegistryError, match=r"incompatible.*version 1: the new schema cannot read") as caught:
        client.register_schema("refused-value", Schema(OTHER, "AVRO"))
    assert (caught.value.http_status_code, caught.value.error_code) == (409, 409)
    with pytest.raises(SchemaRegistryError, match="Schema 9999 not found") as caught:
        client.get_schema(9999)
    assert (caught.value.http_status_code, caught.value.error_code) == (404, 40403)
    with pytest.raises(avro.SchemaError, match="Schema 9999 not found"):
        avro.AvroDeserializer(avro.RegistryClient(alone.url))(b"\0" + (9999).to_bytes(4, "big") + b"\2")


def test_confluents_client_sets_levels_and_modes(alone: Instance) -> None:
    client = alone.client()
    assert refusal(client.get_compatibility, "levels") == (404, 40408)
    assert client.get_compatibility() == "BACKWARD"
    client.set_compatibility("levels", "FULL_TRANSITIVE")
    assert client.get_compatibility("levels") == "FULL_TRANSITIVE"
    assert refusal(client.set_compatibility, "levels", "SIDEWAYS") == (422, 42203)


def test_confluents_client_registers_references(alone: Instance) -> None:
    client = alone.client()
    client.register_schema("q", Schema('{"type":"fixed","name":"x.Q","size":4}', "AVRO"))
    uses = '{"type":"record","name":"U","fields":[{"name":"a","type":"x.Q"}]}'
    assert refusal(client.register_schema, "u", Schema(uses, "AVRO")) == (422, 42201)
    schema_id = client.register_schema("u", Schema(uses, "AVRO", [SchemaReference("x.Q", "q", 1)]))
    assert refusal(client.delete_subject, "q") == (422, 42206)
    ours = avro.RegistryClient(alone.url)
    payload = b"\0" + schema_id.to_bytes(4, "big") + b"abcd"
    assert avro.AvroDeserializer(ours)(payload) == {"a": b"abcd"}


def test_confluents_serializers_and_ours_read_each_other(alone: Instance) -> None:
    client = alone.client()
    context = SerializationContext("clicks", MessageField.VALUE)
    ours = avro.RegistryClient(alone.url)
    theirs = AvroSerializer(client, RECORD)({"a": 3}, context)
    assert theirs is not None
    assert avro.AvroDeserializer(ours)(theirs) == {"a": 3}
    assert avro.AvroSerializer(ours, "clicks-value", RECORD)({"a": 3}) == theirs
    assert AvroDeserializer(client)(theirs, context) == {"a": 3}
    assert ours.lookups == 2


def test_other_kinds_of_schema_are_refused_by_name(alone: Instance) -> None:
    assert refusal(alone.client().register_schema, "j", Schema('{"type":"object"}', "JSON")) == (422, 42201)


def test_a_topic_that_forgets_is_refused(tmp_path: Path, broker: BrokerProcess) -> None:
    Admin(broker.bootstrap).create_topic("_forgetful", partitions=1, replication_factor=1)
    with Instance(tmp_path, broker, topic="_forgetful") as instance:
        assert instance.wait() == 1
    assert "cleanup.policy=delete" in instance.log


def test_a_registry_that_follows_another_has_its_schemas_and_takes_over_from_it(
    tmp_path: Path, broker: BrokerProcess
) -> None:
    with Instance(tmp_path / "live", broker, topic="_schemas_live") as live:
        live.wait_log("event=primary")
        first = live.client().register_schema("moves-value", Schema(RECORD, "AVRO"))
        with Instance(tmp_path / "offline", broker, topic="_schemas_offline", follow=live.url) as offline:
            offline.wait_log("event=primary")
            wait_until(lambda: offline.client().get_subjects() == ["moves-value"], lambda: offline.log)
            assert offline.client().get_schema(first).schema_str == RECORD
            assert offline.client().register_schema("moves-value", Schema(RECORD, "AVRO")) == first
            assert refusal(offline.client().register_schema, "moves-value", Schema(WIDER, "AVRO")) == (422, 42205)
            second = live.client().register_schema("moves-value", Schema(WIDER, "AVRO"))
            wait_until(lambda: offline.client().get_versions("moves-value") == [1, 2], lambda: offline.log)
            live.kill()
            wait_until(lambda: "event=cannot_follow" in offline.log, lambda: offline.log)
            assert offline.client().get_schema(second).schema_str == WIDER
            assert offline.stop() == 0
    # The other datacenter is gone for good: the operator lets this one write.
    with Instance(tmp_path / "offline", broker, topic="_schemas_offline") as alone:
        alone.wait_log("event=primary")
        wait_until(lambda: alone.is_primary, lambda: alone.log)
        assert alone.client().register_schema("new-value", Schema(OTHER, "AVRO")) == second + 1


def test_t37_schema_registry_double_failure(tmp_path: Path, broker: BrokerProcess, zookeeper: ZooKeeper) -> None:
    """Kill the primary, then its successor, then stop one through a whole term: no id is ever given twice."""
    more = {"zookeeper": zookeeper.hosts, "session_timeout_ms": 2000, "topic": "_schemas_shared"}
    ids: dict[int, str] = {}

    def register(instance: Instance, number: int) -> None:
        text = f'{{"type":"fixed","name":"F{number}","size":1}}'
        found: list[int] = []
        refused: list[int] = []

        def attempt() -> bool:
            try:
                found.append(instance.client().register_schema(f"s{number}", Schema(text, "AVRO")))
            except SchemaRegistryError as error:
                refused.append(error.http_status_code)
            return bool(found)

        wait_until(attempt, lambda: instance.log)
        assert set(refused) <= {500}
        assert ids.setdefault(found[0], text) == text
        assert instance.client().get_schema(found[0]).schema_str == text

    with Instance(tmp_path / "a", broker, **more) as one, Instance(tmp_path / "b", broker, **more) as two:
        for instance in (one, two):
            instance.wait_log("event=ready")
        wait_until(lambda: one.is_primary or two.is_primary, lambda: one.log + two.log)
        first, second = (one, two) if one.is_primary else (two, one)
        register(second, 1)  # forwarded, and readable where it was asked at once
        register(first, 2)
        # The schema with the highest id goes for good; its id does not come back, whoever reads the topic anew.
        first.client().delete_subject("s2")
        first.client().delete_subject("s2", permanent=True)
        first.kill()
        register(second, 3)
        second.kill()
        first.start()
        wait_until(lambda: scrape(first.port), lambda: first.log)
        register(first, 4)
        second.start()
        wait_until(lambda: scrape(second.port), lambda: second.log)
        first.signal(signal.SIGSTOP)
        wait_until(lambda: second.is_primary, lambda: second.log)
        register(second, 5)
        first.signal(signal.SIGCONT)
        register(first, 6)
        # Where an attempt was refused, the id of a write that nobody confirmed stays unused.
        assert list(ids)[:5] == [1, 2, 3, 4, 5]
        assert list(ids)[5:] in ([6], [7])
        wait_until(lambda: first.is_primary + second.is_primary == 1, lambda: first.log + second.log)
        for schema_id, text in ids.items():
            if schema_id != 2:
                assert first.client().get_schema(schema_id).schema_str == text
