"""Ways to write: acknowledgements, idempotence, sizes up to the limit, nothing lost and nothing twice."""

import asyncio
from collections.abc import Sequence

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import MessageSizeTooLargeError as AioTooLarge
from confluent_kafka import KafkaError, Producer
from kafka import KafkaProducer
from kafka.errors import MessageSizeTooLargeError

from tests.interop import frames
from tests.interop.batches import Batch
from tests.interop.clients import CLIENTS, Client, Confluent, Record
from tests.interop.clients.client import CODECS
from tests.interop.conftest import PEER, Broker, create_topic, wait_until
from tests.interop.frames import Connection

MAX_MESSAGE_BYTES = 1_048_588
"""Kafka's default of ``max.message.bytes``: 1 MiB and the 12 bytes before a batch's length counts."""

RECORDS = [Record(b"%d" % number, b"record %d" % number) for number in range(500)]
by_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)


def contents(records: Sequence[Record]) -> list[object]:
    """Return what must come back."""
    return [record.content for record in records]


def log_end(broker: Broker, topic: str) -> int:
    """Return the next offset of partition 0."""
    with Connection(broker.bootstrap) as connection:
        return frames.listed_offset(connection.ask(frames.list_offsets(topic)))


@by_client
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_records_arrive_in_order_with_any_acks(broker: Broker, topic: str, client: Client, acks: str) -> None:
    client.produce(broker.bootstrap, topic, RECORDS, acks=acks)
    # With acks=0 the client is done when its bytes are on the wire.
    wait_until(lambda: log_end(broker, topic) == len(RECORDS), f"{len(RECORDS)} records arrive")
    assert contents(Confluent().consume(broker.bootstrap, topic, len(RECORDS))) == contents(RECORDS)


@by_client
def test_idempotent_producer_writes_each_record_once(broker: Broker, topic: str, client: Client) -> None:
    client.produce(broker.bootstrap, topic, RECORDS, idempotent=True)
    client.produce(broker.bootstrap, topic, RECORDS, idempotent=True)
    assert log_end(broker, topic) == 2 * len(RECORDS)
    assert contents(Confluent().consume(broker.bootstrap, topic, 2 * len(RECORDS))) == contents(RECORDS * 2)


@pytest.mark.skipif(PEER == "kafka", reason="Apache Kafka closes the connection")
class TestTransactions:
    """What belongs to no transaction is refused; see test_transactions.py for what does."""

    def test_a_transactional_batch_without_transactional_id_is_not_appended(self, broker: Broker, topic: str) -> None:
        batch = Batch(attributes=0x10, producer_id=4_711, producer_epoch=0, base_sequence=0)
        with Connection(broker.bootstrap) as connection:
            error, _ = frames.produce_result(connection.ask(frames.produce(topic, batch.encode(), acks=-1)))
        assert (error, log_end(broker, topic)) == (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, 0)


class TestSequences:
    """What an idempotent producer relies on, with the batches sent by hand."""

    @staticmethod
    def _send(broker: Broker, topic: str, sequence: int, *, epoch: int = 0, count: int = 1) -> tuple[int, int]:
        batch = Batch(values=(b"v",) * count, producer_id=4_711, producer_epoch=epoch, base_sequence=sequence)
        with Connection(broker.bootstrap) as connection:
            return frames.produce_result(connection.ask(frames.produce(topic, batch.encode(), acks=-1)))

    def test_repeated_batch_is_acknowledged_at_its_first_offset(self, broker: Broker, topic: str) -> None:
        first = [self._send(broker, topic, sequence, count=2) for sequence in (0, 2, 4, 6, 8)]
        assert first == [(frames.NONE, offset) for offset in (0, 2, 4, 6, 8)]
        assert [self._send(broker, topic, sequence, count=2) for sequence in (0, 2, 4, 6, 8)] == first
        assert log_end(broker, topic) == 10

    def test_batch_that_is_repeated_late_is_acknowledged_without_an_offset(self, broker: Broker, topic: str) -> None:
        for sequence in range(7):
            assert self._send(broker, topic, sequence) == (frames.NONE, sequence)
        for sequence in range(2):
            assert self._send(broker, topic, sequence) == (frames.DUPLICATE_SEQUENCE_NUMBER, -1)
        assert self._send(broker, topic, 2) == (frames.NONE, 2), "the oldest of the last five"
        assert log_end(broker, topic) == 7

    def test_gap_is_refused(self, broker: Broker, topic: str) -> None:
        assert self._send(broker, topic, 0) == (frames.NONE, 0)
        assert self._send(broker, topic, 2)[0] == frames.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert log_end(broker, topic) == 1

    def test_old_epoch_is_refused(self, broker: Broker, topic: str) -> None:
        assert self._send(broker, topic, 0, epoch=3) == (frames.NONE, 0)
        assert self._send(broker, topic, 1, epoch=2)[0] == 47, "INVALID_PRODUCER_EPOCH"
        assert self._send(broker, topic, 0, epoch=4) == (frames.NONE, 1)


@by_client
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_large_record_comes_back(broker: Broker, topic: str, client: Client, codec: str) -> None:
    record = Record(b"large", b"0123456789abcdef" * 62_500)
    client.produce(broker.bootstrap, topic, [record, RECORDS[0], record], codec=codec)
    for reader in (client, Confluent()):
        assert contents(reader.consume(broker.bootstrap, topic, 3)) == contents([record, RECORDS[0], record])


class TestSizeLimit:
    @staticmethod
    def _batch(size: int) -> bytes:
        """Return a batch of exactly *size* bytes; how many its lengths take depends on the value's."""
        overheads = range(len(Batch(values=(b"",)).encode()), len(Batch(values=(bytes(1 << 20),)).encode()))
        return next(
            batch for overhead in overheads if len(batch := Batch(values=(bytes(size - overhead),)).encode()) == size
        )

    def test_batch_of_exactly_the_limit_is_stored_whole(self, broker: Broker, topic: str) -> None:
        batch = self._batch(MAX_MESSAGE_BYTES)
        with Connection(broker.bootstrap) as connection:
            assert frames.produce_result(connection.ask(frames.produce(topic, batch))) == (frames.NONE, 0)
            # A reader that asks for one byte still gets the whole first batch, or it could never go on.
            answer = connection.ask(frames.fetch(topic, max_bytes=1))
        assert answer.endswith(batch[21:]), "everything under the CRC and after it comes back as it was sent"

    def test_one_byte_more_is_refused(self, broker: Broker, topic: str) -> None:
        with Connection(broker.bootstrap) as connection:
            body = connection.ask(frames.produce(topic, self._batch(MAX_MESSAGE_BYTES + 1)))
        assert frames.produce_result(body)[0] == frames.MESSAGE_TOO_LARGE
        assert log_end(broker, topic) == 0

    def test_topic_may_set_its_own_limit(self, broker: Broker) -> None:
        create_topic(broker.bootstrap, "small-messages", max_message_bytes="1000")
        with Connection(broker.bootstrap) as connection:
            assert (
                frames.produce_result(connection.ask(frames.produce("small-messages", self._batch(1_001))))[0]
                == frames.MESSAGE_TOO_LARGE
            )
            assert frames.produce_result(connection.ask(frames.produce("small-messages", self._batch(1_000)))) == (
                frames.NONE,
                0,
            )

    def test_clients_name_the_error(self, broker: Broker, topic: str) -> None:
        value = bytes(2_000_000)
        errors: list[KafkaError | None] = []
        producer = Producer({"bootstrap.servers": broker.bootstrap, "message.max.bytes": 10_000_000})
        producer.produce(topic, value, on_delivery=lambda error, _message: errors.append(error))
        producer.flush(30)
        assert [error and error.code() for error in errors] == [KafkaError.MSG_SIZE_TOO_LARGE]

        python = KafkaProducer(bootstrap_servers=broker.bootstrap, max_request_size=10_000_000)
        with pytest.raises(MessageSizeTooLargeError):
            python.send(topic, value).get(30)
        python.close(10)

        async def send() -> None:
            async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, max_request_size=10_000_000) as aio:
                await aio.send_and_wait(topic, value)

        with pytest.raises(AioTooLarge):
            asyncio.run(send())


@by_client
def test_empty_and_null_are_different(broker: Broker, topic: str, client: Client) -> None:
    records = [
        record
        for record in (Record(b"k", b""), Record(b"k", None), Record(None, b"v"), Record(b"", b"v"))
        if client.can_write(record)
    ]
    client.produce(broker.bootstrap, topic, records)
    assert contents(Confluent().consume(broker.bootstrap, topic, len(records))) == contents(records)


@pytest.mark.parametrize("codec", CODECS)
def test_one_producer_writes_many_partitions(broker: Broker, codec: str) -> None:
    """One request carries batches of many partitions; each has offsets of its own."""
    topic = f"many-{codec}"
    create_topic(broker.bootstrap, topic, partitions=16)
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 50})
    for number in range(1_600):
        producer.produce(
            topic, b"%d" % number, partition=number % 16, on_delivery=lambda error, _message: errors.append(error)
        )
    assert producer.flush(30) == 0
    assert errors == [None] * 1_600
    with Connection(broker.bootstrap) as connection:
        for partition in range(16):
            assert frames.listed_offset(connection.ask(frames.list_offsets(topic, partition=partition))) == 100


def test_write_to_a_missing_partition_fails_in_the_client(broker: Broker, topic: str) -> None:
    """Every client checks the partition against Metadata, so Metadata must say how many there are."""
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 3_000})
    producer.produce(topic, b"v", partition=9, on_delivery=lambda error, _message: errors.append(error))
    producer.flush(10)
    assert [error and error.code() for error in errors] == [KafkaError._UNKNOWN_PARTITION]
    assert log_end(broker, topic) == 0
