"""`pylog acl denials` and `pylog acl clients`, asked of a broker that reports and refuses nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from pylog.broker.settings import ACL_AUTHORIZER
from pylog.testing import BrokerProcess
from tests.command import Command


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    config = {"authorizer.class.name": ACL_AUTHORIZER, "authorizer.mode": "report", "super.users": "User:admin"}
    with BrokerProcess(tmp_path_factory.mktemp("broker"), config=config) as running:
        yield running


def test_what_would_be_denied_is_listed_and_nothing_is_refused(broker: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    errors: list[object] = []
    for _ in range(3):
        producer.produce("clicks", b"x", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(20) == 0
    assert errors == [None] * 3
    pylog = Command(broker.bootstrap)
    socket = str(broker.admin_socket)
    answer = pylog("acl", "denials", "--socket", socket, "--format", "json").json
    assert answer["modes"] == {socket: "report"}
    rows = {(row["principal"], row["operation"], row["resource"], row["name"]): row for row in answer["denials"]}
    written = rows["User:ANONYMOUS", "WRITE", "TOPIC", "clicks"]
    assert written["count"] >= 3
    assert written["host"] == "127.0.0.1"
    assert written["last"].endswith("Z")
    assert "User:ANONYMOUS" in pylog("acl", "denials", "--socket", socket).output.decode()


def test_the_last_request_is_told_by_listener(broker: BrokerProcess) -> None:
    pylog = Command(broker.bootstrap)
    pylog("topic", "list")
    answer = pylog("acl", "clients", "--socket", str(broker.admin_socket), "--format", "json").json
    [row] = answer["clients"]
    assert (row["listener"], row["protocol"], row["principal"]) == ("client", "PLAINTEXT", "ANONYMOUS")
    assert answer["started_ms"][str(broker.admin_socket)] <= row["last_ms"]


def test_a_listener_that_nobody_used_and_a_broker_without_authorizer_say_so(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        pylog = Command(broker.bootstrap)
        socket = str(broker.admin_socket)
        [row] = pylog("acl", "clients", "--socket", socket, "--format", "json").json["clients"]
        assert (row["listener"], row["principal"], row["last"]) == ("client", "", "never")
        ended = pylog("acl", "denials", "--socket", socket)
        assert "has no authorizer" in ended.notes


def test_a_broker_that_does_not_run_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "admin.sock"
    ended = Command("localhost:1")("acl", "denials", "--socket", str(missing), exit_code=3)
    assert str(missing) in ended.notes
