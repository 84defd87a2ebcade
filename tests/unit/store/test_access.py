"""Users and rights made what a document says."""

from pathlib import Path
from typing import Any

import pytest

from pylog.cluster import znodes
from pylog.errors import ConfigError
from pylog.security import acl_nodes
from pylog.security.access import read_access
from pylog.store.access import Difference, apply_access, compare_access
from pylog.store.base import Store
from pylog.store.embedded import EmbeddedStore
from pylog.store.tree import ClusterTree
from pylog.store.users import has_password, set_password

READ_CLICKS = {"resource": "topic", "name": "clicks", "operations": ["Read", "Describe"]}
GROUPS = {"resource": "group", "name": "team-", "pattern": "prefixed", "operations": ["read"]}
ALICE = {"name": "alice", "password": "secret", "acls": [READ_CLICKS, GROUPS]}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    opened = EmbeddedStore.open(tmp_path)
    opened.connect()
    return opened


def apply(store: Store, *users: dict[str, Any], absent: tuple[str, ...] = ()) -> list[Difference]:
    return apply_access(store, read_access({"users": list(users), "absent": list(absent)}))


def rights(store: Store) -> set[str]:
    return {
        f"{entry.principal} {entry.permission.name} {entry.operation.name} {pattern}"
        for pattern, entries in ClusterTree(store).all_acls().items()
        for entry in entries
    }


def test_a_user_gets_password_and_rights_and_a_second_run_changes_nothing(store: Store) -> None:
    differences = apply(store, ALICE)
    assert {one.what for one in differences} >= {"password", "READ TOPIC:LITERAL:clicks from *"}
    assert has_password(store, "alice", "secret")
    assert rights(store) == {
        "User:alice ALLOW READ TOPIC:LITERAL:clicks",
        "User:alice ALLOW DESCRIBE TOPIC:LITERAL:clicks",
        "User:alice ALLOW READ GROUP:PREFIXED:team-",
    }
    _, before = store.get(znodes.user_path("alice"))
    assert apply(store, ALICE) == []
    assert store.get(znodes.user_path("alice"))[1] == before


def test_a_dry_run_tells_the_same_and_writes_nothing(store: Store) -> None:
    wanted = read_access({"users": [ALICE]})
    told = compare_access(store, wanted)
    assert rights(store) == set()
    assert not has_password(store, "alice", "secret")
    users: list[tuple[int, int]] = []
    assert apply_access(store, wanted, lambda *found: users.append(found)) == told
    assert users == [(1, 1)]


def test_a_right_that_the_document_no_longer_has_goes_and_others_rights_stay(store: Store) -> None:
    apply(store, ALICE, {**ALICE, "name": "bob"})
    assert [one.what for one in apply(store, {**ALICE, "acls": [GROUPS]})] == [
        "DESCRIBE TOPIC:LITERAL:clicks from *",
        "READ TOPIC:LITERAL:clicks from *",
    ]
    assert "User:alice ALLOW READ TOPIC:LITERAL:clicks" not in rights(store)
    assert "User:bob ALLOW READ TOPIC:LITERAL:clicks" in rights(store)


def test_an_absent_user_loses_password_and_rights_and_the_empty_node_goes(store: Store) -> None:
    apply(store, ALICE)
    assert apply(store, absent=("alice",))
    assert rights(store) == set()
    assert "alice" not in ClusterTree(store).scram_credentials()
    assert store.children("/kafka-acl/Topic") == []
    assert apply(store, absent=("alice",)) == []


def test_a_user_without_password_or_acls_keeps_what_is_there(store: Store) -> None:
    apply(store, ALICE)
    assert apply(store, {"name": "alice"}) == []
    assert apply(store, {"name": "alice", "acls": []})
    assert has_password(store, "alice", "secret")
    assert rights(store) == set()


def test_each_change_of_rights_has_a_notice(store: Store) -> None:
    apply(store, ALICE)
    assert len(store.children(acl_nodes.LITERAL_CHANGES)) == 1
    assert len(store.children(acl_nodes.EXTENDED_CHANGES)) == 1


def test_another_password_is_written(store: Store) -> None:
    set_password(store, "alice", "former")
    assert Difference("alice", "password", "another", "as given") in apply(store, ALICE)
    assert has_password(store, "alice", "secret")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "the document must be a mapping"),
        ({"user": []}, "unknown key 'user'"),
        ({"users": [{"password": "hidden"}]}, r"users\[0\].name: a user's name must be text"),
        ({"users": [{"name": "*", "password": "hidden"}]}, r"users\[0\].name"),
        ({"users": [{"name": "ANONYMOUS"}]}, r"users\[0\].name"),
        ({"users": [{"name": "jürgen"}]}, "ASCII only"),
        ({"users": [{"name": "a", "password": 12345}]}, "password must be of type str, got int"),
        ({"users": [{"name": "a", "password": ""}]}, "must not be empty"),
        ({"users": [{"name": "a"}], "absent": ["a"]}, "must be named once"),
        ({"users": [{"name": "a", "acls": [{"resource": "queue", "operations": ["Read"]}]}]}, "'queue' must be one of"),
        ({"users": [{"name": "a", "acls": [{"operations": ["Read"]}]}]}, "name of the topic is missing"),
        ({"users": [{"name": "a", "acls": [{"name": "t"}]}]}, "at least one operation"),
        ({"users": [{"name": "a", "acls": [{"name": "t", "operations": ["Any"]}]}]}, "'Any' must be one of"),
        ({"users": [{"name": "a", "acls": [{"name": "a/b", "operations": ["Read"]}]}]}, "cannot be stored"),
        ({"users": [{"name": "a", "acls": [{"name": "t", "operations": ["Read"], "hosts": ["h"]}]}]}, "an IP address"),
    ],
)
def test_a_wrong_document_is_refused_with_its_place_and_without_its_passwords(document: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read_access(document)
    assert "hidden" not in str(caught.value)
    assert "12345" not in str(caught.value)
