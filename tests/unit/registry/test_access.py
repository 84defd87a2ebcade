"""Who may do what in the registry: logins and rights as a broker tells them, kept for a while; no brokers here."""

import base64
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from pylog.client.connection import Connection
from pylog.client.person import TopicRights
from pylog.client.web import basic_login
from pylog.errors import ApiError, ErrorCode, Unreachable
from pylog.registry import access as module
from pylog.registry.access import KEPT_S, WRONG_OF_ADDRESS, WRONG_OF_USER, Access, Person
from pylog.registry.faults import RegistryError
from pylog.registry.routes import CHANGES, READS, Ask
from pylog.registry.rules import MAX_REFERENCES, RULES, referred, seen
from pylog.security.acl import Operation

NOTHING = TopicRights(0, is_visible=False)
SEES = TopicRights(1 << Operation.DESCRIBE, is_visible=True)
WRITES = TopicRights(1 << Operation.DESCRIBE | 1 << Operation.WRITE, is_visible=True)
READS_ALL = TopicRights(1 << Operation.DESCRIBE | 1 << Operation.READ, is_visible=True)


class Brokers:
    """Judges as a cluster with these passwords and rights would."""

    def __init__(self) -> None:
        self.passwords = {"alice": "right"}
        self.rights: dict[str, TopicRights] = {}
        self.logins = self.questions = 0
        self.is_away = False
        self.now_s = 0.0

    def check(self, cluster: Connection, mechanism: str, user: str, password: str) -> Connection:
        self.logins += 1
        if self.is_away:
            raise Unreachable("nobody answers")
        if self.passwords.get(user) != password:
            raise ApiError(ErrorCode.SASL_AUTHENTICATION_FAILED, "invalid credentials")
        return replace(cluster, properties={"sasl.username": user})

    def judge(self, person: Connection, topics: Iterable[str]) -> Mapping[str, TopicRights]:
        self.questions += 1
        return {name: self.rights.get(name, NOTHING) for name in topics}

    def access(self) -> Access:
        return Access(
            Connection(bootstrap="127.0.0.1:1"),
            "SCRAM-SHA-256",
            "_schemas",
            check=self.check,
            judge=self.judge,
            clock_s=lambda: self.now_s,
        )


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


def person(brokers: Brokers, access: Access | None = None) -> Person:
    return (access or brokers.access()).person(basic_login("alice", "right"), "127.0.0.1")


def refusal(access: Access, header: str | None, address: str = "127.0.0.1") -> int:
    with pytest.raises(RegistryError) as caught:
        access.person(header, address)
    return caught.value.code


def ask(method: str, path: str, **body: object) -> tuple[tuple[str, str], Ask]:
    return (method, path), Ask({"subject": "clicks-value"}, {}, body)


def test_every_route_has_a_rule_and_every_rule_a_route() -> None:
    assert set(RULES) == {(method, path) for method, path, _ in (*READS, *CHANGES)}


@pytest.mark.parametrize(
    ("about", "body", "is_for_all"),
    [
        (("PUT", "/mode/{subject}"), {"mode": "IMPORT"}, True),
        (("PUT", "/mode/{subject}"), {"mode": "import"}, True),
        (("PUT", "/mode/{subject}"), {"mode": "READONLY"}, False),
        (("POST", "/subjects/{subject}/versions"), {"schema": '"int"', "id": 2147483647}, True),
        (("POST", "/subjects/{subject}/versions"), {"schema": '"int"', "version": 9}, True),
        (("POST", "/subjects/{subject}/versions"), {"schema": '"int"', "id": -1, "version": -1}, False),
        (("POST", "/subjects/{subject}/versions"), {"schema": '"int"', "id": None}, False),
        (("POST", "/subjects/{subject}/versions"), {"schema": '"int"'}, False),
    ],
)
def test_ids_are_chosen_only_by_somebody_who_may_write_all_subjects(
    brokers: Brokers, about: tuple[str, str], body: dict[str, object], is_for_all: bool
) -> None:
    every = sum(1 << one for one in Operation if one is not Operation.ALL)
    brokers.rights = {"clicks": TopicRights(every, is_visible=True)}
    rule = RULES[about].of(Ask({"subject": "clicks-value"}, {}, body))
    if is_for_all:
        with pytest.raises(RegistryError, match="write for _schemas"):
            person(brokers).require(rule, ["clicks-value"] if rule is RULES[about] else [])
    else:
        person(brokers).require(rule, ["clicks-value"])
    brokers.rights = {"_schemas": WRITES}
    person(brokers).require(rule, [])


def test_no_change_is_open_to_whoever_logged_in() -> None:
    for method, path, _ in CHANGES:
        rule = RULES[method, path]
        assert rule.operation not in (None, Operation.DESCRIBE), path
        assert not rule.is_list, path


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer x",
        "Basic",
        "Basic ?",
        "Basic " + base64.b64encode(b"alice").decode(),
        "Basic " + base64.b64encode(b"\xff:x").decode(),
        basic_login("alice", "wrong"),
        basic_login("nobody", "right"),
    ],
)
def test_no_login_and_a_wrong_one_are_unauthorized(brokers: Brokers, header: str | None) -> None:
    assert refusal(brokers.access(), header) == 401


def test_a_login_is_asked_for_once_in_a_while_and_another_password_at_once(brokers: Brokers) -> None:
    access = brokers.access()
    for _ in range(3):
        assert person(brokers, access).user == "alice"
    assert brokers.logins == 1
    assert refusal(access, basic_login("alice", "wrong")) == 401
    brokers.passwords.clear()
    brokers.now_s = KEPT_S
    assert refusal(access, basic_login("alice", "right")) == 401


def test_wrong_logins_are_limited_by_user_and_by_address(brokers: Brokers) -> None:
    access = brokers.access()
    wrong = [refusal(access, basic_login("alice", str(number))) for number in range(WRONG_OF_USER + 1)]
    assert wrong == [401] * WRONG_OF_USER + [429]
    assert refusal(access, basic_login("alice", "right")) == 429, "who guesses must not see when a guess is right"
    assert access.person(basic_login("alice", "right"), "127.0.0.2").user == "alice"
    strangers = [refusal(access, basic_login(f"u{number}", "x")) for number in range(WRONG_OF_ADDRESS)]
    assert strangers[-1] == 429


def test_right_logins_are_not_limited(brokers: Brokers) -> None:
    access = brokers.access()
    brokers.passwords |= {f"u{number}": "right" for number in range(WRONG_OF_ADDRESS + 1)}
    for number in range(WRONG_OF_ADDRESS + 1):
        access.person(basic_login(f"u{number}", "right"), "127.0.0.1")


def test_brokers_that_are_away_are_no_wrong_login(brokers: Brokers) -> None:
    access = brokers.access()
    brokers.is_away = True
    assert {refusal(access, basic_login("alice", "right")) for _ in range(WRONG_OF_USER + 1)} == {50001}
    brokers.is_away = False
    assert person(brokers, access).user == "alice"


def test_logins_that_are_kept_are_bounded(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PEOPLE", 2)
    access = brokers.access()
    brokers.passwords |= dict.fromkeys(("b", "c"), "right")
    for user in ("alice", "b", "c", "alice"):
        access.person(basic_login(user, "right"), "127.0.0.1")
    assert brokers.logins == 4


@pytest.mark.parametrize(
    ("rights", "method", "path", "is_allowed"),
    [
        ({"clicks": SEES}, "GET", "/subjects/{subject}/versions", True),
        ({}, "GET", "/subjects/{subject}/versions", False),
        ({"clicks-value": SEES}, "GET", "/subjects/{subject}/versions", False),
        ({"_schemas": READS_ALL}, "GET", "/subjects/{subject}/versions", True),
        ({"_schemas": SEES}, "GET", "/subjects/{subject}/versions", False),
        ({"clicks": WRITES}, "POST", "/subjects/{subject}/versions", True),
        ({"clicks": SEES}, "POST", "/subjects/{subject}/versions", False),
        ({"_schemas": READS_ALL}, "POST", "/subjects/{subject}/versions", False),
        ({"_schemas": WRITES}, "POST", "/subjects/{subject}/versions", True),
        ({"clicks": WRITES}, "DELETE", "/subjects/{subject}", False),
        ({"clicks": WRITES}, "PUT", "/config/{subject}", False),
        ({"clicks": WRITES}, "PUT", "/config", False),
        ({"_schemas": WRITES}, "PUT", "/config", True),
        ({}, "GET", "/schemas/types", True),
    ],
)
def test_rights_for_a_topic_are_rights_for_its_subjects(
    brokers: Brokers, rights: dict[str, TopicRights], method: str, path: str, is_allowed: bool
) -> None:
    brokers.rights = rights
    rule = RULES[method, path]
    subjects = ["clicks-value"] if "{subject}" in path else []
    if is_allowed:
        person(brokers).require(rule, subjects)
        return
    with pytest.raises(RegistryError, match=r"User alice may not") as caught:
        person(brokers).require(rule, subjects)
    assert (caught.value.status, caught.value.code) == (403, 40301)


def test_rights_are_asked_for_once_in_a_while(brokers: Brokers) -> None:
    access = brokers.access()
    brokers.rights["clicks"] = SEES
    for _ in range(3):
        assert person(brokers, access).allowed(Operation.DESCRIBE, ["clicks-key", "clicks"]) == {"clicks-key", "clicks"}
    assert brokers.questions == 1
    brokers.rights.clear()
    brokers.now_s = KEPT_S
    assert person(brokers, access).allowed(Operation.DESCRIBE, ["clicks-key"]) == set()


def test_a_list_leaves_out_what_may_not_be_seen(brokers: Brokers) -> None:
    brokers.rights["clicks"] = SEES
    alice = person(brokers)

    def allowed(names: set[str]) -> set[str]:
        return alice.allowed(Operation.DESCRIBE, names)

    assert seen(["clicks-value", "salaries-value"], allowed) == ["clicks-value"]
    assert seen([{"subject": "salaries"}, {"subject": "clicks"}], allowed) == [{"subject": "clicks"}]
    assert seen([], allowed) == []


def test_references_are_named_and_too_many_are_refused() -> None:
    _, one = ask("POST", "/subjects/{subject}", references=[{"subject": "q"}, {"subject": 1}, "x"])
    assert referred(one) == {"q"}
    many = [{"subject": str(number)} for number in range(MAX_REFERENCES + 1)]
    with pytest.raises(RegistryError, match=f"at most {MAX_REFERENCES}"):
        referred(ask("POST", "/subjects/{subject}", references=many)[1])
