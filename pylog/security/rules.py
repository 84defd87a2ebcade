"""All ACLs of a cluster, kept so that a decision looks at few of them.

Source: AclAuthorizer of Apache Kafka 3.9 (aclsAllowAccess, authorizeByResourceType).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pylog.security.acl import (
    ALLOWED_BY,
    DENIED_BY,
    EVERYBODY,
    WILDCARD,
    Binding,
    BindingFilter,
    Entry,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)
from pylog.security.principal import normal_host

Entries = Mapping[str, Sequence[Entry]]
"""Entries of one pattern by principal."""

Acls = Mapping[Pattern, tuple[Entry, ...]]


class Client(NamedTuple):
    """Whom a decision is about.

    Attributes:
        principal: ``Type:name``.
        host: its address, as `normal_host` writes it.
    """

    principal: str
    host: str


class Rules:
    """See the module.  Not safe for several threads.

    Attributes:
        acls: entries by pattern; replaced as a whole when one changes, so that an iteration goes on undisturbed.
            Invariant: no pattern is without entries.
        entry_count: of all patterns together.
    """

    def __init__(self, acls: Acls | None = None) -> None:
        self.acls: Acls = {}
        self.entry_count = 0
        self._entries: dict[Pattern, Entries] = {}
        # Lengths of the prefixes of each type, and how many there are of each: a name is cut to each length once.
        self._lengths: dict[ResourceType, dict[int, int]] = {}
        self.change(acls or {})

    def change(self, changes: Mapping[Pattern, tuple[Entry, ...]]) -> None:
        """Replace the entries of patterns; none removes the pattern."""
        acls = {**self.acls, **changes}
        for pattern, entries in changes.items():
            self.entry_count += len(entries) - len(self.acls.get(pattern, ()))
            was_known = pattern in self._entries
            if entries:
                by_principal: dict[str, list[Entry]] = {}
                for entry in entries:
                    by_principal.setdefault(entry.principal, []).append(entry._replace(host=normal_host(entry.host)))
                self._entries[pattern] = by_principal
            else:
                del acls[pattern]
                self._entries.pop(pattern, None)
            if pattern.pattern_type is PatternType.PREFIXED:
                self._count_prefix(pattern, bool(entries) - was_known)
        self.acls = acls

    def _count_prefix(self, pattern: Pattern, change: int) -> None:
        lengths = self._lengths.setdefault(pattern.resource_type, {})
        length = len(pattern.name)
        lengths[length] = lengths.get(length, 0) + change
        if not lengths[length]:
            del lengths[length]

    def bindings(self, wanted: BindingFilter) -> Iterator[Binding]:
        """Yield the bindings that *wanted* selects."""
        acls, exact = self.acls, wanted.exact_pattern()
        patterns: Iterable[Pattern] = acls if exact is None else (exact,)
        for pattern in patterns:
            if wanted.selects_pattern(pattern):
                for entry in acls.get(pattern, ()):
                    if wanted.selects_entry(entry):
                        yield Binding(pattern, entry)

    def has(self, binding: Binding) -> bool:
        """Return whether *binding* is among them."""
        return binding.entry in self.acls.get(binding.pattern, ())

    def decide(self, client: Client, operation: Operation, resource_type: ResourceType, name: str) -> bool | None:
        """Return whether *client* may do *operation*, None if no ACL is about the resource."""
        is_any = is_allowed = False
        allowing, denying = ALLOWED_BY[operation], DENIED_BY[operation]
        for entries in self._about(resource_type, name):
            is_any = True
            for principal in (client.principal, EVERYBODY):
                for entry in entries.get(principal, ()):
                    if entry.host != WILDCARD and entry.host != client.host:
                        continue
                    if entry.permission is Permission.ALLOW:
                        is_allowed |= entry.operation in allowing
                    elif entry.operation in denying:
                        return False
        return is_allowed if is_any else None

    def _about(self, resource_type: ResourceType, name: str) -> Iterator[Entries]:
        """Yield the entries of every pattern that holds for a resource."""
        known = self._entries
        literals = (name, WILDCARD) if name != WILDCARD else (name,)
        for literal in literals:
            entries = known.get(Pattern(resource_type, PatternType.LITERAL, literal))
            if entries is not None:
                yield entries
        for length in self._lengths.get(resource_type, ()):
            # Never of length 0: a name without a first character is no prefix.
            if 0 < length <= len(name):
                entries = known.get(Pattern(resource_type, PatternType.PREFIXED, name[:length]))
                if entries is not None:
                    yield entries

    def decide_any(self, client: Client, operation: Operation, resource_type: ResourceType, *, if_no_acl: bool) -> bool:
        """Return whether there may be a resource with which *client* may do *operation*.

        Args:
            client: who asks.
            operation: what for; one that another operation implies is not looked for, as with Kafka.
            resource_type: of the resource.
            if_no_acl: whether everybody may where no ACL is about a resource.
        """
        names: dict[tuple[Permission, PatternType], set[str]] = {}
        for pattern, entries in self._entries.items():
            if pattern.resource_type is not resource_type:
                continue
            for principal in (client.principal, EVERYBODY):
                for entry in entries.get(principal, ()):
                    if entry.operation in DENIED_BY[operation] and entry.host in (WILDCARD, client.host):
                        names.setdefault((entry.permission, pattern.pattern_type), set()).add(pattern.name)
        denied = names.get((Permission.DENY, PatternType.LITERAL), set())
        denied_prefixes = names.get((Permission.DENY, PatternType.PREFIXED), set())
        if WILDCARD in denied:
            return False
        if if_no_acl:
            return True
        allowed = names.get((Permission.ALLOW, PatternType.LITERAL), set()) - denied
        if WILDCARD in allowed:
            return True
        allowed |= names.get((Permission.ALLOW, PatternType.PREFIXED), set())
        return any(not _has_prefix(name, denied_prefixes) for name in allowed)


def _has_prefix(name: str, prefixes: set[str]) -> bool:
    return any(name[:length] in prefixes for length in range(1, len(name) + 1))
