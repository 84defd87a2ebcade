"""A cluster gets a secured listener beside the open one, and then loses the open one, while clients go on."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from pylog.testing import BrokerProcess
from tests.cluster.conftest import Brokers, bootstrap, create, isrs, wait_for, write_config
from tests.cluster.test_users import pylog_user
from tests.servers.certificates import Authority
from tests.servers.ports import free_ports
from tests.servers.zookeeper import ZooKeeper

ALL = {1, 2, 3}


class Load:
    """An idempotent producer that sends all the time, and counts what failed."""

    def __init__(self, config: dict[str, Any], topic: str) -> None:
        self._producer = Producer({"acks": "all", "enable.idempotence": True, "log_level": 0, **config})
        self._topic = topic
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sent = 0
        self.failed: list[str] = []

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        self._thread.join()
        assert self._producer.flush(60) == 0, "not all sends were answered"

    def _run(self) -> None:
        while not self._is_over.wait(0.002):
            self._producer.produce(self._topic, str(self.sent), on_delivery=self._answered)
            self._producer.poll(0)

    def _answered(self, error: object, message: object) -> None:
        self.sent += 1
        if error is not None:
            self.failed.append(str(error))


class Cluster:
    """Three brokers whose files are edited, one after the other, each with a restart."""

    def __init__(self, home: Path, zookeeper: ZooKeeper) -> None:
        self.files = {
            number: write_config(home / str(number), number, zookeeper, chroot="/listeners") for number in ALL
        }
        self.brokers: Brokers = {
            number: BrokerProcess(file.parent, config_file=file) for number, file in self.files.items()
        }
        self.authority = Authority(home / "ca")
        self.ports = dict(zip(sorted(ALL), free_ports(len(ALL)), strict=True))

    def edit(self, number: int, change: Any) -> None:
        document = yaml.safe_load(self.files[number].read_text())
        change(document["listeners"])
        self.files[number].write_text(yaml.safe_dump(document, sort_keys=False))

    def roll(self, number: int, change: Any) -> None:
        self.edit(number, change)
        self.brokers[number].restart()
        live = {other: self.brokers[other] for other in ALL}
        wait_for(lambda: all(len(isr) == 3 for isr in isrs(live, "t").values()), "all replicas in sync")

    def add_secured(self, number: int) -> None:
        def change(listeners: dict[str, Any]) -> None:
            listeners["secured"] = {
                "host": "127.0.0.1",
                "port": self.ports[number],
                "advertised_host": "localhost",
                "security.protocol": "SASL_SSL",
                "ssl.keystore.location": str(self.authority.server(f"{number}.pem")),
            }

        self.roll(number, change)

    @property
    def secured(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in self.ports.values()),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "alice",
            "sasl.password": "secret",
            "ssl.ca.location": str(self.authority.trusted),
            "log_level": 0,
        }


@pytest.fixture
def cluster(tmp_path: Path, zookeeper: ZooKeeper) -> Iterator[Cluster]:
    found = Cluster(tmp_path, zookeeper)
    with ExitStack() as stack:
        for broker in found.brokers.values():
            stack.enter_context(broker)
        yield found


def seen(config: dict[str, Any]) -> dict[int, tuple[str, int]]:
    """Return the brokers that a client is told of."""
    found = AdminClient(config | {"log_level": 0}).list_topics(timeout=10).brokers
    return {number: (str(one.host), one.port) for number, one in found.items()}


def in_sync(config: dict[str, Any]) -> list[int]:
    """Return how many replicas are in sync, by partition."""
    return [len(one.isrs) for one in AdminClient(config).list_topics("t", timeout=10).topics["t"].partitions.values()]


def test_an_open_cluster_is_secured_without_a_failed_send(cluster: Cluster) -> None:
    create(cluster.brokers[1], "t", 6, 3, min_insync_replicas="2")
    pylog_user("set", cluster.files[1], "alice", "secret")
    is_open = {"bootstrap.servers": bootstrap(cluster.brokers)}
    open_addresses = seen(is_open)
    secured_addresses = {number: ("localhost", port) for number, port in cluster.ports.items()}

    with Load(is_open, "t") as load:
        cluster.add_secured(1)
        assert seen(cluster.secured) == {1: secured_addresses[1]}, "the others have no such listener yet"
        assert seen(is_open) == open_addresses
        cluster.add_secured(2)
        cluster.add_secured(3)
    assert (load.failed, load.sent > 100) == ([], True)
    wait_for(lambda: seen(cluster.secured) == secured_addresses, "all brokers have the secured listener")
    assert seen(is_open) == open_addresses

    with Load(cluster.secured, "t") as load:
        for number in sorted(ALL):
            cluster.edit(number, lambda listeners: listeners.pop("client"))
            cluster.brokers[number].restart()
            wait_for(lambda: set(in_sync(cluster.secured)) == {3}, "all replicas in sync")
    assert (load.failed, load.sent > 100) == ([], True)
    assert seen(cluster.secured) == secured_addresses
