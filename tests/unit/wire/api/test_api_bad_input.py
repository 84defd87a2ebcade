"""Bytes from strangers: nothing but a message or a ProtocolError comes out, and little is allocated on the way."""

import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pylog.errors import ProtocolError
from pylog.wire.api.configs import DescribeConfigsRequest
from pylog.wire.api.message import Message, Request
from pylog.wire.api.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pylog.wire.api.producers import DescribeProducersRequest
from pylog.wire.api.table import KNOWN
from pylog.wire.api.topics import CreateTopicsRequest, DeleteTopicsRequest
from pylog.wire.api.versions import ApiVersionsRequest, ApiVersionsResponse
from pylog.wire.primitives import MAX_ELEMENTS, MAX_TAGS, write_unsigned_varint
from tests.unit.wire.api.catalogue import BRIEF, case_id, cases, message_classes, sample

CLASSES = message_classes()


def decodes(cls: type[Message], version: int, body: bytes) -> bool:
    """Return whether *body* is a message; anything but a ProtocolError fails the test."""
    try:
        cls.decode(version, memoryview(body))
    except ProtocolError as error:
        if len(str(error)) > 200:  # it goes into a log line, for every stranger that knocks
            raise AssertionError(f"long message: {error}") from error
        return False
    return True


def compact(number: int) -> bytes:
    out = bytearray()
    write_unsigned_varint(out, number)
    return bytes(out)


@st.composite
def any_case(draw: st.DrawFn) -> tuple[type[Message], int]:
    cls = draw(st.sampled_from(CLASSES))
    row = KNOWN[cls.api_key]
    return cls, draw(st.integers(row.min_served, row.max_advertised))


@settings(BRIEF, max_examples=600)
@given(case=any_case(), body=st.binary(max_size=60))
def test_any_bytes_are_a_message_or_a_protocol_error(case: tuple[type[Message], int], body: bytes) -> None:
    decodes(*case, body)


@settings(BRIEF, max_examples=1500)
@given(case=any_case(), data=st.data())
def test_damaged_messages_are_messages_or_protocol_errors(case: tuple[type[Message], int], data: st.DataObject) -> None:
    cls, version = case
    body = bytearray(sample(cls, version).encode(version))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body)))
        body[at : at + data.draw(st.integers(0, 4))] = data.draw(
            st.sampled_from(
                [
                    b"",
                    b"\x00",
                    b"\xff",
                    b"\x80",
                    b"\x7f",
                    b"\xff\xff\xff\xff",
                    b"\x7f\xff\xff\xff",
                    b"\xff\xff\xff\xff\x0f",
                ]
            )
        )
    decodes(cls, version, bytes(body))


@pytest.mark.parametrize(("cls", "version"), cases(), ids=case_id)
def test_a_message_cut_short_is_refused_and_bytes_after_it_are_ignored(cls: type[Message], version: int) -> None:
    body = sample(cls, version).encode(version)
    assert decodes(cls, version, body)
    assert decodes(cls, version, body + b"\x00\x00\x00")  # as librdkafka's question for all topics ends
    for size in range(len(body)):
        assert not decodes(cls, version, body[:size])


HUGE = b"\xff\xff\xff\xff\x07"  # varint 2 ** 31 - 1
ENDLESS = b"\xff" * 4096

BOMBS: list[tuple[type[Request], int, bytes]] = [
    (MetadataRequest, 1, struct.pack(">i", (1 << 31) - 1)),
    (MetadataRequest, 1, struct.pack(">i", -2)),
    (MetadataRequest, 0, struct.pack(">i", -1)),  # null where there is no null
    (MetadataRequest, 12, HUGE),
    (MetadataRequest, 12, ENDLESS),
    (MetadataRequest, 1, struct.pack(">ih", 1, 32767) + b"short"),
    (MetadataRequest, 1, struct.pack(">ih", 1, -2)),
    (MetadataRequest, 1, struct.pack(">ih", 1, 2) + b"\xc3\x28"),  # not utf-8
    (MetadataRequest, 9, b"\x01\x00\x00\x00" + HUGE),  # tagged fields
    (MetadataRequest, 9, b"\x01\x00\x00\x00\x01\x05" + HUGE),  # one of them
    (CreateTopicsRequest, 2, struct.pack(">ih", 1, 1) + b"t" + struct.pack(">ihi", 1, 1, (1 << 31) - 1)),
    (CreateTopicsRequest, 2, struct.pack(">ih", 1, 1) + b"t" + struct.pack(">ihiii", 1, 1, 1, 0, 1 << 30)),  # nested
    (CreateTopicsRequest, 7, b"\x02\x02t" + struct.pack(">ih", 1, 1) + HUGE),
    (DeleteTopicsRequest, 1, struct.pack(">i", 1 << 30) + b"\x00" * 64),
    (DescribeConfigsRequest, 1, struct.pack(">ibh", 1, 2, 1) + b"t" + struct.pack(">i", 1 << 30)),
    (ApiVersionsRequest, 3, HUGE + b"x" * 100),
]


@pytest.mark.parametrize(("cls", "version", "body"), BOMBS)
def test_claims_are_refused_before_anything_is_made(cls: type[Request], version: int, body: bytes) -> None:
    decodes(cls, version, body)  # plans are built on first use; that memory is not the message's
    tracemalloc.start()
    try:
        assert not decodes(cls, version, body)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 64 * 1024


def test_a_message_of_too_many_small_elements_is_refused() -> None:
    # Two bytes on the wire, over a hundred in memory: this frame is honest, and still too much.
    count = MAX_ELEMENTS + 1
    body = compact(count + 1) + b"\x01\x00" * count + b"\x00\x00\x00"
    with pytest.raises(ProtocolError, match="too many elements"):
        MetadataRequest.decode(9, memoryview(body))


def test_elements_are_counted_over_all_arrays_of_a_message() -> None:
    half = MAX_ELEMENTS // 2 + 1
    keys = struct.pack(">i", half) + b"\x00\x00" * half
    resource = struct.pack(">bh", 2, 0) + keys
    body = struct.pack(">i", 2) + resource * 2 + b"\x00"
    with pytest.raises(ProtocolError, match="too many elements"):
        DescribeConfigsRequest.decode(1, memoryview(body))


def test_numbers_in_arrays_are_elements() -> None:
    def body(count: int) -> bytes:
        return b"\x02\x02t" + compact(count + 1) + bytes(4 * count) + b"\0\0"

    [topic] = DescribeProducersRequest.decode(0, memoryview(body(MAX_ELEMENTS - 1))).topics
    assert len(topic.partition_indexes) == MAX_ELEMENTS - 1
    with pytest.raises(ProtocolError, match="too many elements"):
        DescribeProducersRequest.decode(0, memoryview(body(MAX_ELEMENTS)))


def test_an_answer_about_as_many_partitions_as_a_cluster_has_is_read() -> None:
    numbers = [1, 2, 3]
    partition = MetadataResponsePartition(partition_index=0, leader_id=1, replica_nodes=numbers, isr_nodes=numbers)
    topic = MetadataResponseTopic(name="t", partitions=[partition] * MAX_ELEMENTS)
    answer = MetadataResponse(brokers=[], topics=[topic])
    [topic] = MetadataResponse.decode(9, memoryview(answer.encode(9))).topics
    assert len(topic.partitions) == MAX_ELEMENTS


def test_a_section_has_64_tagged_fields_at_most() -> None:
    request = ApiVersionsRequest(client_software_name="client", client_software_version="1")
    body = request.encode(3)[:-1]
    assert ApiVersionsRequest.decode(3, memoryview(body + compact(MAX_TAGS) + b"\x09\x00" * MAX_TAGS)) == request
    with pytest.raises(ProtocolError, match="65 tagged fields"):
        ApiVersionsRequest.decode(3, memoryview(body + compact(MAX_TAGS + 1) + b"\x09\x00" * (MAX_TAGS + 1)))


def test_all_tagged_fields_of_a_section_but_one_are_elements() -> None:
    def body(count: int, tags: int) -> bytes:
        return compact(count + 1) + (b"\x02t" + compact(tags) + b"\x09\x00" * tags) * count + b"\0\0\0\0"

    assert len(MetadataRequest.decode(9, memoryview(body(MAX_ELEMENTS, 1))).topics or ()) == MAX_ELEMENTS
    assert decodes(MetadataRequest, 9, body(MAX_ELEMENTS // MAX_TAGS, MAX_TAGS))
    with pytest.raises(ProtocolError, match="too many elements"):
        MetadataRequest.decode(9, memoryview(body(MAX_ELEMENTS // MAX_TAGS + 1, MAX_TAGS)))


def test_unknown_tags_are_skipped_and_a_known_one_must_fit() -> None:
    request = ApiVersionsRequest(client_software_name="client", client_software_version="1")
    body = request.encode(3)[:-1]
    assert ApiVersionsRequest.decode(3, memoryview(body + b"\x02\x09\x03abc\x8f\x7f\x00")) == request
    head = bytes.fromhex("0000010000000001")
    for tag in (b"\x01\x09" + b"\x00" * 9, b"\x01\x07" + b"\x00" * 7):  # an int64 of nine and of seven bytes
        assert not decodes(ApiVersionsResponse, 3, head + tag)
