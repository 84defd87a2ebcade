"""`pylog acl` against a real broker that enforces ACLs; other people's clients are refused and let in by them."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from pylog.broker.settings import ACL_AUTHORIZER
from pylog.client.connection import Connection
from pylog.daemon.notices import Notices
from pylog.daemon.stop import Stop
from pylog.metrics import Metrics
from pylog.probe.reader import LagReader
from pylog.testing import BrokerProcess
from tests.command import Command

EVERYBODY = ("--allow-principal", "User:ANONYMOUS")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    config = {
        "authorizer.class.name": ACL_AUTHORIZER,
        "super.users": "User:ANONYMOUS",
        "offsets.topic.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
    }
    with BrokerProcess(tmp_path_factory.mktemp("broker"), config=config) as running:
        yield running


@pytest.fixture(scope="module")
def pylog(broker: BrokerProcess) -> Command:
    return Command(broker.bootstrap)


def test_acls_are_added_listed_and_removed(pylog: Command) -> None:
    added = pylog(
        "acl", "add", "--allow-principal", "User:alice", "--consumer", "--topic", "clicks", "--group", "readers",
        "--format", "json",
    )  # fmt: skip
    assert [(row["resource"], row["name"], row["operation"], row["permission"]) for row in added.json] == [
        ("Topic", "clicks", "Read", "Allow"),
        ("Topic", "clicks", "Describe", "Allow"),
        ("Group", "readers", "Read", "Allow"),
    ]
    pylog(
        "acl", "add", "--deny-principal", "User:bob", "--deny-host", "192.0.2.1", "--operation", "write",
        "--topic", "cl", "--resource-pattern-type", "prefixed",
    )  # fmt: skip
    pylog("acl", "add", "--allow-principal", "User:carol", "--operation", "DescribeConfigs", "--cluster")
    shown = pylog("acl", "list", "--topic", "clicks", "--resource-pattern-type", "match", "--format", "json").json
    assert {(row["pattern"], row["principal"], row["host"]) for row in shown} == {
        ("Literal", "User:alice", "*"),
        ("Prefixed", "User:bob", "192.0.2.1"),
    }
    assert len(pylog("acl", "list", "--format", "json").json) == 5
    assert len(pylog("acl", "list", "--principal", "User:carol", "--format", "json").json) == 1
    assert pylog("acl", "list", "--cluster").text.split()[-7:] == [
        "Cluster", "kafka-cluster", "Literal", "User:carol", "*", "DescribeConfigs", "Allow",
    ]  # fmt: skip
    kept = pylog("acl", "remove", "--topic", "clicks")
    assert "2 ACLs would be removed; --force removes them" in kept.notes
    assert "2 ACLs removed" in pylog("acl", "remove", "--topic", "clicks", "--force").notes
    pylog("acl", "remove", "--topic", "cl", "--resource-pattern-type", "prefixed", "--force")
    pylog("acl", "remove", "--allow-principal", "User:alice", "--consumer", "--group", "readers", "--force")
    pylog("acl", "remove", "--cluster", "--force")
    assert pylog("acl", "list", "--format", "json").json == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("add", "--topic", "t"), "--allow-principal"),
        (("add", *EVERYBODY), "--topic"),
        (("add", *EVERYBODY, "--topic", "t", "--resource-pattern-type", "match"), "literal and prefixed are allowed"),
        (("add", *EVERYBODY, "--topic", "t", "--operation", "fly"), "is no Operation"),
        (("add", *EVERYBODY, "--topic", "t", "--allow-host", "host.example"), "must be an IP address"),
        (("add", "--allow-principal", "alice", "--topic", "t"), "must be TYPE:NAME"),
        (("add", *EVERYBODY, "--topic", "a/b"), "cannot be stored"),
        (("add", *EVERYBODY, "--topic", "t", "--operation", "read", "--producer"), "--producer"),
        (("remove", "--allow-principal", "User:a"), "--topic"),
    ],
)
def test_options_that_mean_nothing_are_named(pylog: Command, arguments: tuple[str, ...], message: str) -> None:
    assert message in pylog("acl", *arguments, exit_code=2).notes


def test_without_an_authorizer_there_are_no_acls(tmp_path_factory: pytest.TempPathFactory) -> None:
    with BrokerProcess(tmp_path_factory.mktemp("open")) as running:
        pylog = Command(running.bootstrap)
        assert "or the brokers have no authorizer" in pylog("acl", "list").notes
        notes = pylog("acl", "add", *EVERYBODY, "--topic", "t", exit_code=1).notes
        assert "authorizer.class.name is not set" in notes


def test_clients_are_refused_and_let_in(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A broker without a way in for its operator: its ACLs come from a time when it only reported."""
    directory = tmp_path_factory.mktemp("enforcing")
    rules = {"authorizer.class.name": ACL_AUTHORIZER, "offsets.topic.num.partitions": 1}
    rules["group.initial.rebalance.delay.ms"] = 0
    with BrokerProcess(directory, config={**rules, "authorizer.mode": "report"}) as running:
        pylog = Command(running.bootstrap)
        for name in ("mine", "hidden"):
            pylog("topic", "create", name)
        pylog("acl", "add", *EVERYBODY, "--producer", "--consumer", "--topic", "mine", "--group", "readers")
        log = running.log_path.read_text()
        assert "would deny principal=User:ANONYMOUS" in log
        assert " denied principal" not in log
    with BrokerProcess(directory, config=rules) as running:
        errors: list[KafkaError | None] = []
        producer = Producer({"bootstrap.servers": running.bootstrap, "message.timeout.ms": 30_000})
        for name in ("mine", "hidden", "missing"):
            try:
                producer.produce(name, b"x", on_delivery=lambda error, message: errors.append(error))
            except KafkaException as error:  # librdkafka knew it already from the metadata
                errors.append(error.args[0])
            assert producer.flush(60) == 0
        assert [None if one is None else one.code() for one in errors] == [
            None,
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
        ]
        assert set(producer.list_topics(timeout=30).topics) == {"mine"}
        settings = {"bootstrap.servers": running.bootstrap, "auto.offset.reset": "earliest"}
        reader = Consumer({**settings, "group.id": "readers"})
        reader.subscribe(["mine"])
        record = reader.poll(60)
        assert record is not None
        assert record.value() == b"x"
        reader.commit(message=record, asynchronous=False)
        reader.close()
        other = Consumer({**settings, "group.id": "others"})
        other.subscribe(["mine"])
        refused = other.poll(60)
        assert refused is not None
        refusal = refused.error()
        assert refusal is not None
        assert refusal.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
        other.close()
        assert "not allowed" in Command(running.bootstrap)("acl", "list", exit_code=1).notes
        denials = [line for line in running.log_path.read_text().splitlines() if " denied principal=" in line]
        assert any("operation=DESCRIBE resource=TOPIC:hidden" in line for line in denials)
        assert any("resource=GROUP:others" in line for line in denials)


_ASK_OF_A_USER = """
import sys
from confluent_kafka.admin import AdminClient
admin = AdminClient({"bootstrap.servers": sys.argv[1]})
asked = admin.describe_user_scram_credentials(["alice"])
try:
    asked["alice"].result(30)
except Exception as error:
    print(error.args[0].name())
"""


def test_a_client_without_the_right_to_users_is_refused_and_lives(tmp_path: Path) -> None:
    """librdkafka 2.16 crashes on an error for the whole answer, so each user has it."""
    with BrokerProcess(
        tmp_path, config={"authorizer.class.name": ACL_AUTHORIZER, "super.users": "User:admin"}
    ) as broker:
        command = [sys.executable, "-c", _ASK_OF_A_USER, broker.bootstrap]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "CLUSTER_AUTHORIZATION_FAILED"), done.stderr


def test_who_may_not_describe_a_topic_is_told_that_and_not_that_it_does_not_exist(tmp_path: Path) -> None:
    config = {"authorizer.class.name": ACL_AUTHORIZER, "super.users": "User:root"}
    with BrokerProcess(tmp_path / "broker", config=config) as running:
        told = Command(running.bootstrap)("topic", "describe", "orders", exit_code=1).notes
        assert "no right to describe it" in told
        reader = LagReader(Connection(bootstrap=running.bootstrap), 1.0, Metrics(), (stop := Stop()), Notices())
        reader.start()
        deadline_s = time.monotonic() + 30
        while not reader.latest.failure and time.monotonic() < deadline_s:
            time.sleep(0.05)
        stop.want()
        reader.join(30)
        assert (reader.latest.judged_ms, "no right to describe it" in reader.latest.failure) == (None, True)
