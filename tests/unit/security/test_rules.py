"""Decisions by all ACLs, compared with a model that reads the whole list each time."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from pylog.security.rules import Client, Rules

T, LITERAL, PREFIXED = ResourceType.TOPIC, PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
ALICE = Client("User:alice", "10.0.0.1")


def rules(*bindings: Binding) -> Rules:
    acls: dict[Pattern, tuple[Entry, ...]] = {}
    for one in bindings:
        acls[one.pattern] = (*acls.get(one.pattern, ()), one.entry)
    return Rules(acls)


def acl(
    permission: Permission,
    operation: Operation,
    name: str,
    pattern_type: PatternType = LITERAL,
    *,
    principal: str = "User:alice",
    host: str = "*",
    resource_type: ResourceType = T,
) -> Binding:
    return Binding(Pattern(resource_type, pattern_type, name), Entry(principal, host, operation, permission))


@pytest.mark.parametrize(
    ("bindings", "operation", "name", "decision"),
    [
        ([], Operation.READ, "a", None),
        ([acl(ALLOW, Operation.READ, "a")], Operation.READ, "a", True),
        ([acl(ALLOW, Operation.READ, "a")], Operation.READ, "b", None),
        ([acl(ALLOW, Operation.READ, "a")], Operation.WRITE, "a", False),
        ([acl(ALLOW, Operation.READ, "a", principal="User:bob")], Operation.READ, "a", False),
        ([acl(ALLOW, Operation.READ, "a", principal="user:alice")], Operation.READ, "a", False),
        ([acl(ALLOW, Operation.READ, "a", principal="User:ali*")], Operation.READ, "a", False),
        ([acl(ALLOW, Operation.READ, "a", principal="User:*")], Operation.READ, "a", True),
        ([acl(ALLOW, Operation.READ, "a", host="10.0.0.1")], Operation.READ, "a", True),
        ([acl(ALLOW, Operation.READ, "a", host="10.0.0.2")], Operation.READ, "a", False),
        ([acl(ALLOW, Operation.ALL, "a")], Operation.ALTER_CONFIGS, "a", True),
        ([acl(ALLOW, Operation.READ, "*")], Operation.READ, "a", True),
        ([acl(ALLOW, Operation.READ, "te", PREFIXED)], Operation.READ, "team", True),
        ([acl(ALLOW, Operation.READ, "team", PREFIXED)], Operation.READ, "team", True),
        ([acl(ALLOW, Operation.READ, "team", PREFIXED)], Operation.READ, "tea", None),
        ([acl(ALLOW, Operation.READ, "*", PREFIXED)], Operation.READ, "team", None),
        ([acl(ALLOW, Operation.READ, "", PREFIXED)], Operation.READ, "team", None),
        ([acl(ALLOW, Operation.READ, "a", resource_type=ResourceType.GROUP)], Operation.READ, "a", None),
        # What implies another operation, in ALLOW alone.
        ([acl(ALLOW, Operation.READ, "a")], Operation.DESCRIBE, "a", True),
        ([acl(ALLOW, Operation.WRITE, "a")], Operation.DESCRIBE, "a", True),
        ([acl(ALLOW, Operation.DELETE, "a")], Operation.DESCRIBE, "a", True),
        ([acl(ALLOW, Operation.ALTER, "a")], Operation.DESCRIBE, "a", True),
        ([acl(ALLOW, Operation.CREATE, "a")], Operation.DESCRIBE, "a", False),
        ([acl(ALLOW, Operation.ALTER_CONFIGS, "a")], Operation.DESCRIBE_CONFIGS, "a", True),
        ([acl(ALLOW, Operation.ALTER, "a")], Operation.ALTER_CONFIGS, "a", False),
        ([acl(ALLOW, Operation.ALL, "a"), acl(DENY, Operation.READ, "a")], Operation.DESCRIBE, "a", True),
        # A denial counts wherever it stands.
        ([acl(DENY, Operation.READ, "*"), acl(ALLOW, Operation.ALL, "a")], Operation.READ, "a", False),
        ([acl(DENY, Operation.READ, "a", PREFIXED), acl(ALLOW, Operation.ALL, "ab")], Operation.READ, "ab", False),
        ([acl(DENY, Operation.ALL, "a"), acl(ALLOW, Operation.READ, "a")], Operation.DESCRIBE, "a", False),
        ([acl(DENY, Operation.READ, "a", host="10.0.0.9"), acl(ALLOW, Operation.READ, "a")], Operation.READ, "a", True),
    ],
)
def test_decisions(bindings: list[Binding], operation: Operation, name: str, decision: bool | None) -> None:
    assert rules(*bindings).decide(ALICE, operation, T, name) is decision


def test_addresses_are_equal_however_they_are_written() -> None:
    stored = rules(acl(ALLOW, Operation.READ, "a", host="0:0:0:0:0:0:0:1"))
    assert stored.decide(Client("User:alice", "::1"), Operation.READ, T, "a") is True


def test_a_removed_pattern_says_nothing_any_more() -> None:
    pattern = Pattern(T, PREFIXED, "a")
    one = Rules({pattern: (Entry("User:alice", "*", Operation.READ, ALLOW),)})
    before = one.acls
    one.change({pattern: ()})
    assert one.decide(ALICE, Operation.READ, T, "ab") is None
    assert one.acls == {}
    assert pattern in before  # who iterates over it is not disturbed
    one.change({pattern: ()})
    assert one.decide(ALICE, Operation.READ, T, "ab") is None


NAMES = st.sampled_from(["a", "ab", "abc", "b", "*", "ba"])
PRINCIPALS = st.sampled_from(["User:alice", "User:bob", "User:*"])
HOSTS = st.sampled_from(["*", "10.0.0.1", "10.0.0.2"])
OPERATIONS = st.sampled_from([one for one in Operation if one is not Operation.ANY])
ASKED = st.sampled_from([one for one in Operation if one not in (Operation.ANY, Operation.ALL)])
BINDINGS = st.builds(
    Binding,
    st.builds(Pattern, st.sampled_from([T, ResourceType.GROUP]), st.sampled_from([LITERAL, PREFIXED]), NAMES),
    st.builds(Entry, PRINCIPALS, HOSTS, OPERATIONS, st.sampled_from([ALLOW, DENY])),
)
CLIENTS = st.builds(Client, st.sampled_from(["User:alice", "User:bob"]), st.sampled_from(["10.0.0.1", "10.0.0.2"]))

IMPLIED = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


def model(
    bindings: Sequence[Binding], client: Client, operation: Operation, resource_type: ResourceType, name: str
) -> bool | None:
    about = [
        one.entry
        for one in bindings
        if one.pattern.resource_type is resource_type
        and (
            one.pattern.name in (name, "*")
            if one.pattern.pattern_type is LITERAL
            else name.startswith(one.pattern.name)
        )
    ]
    if not about:
        return None
    mine = [one for one in about if one.principal in (client.principal, "User:*") and one.host in (client.host, "*")]
    if any(one.permission is DENY and one.operation in (operation, Operation.ALL) for one in mine):
        return False
    enough = {operation, Operation.ALL} | IMPLIED.get(operation, set())
    return any(one.permission is ALLOW and one.operation in enough for one in mine)


@settings(max_examples=200)
@given(st.lists(BINDINGS, max_size=8), CLIENTS, ASKED, NAMES)
def test_decisions_are_those_of_the_model(
    bindings: list[Binding], client: Client, operation: Operation, name: str
) -> None:
    assert rules(*bindings).decide(client, operation, T, name) is model(bindings, client, operation, T, name)


@settings(max_examples=200)
@given(st.lists(BINDINGS, max_size=8), CLIENTS, st.booleans())
def test_any_resource_is_allowed_if_one_can_be_found(bindings: list[Binding], client: Client, if_no_acl: bool) -> None:
    # Names that some pattern is about, those that go on where a prefix ends, and one that none is about.
    names = {one.pattern.name for one in bindings} - {"*"}
    names |= {f"{name}~" for name in names} | {"~"}
    if any(one.pattern == Pattern(T, PREFIXED, "*") for one in bindings):
        names |= {"*", "*~"}
    found = [model(bindings, client, Operation.WRITE, T, name) for name in names]
    expected = any(one or (one is None and if_no_acl) for one in found)
    decided = rules(*bindings).decide_any(client, Operation.WRITE, T, if_no_acl=if_no_acl)
    if if_no_acl:
        # Kafka says yes unless the wildcard denies, whatever else forbids.
        assert decided or not expected
    else:
        assert decided == expected


@given(
    st.lists(BINDINGS, max_size=8, unique=True),
    st.builds(
        BindingFilter,
        st.sampled_from(ResourceType),
        st.sampled_from(PatternType),
        st.none() | NAMES,
        st.none() | PRINCIPALS,
        st.none() | HOSTS,
        st.sampled_from(Operation),
        st.sampled_from(Permission),
    ),
)
def test_a_filter_finds_what_it_selects(bindings: list[Binding], wanted: BindingFilter) -> None:
    assert set(rules(*bindings).bindings(wanted)) == {one for one in bindings if wanted.selects(one)}
    assert all(rules(*bindings).has(one) for one in bindings)


@given(st.lists(st.tuples(BINDINGS, st.booleans()), max_size=12), CLIENTS, ASKED, NAMES)
def test_changes_one_by_one_lead_to_the_same_rules(
    steps: list[tuple[Binding, bool]], client: Client, operation: Operation, name: str
) -> None:
    changed = Rules()
    kept: dict[Pattern, tuple[Entry, ...]] = {}
    for one, is_added in steps:
        entries = (one.entry,) if is_added else ()
        changed.change({one.pattern: entries})
        kept[one.pattern] = entries
    whole = Rules({pattern: entries for pattern, entries in kept.items() if entries})
    assert changed.acls == whole.acls
    assert changed.entry_count == sum(map(len, whole.acls.values()))
    assert changed.decide(client, operation, T, name) is whole.decide(client, operation, T, name)
