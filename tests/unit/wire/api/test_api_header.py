"""Headers against kio's, and what is wrong with bytes that are none."""

import struct
from io import BytesIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as HeaderV1
from kio.schema.request_header.v2.header import RequestHeader as HeaderV2
from kio.serial import entity_writer
from kio.static.primitive import i16, i32

from pylog.errors import ProtocolError
from pylog.wire.api.header import RequestHeader, encode_response_header, parse_request_header
from pylog.wire.api.table import KNOWN, ApiKey
from pylog.wire.primitives import MAX_TAGS
from tests.unit.wire.api.catalogue import BRIEF

INT16 = st.integers(-(1 << 15), (1 << 15) - 1)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)


def encoded(api_key: int, version: int, client_id: bytes | None, tail: bytes = b"") -> memoryview:
    length = -1 if client_id is None else len(client_id)
    return memoryview(struct.pack(">hhih", api_key, version, 77, length) + (client_id or b"") + tail)


@settings(BRIEF, max_examples=200)
@given(
    api_key=INT16 | st.sampled_from(list(ApiKey)),
    version=st.integers(0, 15),
    correlation_id=INT32,
    client_id=st.none() | st.text(max_size=12),
    body=st.binary(max_size=8),
)
def test_headers_that_kio_writes_are_read(
    api_key: int, version: int, correlation_id: int, client_id: str | None, body: bytes
) -> None:
    row = KNOWN.get(api_key)  # type: ignore[call-overload]
    theirs = HeaderV2 if row is not None and version >= row.flexible_from else HeaderV1
    out = BytesIO()
    entity_writer(theirs)(
        out,
        theirs(
            request_api_key=i16(api_key),
            request_api_version=i16(version),
            correlation_id=i32(correlation_id),
            client_id=client_id,
        ),
    )
    size = out.tell()
    header = parse_request_header(memoryview(out.getvalue() + body))
    assert header == RequestHeader(api_key, version, correlation_id, client_id, size)


def test_unknown_tagged_fields_are_skipped() -> None:
    tags = b"\x02" + b"\x00\x03abc" + b"\x81\x01\x00"
    assert parse_request_header(encoded(3, 12, b"me", tags + b"body")).body_offset == 12 + len(tags)


def test_a_header_has_64_tagged_fields_at_most() -> None:
    tags = bytes([MAX_TAGS]) + b"\x09\x00" * MAX_TAGS
    assert parse_request_header(encoded(3, 12, b"me", tags)).body_offset == 12 + len(tags)
    with pytest.raises(ProtocolError, match="65 tagged fields"):
        parse_request_header(encoded(3, 12, b"me", bytes([MAX_TAGS + 1]) + b"\x09\x00" * (MAX_TAGS + 1)))


def test_a_client_without_a_name_has_none() -> None:
    assert parse_request_header(encoded(3, 1, None)).client_id is None


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x00" * 9,
        encoded(3, 1, b"")[:8].tobytes() + b"\xff\xfe",  # length -2
        encoded(3, 1, b"")[:8].tobytes() + b"\x7f\xff" + b"short",
        encoded(3, 1, b"\xff\xfe").tobytes(),  # not utf-8
        encoded(3, 12, b"me").tobytes(),  # flexible, and the tags are missing
        encoded(3, 12, b"me", b"\xff\xff\xff\xff\x0f").tobytes(),  # more tags than bytes
        encoded(3, 12, b"me", b"\x01\x00\x7f").tobytes(),  # a tag larger than what is left
        encoded(3, 12, b"me", b"\x80" * 40).tobytes(),  # a varint without end
    ],
)
def test_bytes_that_are_no_header_are_refused(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_request_header(memoryview(payload))


@settings(BRIEF, max_examples=400)
@given(payload=st.binary(max_size=40))
def test_any_bytes_are_a_header_or_a_protocol_error(payload: bytes) -> None:
    try:
        header = parse_request_header(memoryview(payload))
    except ProtocolError:
        return
    assert 10 <= header.body_offset <= len(payload)


@pytest.mark.parametrize(
    ("api_key", "version", "expected"),
    [
        (ApiKey.METADATA, 8, b"\x00\x00\x00\x07"),
        (ApiKey.METADATA, 9, b"\x00\x00\x00\x07\x00"),
        (ApiKey.OFFSET_DELETE, 0, b"\x00\x00\x00\x07"),
        (ApiKey.API_VERSIONS, 3, b"\x00\x00\x00\x07"),
        (10_001, 0, b"\x00\x00\x00\x07"),
    ],
)
def test_answers_begin_with_the_header_of_their_version(api_key: int, version: int, expected: bytes) -> None:
    assert encode_response_header(7, api_key, version) == expected
