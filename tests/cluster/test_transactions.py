"""Transactions over three brokers of which leaders and coordinators are killed."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.cluster.conftest import Brokers, bootstrap, create, isrs, leaders, running, wait_for
from tests.cluster.transactional import Copier, Reader, Transactional, judge, stable_ends
from tests.interop.clients.transactional import Java4
from tests.servers.outcome import Outcome
from tests.servers.zookeeper import ZooKeeper

STATE, GROUPS = "__transaction_state", "__consumer_offsets"
ALL = {1, 2, 3}
COPIED = 1_500
COMMITS = 15
"""Transactions that each producer commits while a broker is away, and between two kills."""


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeper) -> Iterator[Brokers]:
    settings = {
        "transaction.state.log.num.partitions": 3,
        "offsets.topic.num.partitions": 3,
        "min.insync.replicas": 2,
    }
    with running(tmp_path_factory.mktemp("transactional"), zookeeper, **settings) as found:
        yield found


def test_readers_get_what_is_committed_and_nothing_hangs_whoever_is_killed(brokers: Brokers, tmp_path: Path) -> None:
    create(brokers[1], "data", 3, 3)
    create(brokers[1], "source", 1, 3)
    create(brokers[1], "copy", 1, 3)
    everywhere = bootstrap(brokers)
    filler = Producer({"bootstrap.servers": everywhere, "enable.idempotence": True})
    source = [f"row {number}" for number in range(COPIED)]
    for value in source:
        filler.produce("source", value)
    assert filler.flush(60) == 0
    producers = [Transactional(everywhere, f"producer {number}", "data", 3) for number in range(3)]
    copier = Copier(everywhere, "copier", "source", "copy", COPIED)
    readers = {"data": Reader(everywhere, "data", 3).start(), "copy": Reader(everywhere, "copy", 1).start()}
    topics = ("data", "source", "copy", STATE, GROUPS)

    def go_on(what: str) -> None:
        before = [one.committed for one in producers]
        wait_for(
            lambda: all(one.committed >= count + COMMITS for one, count in zip(producers, before, strict=True)),
            lambda: f"{what}: {before} committed before, {[(one.committed, one.error) for one in producers]} now",
        )

    with ExitStack() as stack:
        for one in (*producers, copier):
            one.start()
            stack.callback(one._ending.set)
        go_on("all brokers live")
        for topic, partition in (
            ("data", 0),
            (STATE, 0),
            ("data", 1),
            (STATE, 1),
            (GROUPS, 0),
            (STATE, 2),
            ("copy", 0),
        ):
            victim = leaders(brokers, topic)[partition]
            brokers[victim].kill()
            go_on(f"broker {victim}, which led {topic}-{partition}, is dead")
            brokers[victim].start()
            wait_for(
                lambda: all(isr == ALL for one in topics for isr in isrs(brokers, one).values()),
                f"broker {victim} is in sync again",
            )
        copier.end_when_copied()
        for one in producers:
            one.end()
    for topic, partitions in (("data", 3), ("copy", 1)):
        wait_for(
            lambda: len({tuple(ends) for ends in stable_ends(everywhere, topic, partitions)}) == 1,  # noqa: B023
            lambda: f"nothing hangs in {topic}: {stable_ends(everywhere, topic, partitions)}",  # noqa: B023
        )
        readers[topic].read_to(stable_ends(everywhere, topic, partitions)[0])
        assert not readers[topic].repeated
    sent = [one for producer in producers for one in producer.sent]
    judge(sent, list(readers["data"].got.values()))
    assert [value for _, value in sorted(readers["copy"].got.items())] == source, "each once, and in order"
    outcomes = {outcome: sum(one.outcome is outcome for one in sent) for outcome in Outcome}
    ends = [end for one in (*producers, copier) for end in one.ends]
    print(f"{outcomes}, copied in {len(copier.sent)} transactions, {len(ends)} producers failed: {set(ends)}")
    assert outcomes[Outcome.ABORTED] > 20


def test_leaders_add_partitions_at_coordinators_on_other_brokers(brokers: Brokers) -> None:
    topic, names = "added", [f"epoch-each-{number}" for number in range(6)]
    create(brokers[1], topic, 3, 3)
    java, wanted = Java4(), []
    java.start(bootstrap(brokers))
    try:
        producers = [java.producer(name) for name in names]  # their coordinators are spread over the brokers
        for number in range(8):
            for name, producer in zip(names, producers, strict=True):
                producer.begin()
                values = [f"{name}-{number}-{partition}" for partition in range(3)]
                for partition, value in enumerate(values):
                    producer.send(topic, partition, value)
                if number % 4 == 1:
                    producer.abort()
                else:
                    producer.commit()
                    wanted += values
        assert sorted(java.read(topic)) == sorted(wanted)
    finally:
        java.stop()
