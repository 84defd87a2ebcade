"""The broker under test: one a module, pylog's unless PYLOG_INTEROP_PEER=kafka asks for Apache Kafka's."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.servers.kafka import KafkaServer

PEER = os.environ.get("PYLOG_INTEROP_PEER", "pylog")
assert PEER in ("pylog", "kafka"), f"PYLOG_INTEROP_PEER={PEER!r}, wanted pylog or kafka"

CONFIG = {
    "auto.create.topics.enable": True,
    "num.partitions": 1,
    "default.replication.factor": 1,
    # Small, so that a few records already make several index entries and segments.
    "log.index.interval.bytes": 512,
    # Far below Kafka's 100 MB, so that a frame above it is cheap to announce.
    "socket.request.max.bytes": 8 << 20,
    # Records of tests carry fixed timestamps of years ago; retention must not eat them.
    "log.retention.ms": -1,
}


class Broker(Protocol):
    """What the tests need of a broker, whoever built it."""

    bootstrap: str
    data_dir: Path
    log_path: Path

    @property
    def pid(self) -> int:
        """Process id of the running broker."""

    def start(self) -> None:
        """Start it over the data it has."""

    def kill(self) -> None:
        """End it with SIGKILL."""

    def restart(self) -> None:
        """Stop it cleanly and start it again."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running broker that the tests of one module share."""
    directory = tmp_path_factory.mktemp("broker")
    if PEER == "kafka":
        with KafkaServer(directory, CONFIG) as server:
            yield server
        return
    from pylog.testing import BrokerProcess

    with BrokerProcess(directory, config=CONFIG) as process:
        yield process


@pytest.fixture
def topic(request: pytest.FixtureRequest, broker: Broker) -> str:
    """A topic of this test's own with one partition."""
    name = "".join(char if char.isalnum() or char in "._-" else "-" for char in request.node.name).strip("-")
    create_topic(broker.bootstrap, name)
    return name


def create_topic(bootstrap: str, name: str, partitions: int = 1, **config: str) -> None:
    """Create a topic and wait until its partitions have leaders; ``_`` in a config name stands for ``.``."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(30)

    def is_led() -> bool:
        found = admin.list_topics(name, timeout=10).topics[name].partitions
        return len(found) == partitions and all(each.leader >= 0 for each in found.values())

    wait_until(is_led, f"{name} has {partitions} partitions with leaders")


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 10.0) -> None:
    """Poll *condition* until it holds; processes of others cannot be told to hand over their clock."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.01)
