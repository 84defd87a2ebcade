"""What one request or batch may claim: bounded by its bytes, and in all by what the event loop can bear."""

import struct
from collections.abc import Callable

import pytest
from crc32c import crc32c

from pylog.errors import InvalidRecords, ProtocolError
from pylog.wire import compression, fetch, produce, records
from pylog.wire.primitives import MAX_ELEMENTS, MAX_STRING_BYTES, MAX_TAGS, write_unsigned_varint


def compact(number: int) -> bytes:
    out = bytearray()
    write_unsigned_varint(out, number)
    return bytes(out)


def produce_body(version: int, count: int) -> bytes:
    """Return a request that names *count* partitions without records."""
    if version >= produce.FIRST_FLEXIBLE_VERSION:
        rows = struct.pack(">iBB", 0, 0, 0) * count
        return b"\0" + struct.pack(">hi", 1, 9) + b"\x02\x02t" + compact(count + 1) + rows + b"\0\0"
    return struct.pack(">hhii", -1, 1, 9, 1) + b"\0\1t" + struct.pack(">i", count) + struct.pack(">ii", 0, -1) * count


def fetch_body(version: int, count: int, name: bytes = b"t") -> bytes:
    """Return a request that names *count* partitions."""
    if version >= fetch.FIRST_FLEXIBLE_VERSION:
        head = struct.pack(">iiiibii", -1, 0, 1, 1, 0, 0, -1) + b"\x02" + compact(len(name) + 1) + name
        return head + compact(count + 1) + struct.pack(">iiqiqiB", 0, -1, 0, -1, -1, 1, 0) * count + b"\0\x01\x01\0"
    head = struct.pack(">iiiibi", -1, 0, 1, 1, 0, 1) + struct.pack(">h", len(name)) + name
    return head + struct.pack(">i", count) + struct.pack(">iqi", 0, 0, 1) * count


MOST = MAX_ELEMENTS - 1
"""Partitions of one topic, which counts too."""


@pytest.mark.parametrize("version", [3, 9])
def test_a_produce_request_has_as_many_elements_as_any_other(version: int) -> None:
    request = produce.parse_request(memoryview(bytearray(produce_body(version, MOST))), version, 0)
    assert len(request.parts) == MOST
    with pytest.raises(ProtocolError, match="too many elements"):
        produce.parse_request(memoryview(bytearray(produce_body(version, MOST + 1))), version, 0)


@pytest.mark.parametrize("version", [4, 12])
def test_a_fetch_has_as_many_elements_as_any_other(version: int) -> None:
    request = fetch.parse_request(memoryview(bytearray(fetch_body(version, MOST))), version, 0)
    assert len(request.partitions) == MOST
    with pytest.raises(ProtocolError, match="too many elements"):
        fetch.parse_request(memoryview(bytearray(fetch_body(version, MOST + 1))), version, 0)


def tagged(count: int) -> bytes:
    """Return a section of *count* tagged fields without content."""
    return compact(count) + b"".join(compact(5000 + number) + b"\0" for number in range(count))


def tagged_produce(of_partition: bytes, of_topic: bytes, of_request: bytes, count: int = 1) -> bytes:
    """Return a produce request with these tagged fields; its topic has *count* partitions."""
    head = b"\0" + struct.pack(">hi", 1, 9) + b"\x02\x02t" + compact(count + 1)
    return head + (struct.pack(">iB", 0, 0) + of_partition) * count + of_topic + of_request


def tagged_fetch(of_partition: bytes, of_topic: bytes, of_request: bytes, count: int = 1) -> bytes:
    """Return a fetch with these tagged fields; its topic has *count* partitions."""
    head = struct.pack(">iiiibii", -1, 0, 1, 1, 0, 0, -1) + b"\x02\x02t" + compact(count + 1)
    rows = (struct.pack(">iiqiqi", 0, -1, 0, -1, -1, 1) + of_partition) * count
    return head + rows + of_topic + b"\x01\x01" + of_request


@pytest.mark.parametrize(
    ("parse", "body", "version"),
    [(produce.parse_request, tagged_produce, 9), (fetch.parse_request, tagged_fetch, 12)],
)
@pytest.mark.parametrize("place", range(3))
def test_no_section_has_more_than_64_tagged_fields(
    parse: Callable[[memoryview, int, int], object], body: Callable[..., bytes], version: int, place: int
) -> None:
    sections = [b"\0", b"\0", b"\0"]
    sections[place] = tagged(MAX_TAGS)
    parse(memoryview(bytearray(body(*sections))), version, 0)
    sections[place] = tagged(MAX_TAGS + 1)
    with pytest.raises(ProtocolError, match="65 tagged fields"):
        parse(memoryview(bytearray(body(*sections))), version, 0)


@pytest.mark.parametrize(
    ("parse", "body", "version"),
    [(produce.parse_request, tagged_produce, 9), (fetch.parse_request, tagged_fetch, 12)],
)
def test_all_tagged_fields_of_a_partition_but_one_are_elements(
    parse: Callable[[memoryview, int, int], object], body: Callable[..., bytes], version: int
) -> None:
    parse(memoryview(bytearray(body(tagged(1), tagged(1), b"\0", MOST))), version, 0)
    most = MOST // MAX_TAGS
    parse(memoryview(bytearray(body(tagged(MAX_TAGS), b"\0", b"\0", most))), version, 0)
    with pytest.raises(ProtocolError, match="too many elements"):
        parse(memoryview(bytearray(body(tagged(MAX_TAGS), b"\0", b"\0", most + 1))), version, 0)


def test_the_tagged_fields_of_topics_in_a_fetch_are_counted_together() -> None:
    head = struct.pack(">iiiibii", -1, 0, 1, 1, 0, 0, -1)
    count = MAX_ELEMENTS // MAX_TAGS
    for topics, is_refused in ((count, False), (count + 1, True)):
        body = head + compact(topics + 1) + (b"\x02t\x01" + tagged(MAX_TAGS)) * topics + b"\x01\x01\0"
        if is_refused:
            with pytest.raises(ProtocolError, match="too many elements"):
                fetch.parse_request(memoryview(body), 12, 0)
        else:
            assert fetch.parse_request(memoryview(body), 12, 0).partitions == []


def test_a_name_in_a_fetch_has_as_many_bytes_as_any_other() -> None:
    version = fetch.FIRST_FLEXIBLE_VERSION
    name = b"x" * MAX_STRING_BYTES
    (part,) = fetch.parse_request(memoryview(bytearray(fetch_body(version, 1, name))), version, 0).partitions
    assert len(part.topic) == MAX_STRING_BYTES
    with pytest.raises(ProtocolError, match="string of"):
        fetch.parse_request(memoryview(bytearray(fetch_body(version, 1, name + b"x"))), version, 0)


def claiming(count: int, codec: int = 0, packed: bytes = b"") -> memoryview:
    """Return a batch that claims *count* records and has *packed*."""
    under = records._UNDER_CRC.pack(codec, count - 1, 0, 0, -1, -1, -1, count) + packed
    head = struct.pack(">qiibI", 0, records.HEADER_BYTES - 12 + len(packed), -1, 2, crc32c(under))
    return memoryview(bytearray(head + under))


@pytest.mark.parametrize(("codec", "packed"), [(0, b""), (0, bytes(69)), (4, b""), (1, bytes(40)), (9, bytes(6))])
def test_a_batch_that_has_no_room_for_its_records_is_refused(codec: int, packed: bytes) -> None:
    count = 10 if not codec else 2**31 - 1
    with pytest.raises(InvalidRecords, match=f"counts {count} records"):
        records.check_batch(claiming(count, codec, packed))


def test_the_shortest_records_fit() -> None:
    assert records.check_batch(claiming(10, 0, bytes(70))).record_count == 10


@pytest.mark.parametrize("name", compression.CODECS)
def test_the_best_that_a_codec_can_do_is_believed(name: str) -> None:
    count = 200_000
    packed = compression.compress(compression.CODECS[name], b"\x0c\x00\x00\x00\x01\x01\x00" * count)
    assert records.check_batch(claiming(count, compression.CODECS[name], packed)).record_count == count


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd"])
def test_nothing_unpacks_to_more_than_a_codec_can_do(name: str) -> None:
    codec, plain = compression.CODECS[name], bytes(50_000_000)
    packed = compression.compress(codec, plain)
    assert compression.most_unpacked_bytes(codec, len(packed)) >= len(plain)


def test_a_stored_batch_is_read_whatever_it_claims() -> None:
    assert records.check_stored_batch(claiming(1_000)).record_count == 1_000
