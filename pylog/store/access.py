"""Users and their rights made what a document says, straight in the store: no broker and no login is needed.

Each node is written for the version that was read, so brokers and other tools may write at the same time.
"""

from collections.abc import Callable
from typing import NamedTuple

from pylog.errors import ApiError, ErrorCode
from pylog.model import OnProgress, nobody
from pylog.security import acl_nodes
from pylog.security.access import Access, WantedUser
from pylog.security.acl import Binding, Pattern
from pylog.security.acl_nodes import StoredAcls, decode_acls
from pylog.security.principal import USER
from pylog.store.base import BadVersion, Create, Delete, NodeExists, NoNode, Operation, Set, Store
from pylog.store.tree import ClusterTree
from pylog.store.users import delete_user, has_password, set_password

_ATTEMPTS = 10
"""Another writer of the same node wins now and then, but not for ever."""


class Difference(NamedTuple):
    """One thing about a user that is not as wanted.

    Attributes:
        what: ``password``, or the resource and the operation of an ACL.
        found: what is there, empty for nothing; never a secret.
        wanted: what should be, empty for nothing.
    """

    user: str
    what: str
    found: str
    wanted: str


def compare_access(store: Store, wanted: Access) -> list[Difference]:
    """Return how users and rights in *store* differ from what is wanted."""
    tree = ClusterTree(store)
    store.ensure("/config/users")
    tree.prepare_acls()
    credentials = tree.scram_credentials()
    rights = _rights(tree)
    found: list[Difference] = []
    for user in wanted.users:
        if user.password is not None and not has_password(store, user.name, user.password):
            found.append(Difference(user.name, "password", "another" if user.name in credentials else "", "as given"))
        if user.acls is not None:
            found += _acl_differences(user.name, rights.get(user.principal, set()), user.acls)
    for name in wanted.absent:
        if name in credentials:
            found.append(Difference(name, "password", "one", ""))
        found += _acl_differences(name, rights.get(f"{USER}:{name}", set()), frozenset())
    return found


def apply_access(store: Store, wanted: Access, on_progress: OnProgress = nobody) -> list[Difference]:
    """Make users and rights in *store* what is wanted; return what differed.

    A new user gets rights before a password; an absent user loses the password first.

    Args:
        store: connected.
        wanted: users and their rights.
        on_progress: told how many users are as wanted.

    Raises:
        ApiError: other writers kept changing the same node.
        ProtocolError: a node of ACLs cannot be read.
    """
    differences = compare_access(store, wanted)
    count = len(wanted.absent) + len(wanted.users)
    for done, name in enumerate(wanted.absent, 1):
        delete_user(store, name)
        on_progress(done, count)
    _write_acls(store, [*wanted.users, *(WantedUser(name=name, acls=frozenset()) for name in wanted.absent)])
    for done, user in enumerate(wanted.users, 1 + len(wanted.absent)):
        if user.password is not None:
            set_password(store, user.name, user.password)
        on_progress(done, count)
    return differences


def _rights(tree: ClusterTree) -> dict[str, set[Binding]]:
    found: dict[str, set[Binding]] = {}
    for pattern, entries in tree.all_acls().items():
        for entry in entries:
            found.setdefault(entry.principal, set()).add(Binding(pattern, entry))
    return found


def _acl_differences(user: str, found: set[Binding], wanted: frozenset[Binding]) -> list[Difference]:
    surplus = [Difference(user, _what(one), one.entry.permission.name, "") for one in found - wanted]
    missing = [Difference(user, _what(one), "", one.entry.permission.name) for one in wanted - found]
    return sorted([*surplus, *missing])


def _what(binding: Binding) -> str:
    return f"{binding.entry.operation.name} {binding.pattern} from {binding.entry.host}"


def _write_acls(store: Store, users: list[WantedUser]) -> None:
    """Give each user exactly the wanted bindings; those of others in the same nodes stay."""
    wanted: dict[Pattern, list[Binding]] = {}
    for user in users:
        for binding in sorted(user.acls or ()):
            wanted.setdefault(binding.pattern, []).append(binding)
    managed = {user.principal for user in users if user.acls is not None}
    tree = ClusterTree(store)
    held = {pattern for pattern, entries in tree.all_acls().items() if any(one.principal in managed for one in entries)}

    def rewritten(pattern: Pattern, before: StoredAcls) -> StoredAcls:
        mine = [one.entry for one in wanted.get(pattern, ())]
        kept = [entry for entry in before.entries if entry.principal not in managed or entry in mine]
        return StoredAcls((*kept, *(entry for entry in mine if entry not in kept)), before.foreign)

    for pattern in sorted({*wanted, *held}):
        _rewrite(store, pattern, rewritten)


def _rewrite(store: Store, pattern: Pattern, rewritten: Callable[[Pattern, StoredAcls], StoredAcls]) -> None:
    path = acl_nodes.acl_path(pattern)
    for _ in range(_ATTEMPTS):
        [node] = store.get_many([path])
        before = StoredAcls() if node is None else decode_acls(node[0])
        after = rewritten(pattern, before)
        if after == before:
            return
        operation: Operation
        if node is None:
            operation = Create(path, after.encode())
        elif after.is_empty:
            operation = Delete(path, node[1].version)
        else:
            operation = Set(path, after.encode(), node[1].version)
        # With its notice in one multi, as a controller writes it: brokers that run hear of it.
        notice_path, notice = acl_nodes.encode_change(pattern)
        try:
            store.multi([operation, Create(notice_path, notice, sequence=True)])
        except (BadVersion, NodeExists, NoNode):
            continue
        return
    raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"ACLs of {pattern} were changed by others {_ATTEMPTS} times meanwhile")
