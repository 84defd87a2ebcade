"""The broker under test: one a module, pylog's unless PYLOG_INTEROP_PEER=kafka asks for Apache Kafka's."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pylog.testing import BrokerProcess
from tests.interop.frames import Connection, list_offsets, listed_error
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

    @property
    def bootstrap(self) -> str:
        """``host:port`` for clients."""

    @property
    def data_dir(self) -> Path:
        """Directory that holds one directory a partition."""

    @property
    def log_path(self) -> Path:
        """File with what the broker printed."""

    @property
    def pid(self) -> int:
        """Process id of the running broker."""

    def start(self) -> None:
        """Start it over the data it has."""

    def stop(self) -> object:
        """Stop it cleanly."""

    def kill(self) -> None:
        """End it with SIGKILL."""

    def restart(self) -> None:
        """Stop it cleanly and start it again."""


@contextmanager
def run_broker(directory: Path, config: Mapping[str, object] | None = None) -> Iterator[Broker]:
    """Run a broker over an empty *directory*, with *config* over the settings of all tests."""
    settings = {**CONFIG, **(config or {})}
    if PEER == "kafka":
        with KafkaServer(directory, settings) as server:
            yield server
        return
    with BrokerProcess(directory, config=settings) as process:
        yield process


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running broker that the tests of one module share."""
    with run_broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="module")
def shared_topic(broker: Broker) -> str:
    """A topic with one partition that the tests of one module share."""
    create_topic(broker.bootstrap, "shared")
    return "shared"


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
        # Metadata may promise a leader that is still on its way to leading; ListOffsets asks it.
        with Connection(bootstrap) as connection:
            answers = [connection.ask(list_offsets(name, partition=number)) for number in range(partitions)]
        return all(listed_error(answer) == 0 for answer in answers)

    wait_until(is_led, f"{name} has {partitions} partitions with leaders")


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
    """Poll *condition* until it holds; processes of others cannot be told to hand over their clock."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.01)
