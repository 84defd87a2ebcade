"""Users of a cluster: they stand in ZooKeeper, and every broker knows them from the image."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from pylog.testing import BrokerProcess
from tests.cluster.conftest import Brokers, bootstrap, wait_for, write_config
from tests.servers.zookeeper import ZooKeeper


def pylog_user(verb: str, config: Path, name: str, password: str = "") -> None:
    command = [sys.executable, "-m", "pylog", "user", verb, name, f"--config={config}"]
    if password:
        command.append("--password-file=-")
    subprocess.run(command, input=password, text=True, check=True)


def properties(brokers: Brokers, user: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap(brokers),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": password,
        "log_level": 0,
    }


@pytest.fixture(scope="module")
def configs(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeper) -> list[Path]:
    home = tmp_path_factory.mktemp("secured")
    paths = [write_config(home / str(number), number, zookeeper, chroot="/secured") for number in (1, 2, 3)]
    for path in paths:
        config = yaml.safe_load(path.read_text())
        config["listeners"]["client"]["security.protocol"] = "SASL_PLAINTEXT"
        path.write_text(yaml.safe_dump(config))
    return paths


@pytest.fixture(scope="module")
def secured(configs: list[Path]) -> Iterator[Brokers]:
    pylog_user("set", configs[0], "alice", "secret")  # before any broker has made anything in ZooKeeper
    with ExitStack() as stack:
        yield {
            number: stack.enter_context(BrokerProcess(path.parent, config_file=path))
            for number, path in enumerate(configs, 1)
        }


def may_log_in(brokers: Brokers, user: str, password: str) -> bool:
    """Return whether every broker lets the user in."""
    for number, broker in brokers.items():
        client = AdminClient(properties({number: broker}, user, password))
        try:
            client.list_topics(timeout=2)
        except KafkaException:
            return False
    return True


def test_the_first_user_writes_to_replicas_on_all_brokers(secured: Brokers) -> None:
    config = properties(secured, "alice", "secret")
    admin = AdminClient(config)
    admin.create_topics([NewTopic("t", 3, 3, config={"min.insync.replicas": "3"})])["t"].result(30)
    producer = Producer(config | {"acks": "all"})
    failed: list[object] = []
    for number in range(60):
        producer.produce("t", b"x", partition=number % 3, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(40) == 0
    assert set(failed) == {None}


def test_a_user_comes_and_goes_while_brokers_run(secured: Brokers, configs: list[Path]) -> None:
    assert not may_log_in(secured, "bob", "b0b")
    pylog_user("set", configs[1], "bob", "b0b")
    wait_for(lambda: may_log_in(secured, "bob", "b0b"), "bob may log in")
    pylog_user("set", configs[2], "bob", "other")
    wait_for(lambda: may_log_in(secured, "bob", "other"), "bob has another password")
    assert not may_log_in(secured, "bob", "b0b")
    pylog_user("delete", configs[0], "bob")
    wait_for(lambda: not may_log_in(secured, "bob", "other"), "bob may not log in any more")
