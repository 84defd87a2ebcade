"""Users that log in by SCRAM: DescribeUserScramCredentials, AlterUserScramCredentials.

A password never comes here: the client sends what PBKDF2 makes of it, and the controller keeps two hashes of that.

Source: KIP-554; `ZkAdminManager` of Apache Kafka 3.9 for the errors.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

from pylog.broker.control.api import ControlContext, ControllerApi
from pylog.broker.control.cluster import Cluster
from pylog.broker.control.controller import ActiveController
from pylog.broker.handler import Answer, Caller
from pylog.errors import ApiError, ErrorCode
from pylog.model import is_loopback
from pylog.security.acl import Operation
from pylog.security.exchange import LoginFailed, check_name
from pylog.security.principal import Session
from pylog.security.scram import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SCRAM_MECHANISMS,
    ScramCredential,
    ScramMechanism,
)
from pylog.wire.api.scram import (
    AlteredUser,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    CredentialInfo,
    DescribedUser,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ScramDeletion,
    ScramUpsertion,
)

Users = Mapping[str, Mapping[str, str]]
"""Credentials of each user by mechanism, as the image has them."""

Change = Mapping[str, str | None]
"""Credentials of one user to set by mechanism; None removes."""


def handle_describe(cluster: Cluster, request: DescribeUserScramCredentialsRequest, caller: Caller) -> Answer:
    """Say which users have credentials, of which mechanisms and with how many iterations."""
    caller.require_cluster(Operation.DESCRIBE)
    users = cluster.partitions.image.scram_credentials
    names = [one.name for one in request.users or ()] or sorted(users)
    results = [_describe(users, name, count) for name, count in Counter(names).items()]
    return DescribeUserScramCredentialsResponse(results=results)


def _describe(users: Users, name: str, count: int) -> DescribedUser:
    if count > 1:
        message = "duplicate user in request"
        return DescribedUser(user=name, error_code=ErrorCode.DUPLICATE_RESOURCE, error_message=message)
    if name not in users:
        message = "user has no SCRAM credential"
        return DescribedUser(user=name, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=message)
    infos = []
    for sasl_name, text in sorted(users[name].items()):
        mechanism = SCRAM_MECHANISMS[sasl_name]
        iterations = ScramCredential.parse(mechanism, text).iterations
        infos.append(CredentialInfo(mechanism=mechanism, iterations=iterations))
    return DescribedUser(user=name, credential_infos=infos)


def handle_alter(cluster: Cluster, request: AlterUserScramCredentialsRequest, caller: Caller) -> Answer:
    """Let the controller change credentials, unless others could read them on their way here."""
    caller.require_cluster(Operation.ALTER)
    if request.upsertions and not _is_private(caller.session):
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"listener {caller.session.listener_name} is not encrypted, and who reads this request can log in as the "
            "user; use a listener with SASL_SSL, or a client on the broker's host",
        )
    return cluster.ask_controller(request)


def _is_private(session: Session) -> bool:
    return session.security_protocol.has_tls or is_loopback(session.client_host)


async def _execute_alter(
    context: ControlContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    changes, rows = plan_changes(request, context.image.scram_credentials)
    if changes:
        await context.run(partial(alter_credentials, changes=changes))
    return AlterUserScramCredentialsResponse(results=rows)


def alter_credentials(controller: ActiveController, changes: Mapping[str, Change]) -> None:
    """Set (or, with None, remove) credentials of users; those of one user at once."""
    state = controller.state
    for user, change in changes.items():
        state.confirm_credentials(user, controller.tree.write_credentials(controller.fence, user, change))
        controller.mark_changed()


def plan_changes(
    request: AlterUserScramCredentialsRequest, users: Users
) -> tuple[dict[str, Change], list[AlteredUser]]:
    """Return the changes for the users of whom all changes are valid, and a result for each user of the request."""
    changes: dict[str, Change] = {}
    rows: list[AlteredUser] = []
    deletions: dict[str, list[ScramDeletion]] = defaultdict(list)
    upsertions: dict[str, list[ScramUpsertion]] = defaultdict(list)
    for deletion in request.deletions:
        deletions[deletion.name].append(deletion)
    for upsertion in request.upsertions:
        upsertions[upsertion.name].append(upsertion)
    for name in request.users():
        row = AlteredUser(user=name)
        rows.append(row)
        try:
            changes[name] = _plan_change(deletions[name], upsertions[name], users.get(name, {}))
        except ApiError as error:
            row.error_code, row.error_message = error.code, str(error)
    return changes, rows


def _plan_change(
    deletions: Sequence[ScramDeletion], upsertions: Sequence[ScramUpsertion], before: Mapping[str, str]
) -> Change:
    """Return what a request changes of one user, who has the credentials *before*."""
    change: dict[str, str | None] = {}
    for deletion in deletions:
        mechanism = _mechanism(deletion.mechanism, change)
        if mechanism.sasl_name not in before:
            raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, f"user has no credential for {mechanism.sasl_name}")
        change[mechanism.sasl_name] = None
    for upsertion in upsertions:
        mechanism = _mechanism(upsertion.mechanism, change)
        change[mechanism.sasl_name] = _credential(upsertion, mechanism).text()
    return change


def _mechanism(number: int, change: Mapping[str, object]) -> ScramMechanism:
    try:
        mechanism = ScramMechanism(number)
    except ValueError:
        raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"mechanism {number}; 1 and 2 are known") from None
    if mechanism.sasl_name in change:
        raise ApiError(ErrorCode.DUPLICATE_RESOURCE, f"duplicate {mechanism.sasl_name} of one user in request")
    return mechanism


def _credential(upsertion: ScramUpsertion, mechanism: ScramMechanism) -> ScramCredential:
    try:
        name = check_name(upsertion.name)
    except LoginFailed as error:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, str(error)) from None
    if not name.isascii():
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"user name {name!r}: SCRAM takes ASCII only")
    iterations = upsertion.iterations
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        allowed = f"{MIN_ITERATIONS} to {MAX_ITERATIONS}"
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"{iterations} iterations; {allowed} are allowed")
    if not upsertion.salt or len(upsertion.salted_password) != mechanism.hash_bytes:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "salt is empty, or the salted password has a wrong size")
    return ScramCredential.from_salted_password(mechanism, upsertion.salted_password, upsertion.salt, iterations)


def _is_altered(
    context: ControlContext, request: AlterUserScramCredentialsRequest, response: AlterUserScramCredentialsResponse
) -> bool:
    users = context.image.scram_credentials
    good = {row.user for row in response.results if row.error_code == ErrorCode.NONE}
    for deletion in request.deletions:
        if deletion.name in good and ScramMechanism(deletion.mechanism).sasl_name in users.get(deletion.name, {}):
            return False
    for upsertion in request.upsertions:
        if upsertion.name in good:
            mechanism = ScramMechanism(upsertion.mechanism)
            text = _credential(upsertion, mechanism).text()
            if users.get(upsertion.name, {}).get(mechanism.sasl_name) != text:
                return False
    return True


ALTER = ControllerApi(
    request=AlterUserScramCredentialsRequest,
    response=AlterUserScramCredentialsResponse,
    execute=_execute_alter,
    is_visible=_is_altered,
    handle=handle_alter,
    has_secrets=lambda request: bool(request.upsertions),
)
