"""Decisions of a broker: what is remembered, what is written down, and what a report mode refuses."""

import pytest

from pylog.errors import ConfigError
from pylog.security.acl import Entry, Operation, Pattern, PatternType, Permission, ResourceType
from pylog.security.authorizer import Authorizer, Decision, Policy, Subject, parse_super_users
from pylog.security.principal import Principal, Session
from pylog.security.rules import Rules

T = ResourceType.TOPIC
A = Pattern(T, PatternType.LITERAL, "a")
READ = Entry("User:alice", "*", Operation.READ, Permission.ALLOW)


class Desk:
    """An authorizer, and what it wrote down."""

    def __init__(self, policy: Policy | None = None, *, notes_allowed: bool = False, is_loaded: bool = True) -> None:
        self.noted: list[Decision] = []
        self.authorizer = Authorizer(policy or Policy(), self.noted.append, notes_allowed=notes_allowed)
        if is_loaded:
            self.authorizer.learn(Rules({A: (READ,)}))

    def subject(self, user: str = "alice", host: str = "10.0.0.1") -> Subject:
        session = Session(principal=Principal("User", user), client_host=host, listener_name="client")
        return self.authorizer.subject(session)


def test_an_allowed_read_is_free_until_an_acl_changes() -> None:
    desk = Desk()
    alice = desk.subject()
    assert alice.may_read("a")
    assert "a" in alice.readable
    desk.authorizer.learn({A: (READ._replace(permission=Permission.DENY),)})
    assert not alice.readable
    assert not alice.may_read("a")
    assert [one.is_allowed for one in desk.noted] == [False]


def test_a_denied_read_is_never_free_and_always_written_down() -> None:
    desk = Desk()
    alice = desk.subject()
    assert [alice.may_write("a") for _ in range(3)] == [False] * 3
    assert not alice.writable
    assert len(desk.noted) == 3
    assert desk.noted[0] == Decision(False, alice.client, Operation.WRITE, T, "a", "produce")


def test_no_read_is_free_where_allowed_ones_are_written_down() -> None:
    desk = Desk(notes_allowed=True)
    alice = desk.subject()
    assert alice.may_read("a")
    assert alice.may_read("a")
    assert not alice.readable
    assert [one.is_allowed for one in desk.noted] == [True, True]


def test_a_report_refuses_nothing_and_writes_down_what_it_would() -> None:
    desk = Desk(Policy(is_report_only=True))
    alice = desk.subject()
    assert alice.may_write("a")
    assert alice.may_write("a")
    assert not alice.writable
    assert len(desk.noted) == 2
    assert not desk.noted[0].is_allowed
    assert alice.sees(Operation.DESCRIBE, T, "b")
    assert alice.operations(T, "b") == 0b1101_1111_1000
    assert len(desk.noted) == 2


def test_enforcement_begins_and_ends_with_the_policy() -> None:
    desk = Desk(Policy(is_report_only=True))
    alice = desk.subject()
    assert alice.may_write("a")
    desk.authorizer.set_policy(Policy())
    assert not alice.may_write("a")
    desk.authorizer.set_policy(Policy(is_report_only=True))
    assert alice.may_write("a")


def test_only_super_users_may_do_anything_before_acls_were_read() -> None:
    desk = Desk(Policy(frozenset({"User:root"}), is_open_without_acl=True), is_loaded=False)
    assert desk.subject("root").may_write("a")
    assert not desk.subject("alice").may_read("a")
    assert not desk.subject("alice").may_any(Operation.WRITE, T, "init_producer_id")
    desk.authorizer.learn(Rules({A: (READ,)}))
    assert desk.subject("alice").may_read("a")


def test_the_first_acl_of_a_resource_locks_others_out() -> None:
    desk = Desk(Policy(is_open_without_acl=True))
    bob = desk.subject("bob")
    assert bob.may_read("b")
    assert not bob.may_read("a")


def test_connections_of_one_client_have_one_subject() -> None:
    desk = Desk()
    one, same = desk.subject(), desk.subject()
    assert one is same
    assert desk.subject("bob") is not one
    assert desk.subject(host="10.0.0.2") is not one


def test_a_list_leaves_out_without_a_word() -> None:
    desk = Desk()
    alice = desk.subject()
    assert alice.sees(Operation.DESCRIBE, T, "a")
    assert not alice.sees(Operation.DESCRIBE, T, "b")
    assert alice.operations(T, "a") == 1 << Operation.READ | 1 << Operation.DESCRIBE
    assert alice.operations(T, "b") == 0
    assert desk.noted == []


def test_the_question_about_any_resource_is_not_that_about_an_empty_name() -> None:
    desk = Desk()
    alice = desk.subject()
    assert alice.may_any(Operation.READ, T, "x")
    assert not alice.may(Operation.READ, T, "", "x")


@pytest.mark.parametrize(
    ("text", "users"),
    [
        ("", set()),
        ("User:admin", {"User:admin"}),
        ("User:admin;User:CN=a,O=b ; ", {"User:admin", "User:CN=a,O=b"}),
        ("User:a:b", {"User:a:b"}),
    ],
)
def test_super_users(text: str, users: set[str]) -> None:
    assert parse_super_users(text) == users


@pytest.mark.parametrize(
    "text", ["admin", "user:admin", "User:", ":admin", "User:a,User:b", "User:a, user:b", "Group:a"]
)
def test_super_users_that_would_match_nobody_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_super_users(text)
