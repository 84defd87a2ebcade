"""SaslHandshake and SaslAuthenticate: how a client logs in, and logs in again.

After a handshake of version 0 the client sends the mechanism's messages as bare frames, without SaslAuthenticate.

Source: KIP-43, KIP-152, KIP-368.
"""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from pylog.errors import ErrorCode
from pylog.wire.api.message import Message, Request
from pylog.wire.api.schema import Int16, Int64, Versions
from pylog.wire.api.table import ApiKey


@dataclass(slots=True, kw_only=True)
class SaslHandshakeResponse(Message):
    """Whether the mechanism may be used, and which may."""

    api_key: ClassVar[ApiKey] = ApiKey.SASL_HANDSHAKE

    error_code: Int16 = ErrorCode.NONE
    mechanisms: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class SaslHandshakeRequest(Request):
    """Choose a mechanism."""

    api_key: ClassVar[ApiKey] = ApiKey.SASL_HANDSHAKE

    mechanism: str

    def error_response(self, code: ErrorCode, message: str | None = None) -> SaslHandshakeResponse:
        """Return an answer with *code* and no mechanism."""
        return SaslHandshakeResponse(error_code=code)


@dataclass(slots=True, kw_only=True)
class SaslAuthenticateResponse(Message):
    """The mechanism's answer; the lifetime says when to log in again, 0 for never."""

    api_key: ClassVar[ApiKey] = ApiKey.SASL_AUTHENTICATE

    error_code: Int16 = ErrorCode.NONE
    error_message: str | None = None
    auth_bytes: bytes = b""
    session_lifetime_ms: Annotated[Int64, Versions(1)] = 0


@dataclass(slots=True, kw_only=True)
class SaslAuthenticateRequest(Request):
    """One message of the mechanism."""

    api_key: ClassVar[ApiKey] = ApiKey.SASL_AUTHENTICATE

    auth_bytes: bytes = field(repr=False)

    def error_response(self, code: ErrorCode, message: str | None = None) -> SaslAuthenticateResponse:
        """Return an answer with *code*."""
        return SaslAuthenticateResponse(error_code=code, error_message=message)
