"""What a broken or hostile client may do: its connection may suffer, nobody else's and no data.

Only sockets and `struct` here; what Apache Kafka 3.9 answers was measured with PYLOG_INTEROP_PEER=kafka.
"""

import random
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.interop import frames
from tests.interop.batches import Batch
from tests.interop.conftest import CONFIG, PEER, Broker, run_broker, wait_until
from tests.interop.frames import Closed, Connection

ours = pytest.mark.skipif(PEER == "kafka", reason="Apache Kafka does not promise this; pylog does")
REQUEST_MAX_BYTES = int(CONFIG["socket.request.max.bytes"])
TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(range(32))


def resident_bytes(broker: Broker) -> int:
    """Return how much memory the broker's process holds now."""
    pages = int(Path(f"/proc/{broker.pid}/statm").read_text().split()[1])
    return pages * 4096


def open_files(broker: Broker) -> int:
    """Return how many descriptors the broker's process holds now."""
    return len(list(Path(f"/proc/{broker.pid}/fd").iterdir()))


def log_end(broker: Broker, topic: str) -> int:
    """Return the next offset the partition would give out."""
    with Connection(broker.bootstrap) as connection:
        return frames.listed_offset(connection.ask(frames.list_offsets(topic)))


@pytest.fixture
def neighbour(broker: Broker) -> Iterator[Connection]:
    """A well-behaved connection that must not notice anything."""
    with Connection(broker.bootstrap) as connection:
        assert answers(connection)
        yield connection
        assert answers(connection)


def answers(connection: Connection) -> bool:
    """Whether the broker still answers on *connection*."""
    return connection.ask(frames.api_versions())[:2] == b"\x00\x00"


BAD_FRAMES = {
    "negative": struct.pack(">i", -1),
    "most negative": struct.pack(">i", -(1 << 31)),
    "zero": struct.pack(">i", 0),
    "above the limit": struct.pack(">i", REQUEST_MAX_BYTES + 1),
    "2 GiB": struct.pack(">i", (1 << 31) - 1),
    "TLS hello": TLS_HELLO,
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


class TestFrameLength:
    @pytest.mark.parametrize("start", BAD_FRAMES.values(), ids=BAD_FRAMES)
    def test_bad_length_closes_that_connection_only(self, broker: Broker, neighbour: Connection, start: bytes) -> None:
        with Connection(broker.bootstrap) as connection:
            assert answers(connection)
            connection.send(start)
            assert connection.is_closed()

    @ours
    @pytest.mark.parametrize(
        ("start", "word"),
        [
            (BAD_FRAMES["negative"], "-1"),
            (BAD_FRAMES["zero"], "0"),
            (BAD_FRAMES["above the limit"], str(REQUEST_MAX_BYTES + 1)),
            (TLS_HELLO, "TLS"),
        ],
        ids=["negative", "zero", "above the limit", "TLS hello"],
    )
    def test_bad_length_leaves_one_log_line_that_names_it(self, tmp_path: Path, start: bytes, word: str) -> None:
        with run_broker(tmp_path) as broker:
            before = len(broker.log_path.read_text().splitlines())
            with Connection(broker.bootstrap) as connection:
                connection.send(start)
                assert connection.is_closed()
                peer = "{}:{}".format(*connection.socket.getsockname())
            with Connection(broker.bootstrap) as connection:
                assert answers(connection)
            lines = broker.log_path.read_text().splitlines()[before:]
        assert len(lines) == 1, lines
        assert word in lines[0]
        assert peer in lines[0]

    def test_whole_frame_above_the_limit_closes(self, tmp_path: Path) -> None:
        """Also one that arrives at once and would fit any buffer."""
        with run_broker(tmp_path, {"socket.request.max.bytes": 1_000}) as broker:
            with Connection(broker.bootstrap) as connection:
                connection.send(frames.metadata(b"n" * 1_000))
                assert connection.is_closed()
            with Connection(broker.bootstrap) as connection:
                assert answers(connection)

    @ours
    def test_memory_is_not_allocated_by_claim(self, broker: Broker, neighbour: Connection) -> None:
        before = resident_bytes(broker)
        connections = [Connection(broker.bootstrap) for _ in range(50)]
        for connection in connections:
            connection.send(struct.pack(">i", REQUEST_MAX_BYTES) + b"\x00\x03\x00\x01")
        assert answers(neighbour)
        grown = resident_bytes(broker) - before
        for connection in connections:
            connection.socket.close()
        assert grown < 16 << 20, f"{len(connections)} claims of {REQUEST_MAX_BYTES} bytes cost {grown}"

    def test_largest_frame_is_served(self, broker: Broker, topic: str) -> None:
        """The limit itself is allowed: the frame is read to its end and its content judged."""
        padding = REQUEST_MAX_BYTES - len(frames.produce(topic, b"")) + 4
        with Connection(broker.bootstrap) as connection:
            body = connection.ask(frames.produce(topic, bytes(padding)))
            assert frames.produce_result(body)[0] != frames.NONE
            assert answers(connection)


class TestRequests:
    @pytest.mark.parametrize("api_key", [-1, 9999, 32767])
    def test_unknown_api_key_closes(self, broker: Broker, neighbour: Connection, api_key: int) -> None:
        with Connection(broker.bootstrap) as connection:
            connection.send(frames.frame(api_key, 0, b""))
            assert connection.is_closed()

    @pytest.mark.parametrize("version", [99, 32767, -1])
    def test_unknown_version_of_api_versions_is_answered_in_version_0(self, broker: Broker, version: int) -> None:
        with Connection(broker.bootstrap) as connection:
            # No tags, as a header of version 2 says; what follows is of a version nobody knows, so not to be parsed.
            connection.send(frames.frame(frames.API_VERSIONS, version, b"\x00\xff\xff", correlation_id=77))
            correlation_id, body = connection.answer()
            error, count = struct.unpack_from(">hi", body)
            served = [struct.unpack_from(">hhh", body, 6 + 6 * index) for index in range(count)]
            assert (correlation_id, error) == (77, frames.UNSUPPORTED_VERSION)
            assert frames.API_VERSIONS in [api_key for api_key, _, _ in served]
            assert len(body) == 6 + 6 * count, "version 0 has no throttle time and no tags"
            assert answers(connection)

    @pytest.mark.parametrize("version", [99, -1])
    @pytest.mark.parametrize("api_key", [frames.PRODUCE, frames.FETCH, frames.METADATA, frames.LIST_OFFSETS])
    def test_unknown_version_of_others_closes(
        self, broker: Broker, neighbour: Connection, api_key: int, version: int
    ) -> None:
        with Connection(broker.bootstrap) as connection:
            connection.send(frames.frame(api_key, version, b""))
            assert connection.is_closed()

    @pytest.mark.parametrize(
        "request_bytes",
        [
            struct.pack(">i", 3) + b"\x00\x03\x00",
            frames.frame(frames.METADATA, 4, struct.pack(">i", (1 << 31) - 1)),
            frames.frame(frames.METADATA, 4, struct.pack(">ih", 1, 32767) + b"short"),
            frames.frame(frames.CREATE_TOPICS, 2, struct.pack(">i", 1 << 30)),
            frames.frame(frames.PRODUCE, 7, struct.pack(">hhii", -1, 1, 1000, 1 << 30)),
            frames.produce("any", b"", claimed_bytes=1 << 30),
            frames.frame(frames.FETCH, 4, struct.pack(">iiiibi", -1, 0, 0, 1, 0, 1 << 30)),
            frames.frame(frames.LIST_OFFSETS, 1, struct.pack(">ii", -1, -5)),
        ],
        ids=[
            "cut header",
            "metadata count",
            "string length",
            "create count",
            "produce count",
            "records beyond the frame",
            "fetch count",
            "negative count",
        ],
    )
    def test_counts_that_lie_close_that_connection_only(
        self, broker: Broker, neighbour: Connection, request_bytes: bytes
    ) -> None:
        with Connection(broker.bootstrap) as connection:
            connection.send(request_bytes)
            assert connection.is_closed()

    def test_question_for_a_coordinator_is_answered(self, broker: Broker) -> None:
        """Without groups the answer is COORDINATOR_NOT_AVAILABLE, on which every client asks again later."""
        with Connection(broker.bootstrap) as connection:
            body = connection.ask(frames.frame(frames.FIND_COORDINATOR, 0, frames.string(b"a-group")))
            assert struct.unpack_from(">h", body)[0] in {frames.NONE, frames.COORDINATOR_NOT_AVAILABLE}
            assert answers(connection)

    def test_garbage_after_a_good_size_never_stops_the_broker(self, broker: Broker, neighbour: Connection) -> None:
        chance = random.Random(20110612)
        for _ in range(200):
            api_key = chance.choice(
                [frames.PRODUCE, frames.FETCH, frames.LIST_OFFSETS, frames.METADATA, 10, 18, 19, 20, 22, 32]
            )
            request = frames.frame(api_key, chance.randrange(13), chance.randbytes(chance.randrange(200)))
            with Connection(broker.bootstrap, timeout_s=0.05) as connection:
                connection.send(request)
                # Both are fair: it is closed, or it is a long poll that nobody waits for.
                with suppress(Closed, TimeoutError):
                    connection.answer()
        assert answers(neighbour)


BATCH = Batch(values=(b"one", b"two", b"three"))
GOOD = BATCH.encode()
BAD_RECORDS: dict[str, tuple[bytes, set[int]]] = {
    "crc": (Batch(crc=0xDEADBEEF).encode(), {frames.CORRUPT_MESSAGE}),
    "flipped value": (GOOD[:-3] + b"X" + GOOD[-2:], {frames.CORRUPT_MESSAGE}),
    "magic 3": (Batch(magic=3).encode(), {frames.CORRUPT_MESSAGE, frames.INVALID_RECORD}),
    "magic 1": (Batch(magic=1).encode(), {frames.CORRUPT_MESSAGE, frames.INVALID_RECORD}),
    "magic -1": (Batch(magic=-1).encode(), {frames.CORRUPT_MESSAGE, frames.INVALID_RECORD}),
    "count above": (Batch(count=2).encode(), {frames.INVALID_RECORD}),
    "count below": (Batch(values=(b"one", b"two"), count=1).encode(), {frames.INVALID_RECORD}),
    "count zero": (Batch(count=0).encode(), {frames.INVALID_RECORD}),
    "count negative": (Batch(count=-1, last_offset_delta=-2).encode(), {frames.CORRUPT_MESSAGE, frames.INVALID_RECORD}),
    "delta above": (Batch(last_offset_delta=5).encode(), {frames.INVALID_RECORD}),
    "two batches": (GOOD + GOOD, {frames.INVALID_RECORD}),
    "truncated batch": (GOOD[:-5], {frames.CORRUPT_MESSAGE, frames.INVALID_RECORD}),
    "truncated header": (GOOD[:30], {frames.CORRUPT_MESSAGE, frames.INVALID_RECORD}),
    "no records": (b"", {frames.CORRUPT_MESSAGE, frames.INVALID_RECORD}),
    "length negative": (Batch(length=-5).encode(), {frames.CORRUPT_MESSAGE, frames.INVALID_RECORD}),
    "length zero": (Batch(length=0).encode(), {frames.CORRUPT_MESSAGE, frames.INVALID_RECORD}),
    "length above": (Batch(length=1 << 30).encode(), {frames.CORRUPT_MESSAGE, frames.INVALID_RECORD}),
    "base offset": (Batch(base_offset=7).encode(), {frames.INVALID_RECORD}),
    "control batch": (Batch(attributes=0x20).encode(), {frames.INVALID_RECORD}),
    "sequence without producer epoch": (Batch(producer_id=1, producer_epoch=0).encode(), {frames.INVALID_RECORD}),
    "too large": (Batch(values=(bytes(1 << 20),)).encode(), {frames.MESSAGE_TOO_LARGE}),
}
# Apache Kafka answers UNKNOWN_SERVER_ERROR to the first and rewrites the second; pylog stores batches as they come,
# so it has to refuse them.
OUR_BAD_RECORDS: dict[str, tuple[bytes, set[int]]] = {
    "codec 7": (
        Batch(attributes=7).encode(),
        {frames.CORRUPT_MESSAGE, frames.INVALID_RECORD, frames.UNSUPPORTED_COMPRESSION_TYPE},
    ),
    "log append time": (Batch(attributes=8).encode(), {frames.INVALID_TIMESTAMP, frames.INVALID_RECORD}),
}
BAD_BATCHES = [pytest.param(*case, id=name) for name, case in BAD_RECORDS.items()]
BAD_BATCHES += [pytest.param(*case, id=name, marks=ours) for name, case in OUR_BAD_RECORDS.items()]


class TestRecords:
    @pytest.mark.parametrize(("records", "codes"), BAD_BATCHES)
    @pytest.mark.parametrize("acks", [1, -1])
    def test_bad_batch_is_refused_and_nothing_appended(
        self, broker: Broker, shared_topic: str, records: bytes, codes: set[int], acks: int
    ) -> None:
        before = log_end(broker, shared_topic)
        with Connection(broker.bootstrap) as connection:
            error, _ = frames.produce_result(connection.ask(frames.produce(shared_topic, records, acks=acks)))
            assert error in codes
            assert log_end(broker, shared_topic) == before
            body = connection.ask(frames.produce(shared_topic, GOOD, acks=acks))
        # The next good batch goes where the bad one did not.
        assert frames.produce_result(body) == (frames.NONE, before)

    def test_tail_behind_a_batch_is_never_stored(self, broker: Broker, topic: str) -> None:
        """Apache Kafka cuts it off and accepts the batch; refusing it all is as good."""
        with Connection(broker.bootstrap) as connection:
            error, _ = frames.produce_result(connection.ask(frames.produce(topic, GOOD + GOOD[:40])))
        stored = (broker.data_dir / f"{topic}-0" / f"{0:020d}.log").read_bytes()
        assert len(stored) == (len(GOOD) if error == frames.NONE else 0)
        assert log_end(broker, topic) == (len(BATCH.values) if error == frames.NONE else 0)

    @ours  # Apache Kafka never answers these, nor closes
    @pytest.mark.parametrize("claimed_bytes", [-1, -2])
    def test_null_records_are_refused(
        self, broker: Broker, neighbour: Connection, shared_topic: str, claimed_bytes: int
    ) -> None:
        before = log_end(broker, shared_topic)
        with Connection(broker.bootstrap) as connection:
            connection.send(frames.produce(shared_topic, b"", claimed_bytes=claimed_bytes))
            with suppress(Closed):
                error, _ = frames.produce_result(connection.answer()[1])
                assert error in {frames.CORRUPT_MESSAGE, frames.INVALID_RECORD}
        assert log_end(broker, shared_topic) == before

    def test_bad_batch_without_acks_closes(self, broker: Broker, neighbour: Connection, shared_topic: str) -> None:
        """With acks=0 there is no answer to carry an error; closing is how the client learns."""
        before = log_end(broker, shared_topic)
        with Connection(broker.bootstrap) as connection:
            connection.send(frames.produce(shared_topic, Batch(crc=1).encode(), acks=0))
            assert connection.is_closed()
        assert log_end(broker, shared_topic) == before

    def test_good_batch_without_acks_has_no_answer(self, broker: Broker, shared_topic: str) -> None:
        before = log_end(broker, shared_topic)
        with Connection(broker.bootstrap) as connection:
            connection.send(frames.produce(shared_topic, GOOD, acks=0, correlation_id=1))
            connection.send(frames.api_versions(correlation_id=2))
            assert connection.answer()[0] == 2
        assert log_end(broker, shared_topic) == before + 3

    @pytest.mark.parametrize("acks", [2, -2, 32767])
    def test_acks_that_do_not_exist_are_refused(self, broker: Broker, shared_topic: str, acks: int) -> None:
        before = log_end(broker, shared_topic)
        with Connection(broker.bootstrap) as connection:
            error, _ = frames.produce_result(connection.ask(frames.produce(shared_topic, GOOD, acks=acks)))
        assert error == 21, "INVALID_REQUIRED_ACKS"
        assert log_end(broker, shared_topic) == before

    @pytest.mark.parametrize("partition", [1, -1, 1 << 30])
    def test_partition_that_does_not_exist_is_refused(self, broker: Broker, shared_topic: str, partition: int) -> None:
        with Connection(broker.bootstrap) as connection:
            body = connection.ask(frames.produce(shared_topic, GOOD, partition=partition))
        assert frames.produce_result(body)[0] == frames.UNKNOWN_TOPIC_OR_PARTITION


BAD_NAMES = {
    "slash": b"a/b",
    "path": b"../../escape",
    "dot": b".",
    "dots": b"..",
    "NUL": b"a\x00b",
    "empty": b"",
    "250 characters": b"a" * 250,
    "space": b"a b",
    "newline": b"a\nb",
    "percent": b"a%2fb",
    "unicode": "tópico".encode(),
}


class TestTopicNames:
    @pytest.mark.parametrize("name", BAD_NAMES.values(), ids=BAD_NAMES)
    def test_bad_name_is_refused_and_makes_no_directory(self, broker: Broker, name: bytes) -> None:
        before = directories(broker)
        with Connection(broker.bootstrap) as connection:
            assert frames.metadata_error(connection.ask(frames.metadata(name))) == frames.INVALID_TOPIC_EXCEPTION
            created = frames.create_topics_error(connection.ask(frames.create_topics(name)))
            assert created == frames.INVALID_TOPIC_EXCEPTION
            body = connection.ask(frames.produce(name.decode(), GOOD))
            assert frames.produce_result(body)[0] in {frames.UNKNOWN_TOPIC_OR_PARTITION, frames.INVALID_TOPIC_EXCEPTION}
        assert directories(broker) == before

    def test_name_that_is_not_utf8_is_refused(self, broker: Broker, neighbour: Connection) -> None:
        before = directories(broker)
        with Connection(broker.bootstrap) as connection:
            connection.send(frames.metadata(b"\xff\xfe\x80"))
            # Closing is fair as well: the request is not well-formed.
            with suppress(Closed):
                assert frames.metadata_error(connection.answer()[1]) == frames.INVALID_TOPIC_EXCEPTION
        assert directories(broker) == before

    def test_longest_name_is_served(self, broker: Broker) -> None:
        with Connection(broker.bootstrap) as connection:
            assert frames.create_topics_error(connection.ask(frames.create_topics(b"n" * 249))) == frames.NONE
        wait_until(lambda: (broker.data_dir / f"{'n' * 249}-0").is_dir(), "the topic has its directory")


def directories(broker: Broker) -> set[Path]:
    """Return the directories under and beside the broker's data."""
    return {path for path in broker.data_dir.parent.rglob("*") if path.is_dir()}


@pytest.fixture
def conversation(broker: Broker, shared_topic: str) -> list[Callable[[int], bytes]]:
    """Requests whose answers never change, each to be given a correlation id."""

    def bad_produce(number: int) -> bytes:
        return frames.produce(shared_topic, Batch(crc=1).encode(), correlation_id=number)

    return [
        lambda number: frames.api_versions(correlation_id=number),
        lambda number: frames.metadata(shared_topic.encode(), correlation_id=number),
        bad_produce,
        lambda number: frames.list_offsets(shared_topic, frames.EARLIEST, correlation_id=number),
        lambda number: frames.fetch(shared_topic, correlation_id=number),
    ]


class TestStream:
    @pytest.fixture(autouse=True)
    def _some_records(self, broker: Broker, shared_topic: str) -> None:
        if log_end(broker, shared_topic) == 0:
            with Connection(broker.bootstrap) as connection:
                connection.ask(frames.produce(shared_topic, GOOD))

    def test_frames_split_at_every_byte_give_the_same_answers(
        self, broker: Broker, neighbour: Connection, conversation: list[Callable[[int], bytes]]
    ) -> None:
        data = b"".join(request(number) for number, request in enumerate(conversation))
        with Connection(broker.bootstrap) as connection:
            connection.send(data)
            expected = [connection.answer() for _ in conversation]
            for position in range(1, len(data)):
                connection.send(data[:position])
                # An answer on another connection says that the broker's loop has seen the first part by itself.
                assert answers(neighbour)
                connection.send(data[position:])
                assert [connection.answer() for _ in conversation] == expected, f"split at {position}"

    def test_bytes_one_by_one_give_the_same_answers(
        self, broker: Broker, conversation: list[Callable[[int], bytes]]
    ) -> None:
        data = b"".join(request(number) for number, request in enumerate(conversation))
        with Connection(broker.bootstrap) as connection:
            connection.send(data)
            expected = [connection.answer() for _ in conversation]
            for position in range(len(data)):
                connection.send(data[position : position + 1])
            assert [connection.answer() for _ in conversation] == expected

    def test_many_pipelined_frames_are_answered_in_order(
        self, broker: Broker, conversation: list[Callable[[int], bytes]]
    ) -> None:
        with Connection(broker.bootstrap) as connection:
            alone = [connection.ask(request(0)) for request in conversation]
            count = 200 * len(conversation)
            connection.send(b"".join(conversation[number % len(conversation)](number) for number in range(count)))
            got = [connection.answer() for _ in range(count)]
        assert [correlation_id for correlation_id, _ in got] == list(range(count))
        assert [body for _, body in got] == alone * 200

    def test_client_that_leaves_inside_a_frame_is_forgotten(self, broker: Broker, neighbour: Connection) -> None:
        before = open_files(broker)
        for size in range(1, 40):
            with Connection(broker.bootstrap) as connection:
                connection.send(frames.metadata(b"never-finished")[:size])
        wait_until(lambda: open_files(broker) <= before, "descriptors of the clients that left are closed")

    def test_slow_clients_do_not_slow_the_others(self, broker: Broker, neighbour: Connection) -> None:
        request = frames.metadata(b"slow-loris")
        slow = [Connection(broker.bootstrap) for _ in range(100)]
        started = time.monotonic()
        for position in range(len(request) - 1):
            for connection in slow:
                connection.send(request[position : position + 1])
            assert answers(neighbour)
        took = time.monotonic() - started
        for connection in slow:
            connection.send(request[-1:])
            assert connection.answer()[0] == 1
            connection.socket.close()
        assert took < 20, f"{len(request) - 1} answers among {len(slow)} slow clients took {took:.1f} s"

    def test_500_idle_connections_cost_little_and_end_clean(self, broker: Broker, neighbour: Connection) -> None:
        memory, files = resident_bytes(broker), open_files(broker)
        idle = [Connection(broker.bootstrap) for _ in range(500)]
        assert all(answers(connection) for connection in idle)
        grown = resident_bytes(broker) - memory
        assert answers(neighbour)
        for connection in idle:
            connection.socket.close()
        wait_until(lambda: open_files(broker) <= files, "their descriptors are closed")
        if PEER == "pylog":
            assert grown < 500 * 32 * 1024, f"{grown // 500} bytes a connection"

    @ours
    def test_client_that_never_reads_costs_bounded_memory(
        self, broker: Broker, neighbour: Connection, topic: str
    ) -> None:
        """Replies in flight are bounded by count and bytes; beyond them the connection is not read from."""
        with Connection(broker.bootstrap) as connection:
            large = Batch(values=(bytes(900_000),)).encode()
            assert frames.produce_result(connection.ask(frames.produce(topic, large)))[0] == frames.NONE
            before = resident_bytes(broker)
            connection.socket.settimeout(0.3)
            request, sent = frames.fetch(topic), 0
            try:
                for _ in range(200_000):
                    connection.socket.sendall(request)
                    sent += 1
            except TimeoutError:
                pass
            assert sent < 200_000, "the broker went on reading from a client that reads nothing"
            assert answers(neighbour)
            grown = resident_bytes(broker) - before
        assert grown < 32 << 20, f"{sent} requests that nobody reads the answers of cost {grown} bytes"
