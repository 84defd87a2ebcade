"""Who asks the registry, and what they may do there: a broker judges the password and tells the rights.

Whoever may read the topic of the schemas reads all of them, and whoever may write it changes all.  Everybody else has
the subjects that are named for topics: ``clicks``, ``clicks-key`` and ``clicks-value`` belong to topic ``clicks``.  So
there is one list of users and one list of rules, that of the cluster.
"""

import base64
import binascii
import hashlib
import hmac
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pylog.client.connection import Connection
from pylog.client.person import TopicRights, log_in, topic_rights
from pylog.daemon.attempts import Attempts
from pylog.errors import ApiError, ErrorCode, PylogError
from pylog.registry import faults
from pylog.registry.rules import Rule
from pylog.security.acl import Operation

KEPT_S = 30.0
"""How long an answer of a broker counts: a user who was removed, or lost a right, goes on for so long."""

MAX_PEOPLE = 1_000
"""Whose logins are kept; beyond it the one that was quiet longest is asked for again."""

MAX_TOPICS = 10_000
"""Topics of one person whose rights are kept."""

WRONG_OF_USER = 10
"""Wrong logins a minute of one user from one address."""

WRONG_OF_ADDRESS = 60
"""Wrong logins a minute from one address, whatever the user."""

Check = Callable[[Connection, str, str, str], Connection]
Judge = Callable[[Connection, Iterable[str]], Mapping[str, TopicRights]]

_SUFFIXES = ("-value", "-key")


def topic_of(subject: str) -> str:
    """Return the topic that *subject* belongs to."""
    for suffix in _SUFFIXES:
        if subject.endswith(suffix):
            return subject.removesuffix(suffix)
    return subject


class _Kept(NamedTuple):
    since_s: float
    rights: TopicRights


@dataclass(slots=True)
class _Login:
    since_s: float
    connection: Connection
    topics: dict[str, _Kept]


class Person:
    """Somebody who logged in.

    Args:
        user: the name.
        rights: tells what the user may do with topics.
        topic: of the schemas.
    """

    def __init__(self, user: str, rights: Callable[[Collection[str]], Mapping[str, TopicRights]], topic: str) -> None:
        self.user = user
        self._rights, self._topic = rights, topic

    def require(self, rule: Rule, subjects: Collection[str]) -> None:
        """Refuse what the person may not do.

        Args:
            rule: of the request.
            subjects: that the request is about.

        Raises:
            RegistryError: 40301; 50001, no broker can be asked.
        """
        if rule.operation is None or rule.is_list:
            return
        if not self.allowed(rule.operation, subjects):
            about = ", ".join(sorted(subjects)[:3]) or "all subjects"
            name = rule.operation.name.lower().replace("_", " ")
            raise faults.denied(
                f"User {self.user} may not {name} {about}: that needs {name} for the topic of the same name, which has "
                f"to exist, or {_of_all(rule.operation).name.lower()} for {self._topic}"
            )

    def allowed(self, operation: Operation, subjects: Collection[str]) -> set[str]:
        """Return those of *subjects* with which *operation* is allowed; with no subjects a name for all of them."""
        topics = {topic_of(one) for one in subjects}
        rights = self._rights({self._topic, *topics})
        if self._topic in rights and rights[self._topic].allows(_of_all(operation)):
            return set(subjects) or {""}
        return {one for one in subjects if (found := rights.get(topic_of(one))) and found.allows(operation)}


def _of_all(operation: Operation) -> Operation:
    """Return what somebody needs to be able to do with the topic of the schemas to do *operation* with all of them."""
    return Operation.READ if operation is Operation.DESCRIBE else Operation.WRITE


class Access:
    """Lets people in.

    Args:
        cluster: whose brokers judge; how the registry connects itself.
        mechanism: of SCRAM.
        topic: of the schemas.
        check: has a broker judge a user and password.
        judge: has a broker tell what a user may do with topics.
        clock_s: any clock that does not go back.
    """

    def __init__(
        self,
        cluster: Connection,
        mechanism: str,
        topic: str,
        *,
        check: Check = log_in,
        judge: Judge = topic_rights,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster, self._mechanism, self._topic = cluster, mechanism, topic
        self._check, self._judge, self._clock_s = check, judge, clock_s
        self._attempts = Attempts()
        self._secret = os.urandom(32)
        self._lock = threading.Lock()
        self._logins: OrderedDict[tuple[str, bytes], _Login] = OrderedDict()

    def person(self, authorization: str | None, address: str) -> Person:
        """Return who asks.

        Args:
            authorization: the header of the request.
            address: where it comes from.

        Raises:
            RegistryError: 401, no login or a wrong one; 429, too many wrong ones; 50001, no broker can be asked.
        """
        user, password = _credentials(authorization)
        # Not the password itself: what is kept must not let anybody log in.
        key = (user, hmac.digest(self._secret, f"{user}\0{password}".encode(), hashlib.sha256))
        login = self._kept(key)
        if login is None:
            login = self._log_in(user, password, address)
            with self._lock:
                self._logins[key] = login
                while len(self._logins) > MAX_PEOPLE:
                    self._logins.popitem(last=False)
        return Person(user, lambda topics: self._rights(login, topics), self._topic)

    def _kept(self, key: tuple[str, bytes]) -> _Login | None:
        with self._lock:
            login = self._logins.get(key)
            if login is None or self._clock_s() - login.since_s >= KEPT_S:
                self._logins.pop(key, None)
                return None
            self._logins.move_to_end(key)
            return login

    def _log_in(self, user: str, password: str, address: str) -> _Login:
        now_s = self._clock_s()
        limits = ((f"address {address}", WRONG_OF_ADDRESS), (f"user {address} {_digest(user)}", WRONG_OF_USER))
        if any(self._attempts.is_over(key, limit, now_s) for key, limit in limits):
            raise faults.too_many_logins()
        try:
            connection = self._check(self._cluster, self._mechanism, user, password)
        except PylogError as error:
            if isinstance(error, ApiError) and error.code is ErrorCode.SASL_AUTHENTICATION_FAILED:
                for key, limit in limits:
                    self._attempts.take(key, limit, now_s)
                raise faults.not_logged_in("name or password is wrong") from None
            raise faults.store_failed(f"no broker could judge the login: {error}") from error
        return _Login(now_s, connection, {})

    def _rights(self, login: _Login, topics: Collection[str]) -> Mapping[str, TopicRights]:
        now_s = self._clock_s()
        with self._lock:
            found = {
                name: kept.rights
                for name in topics
                if (kept := login.topics.get(name)) is not None and now_s - kept.since_s < KEPT_S
            }
        missing = set(topics) - found.keys()
        if not missing:
            return found
        try:
            judged = self._judge(login.connection, sorted(missing))
        except PylogError as error:
            raise faults.store_failed(f"no broker could tell the rights: {error}") from error
        with self._lock:
            if len(login.topics) + len(judged) > MAX_TOPICS:
                login.topics.clear()
            login.topics.update({name: _Kept(now_s, rights) for name, rights in judged.items()})
        return {**found, **judged}


def _credentials(authorization: str | None) -> tuple[str, str]:
    scheme, _, text = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        raise faults.not_logged_in("a name and a password are wanted (HTTP basic authentication)")
    try:
        user, colon, password = base64.b64decode(text.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        colon = ""
    if not colon:
        raise faults.not_logged_in("the header Authorization is not Basic with NAME:PASSWORD in base64")
    return user, password


def _digest(user: str) -> str:
    return hashlib.sha256(user.encode()).hexdigest()
