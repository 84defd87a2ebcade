"""Request and response headers.

request v1  => api_key: int16, api_version: int16, correlation_id: int32, client_id: nullable string (int16 length)
request v2  => request v1, tagged fields          (flexible versions; client_id keeps its int16 length)
response v0 => correlation_id: int32
response v1 => correlation_id: int32, tagged fields

Source: Kafka protocol guide, "Headers"; KIP-482 for the flexible ones, KIP-511 for ApiVersions.
"""

from struct import Struct
from struct import error as StructError  # noqa: N812  # reads as the class it is
from typing import NamedTuple

from pylog.errors import ProtocolError
from pylog.wire.api.table import KNOWN, ApiKey
from pylog.wire.primitives import skip_tags

_FIXED_PART = Struct(">hhih")
_CORRELATION_ID = Struct(">i")
_NO_TAGS = b"\x00"
_NO_FLEXIBLE_VERSION = 1 << 15
# By plain number: the header of every request is looked up here, and an IntEnum's hash costs more than the rest.
_FLEXIBLE_FROM = {int(key): row.flexible_from for key, row in KNOWN.items()}


class RequestHeader(NamedTuple):
    """What stands before a request's body; ``body_offset`` counts from the start of the payload."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


def parse_request_header(view: memoryview) -> RequestHeader:
    """Return the header of the request in *view*, a frame's payload without its size.

    An unknown API key is read as header v1: its body is never looked at.

    Raises:
        ProtocolError: the header does not fit its bytes; close the connection.
    """
    try:
        api_key, api_version, correlation_id, length = _FIXED_PART.unpack_from(view)
        position = 10
        client_id = None
        if length >= 0:
            position += length
            if position > len(view):
                raise ProtocolError(f"client id of {length} bytes in a request of {len(view)}")
            client_id = str(view[10:position], "utf-8")
        elif length != -1:
            raise ProtocolError(f"client id of {length} bytes")
        if api_version >= _FLEXIBLE_FROM.get(api_key, _NO_FLEXIBLE_VERSION):
            # Nearly every request has no tagged fields: one zero byte.
            position = position + 1 if view[position] == 0 else skip_tags(view, position)
    except (StructError, IndexError, UnicodeDecodeError) as error:
        raise ProtocolError(f"request header of {len(view)} bytes: {error}") from None
    # As `RequestHeader(…)` does, without the call in between: it is made for every request.
    return tuple.__new__(RequestHeader, (api_key, api_version, correlation_id, client_id, position))


def encode_response_header(correlation_id: int, api_key: int, version: int) -> bytes:
    """Return the header that goes before the answer to *api_key* at *version*.

    ApiVersions is answered with header v0 in every version, so that a client which does not know the broker yet can
    read the answer.
    """
    head = _CORRELATION_ID.pack(correlation_id)
    if version < _FLEXIBLE_FROM.get(api_key, _NO_FLEXIBLE_VERSION) or api_key == ApiKey.API_VERSIONS:
        return head
    return head + _NO_TAGS
