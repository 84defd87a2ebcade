"""Other people's consumer groups: who gets what while members come, leave and die."""

import time
from collections import Counter
from collections.abc import Sequence

import pytest
from confluent_kafka import Consumer, TopicPartition

from pylog.testing import BrokerProcess
from tests.consumers.conftest import PARTITIONS, GroupView, MemberProcess, Start, create_topic, produce, wait_until
from tests.consumers.member import SESSION_MS

CLIENTS = ("confluent", "kafka-python", "aiokafka", "java")


def each_once(members: Sequence[MemberProcess], values: Sequence[str]) -> None:
    """Wait until every value was given to some member, and check that it was to one only."""
    wait_until(lambda: {value for one in members for value in one.values} >= set(values), lambda: repr(members))
    counts = Counter(value for one in members for value in one.values if value in set(values))
    assert [value for value, count in counts.items() if count > 1] == []


def at_least_once(members: Sequence[MemberProcess], values: Sequence[str]) -> None:
    """Wait until every value was given to some member."""
    wait_until(lambda: {value for one in members for value in one.values} >= set(values), lambda: repr(members))


def numbered(name: str, count: int = 5 * PARTITIONS) -> list[str]:
    return [f"{name}-{number}" for number in range(count)]


@pytest.mark.parametrize("client", CLIENTS)
def test_two_of_a_kind_share_a_topic(client: str, broker: BrokerProcess, topic: str, start: Start) -> None:
    group = GroupView(broker.bootstrap, client)
    first, second = start(client, client, topic), start(client, client, topic)
    group.wait_stable(client, client)
    produce(broker.bootstrap, topic, numbered("both"))
    each_once([first, second], numbered("both"))
    assert first.values
    assert second.values

    first.kill()
    group.wait_stable(client)
    produce(broker.bootstrap, topic, numbered("killed"))
    at_least_once([second], numbered("killed"))

    second.stop()
    group.wait_empty(timeout_s=SESSION_MS / 1000)


def test_four_clients_side_by_side(broker: BrokerProcess, topic: str, start: Start) -> None:
    group = GroupView(broker.bootstrap, "mixed")
    members = {client: start(client, "mixed", topic) for client in CLIENTS}
    group.wait_stable(*CLIENTS)
    produce(broker.bootstrap, topic, numbered("all"))
    each_once(list(members.values()), numbered("all"))
    assert {client: len(member.values) for client, member in members.items()} == dict.fromkeys(CLIENTS, 10)

    members["aiokafka"].kill()
    members["java"].stop()
    group.wait_stable("confluent", "kafka-python")
    produce(broker.bootstrap, topic, numbered("two"))
    at_least_once([members["confluent"], members["kafka-python"]], numbered("two"))

    late = start("aiokafka", "mixed", topic)
    group.wait_stable("aiokafka", "confluent", "kafka-python")
    produce(broker.bootstrap, topic, numbered("three"))
    each_once([members["confluent"], members["kafka-python"], late], numbered("three"))
    assert any(value.startswith("three") for value in late.values)


def test_every_group_gets_every_record(broker: BrokerProcess, topic: str, start: Start) -> None:
    produce(broker.bootstrap, topic, numbered("news"))
    one, two = start("confluent", "group-1", topic), start("kafka-python", "group-2", topic)
    each_once([one], numbered("news"))
    each_once([two], numbered("news"))


def test_members_beyond_the_partitions_have_nothing(broker: BrokerProcess, start: Start) -> None:
    create_topic(broker.bootstrap, "narrow", partitions=1)
    members = [start("confluent", "narrow", "narrow") for _ in range(2)]
    GroupView(broker.bootstrap, "narrow").wait_stable("confluent")
    produce(broker.bootstrap, "narrow", numbered("n", 10), partitions=1)
    each_once(members, numbered("n", 10))
    assert sorted(len(member.values) for member in members) == [0, 10]


def test_a_member_of_several_topics(broker: BrokerProcess, start: Start) -> None:
    for name in ("many-a", "many-b"):
        create_topic(broker.bootstrap, name, partitions=2)
        produce(broker.bootstrap, name, numbered(name, 10), partitions=2)
    # A pattern, as librdkafka spells it.
    member = start("confluent", "several", "^many-.*")
    each_once([member], numbered("many-a", 10) + numbered("many-b", 10))


def test_a_new_group_begins_where_it_is_told(broker: BrokerProcess, topic: str, start: Start) -> None:
    produce(broker.bootstrap, topic, numbered("old"))
    member = start("confluent", "latest", topic, auto__offset__reset="latest")
    GroupView(broker.bootstrap, "latest").wait_stable("confluent")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "latest", "enable.auto.commit": False})
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    wait_until(lambda: bool(member.events()), "it is assigned")
    new = 0
    while not member.values:  # its positions are fixed only when it has asked for the ends
        produce(broker.bootstrap, topic, numbered(f"new-{new}", PARTITIONS))
        new += 1
        assert new < 100
        time.sleep(0.1)
    assert not [value for value in member.values if value.startswith("old")]
    wait_until(lambda: any(one.offset > 5 for one in consumer.committed(partitions, timeout=10)), "it commits")
    consumer.close()


def test_a_restarted_static_member_moves_nothing(broker: BrokerProcess, topic: str, start: Start) -> None:
    group = GroupView(broker.bootstrap, "static")
    fixed = {"group__instance__id": "one", "session__timeout__ms": "20000"}
    # Killed, not stopped: a static member does not leave, but librdkafka's close waits for its last commit.
    first, other = start("confluent", "static", topic, **fixed), start("confluent", "static", topic)
    group.wait_stable("confluent", "confluent")
    produce(broker.bootstrap, topic, numbered("before"))
    each_once([first, other], numbered("before"))
    assigned = [event for event in other.events() if "assigned" in event]

    first.kill()
    again = start("confluent", "static", topic, **fixed)
    wait_until(lambda: any("assigned" in event for event in again.events()), lambda: repr(again))
    produce(broker.bootstrap, topic, numbered("after"))
    at_least_once([again, other], numbered("after"))
    assert [event for event in other.events() if "assigned" in event] == assigned
    assert [event for event in again.events() if "assigned" in event] == [
        event for event in first.events() if "assigned" in event
    ][-1:]


def test_a_second_member_with_the_same_instance_id_fences_the_first(
    broker: BrokerProcess, topic: str, start: Start
) -> None:
    first = start("confluent", "fenced", topic, group__instance__id="one")
    GroupView(broker.bootstrap, "fenced").wait_stable("confluent")
    second = start("confluent", "fenced", topic, group__instance__id="one")
    wait_until(lambda: any("fatal" in event for event in first.events()), lambda: repr([first, second]))
    assert "fenced by other consumer" in first.events()[-1]["fatal"]
    produce(broker.bootstrap, topic, numbered("second"))
    each_once([second], numbered("second"))


def test_cooperative_members_keep_what_does_not_move(broker: BrokerProcess, topic: str, start: Start) -> None:
    group = GroupView(broker.bootstrap, "cooperative")
    sticky = {"partition__assignment__strategy": "cooperative-sticky"}
    first = start("confluent", "cooperative", topic, **sticky)
    group.wait_stable("confluent")
    second = start("confluent", "cooperative", topic, **sticky)
    group.wait_stable("confluent", "confluent")
    half = PARTITIONS // 2
    wait_until(
        lambda: sum(len(event.get("assigned", ())) for event in second.events()) == half,
        lambda: f"{first.events()} {second.events()}",
    )
    revoked = [number for event in first.events() for number in event.get("revoked", ())]
    assigned = [number for event in second.events() for number in event.get("assigned", ())]
    assert sorted(revoked) == sorted(assigned)
    assert len(revoked) == half
    produce(broker.bootstrap, topic, numbered("both"))
    each_once([first, second], numbered("both"))
    assert len(first.values) == len(second.values)
