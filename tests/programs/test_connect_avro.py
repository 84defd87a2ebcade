"""Avro by Apicurio's converter on Kafka Connect's own worker, with schemas of pylog's registry."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from pylog.client.admin.cluster import Admin
from pylog.client.connection import Connection
from pylog.testing import BrokerProcess
from tests.command import Command
from tests.programs.program import Program, wait_until
from tests.servers.connect import ConnectWorker, unpacked
from tests.servers.ports import free_ports

START_S = 240.0
PYLOG = Command("127.0.0.1:9")
LINES = 200
WIDER = {
    "type": "record",
    "name": "ConnectDefault",
    "namespace": "io.confluent.connect.avro",
    "fields": [{"name": "line", "type": "string"}],
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory, broker: BrokerProcess) -> Iterator[str]:
    [port] = free_ports(1)
    settings = {"listen": f"127.0.0.1:{port}", "bootstrap": broker.bootstrap, "replication_factor": 1}
    with Program(tmp_path_factory.mktemp("registry"), "registry", settings) as running:
        running.wait_log("event=primary")
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory, broker: BrokerProcess) -> Iterator[ConnectWorker]:
    jars = unpacked(tmp_path_factory.mktemp("jars"))
    # Kafka's own default: this converter does not list itself for Java's ServiceLoader.
    config = {"plugin.discovery": "hybrid_warn"}
    with ConnectWorker(tmp_path_factory.mktemp("worker"), jars, broker.bootstrap, config) as running:
        yield running


def converter(registry: str) -> dict[str, object]:
    """Return the settings of a connector whose values are Avro, as docs/connect.md has them."""
    return {
        "value.converter": "io.apicurio.registry.utils.converter.AvroConverter",
        "value.converter.apicurio.registry.url": f"{registry}/apis/registry/v2",
        "value.converter.apicurio.registry.as-confluent": True,
        "value.converter.apicurio.registry.headers.enabled": False,
        "value.converter.apicurio.registry.auto-register": True,
    }


def apply(worker: ConnectWorker, *connectors: dict[str, object]) -> None:
    document = json.dumps({"connectors": connectors}).encode()
    PYLOG("connect", "apply", "-", "--url", worker.url, stdin=document)
    PYLOG("connect", "status", "--url", worker.url, "--wait", "120", "--consecutive", "3")


def test_a_source_registers_its_schema_and_confluents_deserializer_reads_what_it_wrote(
    worker: ConnectWorker, broker: BrokerProcess, registry: str, tmp_path: Path
) -> None:
    Admin(Connection(bootstrap=broker.bootstrap)).create_topic("lines", partitions=1)
    (tmp_path / "in").write_text("".join(f"line {number}\n" for number in range(LINES)))
    hoist = {
        "transforms": "hoist",
        "transforms.hoist.type": "org.apache.kafka.connect.transforms.HoistField$Value",
        "transforms.hoist.field": "line",
    }
    files = {"tasks.max": 1, "file": str(tmp_path / "in"), "topic": "lines"}
    config = {"connector.class": "FileStreamSource", **files, **hoist, **converter(registry)}
    apply(worker, {"name": "lines-in", "config": config})
    client = SchemaRegistryClient({"url": registry})
    read = AvroDeserializer(client)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition("lines", 0, 0)])
    found: list[str] = []
    while len(found) < LINES:
        message = consumer.poll(60)
        assert message is not None, worker.log_path.read_text()[-3000:]
        found.append(read(message.value(), SerializationContext("lines", MessageField.VALUE))["line"])
    consumer.close()
    assert found == [f"line {number}" for number in range(LINES)]
    assert client.get_subjects() == ["lines-value"]
    assert client.get_versions("lines-value") == [1]


def test_a_sink_reads_what_confluents_serializer_wrote_under_a_schema_of_its_own(
    worker: ConnectWorker, broker: BrokerProcess, registry: str, tmp_path: Path
) -> None:
    Admin(Connection(bootstrap=broker.bootstrap)).create_topic("words", partitions=1)
    write = AvroSerializer(SchemaRegistryClient({"url": registry}), json.dumps({**WIDER, "name": "Word"}))
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(LINES):
        value = write({"line": f"word {number}"}, SerializationContext("words", MessageField.VALUE))
        producer.produce("words", value)
    producer.produce("words", b"no Avro at all")
    producer.produce("words", write({"line": "the last"}, SerializationContext("words", MessageField.VALUE)))
    assert producer.flush(30) == 0
    sink = tmp_path / "out"
    files = {"tasks.max": 1, "file": str(sink), "topics": "words"}
    config = {"connector.class": "FileStreamSink", **files, **converter(registry), "errors.tolerance": "all"}
    apply(worker, {"name": "words-out", "config": config})
    wait_until(
        lambda: sink.exists() and "the last" in sink.read_text(), lambda: worker.log_path.read_text()[-3000:], START_S
    )
    expected = [f"Struct{{line=word {number}}}" for number in range(LINES)]
    assert sink.read_text().splitlines() == [*expected, "Struct{line=the last}"]
