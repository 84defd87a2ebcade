"""What an ACL may say, and which of them a filter selects."""

import pytest

from pylog.errors import ApiError, ErrorCode
from pylog.security.acl import (
    ALL_OPERATIONS,
    Binding,
    BindingFilter,
    Entry,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    check_binding,
    stored_host,
)

T, LITERAL, PREFIXED = ResourceType.TOPIC, PatternType.LITERAL, PatternType.PREFIXED


def binding(
    name: str = "a",
    pattern_type: PatternType = LITERAL,
    *,
    resource_type: ResourceType = T,
    principal: str = "User:alice",
    host: str = "*",
    operation: Operation = Operation.READ,
    permission: Permission = Permission.ALLOW,
) -> Binding:
    return Binding(Pattern(resource_type, pattern_type, name), Entry(principal, host, operation, permission))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (binding(""), "must not be empty"),
        (binding("a/b"), "cannot be stored"),
        (binding("."), "cannot be stored"),
        (binding(".."), "cannot be stored"),
        (binding("x" * 40_000), "cannot be stored"),
        (binding("a\0b"), "cannot be stored"),
        (binding("a\x85b"), "cannot be stored"),
        (binding("a\ud800b"), "cannot be stored"),
        (binding(resource_type=ResourceType.CLUSTER), "only cluster resource is 'kafka-cluster'"),
        (binding(resource_type=ResourceType.ANY), "ResourceType ANY is for filters only"),
        (binding("a", PatternType.MATCH), "PatternType MATCH is for filters only"),
        (binding("a", PatternType.ANY), "PatternType ANY is for filters only"),
        (binding(operation=Operation.ANY), "Operation ANY is for filters only"),
        (binding(permission=Permission.ANY), "Permission ANY is for filters only"),
        (binding(principal="alice"), "must be TYPE:NAME"),
        (binding(principal="User:"), "must be TYPE:NAME"),
        (binding(host="host-a.example"), "must be an IP address or *"),
        (binding(host="10.0.0.0/8"), "must be an IP address or *"),
        (binding(host="fe80::1%eth0"), "must be an IP address or *"),
        (binding(host=""), "must be an IP address or *"),
    ],
)
def test_a_binding_that_cannot_hold_is_refused(wrong: Binding, message: str) -> None:
    with pytest.raises(ApiError) as refused:
        check_binding(wrong)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert message in str(refused.value)


@pytest.mark.parametrize("name", ["*", "a", "a b", "ä", "a:b", "a;b", "a%2Fb", "a,b", "日本", "x" * 5000])
def test_odd_names_are_accepted(name: str) -> None:
    assert check_binding(binding(name)) == binding(name)


def test_an_address_is_stored_as_java_writes_it() -> None:
    assert check_binding(binding(host="::1")).entry.host == "0:0:0:0:0:0:0:1"
    assert stored_host("2001:db8::00ff") == "2001:db8:0:0:0:0:0:ff"
    assert stored_host("::ffff:192.0.2.1") == "192.0.2.1"
    assert stored_host("192.0.2.1") == "192.0.2.1"
    assert stored_host("not an address") == "not an address"


NAMED = {
    "literal": binding("team-a"),
    "wildcard": binding("*"),
    "prefix": binding("team", PREFIXED),
    "own prefix": binding("team-a", PREFIXED),
    "other": binding("other"),
    "longer": binding("team-a-2", PREFIXED),
    "star prefix": binding("*", PREFIXED),
}


@pytest.mark.parametrize(
    ("wanted", "selected"),
    [
        (BindingFilter(), set(NAMED)),
        (BindingFilter(T, PatternType.MATCH, "team-a"), {"literal", "wildcard", "prefix", "own prefix"}),
        (BindingFilter(T, PatternType.ANY, "team-a"), {"literal", "own prefix"}),
        (BindingFilter(T, LITERAL, "team-a"), {"literal"}),
        (BindingFilter(T, PREFIXED, "team-a"), {"own prefix"}),
        (BindingFilter(T, PREFIXED), {"prefix", "own prefix", "longer", "star prefix"}),
        (BindingFilter(T, LITERAL, "*"), {"wildcard"}),
        (BindingFilter(ResourceType.GROUP), set()),
        (BindingFilter(principal="User:bob"), set()),
        (BindingFilter(host="10.0.0.1"), set()),
        (BindingFilter(operation=Operation.WRITE), set()),
        (BindingFilter(permission=Permission.DENY), set()),
        (BindingFilter(principal="User:alice", host="*", operation=Operation.READ), set(NAMED)),
    ],
)
def test_what_a_filter_selects(wanted: BindingFilter, selected: set[str]) -> None:
    assert {name for name, one in NAMED.items() if wanted.selects(one)} == selected


def test_a_filter_finds_an_address_however_it_is_written() -> None:
    stored = check_binding(binding(host="2001:db8::1"))
    for written in ("2001:db8::1", "2001:0db8::0001", "2001:db8:0:0:0:0:0:1"):
        assert BindingFilter(host=written).selects(stored), written
    assert not BindingFilter(host="2001:db8::2").selects(stored)


def test_only_a_filter_with_type_and_name_is_about_one_pattern() -> None:
    assert BindingFilter(T, LITERAL, "a").exact_pattern() == Pattern(T, LITERAL, "a")
    for wanted in (BindingFilter(T, LITERAL), BindingFilter(T, PatternType.MATCH, "a"), BindingFilter(name="a")):
        assert wanted.exact_pattern() is None


def test_bit_fields_have_one_bit_for_each_operation_of_a_type() -> None:
    assert ALL_OPERATIONS[ResourceType.TOPIC] == 0b1101_1111_1000
    assert ALL_OPERATIONS[ResourceType.GROUP] == 0b1_0100_1000
    assert ALL_OPERATIONS[ResourceType.CLUSTER] == 0b1_1111_1010_0000
