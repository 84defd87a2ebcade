"""Groups over three brokers: what a group committed survives the broker that coordinated it."""

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.cluster.conftest import Brokers, bootstrap, create, isrs, leaders, wait_for

OFFSETS_TOPIC = "__consumer_offsets"


def committed(through: str, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": through, "group.id": group, "enable.auto.commit": False})
    try:
        [found] = consumer.committed([TopicPartition(topic, 0)], timeout=20)
        return int(found.offset)
    finally:
        consumer.close()


def commit(through: str, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": through, "group.id": group, "enable.auto.commit": False})
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    finally:
        consumer.close()


def coordinator(brokers: Brokers, group: str) -> int:
    admin = AdminClient({"bootstrap.servers": bootstrap(brokers)})
    return int(admin.describe_consumer_groups([group])[group].result(20).coordinator.id)


def test_committed_offsets_survive_the_death_of_their_coordinator(brokers: Brokers) -> None:
    create(brokers[1], "read", 1, 3)
    commit(bootstrap(brokers), "readers", "read", 41)
    wait_for(
        lambda: all(isr == {1, 2, 3} for isr in isrs(brokers, OFFSETS_TOPIC).values()),
        "the topic that keeps groups has three replicas",
    )
    victim = coordinator(brokers, "readers")
    commit(bootstrap(brokers), "readers", "read", 42)
    brokers[victim].kill()
    alive = {one: broker for one, broker in brokers.items() if one != victim}
    try:
        wait_for(lambda: victim not in leaders(alive, OFFSETS_TOPIC).values(), "others coordinate")
        assert committed(bootstrap(alive), "readers", "read") == 42
        commit(bootstrap(alive), "readers", "read", 43)
    finally:
        brokers[victim].start()
    assert committed(bootstrap(brokers), "readers", "read") == 43


def test_a_commit_without_enough_replicas_is_refused_and_not_shown(brokers: Brokers) -> None:
    create(brokers[1], "few-read", 1, 3)
    commit(bootstrap(brokers), "few", "few-read", 7)
    keeper = coordinator(brokers, "few")
    others = [one for one in brokers if one != keeper]
    alive = {keeper: brokers[keeper]}
    for one in others:
        brokers[one].kill()
    try:
        wait_for(
            lambda: any(isr == {keeper} for isr in isrs(alive, OFFSETS_TOPIC).values()), "only the coordinator is left"
        )
        with pytest.raises(KafkaException) as refusal:
            commit(bootstrap(alive), "few", "few-read", 8)
        wanted = (KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError._TIMED_OUT, KafkaError._WAIT_COORD)
        assert refusal.value.args[0].code() in wanted
        assert committed(bootstrap(alive), "few", "few-read") == 7
    finally:
        for one in others:
            brokers[one].start()
