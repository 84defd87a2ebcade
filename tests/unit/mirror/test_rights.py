"""What users of a group lack in the cluster that it would enter."""

from collections.abc import Sequence

import pytest

from pylog.mirror.rights import Lack, lacks
from pylog.security.acl import EVERYBODY, Binding, Entry, Operation, Pattern, PatternType, Permission, ResourceType

READ, ALL, DESCRIBE = Operation.READ, Operation.ALL, Operation.DESCRIBE
GROUP, TOPIC = ResourceType.GROUP, ResourceType.TOPIC


def rule(
    kind: ResourceType,
    name: str,
    operation: Operation = READ,
    *,
    user: str = "User:alice",
    host: str = "*",
    permission: Permission = Permission.ALLOW,
    is_prefix: bool = False,
) -> Binding:
    pattern = Pattern(kind, PatternType.PREFIXED if is_prefix else PatternType.LITERAL, name)
    return Binding(pattern, Entry(user, host, operation, permission))


ALICE = [rule(GROUP, "readers"), rule(TOPIC, "clicks")]
GROUP_LACKS, TOPIC_LACKS = Lack("User:alice", "*", "group", "readers"), Lack("User:alice", "*", "topic", "clicks")


@pytest.mark.parametrize(
    ("there", "found"),
    [
        (ALICE, []),
        ([], [GROUP_LACKS, TOPIC_LACKS]),
        ([rule(GROUP, "readers")], [TOPIC_LACKS]),
        ([rule(GROUP, "read", ALL, is_prefix=True), rule(TOPIC, "*", user=EVERYBODY)], []),
        ([*ALICE, rule(TOPIC, "*", permission=Permission.DENY)], [TOPIC_LACKS]),
        ([rule(GROUP, "readers", DESCRIBE), rule(TOPIC, "clicks")], [GROUP_LACKS]),
        ([rule(GROUP, "readers", host="192.0.2.1"), rule(TOPIC, "clicks")], [GROUP_LACKS]),
    ],
    ids=["the same", "none", "of the group alone", "by other patterns", "denied", "Describe alone", "one address"],
)
def test_a_user_needs_each_right_in_the_other_cluster_too(there: Sequence[Binding], found: list[Lack]) -> None:
    assert lacks(ALICE, there, "readers", {"clicks"}) == found


@pytest.mark.parametrize(
    ("here", "found"),
    [
        ([], []),
        ([rule(GROUP, "others"), rule(TOPIC, "clicks")], []),
        ([rule(GROUP, "readers", DESCRIBE), rule(TOPIC, "clicks")], []),
        ([*ALICE, rule(GROUP, "*", ALL, permission=Permission.DENY)], []),
        ([rule(GROUP, "readers")], [GROUP_LACKS]),
        ([rule(GROUP, "readers", host="192.0.2.1")], [GROUP_LACKS._replace(host="192.0.2.1")]),
        ([rule(GROUP, "readers", user=EVERYBODY)], [GROUP_LACKS._replace(principal=EVERYBODY)]),
    ],
    ids=["no rule", "another group", "Describe", "denied", "the group alone", "one address", "everybody"],
)
def test_only_who_may_read_in_the_group_here_is_looked_at(here: Sequence[Binding], found: list[Lack]) -> None:
    assert lacks(here, [], "readers", {"clicks"}) == found
