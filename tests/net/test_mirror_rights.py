"""`pylog mirror rights` between two brokers with users and ACLs."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from pylog.client.admin.acls import AclAdmin
from pylog.client.admin.groups import GroupAdmin
from pylog.client.connection import Connection
from pylog.model import TopicPartition
from pylog.security.acl import Binding, Entry, Operation, Pattern, PatternType, Permission, ResourceType
from pylog.testing import BrokerProcess, SecuredBroker
from tests.command import Command

TOPIC = {"resource": "topic", "name": "clicks", "operations": ["Read", "Describe"]}
GROUP = {"resource": "group", "name": "readers", "operations": ["Read"]}
SEES = [
    {"resource": "topic", "name": "*", "operations": ["Read", "Describe"]},
    {"resource": "group", "name": "*", "operations": ["Read", "Describe"]},
    {"resource": "cluster", "operations": ["Describe"]},
]


def user(name: str, *rules: Mapping[str, object]) -> Mapping[str, object]:
    return {"name": name, "password": f"password of {name}", "acls": list(rules)}


ADMIN: Mapping[str, object] = {"name": "admin", "password": "admin-password"}
MIRROR = user("mirror", *SEES)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    users = [ADMIN, user("alice", TOPIC, GROUP), user("bob", TOPIC, GROUP), MIRROR]
    with SecuredBroker(tmp_path_factory.mktemp("live"), users=users) as broker:
        admin = GroupAdmin(as_admin(broker))
        admin.create_topic("clicks", partitions=1)
        admin.commit("readers", {TopicPartition("clicks", 0): 0})
        yield broker


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    users = [ADMIN, user("alice", GROUP), MIRROR]
    with SecuredBroker(tmp_path_factory.mktemp("offline"), users=users) as broker:
        yield broker


def as_admin(broker: SecuredBroker) -> Connection:
    return Connection(bootstrap=broker.bootstrap, properties=broker.client())


def end(name: str, broker: BrokerProcess) -> dict[str, object]:
    known: dict[str, object] = {"name": name, "bootstrap": broker.bootstrap}
    if not isinstance(broker, SecuredBroker):
        return known
    return known | {"properties": {k: v for k, v in broker.client("mirror").items() if k != "bootstrap.servers"}}


def mirror_file(directory: Path, source: BrokerProcess, target: BrokerProcess) -> str:
    path = directory / "mirror.yml"
    ends = {"source": end("live", source), "target": end("offline", target)}
    path.write_text(json.dumps({**ends, "version": 1, "topics": ["clicks"]}))
    return str(path)


def rights(file: str, *options: str, exit_code: int = 0) -> tuple[list[tuple[str, ...]], str]:
    ended = Command("")(
        "mirror", "rights", "readers", "--config", file, *options, "--format", "json", exit_code=exit_code
    )
    return [tuple(row.values()) for row in ended.json], ended.notes


def test_what_users_lack_in_the_other_cluster_is_told_until_they_have_it(
    tmp_path: Path, live: SecuredBroker, offline: SecuredBroker
) -> None:
    file = mirror_file(tmp_path, live, offline)
    rows, notes = rights(file, exit_code=1)
    assert rows == [
        ("User:alice", "*", "topic", "clicks"),
        ("User:bob", "*", "group", "readers"),
        ("User:bob", "*", "topic", "clicks"),
        ("User:bob", "*", "login", "bob"),
    ]
    assert "PYLOG-0223" in notes
    places = [(ResourceType.TOPIC, "clicks"), (ResourceType.GROUP, "readers")]
    AclAdmin(as_admin(offline)).add(
        [
            Binding(
                Pattern(kind, PatternType.LITERAL, name), Entry(f"User:{who}", "*", Operation.READ, Permission.ALLOW)
            )
            for kind, name in places
            for who in ("alice", "bob")
        ]
    )
    assert rights(file, exit_code=1)[0] == [("User:bob", "*", "login", "bob")]
    assert rights(file, "--back") == ([], "")  # whoever may read there may here


def test_without_an_authorizer_nothing_is_compared(tmp_path: Path, live: SecuredBroker) -> None:
    with BrokerProcess(tmp_path / "open") as broker:
        assert rights(mirror_file(tmp_path, live, broker)) == (
            [],
            "not compared: live or offline has no authorizer\n",
        )
