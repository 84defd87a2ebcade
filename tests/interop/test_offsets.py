"""Where a reader may start: earliest, latest, by time; and what is beyond the ends."""

import asyncio
import struct

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition

from tests.interop import frames
from tests.interop.batches import Batch
from tests.interop.clients import Confluent, Record
from tests.interop.clients.kcat import offset_for_time
from tests.interop.conftest import Broker, create_topic
from tests.interop.frames import Connection
from tests.servers.kafka import GET_OFFSETS, java_tool

START_MS, COUNT = 1_500_000_000_000, 1_000
OFFSET_OUT_OF_RANGE = 1
# Where a time leads: before all, the first, between two, the last, behind the last (which has no offset).
BY_TIME = {START_MS - 1: 0, START_MS: 0, START_MS + 4_995: 500, START_MS + 10 * (COUNT - 1): COUNT - 1}
AFTER_MS = START_MS + 10 * COUNT


@pytest.fixture(scope="module")
def timed(broker: Broker) -> str:
    """A topic whose records are ten milliseconds apart, in many batches."""
    create_topic(broker.bootstrap, "timed")
    for first in range(0, COUNT, 20):
        records = [Record(None, b"%d" % number, (), START_MS + 10 * number) for number in range(first, first + 20)]
        Confluent().produce(broker.bootstrap, "timed", records, codec="gzip" if first % 40 else "none")
    return "timed"


class TestEnds:
    def test_raw(self, broker: Broker, timed: str) -> None:
        with Connection(broker.bootstrap) as connection:
            assert frames.listed_offset(connection.ask(frames.list_offsets(timed, frames.EARLIEST))) == 0
            assert frames.listed_offset(connection.ask(frames.list_offsets(timed, frames.LATEST))) == COUNT

    def test_confluent(self, broker: Broker, timed: str) -> None:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused"})
        assert consumer.get_watermark_offsets(TopicPartition(timed, 0), timeout=10) == (0, COUNT)
        consumer.close()

    def test_kafka_python(self, broker: Broker, timed: str) -> None:
        partition = PythonPartition(timed, 0)
        consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap)
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: COUNT}
        consumer.close()

    def test_java(self, broker: Broker, timed: str) -> None:
        output = java_tool(GET_OFFSETS, "--bootstrap-server", broker.bootstrap, "--topic", timed, "--time", "-1")
        assert output.decode().split() == [f"{timed}:0:{COUNT}"]

    @pytest.mark.parametrize(("time", "offset"), [("earliest-local", "0"), ("latest-tiered", "")])
    def test_places_of_tiered_storage(self, broker: Broker, timed: str, time: str, offset: str) -> None:
        """Versions 8 and 9 ask for them with -4 and -5; all is local here, and nothing in remote storage."""
        output = java_tool(GET_OFFSETS, "--bootstrap-server", broker.bootstrap, "--topic", timed, "--time", time)
        assert output.decode().split() == ([f"{timed}:0:{offset}"] if offset else [])

    def test_record_with_the_latest_timestamp(self, broker: Broker, timed: str) -> None:
        """Version 7 asks for it with -3 (KIP-734)."""
        partition = TopicPartition(timed, 0)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        spec = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
        found = admin.list_offsets({partition: spec})[partition].result(10)
        assert (found.offset, found.timestamp) == (COUNT - 1, START_MS + 10 * (COUNT - 1))


class TestByTime:
    @pytest.mark.parametrize(("timestamp_ms", "offset"), [*BY_TIME.items(), (AFTER_MS, -1)])
    def test_raw(self, broker: Broker, timed: str, timestamp_ms: int, offset: int) -> None:
        with Connection(broker.bootstrap) as connection:
            assert frames.listed_offset(connection.ask(frames.list_offsets(timed, timestamp_ms))) == offset

    @pytest.mark.parametrize(("timestamp_ms", "offset"), BY_TIME.items())
    def test_kcat(self, broker: Broker, timed: str, timestamp_ms: int, offset: int) -> None:
        assert offset_for_time(broker.bootstrap, timed, timestamp_ms) == offset

    def test_confluent(self, broker: Broker, timed: str) -> None:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused"})
        for timestamp_ms, offset in BY_TIME.items():
            found = consumer.offsets_for_times([TopicPartition(timed, 0, timestamp_ms)], timeout=10)
            assert [each.offset for each in found] == [offset]
        consumer.close()

    def test_kafka_python(self, broker: Broker, timed: str) -> None:
        partition = PythonPartition(timed, 0)
        consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap)
        for timestamp_ms, offset in BY_TIME.items():
            found = consumer.offsets_for_times({partition: timestamp_ms})[partition]
            assert (found.offset, found.timestamp) == (offset, START_MS + 10 * offset)
        assert consumer.offsets_for_times({partition: AFTER_MS}) == {partition: None}
        consumer.close()

    def test_aiokafka(self, broker: Broker, timed: str) -> None:
        async def offsets() -> list[int]:
            async with AIOKafkaConsumer(bootstrap_servers=broker.bootstrap) as consumer:
                partition = AioPartition(timed, 0)
                return [
                    (await consumer.offsets_for_times({partition: timestamp_ms}))[partition].offset
                    for timestamp_ms in BY_TIME
                ]

        assert asyncio.run(offsets()) == list(BY_TIME.values())

    def test_java(self, broker: Broker, timed: str) -> None:
        output = java_tool(
            GET_OFFSETS, "--bootstrap-server", broker.bootstrap, "--topic", timed, "--time", str(START_MS + 4_995)
        )
        assert output.decode().split() == [f"{timed}:0:500"]


class TestFetch:
    @staticmethod
    def _fetch(broker: Broker, request: bytes, topic: str) -> tuple[int, int, bytes]:
        """Return error code, high watermark and records of a Fetch v4 answer."""
        with Connection(broker.bootstrap) as connection:
            body = connection.ask(request)
        position = 8 + 2 + len(topic) + 8
        error, high_watermark, _, aborted = struct.unpack_from(">hqqi", body, position)
        assert aborted <= 0
        return error, high_watermark, body[position + 26 :]

    @pytest.mark.parametrize("offset", [-1, COUNT + 1, 1 << 40])
    def test_offset_beyond_the_ends_is_out_of_range(self, broker: Broker, timed: str, offset: int) -> None:
        error, _, records = self._fetch(broker, frames.fetch(timed, offset), timed)
        assert (error, records) == (OFFSET_OUT_OF_RANGE, b"")

    def test_end_is_empty_and_no_error(self, broker: Broker, timed: str) -> None:
        assert self._fetch(broker, frames.fetch(timed, COUNT), timed) == (frames.NONE, COUNT, b"")

    @pytest.mark.parametrize("offset", [0, 1, 19, 20, 505, COUNT - 1])
    def test_offset_inside_a_batch_gets_the_whole_batch(self, broker: Broker, timed: str, offset: int) -> None:
        error, _, records = self._fetch(broker, frames.fetch(timed, offset, max_bytes=1), timed)
        base_offset, length = struct.unpack_from(">qi", records)
        (delta,) = struct.unpack_from(">i", records, 23)
        assert error == frames.NONE
        assert base_offset <= offset <= base_offset + delta
        assert len(records) >= length + 12

    def test_bytes_are_limited(self, broker: Broker, timed: str) -> None:
        _, _, records = self._fetch(broker, frames.fetch(timed, 0, max_bytes=2_000), timed)
        assert 0 < len(records) <= 2_000

    def test_long_poll_answers_on_new_records(self, broker: Broker, topic: str) -> None:
        """It waits for one byte, up to 30 s; the answer comes with the record, not with the end of the wait."""
        waiting = (
            struct.pack(">iiiib", -1, 30_000, 1, 1 << 20, 0)
            + struct.pack(">i", 1)
            + frames.string(topic.encode())
            + struct.pack(">iiqi", 1, 0, 0, 1 << 20)
        )
        batch = Batch(values=(b"at last",)).encode()
        with Connection(broker.bootstrap) as reader, Connection(broker.bootstrap) as writer:
            reader.send(frames.frame(frames.FETCH, 4, waiting))
            assert frames.produce_result(writer.ask(frames.produce(topic, batch))) == (frames.NONE, 0)
            assert reader.answer()[1].endswith(batch[21:])

    def test_long_poll_ends_after_its_wait(self, broker: Broker, topic: str) -> None:
        waiting = (
            struct.pack(">iiiib", -1, 200, 1, 1 << 20, 0)
            + struct.pack(">i", 1)
            + frames.string(topic.encode())
            + struct.pack(">iiqi", 1, 0, 0, 1 << 20)
        )
        with Connection(broker.bootstrap) as reader:
            assert reader.ask(frames.frame(frames.FETCH, 4, waiting)).endswith(struct.pack(">i", 0))
