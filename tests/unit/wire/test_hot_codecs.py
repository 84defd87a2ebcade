"""Produce and Fetch: our hand-written codecs against kio, an independent implementation, and against noise."""

import contextlib
import datetime
import importlib
import io
import struct
import uuid
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from pylog.errors import ErrorCode, ProtocolError, RecordError
from pylog.wire import fetch, produce


def schema(api: str, version: int, kind: str) -> ModuleType:
    return importlib.import_module(f"kio.schema.{api}.v{version}.{kind}")


def encode_with_kio(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def decode_with_kio(kind: type, body: bytes) -> Any:
    entity: Any
    entity, size = entity_reader(kind)(body, 0)
    assert size == len(body)
    return entity


topics = st.text("abcdefgh.-_", min_size=1, max_size=20)
partitions = st.integers(0, 2**31 - 1)
offsets = st.integers(-1, 2**63 - 1)


@pytest.mark.parametrize("version", range(3, 12))
@given(rows=st.lists(st.tuples(topics, partitions, st.one_of(st.none(), st.binary(max_size=99))), max_size=5))
@settings(max_examples=25)
def test_produce_request_is_read_as_kio_wrote_it(version: int, rows: list[tuple[str, int, bytes | None]]) -> None:
    kio = schema("produce", version, "request")
    request = kio.ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout=datetime.timedelta(milliseconds=1234),
        topic_data=tuple(
            kio.TopicProduceData(
                name=topic, partition_data=(kio.PartitionProduceData(index=partition, records=records),)
            )
            for topic, partition, records in rows
        ),
    )
    frame = memoryview(encode_with_kio(request))
    found = produce.parse_request(frame, version, 0)
    assert (found.transactional_id, found.acks, found.timeout_ms) == (None, -1, 1234)
    assert [(t, p, None if r is None else bytes(r)) for t, p, r in found.parts] == rows


@given(
    name=st.text("ab.\u00e4", max_size=130),
    records=st.one_of(st.none(), st.binary(max_size=20_000)),
    at=st.integers(0, 200),
    noise=st.binary(max_size=3),
)
def test_a_request_about_one_partition_is_read_as_any_other(
    name: str, records: bytes | None, at: int, noise: bytes
) -> None:
    """Also where bytes of it are others than a client would write."""
    kio = schema("produce", 9, "request")
    part = kio.PartitionProduceData(index=7, records=records)
    request = kio.ProduceRequest(
        transactional_id=None,
        acks=1,
        timeout=datetime.timedelta(seconds=1),
        topic_data=(kio.TopicProduceData(name=name, partition_data=(part,)),),
    )
    frame = bytearray(encode_with_kio(request))
    frame[at : at + len(noise)] = noise
    view = memoryview(frame)

    def read(parse: Callable[[memoryview, int], produce.ProduceRequest | None]) -> Any:
        try:
            return parse(view, 0)
        except (ProtocolError, IndexError, struct.error, UnicodeDecodeError):
            return None

    quick = read(produce._parse_one_flexible)
    assert quick is None or quick == read(produce._parse_flexible)
    if not noise and records is not None and len(name.encode()) < 0x7F:
        assert quick is not None


@pytest.mark.parametrize("version", range(3, 12))
@given(rows=st.lists(st.tuples(topics, partitions, offsets, offsets), max_size=5, unique_by=lambda row: row[0]))
@settings(max_examples=25)
def test_produce_response_is_read_back_by_kio(version: int, rows: list[tuple[str, int, int, int]]) -> None:
    kio = schema("produce", version, "response")
    body = produce.encode_response(
        version,
        [produce.ProduceResult(t, p, ErrorCode.NONE, base, -1, start) for t, p, base, start in rows],
        throttle_time_ms=7,
    )
    found = decode_with_kio(kio.ProduceResponse, body)
    got = [(t.name, p.index, p.base_offset) for t in found.responses for p in t.partition_responses]
    assert got == [row[:3] for row in rows]
    if version >= 5:
        starts = [p.log_start_offset for t in found.responses for p in t.partition_responses]
        assert starts == [row[3] for row in rows]


def topic_id(name: str) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_URL, name)


@pytest.mark.parametrize("version", range(8, 12))
def test_kio_reads_which_records_of_a_batch_are_to_blame(version: int) -> None:
    blamed = [RecordError(2, "no key"), RecordError(4, "no key either")]
    row = produce.RefusedBatch("t", 3, ErrorCode.INVALID_RECORD, message="two of five", record_errors=blamed)
    found = decode_with_kio(
        schema("produce", version, "response").ProduceResponse, produce.encode_response(version, [row])
    )
    [part] = found.responses[0].partition_responses
    assert (part.index, part.error_message) == (3, "two of five")
    assert [(one.batch_index, one.batch_index_error_message) for one in part.record_errors] == blamed


@pytest.mark.parametrize("version", range(4, 18))
@given(rows=st.lists(st.tuples(topics, partitions, offsets), max_size=5))
@settings(max_examples=25)
def test_fetch_request_is_read_as_kio_wrote_it(version: int, rows: list[tuple[str, int, int]]) -> None:
    kio = schema("fetch", version, "request")
    more: dict[str, Any] = {}
    if version >= 7:
        more = {"session_id": 3, "session_epoch": 4, "forgotten_topics_data": ()}
    if version >= 11:
        more["rack_id"] = "a"
    if version < 15:
        more["replica_id"] = -1
    is_by_id = version >= fetch.FIRST_VERSION_BY_ID
    if is_by_id:
        gone = kio.ForgottenTopic(topic_id=topic_id("gone"), partitions=(7, 8))
        more["forgotten_topics_data"] = (gone,)
    request = kio.FetchRequest(
        max_wait=datetime.timedelta(milliseconds=500),
        min_bytes=1,
        max_bytes=1000,
        isolation_level=0,
        topics=tuple(
            kio.FetchTopic(
                **({"topic_id": topic_id(topic)} if is_by_id else {"topic": topic}),
                partitions=(kio.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=99),),
            )
            for topic, partition, offset in rows
        ),
        **more,
    )
    found = fetch.parse_request(memoryview(encode_with_kio(request)), version, 0)
    assert (found.max_wait_ms, found.min_bytes, found.max_bytes) == (500, 1, 1000)
    assert (found.version, found.replica_id) == (version, -1)
    assert [(p.partition, p.fetch_offset, p.max_bytes) for p in found.partitions] == [(*r[1:], 99) for r in rows]
    if is_by_id:
        assert [(p.topic, p.topic_id) for p in found.partitions] == [("", topic_id(r[0]).bytes) for r in rows]
        assert list(found.forgotten) == [(topic_id("gone").hex, 7), (topic_id("gone").hex, 8)]
    else:
        assert [p.topic for p in found.partitions] == [r[0] for r in rows]


@pytest.mark.parametrize("version", range(12, 18))
@given(
    name=st.text("ab.\u00e4", max_size=130),
    rack=st.text("ab\u00e4", max_size=130),
    at=st.integers(0, 200),
    noise=st.binary(max_size=3),
)
@settings(max_examples=60)
def test_a_fetch_of_one_partition_is_read_as_any_other(
    version: int, name: str, rack: str, at: int, noise: bytes
) -> None:
    """Also where bytes of it are others than a client would write."""
    kio = schema("fetch", version, "request")
    is_by_id = version >= fetch.FIRST_VERSION_BY_ID
    part = kio.FetchPartition(partition=7, current_leader_epoch=3, fetch_offset=9, partition_max_bytes=99)
    topic = {"topic_id": topic_id(name)} if is_by_id else {"topic": name}
    request = kio.FetchRequest(
        **({} if version >= 15 else {"replica_id": -1}),
        max_wait=datetime.timedelta(seconds=1),
        min_bytes=1,
        max_bytes=1000,
        session_id=3,
        session_epoch=4,
        topics=(kio.FetchTopic(**topic, partitions=(part,)),),
        forgotten_topics_data=(),
        rack_id=rack,
    )
    frame = bytearray(encode_with_kio(request))
    at = min(at, len(frame) - len(noise))
    frame[at : at + len(noise)] = noise
    view = memoryview(frame)

    def read(parse: Callable[[memoryview, int, int], fetch.FetchRequest | None]) -> Any:
        try:
            return parse(view, version, 0)
        except (ProtocolError, IndexError, struct.error, UnicodeDecodeError):
            return None

    quick = read(fetch._parse_one_flexible)
    assert quick is None or quick == read(fetch._parse)
    if not noise and len(rack.encode()) < 0x7F and (is_by_id or len(name.encode()) < 0x7F):
        assert quick is not None


@pytest.mark.parametrize("version", range(15, 18))
def test_a_replica_says_who_it_is_in_a_tagged_field(version: int) -> None:
    kio = schema("fetch", version, "request")
    request = kio.FetchRequest(
        replica_state=kio.ReplicaState(replica_id=-2, replica_epoch=5),
        max_wait=datetime.timedelta(0),
        min_bytes=0,
        topics=(),
        forgotten_topics_data=(),
        rack_id="",
    )
    found = fetch.parse_request(memoryview(encode_with_kio(request)), version, 0)
    assert (found.replica_id, found.partitions) == (-2, [])


@pytest.mark.parametrize("version", range(4, 18))
@given(
    rows=st.lists(st.tuples(topics, partitions, offsets, st.binary(max_size=50)), max_size=4, unique_by=lambda r: r[0])
)
@settings(max_examples=25)
def test_fetch_response_is_read_back_by_kio(version: int, rows: list[tuple[str, int, int, bytes]]) -> None:
    kio = schema("fetch", version, "response")
    parts = fetch.encode_response(
        version,
        9,
        [
            fetch.FetchResult(
                t, p, ErrorCode.NONE, high, high, 0, -1, data or None, len(data),
                topic_id=topic_id(t).bytes if version >= fetch.FIRST_VERSION_BY_ID else b"",
            )
            for t, p, high, data in rows
        ],
    )  # fmt: skip
    reply = b"".join(parts)
    assert struct.unpack_from(">ii", reply) == (len(reply) - 4, 9)
    found = decode_with_kio(kio.FetchResponse, reply[9 if version >= 12 else 8 :])
    by_id = {topic_id(row[0]): row[0] for row in rows}
    got = [
        (t.topic if version < 13 else by_id[t.topic_id], p.partition_index, p.high_watermark, bytes(p.records or b""))
        for t in found.responses
        for p in t.partitions
    ]
    assert got == rows


@pytest.mark.parametrize("version", range(4, 18))
@pytest.mark.parametrize("count", [1, 2])
@given(
    aborted=st.lists(st.one_of(st.none(), st.lists(st.tuples(offsets, offsets), max_size=3)), min_size=2, max_size=2)
)
@settings(max_examples=15)
def test_aborted_transactions_are_read_back_by_kio(
    version: int, count: int, aborted: list[list[tuple[int, int]] | None]
) -> None:
    """One partition is encoded in other steps than several are; null is not the same as none."""
    kio = schema("fetch", version, "response")
    topic = topic_id("t").bytes if version >= fetch.FIRST_VERSION_BY_ID else b""
    results: list[fetch.FetchResult[Any]] = [
        fetch.FetchResult(
            "t", number, ErrorCode.NONE, 7, 5, 1, 3, b"data", 4, topic_id=topic, aborted=aborted[number],
        )
        for number in range(count)
    ]  # fmt: skip
    reply = b"".join(fetch.encode_response(version, 9, results))
    assert struct.unpack_from(">ii", reply) == (len(reply) - 4, 9)
    found = decode_with_kio(kio.FetchResponse, reply[9 if version >= 12 else 8 :])
    [rows] = [topic.partitions for topic in found.responses]
    assert [(row.high_watermark, row.last_stable_offset, bytes(row.records)) for row in rows] == [
        (7, 5, b"data")
    ] * count
    got = [
        None
        if row.aborted_transactions is None
        else [(one.producer_id, one.first_offset) for one in row.aborted_transactions]
        for row in rows
    ]
    assert got == aborted[:count]
    if version >= 11:
        assert {int(row.preferred_read_replica) for row in rows} == {3}


@given(st.binary(max_size=200), st.integers(3, 11))
def test_noise_as_produce_raises_protocol_error_only(noise: bytes, version: int) -> None:
    with contextlib.suppress(ProtocolError):
        produce.parse_request(memoryview(noise), version, 0)


@given(st.binary(max_size=200), st.integers(4, 17))
def test_noise_as_fetch_raises_protocol_error_only(noise: bytes, version: int) -> None:
    with contextlib.suppress(ProtocolError):
        fetch.parse_request(memoryview(noise), version, 0)


@given(
    st.lists(
        st.tuples(
            topics, partitions, offsets, st.binary(max_size=50), st.one_of(st.none(), st.tuples(partitions, offsets))
        ),
        max_size=4,
        unique_by=lambda row: row[0],
    )
)
def test_a_follower_reads_what_a_leader_answers(
    rows: list[tuple[str, int, int, bytes, tuple[int, int] | None]],
) -> None:
    parts = fetch.encode_response(
        fetch.REPLICA_VERSION,
        77,
        [
            fetch.FetchResult(t, p, ErrorCode.NONE, high, high, 0, -1, data or None, len(data), diverging)
            for t, p, high, data, diverging in rows
        ],
    )
    frame = memoryview(b"".join(parts))[4:]
    found, is_kept = fetch.parse_replica_response(frame, 77)
    assert is_kept is False, "no session id"
    got = [(r.topic, r.partition, r.high_watermark, bytes(r.records or b""), r.diverging) for r in found]
    assert got == rows
    with pytest.raises(ProtocolError):
        fetch.parse_replica_response(frame, 78)


@given(st.lists(st.tuples(topics, partitions, offsets), max_size=5, unique_by=lambda row: row[0]), offsets)
def test_a_leader_reads_what_a_follower_asks(rows: list[tuple[str, int, int]], epoch: int) -> None:
    asked = fetch.FetchRequest(
        3, 500, 1, 1000, 0, 0, -1, [fetch.FetchPartition(t, p, 4, offset, 3, 0, 99) for t, p, offset in rows]
    )
    frame = memoryview(fetch.encode_replica_request(5, 3, epoch, asked))
    assert struct.unpack_from(">ihhihB", frame) == (len(frame) - 4, 1, 12, 5, -1, 0)
    found = fetch.parse_request(frame[4:], 12, 11)
    assert (found.replica_id, found.broker_epoch, found.partitions) == (3, epoch, asked.partitions)
    kio = schema("fetch", 12, "request")
    without_our_tag = bytes(frame[15:-12]) + b"\x00"  # kio refuses tags it does not know
    theirs = decode_with_kio(kio.FetchRequest, without_our_tag)
    assert [(t.topic, p.partition, p.fetch_offset) for t in theirs.topics for p in t.partitions] == rows


@given(st.binary(max_size=200))
def test_noise_as_a_leaders_answer_raises_protocol_error_only(noise: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        fetch.parse_replica_response(memoryview(noise), 0)


@pytest.mark.parametrize("version", range(3, 12))
@given(
    rows=st.lists(st.tuples(topics, partitions, offsets, st.one_of(st.none(), topics)), min_size=1, max_size=3),
    throttle_ms=st.integers(0, 2**31 - 1),
)
@settings(max_examples=25)
def test_a_produce_reply_is_header_and_body_however_many_rows(
    version: int, rows: list[tuple[str, int, int, str | None]], throttle_ms: int
) -> None:
    results = [
        produce.ProduceResult(topic, number, ErrorCode.NONE, offset, 7, 3, message)
        for topic, number, offset, message in rows
    ]
    body = produce.encode_response(version, results, throttle_ms)
    tags = b"\0" if version >= produce.FIRST_FLEXIBLE_VERSION else b""
    payload = struct.pack(">i", 41) + tags + body
    assert produce.encode_reply(version, 41, results, throttle_ms) == struct.pack(">i", len(payload)) + payload
