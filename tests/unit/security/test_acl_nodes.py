"""ACLs in ZooKeeper, as Kafka's AclAuthorizer writes and reads them."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.errors import ApiError, ProtocolError
from pylog.security.acl import (
    Binding,
    Entry,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    check_binding,
)
from pylog.security.acl_nodes import (
    StoredAcls,
    acl_path,
    decode_acls,
    decode_change,
    encode_change,
    missed_changes,
)

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED

# As Kafka 3.9 wrote it: AclEntry.toJsonCompatibleMap with its own encoder.
KAFKAS = (
    b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow","operation":"Read","host":"*"},'
    b'{"principal":"User:*","permissionType":"Deny","operation":"DescribeConfigs","host":"10.0.0.1"}]}'
)
OURS = StoredAcls(
    (
        Entry("User:alice", "*", Operation.READ, Permission.ALLOW),
        Entry("User:*", "10.0.0.1", Operation.DESCRIBE_CONFIGS, Permission.DENY),
    )
)


def test_kafkas_bytes_are_read_and_written() -> None:
    assert decode_acls(KAFKAS) == OURS
    assert OURS.encode() == KAFKAS


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        (Pattern(ResourceType.TOPIC, LITERAL, "a"), "/kafka-acl/Topic/a"),
        (Pattern(ResourceType.TOPIC, LITERAL, "*"), "/kafka-acl/Topic/*"),
        (Pattern(ResourceType.GROUP, PREFIXED, "a b"), "/kafka-acl-extended/prefixed/Group/a b"),
        (Pattern(ResourceType.CLUSTER, LITERAL, "kafka-cluster"), "/kafka-acl/Cluster/kafka-cluster"),
        (Pattern(ResourceType.TRANSACTIONAL_ID, LITERAL, "t"), "/kafka-acl/TransactionalId/t"),
        (Pattern(ResourceType.DELEGATION_TOKEN, LITERAL, "t"), "/kafka-acl/DelegationToken/t"),
        (Pattern(ResourceType.USER, LITERAL, "u"), "/kafka-acl/User/u"),
    ],
)
def test_where_entries_are_kept(pattern: Pattern, path: str) -> None:
    assert acl_path(pattern) == path


def test_an_entry_of_a_later_release_is_kept_and_not_understood() -> None:
    row = {"principal": "User:a", "permissionType": "Allow", "operation": "TwoPhaseCommit", "host": "*"}
    stored = decode_acls(json.dumps({"version": 1, "acls": [row]}).encode())
    assert stored.entries == ()
    assert not stored.is_empty
    assert json.loads(stored.encode())["acls"] == [row]


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        b"[]",
        b"1",
        b"{}",
        b'{"version":2,"acls":[]}',
        b'{"version":1,"acls":5}',
        b'{"version":1,"acls":[5]}',
        b'{"version":1,"acls":[{"operation":"Read"}]}',
        b'{"version":1,"acls":[{"principal":1,"permissionType":"Allow","operation":"Read","host":"*"}]}',
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Maybe","operation":"Read","host":"*"}]}',
        b"\xff\xfe",
    ],
)
def test_a_node_that_is_none_is_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_acls(data)


@given(st.binary(max_size=200))
def test_noise_raises_nothing_else(data: bytes) -> None:
    for decode in (decode_acls, lambda raw: decode_change("/kafka-acl-extended-changes/acl_changes_1", raw)):
        with contextlib.suppress(ProtocolError):
            decode(data)


ENTRIES = st.builds(
    Entry,
    st.text(min_size=1, max_size=8).map("User:".__add__),
    st.sampled_from(["*", "10.0.0.1"]),
    st.sampled_from([one for one in Operation if one is not Operation.ANY]),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)
PATTERNS = st.builds(
    Pattern,
    st.sampled_from([one for one in ResourceType if one not in (ResourceType.ANY, ResourceType.CLUSTER)]),
    st.sampled_from([LITERAL, PREFIXED]),
    st.text(min_size=1, max_size=8),
)


@given(st.lists(ENTRIES.filter(lambda one: one.principal.isprintable()), unique=True))
def test_entries_come_back_as_they_were(entries: list[Entry]) -> None:
    assert decode_acls(StoredAcls(tuple(entries)).encode()).entries == tuple(entries)


@given(PATTERNS)
def test_notices_come_back_as_they_were(pattern: Pattern) -> None:
    try:
        check_binding(Binding(pattern, Entry("User:a", "*", Operation.READ, Permission.ALLOW)))
    except ApiError:
        return
    path, data = encode_change(pattern)
    assert decode_change(f"{path}0000000001", data) == pattern


def test_kafkas_notices() -> None:
    literal, prefixed = Pattern(ResourceType.TOPIC, LITERAL, "a:b"), Pattern(ResourceType.GROUP, PREFIXED, "g")
    assert encode_change(literal) == ("/kafka-acl-changes/acl_changes_", b"TOPIC:a:b")
    assert encode_change(prefixed) == (
        "/kafka-acl-extended-changes/acl_changes_",
        b'{"version":1,"resourceType":"GROUP","name":"g","patternType":"PREFIXED"}',
    )
    for text in (b"TOPIC:a:b", b"Topic:a:b", b"topic:a:b"):
        assert decode_change("/kafka-acl-changes/acl_changes_0000000000", text) == literal


def _names(*numbers: int) -> list[str]:
    return [f"acl_changes_{number:010d}" for number in numbers]


def test_notices_that_were_missed_are_found_in_order() -> None:
    assert missed_changes(_names(3, 1, 2), -1) is None  # 0 is gone: who knows what it said
    assert missed_changes(_names(3, 1, 2), 0) == _names(1, 2, 3)
    assert missed_changes(_names(3, 1, 2), 3) == []
    assert missed_changes([], 3) == []
    assert missed_changes([*_names(5), "something else"], 4) == _names(5)
    assert missed_changes(_names(5), 3) is None
    assert missed_changes(_names(1), 3) is None  # another store: its numbers begin anew
