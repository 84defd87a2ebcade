"""Brokers of a cluster, each a process of its own, over a real ZooKeeper."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from pylog.testing import BrokerProcess
from tests.servers.ports import free_ports
from tests.servers.zookeeper import ZooKeeper

DEADLINE_S = 40.0

Brokers = dict[int, BrokerProcess]


def write_config(
    directory: Path,
    broker_id: int,
    zookeeper: ZooKeeper,
    secret: bytes = b"hush",
    chroot: str = "",
    *,
    rack: str | None = None,
    host: str = "127.0.0.1",
    session_timeout_ms: int = 2000,
    **settings: Any,
) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    client, internal = free_ports(2)
    (directory / "secret").write_bytes(secret)
    config = {
        "version": 1,
        "broker_id": broker_id,
        "listeners": {
            "client": {"host": host, "port": client},
            "internal": {"host": host, "port": internal},
        },
        "data_dir": str(directory / "data"),
        "admin_socket": str(directory / "data" / "admin.sock"),
        "store": {"kind": "zookeeper", "hosts": zookeeper.hosts + chroot, "session_timeout_ms": session_timeout_ms},
        "cluster_secret_file": str(directory / "secret"),
        "config": {"num.partitions": 6, "replica.lag.time.max.ms": 3000, **settings},
    }
    if rack is not None:
        config["rack"] = rack
    path = directory / "broker.yml"
    path.write_text(yaml.safe_dump(config))
    return path


@contextmanager
def running(
    directory: Path, zookeeper: ZooKeeper, *, session_timeout_ms: int = 2000, **settings: Any
) -> Iterator[Brokers]:
    """Three brokers, started one after the other and stopped in any state."""
    with ExitStack() as stack:
        found: Brokers = {}
        for broker_id in (1, 2, 3):
            home = directory / str(broker_id)
            config = write_config(home, broker_id, zookeeper, session_timeout_ms=session_timeout_ms, **settings)
            found[broker_id] = stack.enter_context(BrokerProcess(home, config_file=config))
        yield found


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeper) -> Iterator[Brokers]:
    with running(tmp_path_factory.mktemp("brokers"), zookeeper) as found:
        yield found


def wait_for(condition: Callable[[], object], what: Callable[[], str] | str) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {DEADLINE_S} s: {what if isinstance(what, str) else what()}"
        time.sleep(0.05)


def bootstrap(brokers: Brokers) -> str:
    return ",".join(broker.bootstrap for broker in brokers.values())


def controller_of(broker: BrokerProcess) -> int:
    return int(broker.admin("GET", "/status")[1]["controller_id"])


def create(through: BrokerProcess, topic: str, partitions: int, replicas: int = 1, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": through.bootstrap})
    named = {name.replace("_", "."): value for name, value in configs.items()}
    wanted = NewTopic(topic, num_partitions=partitions, replication_factor=replicas, config=named)
    admin.create_topics([wanted], operation_timeout=20)[topic].result(30)
    wait_known(admin, topic)


def wait_known(admin: AdminClient, topic: str) -> None:
    """Wait until every broker has heard of a new topic: the next question may go to any of them."""

    def is_known() -> bool:
        try:
            nodes = admin.list_topics(timeout=10).brokers.values()
            views = [
                AdminClient({"bootstrap.servers": f"{node.host}:{node.port}"}).list_topics(topic, timeout=2)
                for node in nodes
            ]
        except KafkaException:
            return False  # one died, and is registered for a little longer
        return all(view.topics[topic].partitions for view in views)

    wait_for(is_known, f"every broker knows {topic}")


def leaders(brokers: Brokers, topic: str) -> dict[int, int]:
    return {row.id: row.leader for row in _describe(brokers, topic)}


def isrs(brokers: Brokers, topic: str) -> dict[int, set[int]]:
    return {row.id: set(row.isrs) for row in _describe(brokers, topic)}


def _describe(brokers: Brokers, topic: str) -> list[PartitionMetadata]:
    admin = AdminClient({"bootstrap.servers": bootstrap(brokers)})
    return list(admin.list_topics(topic, timeout=10).topics[topic].partitions.values())
