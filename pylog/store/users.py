"""Users written straight into the store: the first ones, before any broker runs that could be asked."""

from collections.abc import Callable, Sequence

from pylog.cluster import znodes
from pylog.errors import ApiError, ConfigError, ErrorCode
from pylog.security.exchange import LoginFailed, check_name
from pylog.security.scram import (
    DEFAULT_ITERATIONS,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SCRAM_MECHANISMS,
    ScramCredential,
    ScramMechanism,
)
from pylog.store.base import BadVersion, NodeExists, Store

_ATTEMPTS = 10
"""Another writer of the same user's node wins now and then, but not for ever."""


def set_password(
    store: Store,
    user: str,
    password: str,
    mechanisms: Sequence[ScramMechanism] = tuple(ScramMechanism),
    iterations: int = DEFAULT_ITERATIONS,
) -> bool:
    """Give a user this password for *mechanisms*; return whether anything had to be written.

    Nothing is written where the stored keys are already those of the password, so that a repetition changes nothing.

    Raises:
        ConfigError: the name or the number of iterations is not allowed, or the password is empty.
        ApiError: other writers kept changing the user.
    """
    _check(user, password, iterations)

    def change(before: dict[str, str]) -> dict[str, str]:
        return {
            one.sasl_name: ScramCredential.from_password(one, password, iterations).text()
            for one in mechanisms
            if not _has_password(before.get(one.sasl_name), one, password, iterations)
        }

    return _change(store, user, lambda before: {**before, **change(before)})


def has_password(store: Store, user: str, password: str, iterations: int = DEFAULT_ITERATIONS) -> bool:
    """Return whether `set_password` would write nothing.

    Raises:
        ConfigError: the name or the number of iterations is not allowed, or the password is empty.
    """
    _check(user, password, iterations)
    [node] = store.get_many([znodes.user_path(user)])
    found = {} if node is None or not node[0] else znodes.decode_configs(node[0])
    return all(_has_password(found.get(one.sasl_name), one, password, iterations) for one in ScramMechanism)


def delete_user(store: Store, user: str) -> bool:
    """Remove all credentials of a user; return whether there were any.  Quotas of the user stay."""
    return _change(store, user, lambda before: {key: one for key, one in before.items() if key not in SCRAM_MECHANISMS})


def _check(user: str, password: str, iterations: int) -> None:
    try:
        check_name(user)
    except LoginFailed as error:
        raise ConfigError(str(error)) from None
    if not user.isascii():
        raise ConfigError(f"user name {user!r}: SCRAM takes ASCII only")
    if not password:
        raise ConfigError(f"password of user {user!r} is empty")
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise ConfigError(f"{iterations} iterations; {MIN_ITERATIONS} to {MAX_ITERATIONS} are allowed")


def _has_password(text: str | None, mechanism: ScramMechanism, password: str, iterations: int) -> bool:
    if text is None:
        return False
    try:
        credential = ScramCredential.parse(mechanism, text)
    except ConfigError:
        return False
    return credential.iterations == iterations and credential.is_password(password)


def _change(store: Store, user: str, change: Callable[[dict[str, str]], dict[str, str]]) -> bool:
    path = znodes.user_path(user)
    for _ in range(_ATTEMPTS):
        [node] = store.get_many([path])
        before = {} if node is None or not node[0] else znodes.decode_configs(node[0])
        after = change(before)
        if after == before:
            return False
        data = znodes.encode_configs(after)
        try:
            if node is None:
                store.create(path, data, make_parents=True)
            else:
                store.set(path, data, node[1].version)
        except (BadVersion, NodeExists):
            continue
        # Brokers that run already look at the configs again when such a notice comes, as Kafka's do.
        notice = znodes.encode_config_notice(f"users/{path.rpartition('/')[2]}")
        store.create(f"{znodes.CONFIG_CHANGES}/config_change_", notice, sequence=True, make_parents=True)
        return True
    raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"user {user!r} was changed by others {_ATTEMPTS} times meanwhile")
