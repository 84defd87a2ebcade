"""What a broker tells of requests: how many, by acks and part, and that a wait the client asked for is left out."""

import uuid
from collections.abc import Iterator, Mapping

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from pylog.client.raw import RawClient, RawConfig
from pylog.model import TopicPartition
from pylog.testing import BrokerProcess
from tests.programs.program import wait_until

WAIT_MS = 1_500


class Watched:
    """A broker and the page of its metrics."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self.bootstrap = broker.bootstrap

    def page(self) -> Mapping[str, float]:
        text = self._broker.admin("GET", "/metrics")[1]
        lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in lines}

    def create(self, **config: str) -> str:
        """Return a new topic of one partition."""
        topic = f"requests-{uuid.uuid4().hex[:8]}"
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(topic, 1, 1, config=config)], operation_timeout=30)[topic].result(60)
        return topic

    def write(self, topic: str, acks: str = "all") -> None:
        """Send one record in one request."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": acks, "enable.idempotence": False})
        producer.produce(topic, b"value", partition=0)
        assert producer.flush(30) == 0


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    config = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}
    with BrokerProcess(tmp_path_factory.mktemp("broker"), config=config) as running:
        yield Watched(running)


def _series(api: str, acks: str = "", part: str = "total", *, suffix: str = "count") -> str:
    return f'pylog_request_seconds_{suffix}{{acks="{acks}",api="{api}",part="{part}"}}'


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_a_write_is_timed_under_its_acks_alone(watched: Watched, acks: str) -> None:
    topic = watched.create()
    before = watched.page()
    watched.write(topic, acks)
    count = _series("produce", acks)
    wait_until(lambda: watched.page()[count] > before[count], "a write without acknowledgement comes when it comes")
    after = watched.page()
    grown = {one: after[_series("produce", one)] - before[_series("produce", one)] for one in ("0", "1", "all")}
    assert grown == {one: 1 if one == acks else 0 for one in grown}
    assert after[_series("produce", acks, suffix="sum")] > before[_series("produce", acks, suffix="sum")]
    requests = 'pylog_requests_total{api="produce"}'
    assert after[requests] - before[requests] == 1


def test_the_wait_that_a_fetch_asked_for_is_left_out(watched: Watched) -> None:
    topic = watched.create()
    before = watched.page()
    config = RawConfig(max_wait_ms=WAIT_MS)
    with RawClient(watched.bootstrap, config) as client:
        [found] = client.fetch({TopicPartition(topic, 0): 0}).values()
    assert not found.records
    after = watched.page()
    count, total = _series("fetch"), _series("fetch", suffix="sum")
    assert after[count] - before[count] == 1
    assert after[total] - before[total] < WAIT_MS / 1_000


def test_a_commit_is_timed_by_itself(watched: Watched) -> None:
    topic = watched.create()
    watched.write(topic)
    before = watched.page()
    reader = Consumer(
        {
            "bootstrap.servers": watched.bootstrap,
            "group.id": f"g-{topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    reader.subscribe([topic])
    assert reader.consume(1, timeout=30)
    reader.commit(asynchronous=False)
    reader.close()
    after = watched.page()
    count = _series("offset_commit")
    assert after[count] - before[count] == 1


def test_a_sync_that_a_write_waits_for_is_timed(watched: Watched) -> None:
    topic = watched.create(**{"flush.messages": "1"})
    before = watched.page()
    watched.write(topic)
    after = watched.page()
    count, total = (f'pylog_sync_seconds_{suffix}{{reason="acknowledgement"}}' for suffix in ("count", "sum"))
    assert after[count] > before[count]
    assert after[total] > before[total]


def test_the_process_is_measured(watched: Watched) -> None:
    page = watched.page()
    assert page["process_cpu_seconds_total"] > 0
    assert page["process_resident_memory_bytes"] > 10 << 20
    assert 0 < page["process_open_fds"] < page["process_max_fds"]
    assert page["process_start_time_seconds"] > 1_600_000_000
