"""Somebody who gives a name and a password to a program of pylog: a broker judges them, and says what they may do.

So a program holds no passwords and no rules of its own, and asks for no right to read the cluster's.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pylog.client.connection import Connection
from pylog.client.raw import RawClient, RawConfig
from pylog.errors import ApiError, ErrorCode
from pylog.security.acl import Operation
from pylog.security.exchange import LoginFailed, check_name
from pylog.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

MAX_PASSWORD = 1_024
"""Characters; each login hashes them thousands of times."""

_METADATA_VERSION = 12
_CREDENTIALS = frozenset(
    {"sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password", "ssl.certificate.location",
     "ssl.key.location", "ssl.key.password"}
)  # fmt: skip
"""Properties by which the program itself would be known, or that the person replaces."""


@dataclass(frozen=True, slots=True)
class TopicRights:
    """What a client may do with a topic.

    Attributes:
        operations: bit `1 << Operation` for each that is allowed; none where the topic does not exist.
        is_visible: whether it may be described, which brokers tell of a missing topic too.
    """

    operations: int
    is_visible: bool

    def allows(self, operation: Operation) -> bool:
        """Return whether *operation* is allowed."""
        return self.is_visible if operation is Operation.DESCRIBE else bool(self.operations >> operation & 1)


def log_in(cluster: Connection, mechanism: str, user: str, password: str) -> Connection:
    """Return how *user* connects, after a broker has accepted the password.

    Args:
        cluster: how the program connects itself; address and encryption are taken from it.
        mechanism: of SCRAM.
        user: who logs in.
        password: of the user.

    Raises:
        ApiError: SASL_AUTHENTICATION_FAILED; name or password is wrong.
        Unreachable: no broker could be asked.
    """
    try:
        check_name(user)
    except LoginFailed as error:
        raise ApiError(ErrorCode.SASL_AUTHENTICATION_FAILED, error.public) from None
    if not 0 < len(password) <= MAX_PASSWORD or "\0" in password:
        raise ApiError(ErrorCode.SASL_AUTHENTICATION_FAILED, "name or password is wrong")
    kept = {name: value for name, value in cluster.properties.items() if name not in _CREDENTIALS}
    own = {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
    person = replace(cluster, properties={**kept, **own})
    topic_rights(person, ())
    return person


def topic_rights(person: Connection, topics: Iterable[str]) -> dict[str, TopicRights]:
    """Return what *person* may do with each of *topics*; with an authorizer that is off, everything.

    Raises:
        ApiError: SASL_AUTHENTICATION_FAILED; the password is wrong.
        Unreachable: no broker could be asked.
    """
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in topics],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    limits = RawConfig(request_timeout_ms=int(person.timeout_s * 1000), retry_ms=0)
    with RawClient(person.bootstrap, limits, person.security()) as client:
        answer = MetadataResponse.decode(_METADATA_VERSION, client.ask(request, _METADATA_VERSION))
    return {one.name: _rights(one.error_code, one.topic_authorized_operations) for one in answer.topics if one.name}


def _rights(error_code: int, operations: int) -> TopicRights:
    is_there = error_code not in _HIDDEN and error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return TopicRights(max(0, operations) if is_there else 0, error_code not in _HIDDEN)


_HIDDEN = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION})
