"""The decisions of a broker: who may do what with which resource.

A decision is remembered for as long as no ACL changes, so that the produce and fetch path asks a set.

Source: KIP-11; AclAuthorizer of Apache Kafka 3.9.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakValueDictionary

from pylog.errors import ConfigError
from pylog.security.acl import ALL_OPERATIONS, SUPPORTED, Entry, Operation, Pattern, ResourceType
from pylog.security.principal import USER, Principal, Session
from pylog.security.rules import Client, Rules

MAX_REMEMBERED = 10_000
"""Decisions remembered for one client; beyond it they are made anew."""

MAX_REMEMBERED_CHARS = 255
"""Of a name in a remembered decision.  No topic has more than 249; longer names would hold memory for as long as the
client likes."""

AclNews = Rules | Mapping[Pattern, tuple[Entry, ...]]
"""All rules, or the entries of the patterns that changed; none means that a pattern is gone."""

_LIST_IN_COMMAS = re.compile(rf",\s*{USER}:", re.IGNORECASE)


def parse_super_users(text: str) -> frozenset[str]:
    """Return the principals in a list such as ``User:admin;User:CN=broker,O=org``.

    Raises:
        ConfigError: an entry is no user, or the list is separated by commas, which stand in distinguished names.
    """
    users: set[str] = set()
    for part in filter(None, (part.strip() for part in text.split(";"))):
        principal = Principal.parse(part)
        if principal.type != USER:
            raise ConfigError(f"super.users: {part!r} must begin with {USER}: (case counts)")
        if _LIST_IN_COMMAS.search(principal.name):
            raise ConfigError(f"super.users: {part!r}: separate users with ';', a name may have commas")
        users.add(str(principal))
    return frozenset(users)


@dataclass(frozen=True, slots=True)
class Policy:
    """What holds beside the ACLs.

    Attributes:
        super_users: principals, as text, who may do everything.
        is_open_without_acl: whether everybody may use a resource that no ACL is about.
        is_report_only: whether nothing is refused, and what would have been is reported.
    """

    super_users: frozenset[str] = frozenset()
    is_open_without_acl: bool = False
    is_report_only: bool = False


class Decision(NamedTuple):
    """A decision that has to be written down.

    Attributes:
        is_allowed: what the ACLs say, also where nothing is refused.
        request: the API that the client used.
    """

    is_allowed: bool
    client: Client
    operation: Operation
    resource_type: ResourceType
    name: str
    request: str


ANY_NAME = "(any)"
"""Name in a decision about all resources of a type."""


class Authorizer:
    """See the module.  Lives on one thread.

    Attributes:
        policy: may be replaced by `set_policy`.
        rules: all ACLs; empty before the first were read.
        is_loaded: whether they were read; before that only super users may do anything.
    """

    def __init__(
        self,
        policy: Policy,
        note: Callable[[Decision], None] = lambda decision: None,
        *,
        notes_allowed: bool = False,
    ) -> None:
        """Begin without ACLs.

        Args:
            policy: what holds beside them.
            note: called with each decision that denies.
            notes_allowed: call it with the others too, which no request is then free of.
        """
        self.policy = policy
        self.rules = Rules()
        self.is_loaded = False
        self.note = note
        self.notes_allowed = notes_allowed
        self._subjects: WeakValueDictionary[Client, Subject] = WeakValueDictionary()

    def learn(self, news: AclNews) -> None:
        """Decide by *news* from now on."""
        if isinstance(news, Rules):
            self.rules = news
            self.is_loaded = True
        else:
            self.rules.change(news)
        self._forget()

    def set_policy(self, policy: Policy) -> None:
        """Decide by *policy* from now on."""
        self.policy = policy
        self._forget()

    def _forget(self) -> None:
        for subject in list(self._subjects.values()):
            subject.forget()

    def subject(self, session: Session) -> "Subject":
        """Return what decides for the client of a connection; connections of one user and address have one."""
        client = Client(str(session.principal), session.client_host)
        subject = self._subjects.get(client)
        if subject is None:
            subject = self._subjects[client] = Subject(self, client)
        return subject

    def decide(self, client: Client, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Return whether the rules let *client* do *operation*; nothing is noted."""
        policy = self.policy
        if client.principal in policy.super_users:
            return True
        if not self.is_loaded:
            return False
        decision = self.rules.decide(client, operation, resource_type, name)
        return policy.is_open_without_acl if decision is None else decision

    def decide_any(self, client: Client, operation: Operation, resource_type: ResourceType) -> bool:
        """Return whether there may be a resource of this type with which *client* may do *operation*."""
        policy = self.policy
        if client.principal in policy.super_users:
            return True
        return self.is_loaded and self.rules.decide_any(
            client, operation, resource_type, if_no_acl=policy.is_open_without_acl
        )


_Question = tuple[Operation, ResourceType, str | None]
"""None asks for any resource of the type."""


class Subject:
    """What one client may do, as far as it was asked.

    Attributes:
        client: who.
        writable: topics that it may write, where a request needs neither a decision nor a note.
        readable: the same for reading.
    """

    __slots__ = ("__weakref__", "_authorizer", "_decisions", "client", "readable", "writable")

    def __init__(self, authorizer: Authorizer, client: Client) -> None:
        self._authorizer = authorizer
        self.client = client
        self.writable: set[str] = set()
        self.readable: set[str] = set()
        self._decisions: dict[_Question, bool] = {}

    def forget(self) -> None:
        """Decide anew from now on."""
        self.writable.clear()
        self.readable.clear()
        self._decisions.clear()

    def may_write(self, topic: str) -> bool:
        """Return whether the client may write *topic*, which is not in `writable`."""
        return self._may_use(self.writable, Operation.WRITE, topic, "produce")

    def may_read(self, topic: str) -> bool:
        """Return whether the client may read *topic*, which is not in `readable`."""
        return self._may_use(self.readable, Operation.READ, topic, "fetch")

    def _may_use(self, free: set[str], operation: Operation, topic: str, request: str) -> bool:
        if not self.may(operation, ResourceType.TOPIC, topic, request):
            return False
        is_short = len(topic) <= MAX_REMEMBERED_CHARS
        if is_short and not self._authorizer.notes_allowed and self._decide((operation, ResourceType.TOPIC, topic)):
            if len(free) >= MAX_REMEMBERED:
                free.clear()
            free.add(topic)
        return True

    def may(self, operation: Operation, resource_type: ResourceType, name: str, request: str) -> bool:
        """Return whether the client may do *operation* with a resource; the decision is noted."""
        return self._noted(self._decide((operation, resource_type, name)), operation, resource_type, name, request)

    def may_any(self, operation: Operation, resource_type: ResourceType, request: str) -> bool:
        """Return whether there may be a resource of this type with which the client may do *operation*."""
        return self._noted(self._decide((operation, resource_type, None)), operation, resource_type, ANY_NAME, request)

    def has(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Return what the ACLs say, also where nothing is refused; nothing is noted."""
        return self._decide((operation, resource_type, name))

    def sees(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Return whether a list shows a resource to the client; what is left out is no denial, and is not noted."""
        return self._authorizer.policy.is_report_only or self._decide((operation, resource_type, name))

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """Return the bit field of what the client may do with a resource; nothing is noted."""
        if self._authorizer.policy.is_report_only:
            return ALL_OPERATIONS[resource_type]
        return sum(
            1 << operation for operation in SUPPORTED[resource_type] if self._decide((operation, resource_type, name))
        )

    def _decide(self, question: _Question) -> bool:
        decision = self._decisions.get(question)
        if decision is None:
            authorizer = self._authorizer
            operation, resource_type, name = question
            if name is None:
                decision = authorizer.decide_any(self.client, operation, resource_type)
            else:
                decision = authorizer.decide(self.client, operation, resource_type, name)
            if name is not None and len(name) > MAX_REMEMBERED_CHARS:
                return decision
            if len(self._decisions) >= MAX_REMEMBERED:
                self._decisions.clear()
            self._decisions[question] = decision
        return decision

    def _noted(
        self, is_allowed: bool, operation: Operation, resource_type: ResourceType, name: str, request: str
    ) -> bool:
        authorizer = self._authorizer
        if not is_allowed or authorizer.notes_allowed:
            authorizer.note(Decision(is_allowed, self.client, operation, resource_type, name, request))
        return is_allowed or authorizer.policy.is_report_only
