"""Quotas of clients, set by Kafka's own tool and felt by confluent-kafka; rates by the broker's own counters."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pylog.broker.quotas import BURST_MS
from pylog.testing import BrokerProcess
from tests.interop import frames
from tests.interop.conftest import PEER, create_topic, wait_until
from tests.interop.frames import Closed, Connection
from tests.servers.kafka import CONFIG_COMMAND, TOPIC_COMMAND, java_tool

pytestmark = pytest.mark.skipif(PEER != "pylog", reason="reads pylog's counters")

RATE = 300_000
VALUE = b"v" * 10_000
REQUEST_BYTES = 60_000
"""More than one request of the producers here weighs; a rate holds up to one request and one burst."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("quotas")) as running:
        alter(running, "producer_byte_rate", RATE, "slow-producer")
        alter(running, "consumer_byte_rate", RATE, "slow-consumer")
        alter(running, "request_percentage", 0.01, "busy")
        yield running


def alter(
    broker: BrokerProcess, key: str, value: float, name: str | None, *, kind: str = "clients", remove: bool = False
) -> None:
    entity = ["--entity-default"] if name is None else ["--entity-name", name]
    change = ["--delete-config", key] if remove else ["--add-config", f"{key}={value}"]
    java_tool(
        CONFIG_COMMAND, "--bootstrap-server", broker.bootstrap, "--alter", "--entity-type", kind, *entity, *change
    )


def described(broker: BrokerProcess, kind: str = "clients") -> str:
    return java_tool(
        CONFIG_COMMAND, "--bootstrap-server", broker.bootstrap, "--describe", "--entity-type", kind
    ).decode()


def counter(broker: BrokerProcess, name: str) -> float:
    _, text = broker.admin("GET", "/metrics")
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    assert found is not None, f"{name} is not among the metrics"
    return float(found[1])


def throttled(broker: BrokerProcess, quota: str) -> float:
    return counter(broker, f'pylog_quota_throttled_total{{quota="{quota}"}}')


class Throttles:
    """How long a client was told to be throttled."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def __call__(self, event: object) -> None:
        self.seconds.append(event.throttle_time)  # type: ignore[attr-defined]


def producer(broker: BrokerProcess, client_id: str, throttles: Throttles, **config: object) -> Producer:
    return Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": client_id,
            "throttle_cb": throttles,
            "batch.num.messages": 5,
            "max.in.flight": 1,  # what was read already is handled, so more would overshoot by as much, once
            "linger.ms": 1,
            **config,
        }
    )


def test_a_producer_is_held_at_its_rate_and_told_so(broker: BrokerProcess) -> None:
    create_topic(broker.bootstrap, "slow")
    create_topic(broker.bootstrap, "fast")
    slow_told, fast_told = Throttles(), Throttles()
    slow = producer(broker, "slow-producer", slow_told, **{"acks": "all"})
    fast = producer(broker, "fast-producer", fast_told)
    before, begun_s = counter(broker, "pylog_produce_bytes_total"), time.monotonic()
    for _ in range(3 * RATE // len(VALUE)):
        slow.produce("slow", VALUE, partition=0)
    wait_until(lambda: bool(slow.poll(0) or slow_told.seconds), "the producer is throttled")
    for _ in range(100):
        fast.produce("fast", VALUE, partition=0)
    assert fast.flush(30) == 0
    assert len(slow) > 0, "the other client waited for the throttled one"
    assert slow.flush(60) == 0
    used = counter(broker, "pylog_produce_bytes_total") - before - 100 * len(VALUE)
    assert used < RATE * (time.monotonic() - begun_s + BURST_MS / 1000) + REQUEST_BYTES
    assert max(slow_told.seconds) > 0
    assert fast_told.seconds == []
    assert throttled(broker, "producer_byte_rate") > 0


def test_a_consumer_is_held_at_its_rate_and_told_so(broker: BrokerProcess) -> None:
    create_topic(broker.bootstrap, "read")
    writer = producer(broker, "writer", Throttles())
    count = 3 * RATE // len(VALUE)
    for _ in range(count):
        writer.produce("read", VALUE, partition=0)
    assert writer.flush(30) == 0
    told = Throttles()
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": "slow-consumer",
            "group.id": "none",
            "throttle_cb": told,
        }
    )
    consumer.assign([TopicPartition("read", 0, 0)])
    before, begun_s = counter(broker, "pylog_fetch_bytes_total"), time.monotonic()
    got = 0
    while got < count:
        message = consumer.poll(30)
        assert message is not None, f"{got} of {count} records came"
        assert message.error() is None
        got += 1
    used = counter(broker, "pylog_fetch_bytes_total") - before
    elapsed_s = time.monotonic() - begun_s
    consumer.close()
    # The last reply is on its way before it is paid for: one burst more at most.
    assert used < RATE * (elapsed_s + 2 * BURST_MS / 1000) + REQUEST_BYTES
    assert max(told.seconds) > 0
    assert throttled(broker, "consumer_byte_rate") > 0


def test_a_client_that_keeps_the_broker_busy_is_throttled(broker: BrokerProcess) -> None:
    create_topic(broker.bootstrap, "many")
    told = Throttles()
    busy = producer(broker, "busy", told)
    for number in range(50):
        busy.produce("many", b"%d" % number, partition=0)
        assert busy.flush(60) == 0
        if told.seconds:
            break
    assert max(told.seconds) > 0
    assert throttled(broker, "request_percentage") > 0


def is_served(broker: BrokerProcess) -> bool:
    """Whether a new connection is answered, or closed without a word."""
    with Connection(broker.bootstrap) as connection:
        try:
            return bool(connection.ask(frames.api_versions()))
        except Closed:
            return False


def test_an_address_gets_no_more_connections_a_second_than_its_quota(tmp_path: Path) -> None:
    rate = 4
    with BrokerProcess(tmp_path) as broker:
        alter(broker, "connection_creation_rate", rate, "127.0.0.1", kind="ips")
        assert "connection_creation_rate=4.0" in described(broker, "ips")
        begun_s = time.monotonic()
        served = [is_served(broker) for _ in range(4 * rate)]
        elapsed_s = time.monotonic() - begun_s
        assert rate / 2 <= sum(served) <= rate * (elapsed_s + BURST_MS / 1000) + 1
        assert throttled(broker, "connection_creation_rate") >= served.count(False) > 0
        assert "too many connections a second" in broker.log
        broker.restart()
        assert "connection_creation_rate=4.0" in described(broker, "ips")
        alter(broker, "connection_creation_rate", 0, "127.0.0.1", kind="ips", remove=True)
        assert all(is_served(broker) for _ in range(4 * rate))


def test_topics_are_made_no_faster_than_the_quota_and_java_s_client_is_told(broker: BrokerProcess) -> None:
    def create(topic: str, partitions: int) -> None:
        java_tool(
            TOPIC_COMMAND,
            "--bootstrap-server",
            broker.bootstrap,
            "--create",
            "--topic",
            topic,
            "--partitions",
            str(partitions),
        )

    alter(broker, "controller_mutation_rate", 1, "adminclient-1")
    create("wide", 31)  # eleven are saved up: twenty seconds of debt
    with pytest.raises(RuntimeError, match="ThrottlingQuotaExceededException"):
        create("patient", 1)
    assert throttled(broker, "controller_mutation_rate") > 0
    create_topic(broker.bootstrap, "of-others")
    alter(broker, "controller_mutation_rate", 1000, "adminclient-1")
    create("patient", 1)
    alter(broker, "controller_mutation_rate", 0, "adminclient-1", remove=True)


def test_an_older_client_is_served_and_made_to_wait(broker: BrokerProcess) -> None:
    alter(broker, "controller_mutation_rate", 1, "older")
    before = throttled(broker, "controller_mutation_rate")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "client.id": "older"})
    admin.create_topics([NewTopic("wide-of-old", 13, 1)])["wide-of-old"].result(30)
    assert throttled(broker, "controller_mutation_rate") == before + 1
    admin.delete_topics(["wide-of-old"])["wide-of-old"].result(60)


def test_the_tool_shows_what_holds_also_after_a_restart(broker: BrokerProcess) -> None:
    alter(broker, "producer_byte_rate", 1024, None)
    said = described(broker)
    assert "producer_byte_rate=1024.0" in said
    assert "slow-consumer" in said
    broker.restart()
    assert sorted(described(broker).splitlines()) == sorted(said.splitlines())
    alter(broker, "producer_byte_rate", 0, None, remove=True)
    assert "producer_byte_rate=1024.0" not in described(broker)


def test_quotas_stand_in_the_store_as_kafka_writes_them(tmp_path: Path) -> None:
    from pylog.cluster import znodes
    from pylog.cluster.quotas import QuotaEntity
    from pylog.store.embedded import EmbeddedTree

    with BrokerProcess(tmp_path) as broker:
        alter(broker, "producer_byte_rate", 1024, "a b")
    session = EmbeddedTree(broker.data_dir / "store").session()
    session.connect(5)
    try:
        data, _ = session.get(znodes.quota_path(QuotaEntity(None, "a%20b")))
    finally:
        session.close()
    assert data == b'{"version":1,"config":{"producer_byte_rate":"1024"}}'
