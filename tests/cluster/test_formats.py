"""A cluster that the release before made, on its way to this release and its formats, and back (rule 15)."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from pylog.cluster import znodes
from pylog.group.records import TOPIC, TOPIC_ID_HEADER, OffsetKey, decode_key
from pylog.store.base import Store
from pylog.store.zookeeper import ZooKeeperStore
from pylog.testing import BrokerProcess
from tests.cluster.conftest import Brokers, bootstrap, create, isrs, wait_for, write_config
from tests.cluster.history import Load, read
from tests.cluster.test_groups import commit, committed
from tests.servers.previous import previous_environment
from tests.servers.zookeeper import ZooKeeper

PARTITIONS = 2
SETTINGS: dict[str, Any] = {"offsets.topic.num.partitions": "4", "offsets.topic.replication.factor": "3"}
NOTHING_COMMITTED = -1001


class Cluster:
    """Three brokers, each of this release or of the one before.

    Attributes:
        brokers: as they run now, by id.
    """

    def __init__(self, directory: Path, zookeeper: ZooKeeper, stack: ExitStack) -> None:
        self.brokers: Brokers = {}
        self._homes = {broker_id: directory / str(broker_id) for broker_id in (1, 2, 3)}
        self._stack = stack
        for broker_id, home in self._homes.items():
            write_config(home, broker_id, zookeeper, **SETTINGS)
            self.run(broker_id, previous_environment())

    def run(self, broker_id: int, environment: Mapping[str, str]) -> None:
        """Stop a broker and start it with another release on the same data."""
        home = self._homes[broker_id]
        if broker_id in self.brokers:
            self.brokers[broker_id].stop()
        next_one = BrokerProcess(home, config_file=home / "broker.yml", env=environment)
        self.brokers[broker_id] = self._stack.enter_context(next_one)

    def swap(self, broker_id: int, environment: Mapping[str, str]) -> None:
        """Give a broker another release under load, and wait until every partition has its three replicas in sync."""
        self.run(broker_id, environment)
        for topic in ("kept", TOPIC):
            wait_for(
                lambda topic=topic: all(isr == {1, 2, 3} for isr in isrs(self.brokers, topic).values()),
                f"{topic} is in sync on all brokers",
            )

    def releases(self) -> set[str]:
        """Return the releases that run."""
        return {broker.admin("GET", "/status")[1]["release"] for broker in self.brokers.values()}

    def make_again(self, through: int) -> None:
        """Delete the topic `again` and create it under the same name, for which a group had committed an offset."""
        commit(bootstrap(self.brokers), "g", "again", 7)
        admin = AdminClient({"bootstrap.servers": bootstrap(self.brokers)})
        admin.delete_topics(["again"], operation_timeout=20)["again"].result(30)
        create(self.brokers[through], "again", 1, 3)
        wait_for(
            lambda: committed(bootstrap(self.brokers), "g", "again") == NOTHING_COMMITTED,
            "the group begins the new topic anew",
        )

    def trim(self) -> None:
        """Delete records that every replica has."""
        admin = AdminClient({"bootstrap.servers": bootstrap(self.brokers)})
        for later in admin.delete_records([TopicPartition("trimmed", 0, 5)]).values():
            assert later.result(30).low_watermark == 5

    def finalize(self) -> subprocess.CompletedProcess[str]:
        """Run `pylog cluster finalize`."""
        socket = self.brokers[2].admin_socket
        command = [sys.executable, "-m", "pylog", "cluster", "finalize", "--socket", str(socket), "--format", "json"]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def commits_with_topic_id(self) -> dict[str, bool]:
        """Return whether the newest commit of each topic, by name, has its topic's id."""
        found: dict[str, bool] = {}
        for message in read(bootstrap(self.brokers), TOPIC, 4, 0.5):
            raw = message.key()
            assert isinstance(raw, bytes)
            key = decode_key(raw)
            if isinstance(key, OffsetKey) and message.value() is not None:
                found[key.topic] = TOPIC_ID_HEADER in dict(message.headers() or ())
        return found


@pytest.fixture
def store(zookeeper: ZooKeeper) -> Iterator[Store]:
    with closing(ZooKeeperStore(zookeeper.hosts)) as session:
        session.connect()
        yield session


@pytest.fixture
def cluster(tmp_path: Path, zookeeper: ZooKeeper) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(tmp_path, zookeeper, stack)


def test_rule_15_a_mixed_roll_a_rollback_and_new_formats_only_once_an_operator_says_so(
    cluster: Cluster, store: Store
) -> None:
    this_release: Mapping[str, str] = {}
    brokers = cluster.brokers
    create(brokers[1], "kept", PARTITIONS, 3, min_insync_replicas="2")
    create(brokers[1], "again", 1, 3)
    create(brokers[1], "trimmed", 1, 3)
    assert cluster.releases() == {"0.1.0"}
    with Load(bootstrap(brokers), "trimmed", 1) as trimmed:
        wait_for(lambda: trimmed.acknowledged > 20, "records to delete")
    commit(bootstrap(brokers), "g", "kept", 3)
    with Load(bootstrap(brokers), "kept", PARTITIONS, rate=100, **{"enable.idempotence": True}) as load:
        for broker_id in (1, 2):
            cluster.swap(broker_id, this_release)
            cluster.make_again(through=broker_id)
            cluster.trim()
        assert len(cluster.releases()) == 2
        refused = cluster.finalize()
        assert refused.returncode == 1, refused
        assert "PYLOG-1096" in refused.stderr, refused.stderr
        assert committed(bootstrap(brokers), "g", "kept") == 3
        # All the way up, and all the way back.
        cluster.swap(3, this_release)
        assert len(cluster.releases()) == 1
        commit(bootstrap(brokers), "g", "kept", 4)
        assert cluster.commits_with_topic_id() == {"kept": False, "again": False}
        for broker_id in (1, 2, 3):
            cluster.swap(broker_id, previous_environment())
        assert cluster.releases() == {"0.1.0"}
        assert committed(bootstrap(brokers), "g", "kept") == 4
        cluster.make_again(through=3)
        for broker_id in (1, 2, 3):
            cluster.swap(broker_id, this_release)
        assert znodes.decode_level(store.get(znodes.FORMAT_LEVEL)[0]) == 2
        done = cluster.finalize()
        assert json.loads(done.stdout) == {"level": 5}, done
        assert znodes.decode_level(store.get(znodes.FORMAT_LEVEL)[0]) == 5
        wait_for(
            lambda: all(broker.admin("GET", "/status")[1]["format_level"] == 5 for broker in brokers.values()),
            "every broker knows the level",
        )
        assert committed(bootstrap(brokers), "g", "kept") == 4
        commit(bootstrap(brokers), "g", "kept", 5)
        commit(bootstrap(brokers), "g", "again", 1)
        assert cluster.commits_with_topic_id() == {"kept": True, "again": True}
        cluster.swap(2, this_release)
        assert committed(bootstrap(brokers), "g", "kept") == 5
        cluster.make_again(through=1)
    history = load.read_back()
    assert not history.failed
    assert (history.lost(), history.doubled(), history.reordered()) == ({}, {}, {})
    with pytest.raises(RuntimeError, match="finalized to formats of level 5; this release knows up to 2"):
        cluster.run(3, previous_environment())
