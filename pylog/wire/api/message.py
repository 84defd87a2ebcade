"""What all control-plane messages share."""

from typing import ClassVar, Self

from pylog.errors import ErrorCode
from pylog.wire import primitives
from pylog.wire.api import codec
from pylog.wire.api.header import encode_response_header
from pylog.wire.api.table import ApiKey, is_flexible

MAX_RESPONSE_ELEMENTS = 1 << 22
"""As `primitives.MAX_ELEMENTS`, for answers that our own clients read: they come from brokers, and large clusters send
large Metadata."""


class Message:
    """A request or response body.

    Attributes:
        api_key: which API the message belongs to.

    Handlers see one shape: a layout that only old versions have is folded into the newest one after decoding and spread
    out again before encoding.
    """

    __slots__ = ()
    api_key: ClassVar[ApiKey]
    max_elements: ClassVar[int] = MAX_RESPONSE_ELEMENTS

    @classmethod
    def decode(cls, version: int, view: memoryview) -> Self:
        """Return the message that *view* starts with.

        Raises:
            ProtocolError: there is none; close the connection.
        """
        flexible = is_flexible(cls.api_key, version)
        message: Self = codec.decode(cls, version, flexible, view, cls.max_elements)
        message._fold(version)
        return message

    def encode(self, version: int, head: bytes = b"") -> bytes:
        """Return *head* followed by the body in *version*."""
        out = bytearray(head)
        codec.encode(self._spread(version), version, is_flexible(self.api_key, version), out)
        return bytes(out)

    def _fold(self, version: int) -> None:
        """Move what *version* says in an old layout into the newest one."""

    def _spread(self, version: int) -> Self:
        """Return the message with the fields filled that only an old *version* has."""
        return self


class Request(Message):
    """A request body, which knows how to be refused."""

    __slots__ = ()
    max_elements: ClassVar[int] = primitives.MAX_ELEMENTS

    def error_response(self, code: ErrorCode, message: str | None = None) -> Message:
        """Return the answer that says *code* for everything this request asked."""
        raise NotImplementedError


def encode_response(response: Message, correlation_id: int, version: int) -> bytes:
    """Return header and body of *response*, which answers a request of *version*."""
    return response.encode(version, encode_response_header(correlation_id, response.api_key, version))
