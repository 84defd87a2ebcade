"""Who may log in by SCRAM, asked over the wire.

Source: KIP-554.
"""

from dataclasses import dataclass

from pylog.client.connection import Connection
from pylog.client.raw import RawClient, RawConfig, raise_for
from pylog.security.scram import ScramMechanism
from pylog.wire.api.scram import DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse

_DESCRIBE_VERSION = 0


@dataclass(frozen=True, slots=True)
class UserView:
    """A user who has a credential.

    Attributes:
        iterations: of PBKDF2, by the mechanism's name.
    """

    name: str
    iterations: dict[str, int]


def scram_users(cluster: Connection) -> list[UserView]:
    """Return all users who can log in by SCRAM, by name.

    Raises:
        ApiError: CLUSTER_AUTHORIZATION_FAILED; this client may not see them.
        Unreachable: no broker answers.
    """
    timeout_ms = int(cluster.timeout_s * 1000)
    with RawClient(cluster.bootstrap, RawConfig(request_timeout_ms=timeout_ms), cluster.security()) as client:
        body = client.ask(DescribeUserScramCredentialsRequest(users=None), _DESCRIBE_VERSION)
    answer = DescribeUserScramCredentialsResponse.decode(_DESCRIBE_VERSION, body)
    raise_for(answer.error_code, "users")
    found = []
    for one in answer.results:
        raise_for(one.error_code, f"user {one.user!r}")
        iterations = {ScramMechanism(info.mechanism).sasl_name: info.iterations for info in one.credential_infos}
        found.append(UserView(one.user, dict(sorted(iterations.items()))))
    return sorted(found, key=lambda one: one.name)
