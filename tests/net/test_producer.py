"""The library's producer against a real broker: acknowledgements, partitions, serializers."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from confluent_kafka import OFFSET_BEGINNING

from pylog.client import Message, MessageSet, Producer
from pylog.client.admin.cluster import Admin
from pylog.client.connection import ClientError, Connection
from pylog.client.consumer import Consumer
from pylog.client.partitioner import RoundRobin, by_key
from pylog.client.producer import OnDelivery
from pylog.errors import ApiError, ConfigError, ErrorCode, PylogError
from pylog.model import TopicPartition
from pylog.testing import BrokerProcess

PARTITIONS = 5
WAYS = ["flush", "close", "poll"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest, broker: BrokerProcess) -> str:
    name = "".join(char if char.isalnum() else "-" for char in request.node.name)
    Admin(broker.bootstrap).create_topic(name, partitions=PARTITIONS)
    return name


def read(broker: BrokerProcess, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    with Consumer(broker.bootstrap) as consumer:
        consumer.assign_topic(topic)
        return [(one.partition, one.key, one.value) for one in consumer.records_to_end()]


@pytest.mark.parametrize("acks", ["none", "leader", "all"])
@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
def test_a_set_arrives_with_any_acknowledgement(broker: BrokerProcess, topic: str, acks: str, sync: bool) -> None:
    sent = [Message(b"%d" % number, key=b"k") for number in range(100)]
    with Producer(broker.bootstrap, acks=acks, sync=sync) as producer:
        producer.send(topic, MessageSet(sent))
        assert not sync or len(producer) == 0
    if acks == "none":  # nobody said when it had arrived
        Admin(Connection(bootstrap=broker.bootstrap)).cluster()
    assert [value for _, _, value in read(broker, topic)] == [b"%d" % number for number in range(100)]


def test_sync_raises_what_became_of_the_message(broker: BrokerProcess, topic: str) -> None:
    producer = Producer(broker.bootstrap, sync=True)
    with pytest.raises(PylogError, match=r"[Uu]nknown partition"):
        producer.send(topic, Message(b"nowhere", partition=77))
    producer.send(topic, Message(b"somewhere", partition=1))
    producer.close()
    assert read(broker, topic) == [(1, None, b"somewhere")]


def exits(error: PylogError | None) -> None:
    sys.exit(3)


def looks_up(error: PylogError | None) -> None:
    codes: dict[str, int] = {}
    codes["missing"]


@pytest.mark.parametrize(("callback", "kind", "told"), [(exits, SystemExit, "3"), (looks_up, KeyError, "missing")])
@pytest.mark.parametrize("serve", [Producer.flush, Producer.close, partial(Producer.poll, timeout_s=10)], ids=WAYS)
def test_what_a_callback_raises_is_raised_as_it_is(
    broker: BrokerProcess,
    topic: str,
    callback: OnDelivery,
    kind: type[BaseException],
    told: str,
    serve: Callable[[Producer], object],
) -> None:
    producer = Producer(broker.bootstrap, reports_success=True)
    producer.send(topic, b"x", on_delivery=callback)
    with pytest.raises(kind, match=told):
        serve(producer)
    producer.send(topic, b"y")
    assert producer.flush(10) == 0  # and once only


def test_keys_land_where_librdkafka_and_java_put_them(broker: BrokerProcess, topic: str) -> None:
    keys = [b"key-%d" % number for number in range(50)]
    with Producer(broker.bootstrap) as theirs, Producer(broker.bootstrap, partitioner=by_key) as ours:
        for key in keys:
            theirs.send(topic, b"theirs", key)
            ours.send(topic, Message(b"ours", key=key))
    placed = {(key, value): partition for partition, key, value in read(broker, topic)}
    assert [placed[key, b"theirs"] for key in keys] == [placed[key, b"ours"] for key in keys]
    assert [placed[key, b"ours"] for key in keys] == [by_key(key, PARTITIONS) for key in keys]


def test_round_robin_and_a_function_of_ones_own(broker: BrokerProcess, topic: str) -> None:
    with Producer(broker.bootstrap, partitioner=RoundRobin()) as producer:
        producer.send(topic, MessageSet([b"turn"] * 20))
    with Producer(broker.bootstrap, partitioner=lambda key, count: (key or b"\0")[0] % count) as producer:
        producer.send(topic, Message(b"own", key=b"\x08"))
        producer.send(topic, Message(b"named", key=b"\x08", partition=4))
    found = read(broker, topic)
    turns = Counter(partition for partition, _, value in found if value == b"turn")
    assert turns == dict.fromkeys(range(PARTITIONS), 4)
    assert {value: partition for partition, _, value in found if value != b"turn"} == {b"own": 3, b"named": 4}


def test_a_partition_function_that_is_wrong_is_told(broker: BrokerProcess, topic: str) -> None:
    producer = Producer(broker.bootstrap, partitioner=lambda _key, count: count)
    with pytest.raises(ClientError, match=r"chose 5 of topic .*; wanted 0 to 4"):
        producer.send(topic, b"x")


def test_a_topic_that_is_just_made_has_partitions_soon(broker: BrokerProcess) -> None:
    with Producer(broker.bootstrap, partitioner=RoundRobin()) as producer:
        producer.send("made-by-sending", MessageSet([b"a", b"b"]))
    assert len(read(broker, "made-by-sending")) == 2


def test_a_serializer_makes_the_bytes(broker: BrokerProcess, topic: str) -> None:
    with Producer(broker.bootstrap, serializer=lambda number: b"%d" % number) as producer:
        producer.send(topic, MessageSet(Message(7)))
    assert [value for _, _, value in read(broker, topic)] == [b"7"]
    with pytest.raises(ConfigError, match="payload of type int; wanted bytes"):
        Producer(broker.bootstrap).send(topic, Message(7))


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ConfigError, match="acks: 'some'; wanted one of none, leader, all"):
        Producer("localhost:1", acks="some")
    with pytest.raises(ConfigError, match="partition -1"):
        Message(b"", partition=-1)


def test_a_transactional_id_is_refused_by_name() -> None:
    refused = r"transactional\.id: this producer has no transactions"
    with pytest.raises(ConfigError, match=refused):
        Producer(Connection(bootstrap="nowhere:1", properties={"transactional.id": "mine"}))
    with pytest.raises(ConfigError, match=refused):
        Producer("nowhere:1", transactional__id="mine")


def test_too_large_a_message_is_refused(broker: BrokerProcess, topic: str) -> None:
    with pytest.raises((ApiError, ClientError)) as caught:
        Producer(broker.bootstrap, sync=True).send(topic, Message(b"x" * 2_000_000))
    assert not isinstance(caught.value, ApiError) or caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_reading_to_the_end_tells_how_much_is_done(broker: BrokerProcess, topic: str) -> None:
    with Producer(broker.bootstrap) as producer:
        producer.send(topic, MessageSet([Message(b"%d" % number, partition=0) for number in range(5)]))
    told: list[tuple[int, int]] = []
    with Consumer(broker.bootstrap) as consumer:
        consumer.assign({TopicPartition(topic, 0): 2, TopicPartition(topic, 1): OFFSET_BEGINNING})
        assert len(list(consumer.records_to_end(lambda *found: told.append(found)))) == 3
    assert told == sorted(told)
    assert told[-1] == (3, 3)
