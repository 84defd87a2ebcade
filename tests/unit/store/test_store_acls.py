"""ACLs in both stores: what the controller writes, what brokers hear of it, and what Kafka's tools write there."""

from unittest.mock import patch

import pytest

from pylog.broker.control.acl_feed import AclFeed
from pylog.errors import ErrorCode
from pylog.security.acl import (
    Binding,
    BindingFilter,
    Entry,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)
from pylog.security.acl_nodes import DENY_EVERYTHING, StoredAcls, acl_path, encode_change
from pylog.security.authorizer import AclNews
from pylog.security.rules import Rules
from pylog.store.base import Create, Set, Store, WatchEvent
from pylog.store.tree import ClusterTree, Deposed, Fence
from tests.servers.stores import Backend, Events

READ = Entry("User:alice", "*", Operation.READ, Permission.ALLOW)
WRITE = READ._replace(operation=Operation.WRITE)
A = Pattern(ResourceType.TOPIC, PatternType.LITERAL, "a")
TEAM = Pattern(ResourceType.GROUP, PatternType.PREFIXED, "team")


class Broker:
    """What one broker hears of ACLs."""

    def __init__(self, store: Store, events: Events) -> None:
        self.news: list[AclNews] = []
        self._feed = AclFeed(ClusterTree(store), self.news.append)
        self._events = events

    def read(self) -> AclNews | None:
        """Return what a reading brings, None if nothing."""
        self.news.clear()
        self._feed.read(self._events.watch)
        assert len(self.news) <= 1
        return self.news[0] if self.news else None

    def forget(self) -> None:
        self._feed.forget()


@pytest.fixture
def tree(store: Store) -> ClusterTree:
    tree = ClusterTree(store)
    tree.prepare()
    return tree


@pytest.fixture
def fence(tree: ClusterTree) -> Fence:
    fence = tree.claim_controller(1, 0)
    assert fence is not None
    return fence


@pytest.fixture
def broker(backend: Backend, tree: ClusterTree, events: Events) -> Broker:
    return Broker(backend.connect(), events)


def rules_of(news: AclNews | None) -> dict[Pattern, tuple[Entry, ...]]:
    assert isinstance(news, Rules)
    return dict(news.acls)


def test_a_broker_hears_of_each_change(tree: ClusterTree, fence: Fence, broker: Broker, events: Events) -> None:
    assert rules_of(broker.read()) == {}
    assert tree.create_acls(fence, [Binding(A, READ), Binding(TEAM, READ)]) == {}
    assert isinstance(events.next(), WatchEvent)
    assert broker.read() == {A: (READ,), TEAM: (READ,)}
    assert tree.create_acls(fence, [Binding(A, READ), Binding(A, WRITE)]) == {}
    assert broker.read() == {A: (READ, WRITE)}
    assert broker.read() is None
    removed, refused = tree.delete_acls(fence, [BindingFilter(operation=Operation.READ), BindingFilter()])
    assert ([set(one) for one in removed], refused) == (
        [{Binding(A, READ), Binding(TEAM, READ)}, {Binding(A, WRITE)}],
        {},
    )
    assert broker.read() == {A: (), TEAM: ()}
    assert tree.all_acls() == {}


def test_what_exists_is_not_written_again(tree: ClusterTree, fence: Fence, broker: Broker) -> None:
    tree.create_acls(fence, [Binding(A, READ)])
    broker.read()
    tree.create_acls(fence, [Binding(A, READ)])
    assert tree.delete_acls(fence, [BindingFilter(principal="User:bob")]) == ([[]], {})
    assert broker.read() is None


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a/../b", "a\0b"])
def test_a_name_that_cannot_be_stored_has_no_acls_to_remove(tree: ClusterTree, fence: Fence, name: str) -> None:
    tree.create_acls(fence, [Binding(A, READ)])
    wanted = BindingFilter(ResourceType.TOPIC, PatternType.LITERAL, name)
    assert tree.delete_acls(fence, [wanted]) == ([[]], {})
    assert tree.all_acls() == {A: (READ,)}


def test_after_a_pause_everything_is_read_again(tree: ClusterTree, fence: Fence, broker: Broker) -> None:
    broker.read()
    tree.create_acls(fence, [Binding(A, READ)])
    broker.forget()
    assert rules_of(broker.read()) == {A: (READ,)}


def test_who_missed_a_notice_reads_everything(tree: ClusterTree, fence: Fence, broker: Broker) -> None:
    broker.read()
    with patch("pylog.store.tree.MAX_ACL_CHANGES", 2):
        for entry in (READ, WRITE, READ._replace(principal="User:b"), READ._replace(principal="User:c")):
            tree.create_acls(fence, [Binding(A, entry)])
    assert len(rules_of(broker.read())[A]) == 4
    assert max(map(len, tree.acl_changes().values())) <= 3


def test_what_kafkas_tools_write_is_heard(tree: ClusterTree, broker: Broker, store: Store) -> None:
    broker.read()
    path, notice = encode_change(A)
    store.multi([Create(acl_path(A), StoredAcls((READ,)).encode())])
    store.multi([Create(path, notice, sequence=True)])
    assert broker.read() == {A: (READ,)}
    store.multi([Create(path, b"nonsense", sequence=True)])
    assert rules_of(broker.read()) == {A: (READ,)}, "what a notice says nobody knows, so all may have changed"


def test_a_node_that_cannot_be_read_lets_nobody_in(tree: ClusterTree, fence: Fence, store: Store) -> None:
    tree.create_acls(fence, [Binding(A, READ), Binding(TEAM, READ)])
    store.multi([Set(acl_path(A), b"{")])
    assert tree.all_acls() == {A: (DENY_EVERYTHING,), TEAM: (READ,)}
    refused = tree.create_acls(fence, [Binding(A, WRITE), Binding(TEAM, WRITE)])
    assert {pattern: error.code for pattern, error in refused.items()} == {A: ErrorCode.UNKNOWN_SERVER_ERROR}
    assert tree.acls([TEAM]) == {TEAM: (READ, WRITE)}


def test_more_entries_than_a_node_holds_are_refused(tree: ClusterTree, fence: Fence) -> None:
    many = [Binding(A, READ._replace(principal=f"User:{number}" + "x" * 200)) for number in range(2_000)]
    refused = tree.create_acls(fence, [*many, Binding(TEAM, READ)])
    assert {pattern: error.code for pattern, error in refused.items()} == {A: ErrorCode.INVALID_REQUEST}
    assert tree.all_acls() == {TEAM: (READ,)}


def test_many_patterns_are_written_in_several_multis(tree: ClusterTree, fence: Fence, broker: Broker) -> None:
    broker.read()
    many = [Binding(A._replace(name=f"topic-{number}"), READ) for number in range(600)]
    assert tree.create_acls(fence, many) == {}
    assert broker.read() == {one.pattern: (READ,) for one in many}


def test_only_the_controller_writes(tree: ClusterTree, fence: Fence) -> None:
    tree.resign()
    assert tree.claim_controller(2, 0) is not None
    with pytest.raises(Deposed):
        tree.create_acls(fence, [Binding(A, READ)])
    assert tree.all_acls() == {}
