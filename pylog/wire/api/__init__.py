"""Control-plane messages: their layouts, their codec, and the one table of served APIs."""

from pylog.wire.api.header import RequestHeader, encode_response_header, parse_request_header
from pylog.wire.api.message import Message, Request, encode_response
from pylog.wire.api.table import SERVED, ApiKey, ApiVersionRange, is_served

__all__ = [
    "SERVED",
    "ApiKey",
    "ApiVersionRange",
    "Message",
    "Request",
    "RequestHeader",
    "encode_response",
    "encode_response_header",
    "is_served",
    "parse_request_header",
]
