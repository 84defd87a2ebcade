"""DescribeUserScramCredentials and AlterUserScramCredentials.

Source: KIP-554.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from pylog.errors import ErrorCode
from pylog.wire.api.message import Message, Request
from pylog.wire.api.schema import Int8, Int16, Int32
from pylog.wire.api.table import ApiKey


@dataclass(slots=True, kw_only=True)
class CredentialInfo:
    """A mechanism for which a user has a credential; neither salt nor keys are ever told."""

    mechanism: Int8
    iterations: Int32


@dataclass(slots=True, kw_only=True)
class DescribedUser:
    """The credentials of one user."""

    user: str
    error_code: Int16 = ErrorCode.NONE
    error_message: str | None = None
    credential_infos: list[CredentialInfo] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class DescribeUserScramCredentialsResponse(Message):
    """One result for each user."""

    api_key: ClassVar[ApiKey] = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS

    throttle_time_ms: Int32 = 0
    error_code: Int16 = ErrorCode.NONE
    error_message: str | None = None
    results: list[DescribedUser] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class UserName:
    """A user to describe."""

    name: str


@dataclass(slots=True, kw_only=True)
class DescribeUserScramCredentialsRequest(Request):
    """Ask for users; None or none of them asks for all who have a credential."""

    api_key: ClassVar[ApiKey] = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS

    users: list[UserName] | None = None

    def error_response(self, code: ErrorCode, message: str | None = None) -> DescribeUserScramCredentialsResponse:
        """Return an answer with *code* for each user that is named, else for the whole.

        Only for one of them: librdkafka 2.16 crashes on an error for the whole.
        """
        if not self.users:
            return DescribeUserScramCredentialsResponse(error_code=code, error_message=message)
        refused = [DescribedUser(user=one.name, error_code=code, error_message=message) for one in self.users]
        return DescribeUserScramCredentialsResponse(results=refused)


@dataclass(slots=True, kw_only=True)
class AlteredUser:
    """How the changes for one user ended."""

    user: str
    error_code: Int16 = ErrorCode.NONE
    error_message: str | None = None


@dataclass(slots=True, kw_only=True)
class AlterUserScramCredentialsResponse(Message):
    """One result for each user."""

    api_key: ClassVar[ApiKey] = ApiKey.ALTER_USER_SCRAM_CREDENTIALS

    throttle_time_ms: Int32 = 0
    results: list[AlteredUser] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class ScramDeletion:
    """A credential to remove."""

    name: str
    mechanism: Int8


@dataclass(slots=True, kw_only=True)
class ScramUpsertion:
    """A credential to set; the salted password is as good as the password itself."""

    name: str
    mechanism: Int8
    iterations: Int32
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


@dataclass(slots=True, kw_only=True)
class AlterUserScramCredentialsRequest(Request):
    """Change credentials; all changes for one user are made together or not at all."""

    api_key: ClassVar[ApiKey] = ApiKey.ALTER_USER_SCRAM_CREDENTIALS

    deletions: list[ScramDeletion] = field(default_factory=list)
    upsertions: list[ScramUpsertion] = field(default_factory=list)

    def users(self) -> list[str]:
        """Return the names of all users, each once."""
        names = [one.name for one in self.deletions] + [one.name for one in self.upsertions]
        return list(dict.fromkeys(names))

    def error_response(self, code: ErrorCode, message: str | None = None) -> AlterUserScramCredentialsResponse:
        """Return an answer with *code* for every user."""
        return AlterUserScramCredentialsResponse(
            results=[AlteredUser(user=name, error_code=code, error_message=message) for name in self.users()]
        )
