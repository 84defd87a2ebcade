"""The raw fetcher: its codec against two others, its patience against brokers that move, vanish or talk nonsense."""

import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest as KafkaPythonFetchRequest

from pylog.client.raw import (
    CoordinatorAnswer,
    RawClient,
    RawConfig,
    encode_fetch,
    frame,
    parse_bootstrap,
    parse_fetched,
    raise_for,
)
from pylog.errors import ApiError, ConfigError, ErrorCode, OffsetOutOfRange, ProtocolError, Unreachable
from pylog.model import IsolationLevel, TopicPartition
from pylog.wire import fetch as server_side
from pylog.wire.api import ApiKey, RequestHeader, encode_response, parse_request_header
from pylog.wire.api.coordinator import GROUP, Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from pylog.wire.api.groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from pylog.wire.api.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pylog.wire.api.offsets import (
    LATEST_TIMESTAMP,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LOGINS = TopicPartition("logins", 0)
TOPIC_ID = UUID(int=7)
PARTITIONS = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["logins", "pageviews", "søk"]), st.integers(0, 1000)),
    st.integers(0, (1 << 63) - 1),
    min_size=1,
)


class Records(bytes):
    """What stands for a file slice on the serving side."""

    @property
    def size_bytes(self) -> int:
        return len(self)


def flat(parts: Iterable[bytes]) -> bytes:
    return b"".join(bytes(part) for part in parts)


# --- codec ---------------------------------------------------------------------------------------------------------


@given(PARTITIONS)
def test_a_fetch_request_reads_on_the_serving_side(positions: dict[TopicPartition, int]) -> None:
    config = RawConfig(max_bytes=5, partition_max_bytes=4, max_wait_ms=3)
    request = server_side.parse_request(memoryview(encode_fetch(positions, config)), 11, 0)
    asked = {TopicPartition(p.topic, p.partition): p.fetch_offset for p in request.partitions}
    assert asked == positions
    assert (request.replica_id, request.max_bytes, request.max_wait_ms, request.session_epoch) == (-1, 5, 3, -1)
    assert {p.max_bytes for p in request.partitions} == {4}


def test_a_fetch_request_reads_in_another_implementation() -> None:
    body = encode_fetch({LOGINS: 17}, RawConfig())
    request = KafkaPythonFetchRequest.decode(body, version=11)
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert (topic.topic, partition.partition, partition.fetch_offset) == ("logins", 0, 17)
    assert partition.partition_max_bytes == RawConfig().partition_max_bytes


@given(st.dictionaries(st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 9)), st.binary()))
def test_a_fetch_reply_reads_back(sent: dict[TopicPartition, bytes]) -> None:
    results: list[server_side.FetchResult[bytes]] = [
        server_side.FetchResult(
            topic, number, high_watermark=9, log_start_offset=2, records=Records(data), records_bytes=len(data)
        )
        for (topic, number), data in sent.items()
    ]
    reply = memoryview(flat(server_side.encode_response(11, 1, results)))
    found = parse_fetched(reply[8:])
    assert {where: bytes(batches.records) for where, (_, batches) in found.items()} == sent
    assert all((b.high_watermark, b.log_start_offset) == (9, 2) for _, b in found.values())


@given(st.binary(max_size=200))
def test_any_bytes_are_a_reply_or_a_clear_error(body: bytes) -> None:
    with suppress(ProtocolError, ApiError):
        parse_fetched(memoryview(body))


def test_aborted_transactions_come_with_the_batches() -> None:
    row = struct.pack(">ihqqqi", 0, 0, 5, 5, 0, 2) + struct.pack(">qqqq", 1, 2, 3, 4) + struct.pack(">ii", -1, 3)
    body = struct.pack(">ihi", 0, 0, 0) + struct.pack(">ih", 1, 6) + b"logins" + struct.pack(">i", 1) + row + b"abc"
    found = parse_fetched(memoryview(body))[LOGINS][1]
    assert (bytes(found.records), found.aborted, found.last_stable_offset) == (b"abc", [(1, 2), (3, 4)], 5)


@pytest.mark.parametrize("count", [-1, 0])
def test_an_answer_without_aborted_transactions_names_none(count: int) -> None:
    row = struct.pack(">ihqqqi", 0, 0, 5, 5, 0, count) + struct.pack(">ii", -1, 3)
    body = struct.pack(">ihi", 0, 0, 0) + struct.pack(">ih", 1, 6) + b"logins" + struct.pack(">i", 1) + row + b"abc"
    found = parse_fetched(memoryview(body))[LOGINS][1]
    assert (bytes(found.records), list(found.aborted)) == (b"abc", [])


@pytest.mark.parametrize("level", IsolationLevel)
def test_a_fetch_asks_for_its_isolation_level(level: IsolationLevel) -> None:
    assert RawConfig().isolation_level is IsolationLevel.READ_COMMITTED
    body = encode_fetch({LOGINS: 0}, RawConfig(isolation_level=level))
    asked = server_side.parse_request(memoryview(body), 11, 0).isolation_level
    assert asked == level.number == (server_side.READ_COMMITTED if level is IsolationLevel.READ_COMMITTED else 0)


@pytest.mark.parametrize("text", ["", ",", "host", "host:", ":9092", "host:0", "host:70000", "host:x", "a:1,b"])
def test_a_malformed_bootstrap_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match="host:port"):
        parse_bootstrap(text)


def test_bootstrap_takes_several_addresses_and_ipv6() -> None:
    assert parse_bootstrap("a:1, [::1]:2,") == [("a", 1), ("::1", 2)]


def test_a_limit_below_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_wait_ms is -1"):
        RawConfig(max_wait_ms=-1)


# --- a broker that answers what the test says ------------------------------------------------------------------------

Answer = Callable[[RequestHeader, memoryview], bytes]
"""Returns the whole reply, size included; raises ConnectionError to close."""


class ScriptedBroker:
    """Accepts connections and answers each request with the next of its scripted answers for that API."""

    def __init__(self) -> None:
        self.answers: dict[ApiKey, list[Answer]] = {}
        self.asked: list[ApiKey] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.bootstrap = f"127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def on(self, api_key: ApiKey, *answers: Answer) -> None:
        """Answer the next requests so; the last answer repeats."""
        self.answers[api_key] = list(answers)

    def close(self) -> None:
        # Wakes the thread in accept(), which closing alone does not.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream, suppress(ConnectionError):
            while size := stream.read(4):
                view = memoryview(stream.read(*struct.unpack(">i", size)))
                header = parse_request_header(view)
                api_key = ApiKey(header.api_key)
                self.asked.append(api_key)
                script = self.answers[api_key]
                answer = script.pop(0) if len(script) > 1 else script[0]
                connection.sendall(answer(header, view[header.body_offset :]))


@contextmanager
def brokers(count: int) -> Iterator[list[ScriptedBroker]]:
    started = [ScriptedBroker() for _ in range(count)]
    try:
        yield started
    finally:
        for broker in started:
            broker.close()


def sized(reply: bytes) -> bytes:
    return struct.pack(">i", len(reply)) + reply


def metadata(*live: ScriptedBroker, leader: int, error: ErrorCode = ErrorCode.NONE, partitions: int = 1) -> Answer:
    def answer(header: RequestHeader, body: memoryview) -> bytes:
        request = MetadataRequest.decode(header.api_version, body)
        assert not request.allow_auto_topic_creation
        topic = MetadataResponseTopic(
            error_code=error,
            name="logins",
            topic_id=TOPIC_ID,
            partitions=[
                MetadataResponsePartition(partition_index=n, leader_id=leader, replica_nodes=[0], isr_nodes=[0])
                for n in range(partitions)
            ],
        )
        response = MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=i, host="127.0.0.1", port=b.port) for i, b in enumerate(live)],
            topics=[topic],
        )
        return sized(encode_response(response, header.correlation_id, header.api_version))

    return answer


def fetched(records: bytes = b"", error: ErrorCode = ErrorCode.NONE, partition: int = 0) -> Answer:
    def answer(header: RequestHeader, body: memoryview) -> bytes:
        row: server_side.FetchResult[bytes] = server_side.FetchResult(
            "logins", partition, error=error, high_watermark=3, log_start_offset=1, records=Records(records),
            records_bytes=len(records),
        )  # fmt: skip
        return flat(server_side.encode_response(header.api_version, header.correlation_id, [row]))

    return answer


def closes(header: RequestHeader, body: memoryview) -> bytes:
    raise ConnectionResetError


def says(reply: bytes) -> Answer:
    return lambda header, body: reply


def client(*of: ScriptedBroker, retry_ms: int = 60_000) -> RawClient:
    """A client whose pauses pass on a clock of their own."""
    time = SimpleNamespace(now=0.0)

    def sleep(seconds: float) -> None:
        time.now += seconds

    return RawClient(
        ",".join(b.bootstrap for b in of), RawConfig(retry_ms=retry_ms), clock=lambda: time.now, sleep=sleep
    )


def test_records_come_from_the_partitions_leader() -> None:
    with brokers(2) as (bootstrap, leader), client(bootstrap) as raw:
        bootstrap.on(ApiKey.METADATA, metadata(bootstrap, leader, leader=1))
        leader.on(ApiKey.FETCH, fetched(b"batches"))
        (batches,) = raw.fetch({LOGINS: 1}).values()
        assert (bytes(batches.records), batches.high_watermark, batches.log_start_offset) == (b"batches", 3, 1)
        raw.fetch({LOGINS: 1})
        assert bootstrap.asked == [ApiKey.METADATA]  # once: leaders are remembered


def test_a_moved_leader_is_found_again() -> None:
    with brokers(2) as (old, new), client(old) as raw:
        old.on(ApiKey.METADATA, metadata(old, new, leader=0), metadata(old, new, leader=1))
        new.on(ApiKey.METADATA, metadata(old, new, leader=1))
        old.on(ApiKey.FETCH, fetched(error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        new.on(ApiKey.FETCH, fetched(b"moved"))
        assert bytes(raw.fetch({LOGINS: 1})[LOGINS].records) == b"moved"


@pytest.mark.parametrize("refusal", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None])
def test_a_coordinator_that_moves_is_looked_for_and_asked_again(refusal: ErrorCode | None) -> None:
    with brokers(2) as (old, new), client(old) as raw:
        old.on(
            ApiKey.FIND_COORDINATOR,
            coordinator(old, error=ErrorCode.COORDINATOR_NOT_AVAILABLE),
            coordinator(old),
            coordinator(new),
        )
        old.on(ApiKey.DESCRIBE_GROUPS, closes if refusal is None else described(refusal))
        new.on(ApiKey.DESCRIBE_GROUPS, described())
        port, is_repeated = raw.ask_coordinator("readers", GROUP, DescribeGroupsRequest(groups=["readers"]), 4, seen)
        assert (port, is_repeated) == (new.port, refusal is None)
        assert old.asked.count(ApiKey.FIND_COORDINATOR) == 3


def test_a_coordinator_that_refuses_connections_has_carried_nothing_out() -> None:
    with brokers(2) as (gone, there), client(there) as raw:
        gone.close()
        there.on(ApiKey.FIND_COORDINATOR, coordinator(gone), coordinator(there))
        there.on(ApiKey.DESCRIBE_GROUPS, described())
        request = DescribeGroupsRequest(groups=["readers"])
        assert raw.ask_coordinator("readers", GROUP, request, 4, seen) == (there.port, False)


def test_a_refusal_to_name_the_coordinator_is_said_at_once() -> None:
    with brokers(1) as (broker,), client(broker) as raw:
        broker.on(ApiKey.FIND_COORDINATOR, coordinator(broker, error=ErrorCode.GROUP_AUTHORIZATION_FAILED))
        with pytest.raises(ApiError, match="coordinator of group 'readers': GROUP_AUTHORIZATION_FAILED"):
            raw.ask_coordinator("readers", GROUP, DescribeGroupsRequest(groups=["readers"]), 4, seen)
        assert broker.asked == [ApiKey.FIND_COORDINATOR]


def seen(answer: CoordinatorAnswer) -> tuple[int, bool]:
    [group] = DescribeGroupsResponse.decode(4, answer.body).groups
    raise_for(group.error_code, "group")
    return answer.broker.port, answer.is_repeated


def coordinator(broker: ScriptedBroker, error: ErrorCode = ErrorCode.NONE) -> Answer:
    def answer(header: RequestHeader, body: memoryview) -> bytes:
        [key] = FindCoordinatorRequest.decode(header.api_version, body).coordinator_keys
        found = Coordinator(key=key, node_id=0, host="127.0.0.1", port=broker.port, error_code=error)
        response = FindCoordinatorResponse(coordinators=[found])
        return sized(encode_response(response, header.correlation_id, header.api_version))

    return answer


def described(error: ErrorCode = ErrorCode.NONE) -> Answer:
    def answer(header: RequestHeader, body: memoryview) -> bytes:
        [name] = DescribeGroupsRequest.decode(header.api_version, body).groups
        response = DescribeGroupsResponse(groups=[DescribedGroup(group_id=name, error_code=error)])
        return sized(encode_response(response, header.correlation_id, header.api_version))

    return answer


def test_an_election_is_waited_for() -> None:
    with brokers(1) as (broker,), client(broker) as raw:
        broker.on(ApiKey.METADATA, metadata(broker, leader=-1), metadata(broker, leader=-1), metadata(broker, leader=0))
        broker.on(ApiKey.FETCH, fetched(b"elected"))
        assert bytes(raw.fetch({LOGINS: 1})[LOGINS].records) == b"elected"


def test_a_broker_that_closes_the_connection_is_asked_again() -> None:
    with brokers(1) as (broker,), client(broker) as raw:
        broker.on(ApiKey.METADATA, metadata(broker, leader=0))
        broker.on(ApiKey.FETCH, closes, fetched(b"again"))
        assert bytes(raw.fetch({LOGINS: 1})[LOGINS].records) == b"again"


def test_an_answer_that_never_comes_good_is_raised_with_its_name() -> None:
    with brokers(1) as (broker,), client(broker, retry_ms=5_000) as raw:
        broker.on(ApiKey.METADATA, metadata(broker, leader=0))
        broker.on(ApiKey.FETCH, fetched(error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        with pytest.raises(ApiError, match="logins-0: NOT_LEADER_OR_FOLLOWER"):
            raw.fetch({LOGINS: 1})
        assert broker.asked.count(ApiKey.FETCH) < 15  # the pauses grow


def test_nobody_there_is_unreachable() -> None:
    with brokers(1) as (broker,):
        gone = broker.bootstrap
    raw = RawClient(gone, RawConfig(retry_ms=0))
    with pytest.raises(Unreachable, match=gone):
        raw.topics()


def test_the_next_bootstrap_address_is_tried() -> None:
    with brokers(2) as (down, up):
        down.close()
        up.on(ApiKey.METADATA, metadata(up, leader=0))
        with client(down, up) as raw:
            assert raw.topics(["logins"])["logins"].topic_id == TOPIC_ID


def test_an_unknown_topic_is_said_at_once() -> None:
    with brokers(1) as (broker,), client(broker) as raw:
        broker.on(ApiKey.METADATA, metadata(broker, leader=0, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        with pytest.raises(ApiError, match="topic 'logins' does not exist"):
            raw.topics(["logins"])
        assert broker.asked == [ApiKey.METADATA]


def test_topics_that_are_not_there_are_left_out_where_that_is_asked() -> None:
    with brokers(1) as (broker,), client(broker) as raw:
        broker.on(
            ApiKey.METADATA,
            metadata(broker, leader=0),
            metadata(broker, leader=0, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        )
        assert raw.present_topics(["logins"])["logins"].topic_id == TOPIC_ID
        assert raw.present_topics(["logins"]) == {}


def test_an_unknown_partition_is_said_at_once() -> None:
    with brokers(1) as (broker,), client(broker) as raw:
        broker.on(ApiKey.METADATA, metadata(broker, leader=0))
        with pytest.raises(ApiError, match="partition logins-9 does not exist"):
            raw.fetch({TopicPartition("logins", 9): 0})


def test_a_partition_added_since_is_known_once_the_topics_were_asked_for() -> None:
    with brokers(1) as (broker,), client(broker) as raw:
        broker.on(ApiKey.METADATA, metadata(broker, leader=0), metadata(broker, leader=0, partitions=2))
        broker.on(ApiKey.FETCH, fetched(), fetched(b"new", partition=1))
        raw.fetch({LOGINS: 1})
        added = TopicPartition("logins", 1)
        assert set(raw.topics(["logins"])["logins"].leaders) == {0, 1}
        assert bytes(raw.fetch({added: 0})[added].records) == b"new"


def test_an_offset_out_of_range_is_never_reset() -> None:
    with brokers(1) as (broker,), client(broker) as raw:
        broker.on(ApiKey.METADATA, metadata(broker, leader=0))
        broker.on(ApiKey.FETCH, fetched(error=ErrorCode.OFFSET_OUT_OF_RANGE))
        with pytest.raises(OffsetOutOfRange, match="logins-0 does not hold offset 44"):
            raw.fetch({LOGINS: 44})
        assert broker.asked.count(ApiKey.FETCH) == 1


def test_offsets_are_listed() -> None:
    def answer(header: RequestHeader, body: memoryview) -> bytes:
        (topic,) = ListOffsetsRequest.decode(header.api_version, body).topics
        (partition,) = topic.partitions
        assert (topic.name, partition.partition_index, partition.timestamp) == ("logins", 0, LATEST_TIMESTAMP)
        answers = [ListOffsetsPartitionResponse(partition_index=0, offset=77)]
        response = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="logins", partitions=answers)])
        return sized(encode_response(response, header.correlation_id, header.api_version))

    with brokers(1) as (broker,), client(broker) as raw:
        broker.on(ApiKey.METADATA, metadata(broker, leader=0))
        broker.on(ApiKey.LIST_OFFSETS, answer)
        assert raw.list_offsets([LOGINS], LATEST_TIMESTAMP) == {LOGINS: 77}


def listed(offset: int, errors: dict[int, ErrorCode]) -> Answer:
    """Answers every partition asked for with *offset*, or with its error."""

    def answer(header: RequestHeader, body: memoryview) -> bytes:
        (topic,) = ListOffsetsRequest.decode(header.api_version, body).topics
        answers = [
            ListOffsetsPartitionResponse(
                partition_index=p.partition_index, offset=offset, error_code=errors.get(p.partition_index, 0)
            )
            for p in topic.partitions
        ]
        response = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="logins", partitions=answers)])
        return sized(encode_response(response, header.correlation_id, header.api_version))

    return answer


def test_partitions_that_are_refused_leave_the_answers_for_the_others() -> None:
    first, second, third = (TopicPartition("logins", number) for number in range(3))
    with brokers(1) as (broker,), client(broker) as raw:
        broker.on(ApiKey.METADATA, metadata(broker, leader=0, partitions=2))
        broker.on(ApiKey.LIST_OFFSETS, listed(77, {1: ErrorCode.TOPIC_AUTHORIZATION_FAILED}))
        failed: dict[TopicPartition, ApiError] = {}
        assert raw.list_offsets([first, second, third], LATEST_TIMESTAMP, failed) == {first: 77}
        assert {partition: error.code for partition, error in failed.items()} == {
            second: ErrorCode.TOPIC_AUTHORIZATION_FAILED, third: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }  # fmt: skip
        assert broker.asked.count(ApiKey.LIST_OFFSETS) == 1, "what is refused for good is not asked for again"


def test_a_partition_that_never_comes_good_is_refused_once_time_is_up() -> None:
    first, second = (TopicPartition("logins", number) for number in range(2))
    with brokers(1) as (broker,), client(broker, retry_ms=5_000) as raw:
        broker.on(ApiKey.METADATA, metadata(broker, leader=0, partitions=2))
        broker.on(ApiKey.LIST_OFFSETS, listed(77, {1: ErrorCode.KAFKA_STORAGE_ERROR}))
        failed: dict[TopicPartition, ApiError] = {}
        assert raw.list_offsets([first, second], LATEST_TIMESTAMP, failed) == {first: 77}
        assert failed[second].code is ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.asked.count(ApiKey.LIST_OFFSETS) > 2, "it might have passed"


def test_a_topic_deleted_since_its_leader_was_found_is_refused_and_named() -> None:
    with brokers(1) as (broker,), client(broker) as raw:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        broker.on(ApiKey.METADATA, metadata(broker, leader=0), metadata(broker, leader=0, error=unknown))
        broker.on(ApiKey.LIST_OFFSETS, listed(77, {0: unknown}))
        failed: dict[TopicPartition, ApiError] = {}
        assert raw.list_offsets([LOGINS], LATEST_TIMESTAMP, failed) == {}
        assert str(failed[LOGINS]) == "topic 'logins' does not exist"


def test_a_topic_that_may_not_be_seen_is_refused_by_name() -> None:
    with brokers(1) as (broker,), client(broker) as raw:
        broker.on(ApiKey.METADATA, metadata(broker, leader=0, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        failed: dict[str, ApiError] = {}
        assert raw.present_topics(["logins"], failed) == {}
        assert failed["logins"].code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        with pytest.raises(ApiError, match="topic 'logins': TOPIC_AUTHORIZATION_FAILED"):
            raw.present_topics(["logins"])


NONSENSE = {
    "a negative size": struct.pack(">i", -5),
    "a size of nothing": struct.pack(">i", 0),
    "a size beyond belief": struct.pack(">i", 2**31 - 1),
    "the reply to another request": sized(struct.pack(">i", 4711)),
    "a reply that leaves the partition out": sized(struct.pack(">iihii", 2, 0, 0, 0, 0)),
    "a reply cut short": sized(struct.pack(">ii", 2, 0)),
}


@pytest.mark.parametrize("what", NONSENSE)
def test_nonsense_is_named_and_not_asked_for_again(what: str) -> None:
    with brokers(1) as (broker,), client(broker) as raw:
        broker.on(ApiKey.METADATA, metadata(broker, leader=0))
        broker.on(ApiKey.FETCH, says(NONSENSE[what]))
        with pytest.raises(ProtocolError):
            raw.fetch({LOGINS: 1})
        assert broker.asked.count(ApiKey.FETCH) == 1


def test_a_reply_larger_than_the_first_read_arrives_whole() -> None:
    records = bytes(range(256)) * 12_000
    with brokers(1) as (broker,), client(broker) as raw:
        broker.on(ApiKey.METADATA, metadata(broker, leader=0))
        broker.on(ApiKey.FETCH, fetched(records))
        assert bytes(raw.fetch({LOGINS: 1})[LOGINS].records) == records


def test_a_frame_carries_its_own_size() -> None:
    for version, tags in ((11, 0), (12, 1)):
        whole = frame(ApiKey.FETCH, version, 5, b"body")
        assert struct.unpack_from(">i", whole)[0] == len(whole) - 4
        header = parse_request_header(memoryview(whole)[4:])
        assert (header.api_key, header.api_version, header.correlation_id) == (ApiKey.FETCH, version, 5)
        assert header.body_offset == 15 + tags
