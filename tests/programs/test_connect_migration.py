"""A topic and its group move from Apache Kafka to pylog and back, by MirrorMaker 2, as docs/connect.md says."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.command import Command
from tests.programs.conftest import Datacenter
from tests.programs.program import wait_until
from tests.servers.connect import ConnectWorker, unpacked
from tests.servers.kafka import KafkaServer

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "connect"
PYLOG = Command("127.0.0.1:9")
PATIENCE_S = 180.0
FIRST, SECOND = 600, 300


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[KafkaServer]:
    with KafkaServer(tmp_path / "kafka") as running:
        yield running


@pytest.fixture
def worker(tmp_path: Path, live: Datacenter) -> Iterator[ConnectWorker]:
    (tmp_path / "jars").mkdir()
    with ConnectWorker(tmp_path / "worker", unpacked(tmp_path / "jars"), live.bootstrap) as running:
        yield running


def example(name: str, directory: Path, kafka: KafkaServer, live: Datacenter) -> str:
    """Return a copy of an example for clusters of one broker that are asked more often."""
    text = (EXAMPLES / name).read_text().replace("kafka1:9092", kafka.bootstrap).replace("log1:9092", live.bootstrap)
    text = text.replace("factor: 3", "factor: 1").replace("seconds: 10", "seconds: 1")
    (directory / name).write_text(text)
    return str(directory / name)


def write(bootstrap: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in numbers:
        producer.produce("orders", b"%d" % number, partition=number % 2, headers={"n": b"\x00\xff"})
    assert producer.flush(60) == 0


def read(bootstrap: str, group: str, count: int) -> list[int]:
    """Read *count* records in a group, or until nothing has come for a while, and commit what was read."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | {"enable.auto.commit": False})
    consumer.subscribe(["orders"])
    found: list[int] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        if (message := consumer.poll(1)) is not None and message.error() is None:
            found.append(int(message.value() or b""))
            assert message.headers() == [("n", b"\x00\xff")]
    if found:
        consumer.commit(asynchronous=False)
    consumer.close()
    return found


def ends(bootstrap: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "looks"})
    total = sum(consumer.get_watermark_offsets(TopicPartition("orders", one), timeout=10)[1] for one in (0, 1))
    consumer.close()
    return total


def committed(bootstrap: str, group: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    found = consumer.committed([TopicPartition("orders", one) for one in (0, 1)], timeout=10)
    consumer.close()
    return sum(max(one.offset, 0) for one in found)


def test_a_topic_and_its_group_move_from_kafka_and_back_without_a_hole(
    kafka: KafkaServer, live: Datacenter, worker: ConnectWorker, tmp_path: Path
) -> None:
    def log() -> str:
        return worker.log_path.read_text()[-3000:]

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    [made] = admin.create_topics([NewTopic("orders", 2, 1)]).values()
    made.result(60)
    write(kafka.bootstrap, range(FIRST))
    before = read(kafka.bootstrap, "app", FIRST // 2)

    PYLOG("connect", "apply", example("from-kafka.yml", tmp_path, kafka, live), "--url", worker.url)
    PYLOG("connect", "status", "--url", worker.url, "--wait", "120", "--consecutive", "3")
    wait_until(lambda: "orders" in live.admin.cluster().topics and ends(live.bootstrap) == FIRST, log, PATIENCE_S)
    for partition, values in live.values("orders").items():
        assert values == [b"%d" % number for number in range(partition, FIRST, 2)], "each once, in its order"
    wait_until(lambda: committed(live.bootstrap, "app") > 0, log, PATIENCE_S)
    time_in_kafka = committed(kafka.bootstrap, "app")
    assert committed(live.bootstrap, "app") <= time_in_kafka, "ahead of what was read would be a hole"
    after = read(live.bootstrap, "app", FIRST - committed(live.bootstrap, "app"))
    assert {*before} | {*after} == {*range(FIRST)}
    print(f"read again after the move: {len({*before} & {*after})} of {FIRST}")

    PYLOG("connect", "apply", example("to-kafka.yml", tmp_path, kafka, live), "--url", worker.url)
    PYLOG("connect", "status", "--url", worker.url, "--wait", "120", "--consecutive", "3")
    for partition in (0, 1):
        found = f"Resetting offset for partition orders-{partition} to position"
        wait_until(lambda text=found: text in worker.log_path.read_text(), log, PATIENCE_S)
    write(live.bootstrap, range(FIRST, FIRST + SECOND))
    wait_until(lambda: ends(kafka.bootstrap) == FIRST + SECOND, log, PATIENCE_S)
    last = read(kafka.bootstrap, "check", FIRST + SECOND)
    assert sorted(last) == [*range(FIRST + SECOND)], "each once: nothing of what Kafka had is copied again"
