"""The ensemble loses everything; a backup from before ten elections and one new topic brings the cluster back."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ElectionType, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from pylog.store.backup import read_nodes
from pylog.store.zookeeper import ZooKeeperStore
from pylog.testing import BrokerProcess
from tests.cluster.conftest import Brokers, bootstrap, create, leaders, running, wait_for, write_config
from tests.cluster.history import History, Load
from tests.cluster.test_replication import all_in_sync
from tests.servers.zookeeper import ZooKeeper

PARTITIONS = 3


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path / "zookeeper") as server:
        yield server


@pytest.fixture
def brokers(tmp_path: Path, ensemble: ZooKeeper) -> Iterator[Brokers]:
    with running(tmp_path / "brokers", ensemble) as found:
        yield found


def pylog(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "pylog", *arguments], capture_output=True, text=True, check=False)


def config_of(brokers: Brokers) -> Path:
    return brokers[1].data_dir.parent / "broker.yml"


def epochs(zookeeper: ZooKeeper) -> dict[str, int]:
    """Return the leader epoch of every partition, and the controller's."""
    store = ZooKeeperStore(zookeeper.hosts)
    store.connect()
    try:
        nodes = read_nodes(store)
    finally:
        store.close()
    found = {path: int(json.loads(data)["leader_epoch"]) for path, data in nodes.items() if path.endswith("/state")}
    return found | {"/controller_epoch": int(nodes["/controller_epoch"])}


def write(brokers: Brokers, topic: str, count: int = 200) -> History:
    """Write records that are all acknowledged, and return what was."""
    with Load(bootstrap(brokers), topic, PARTITIONS) as load:
        wait_for(lambda: load.acknowledged > count, "some records")
    assert not any(load.history.failed.values())
    return load.history


def read(brokers: Brokers, topic: str) -> dict[int, list[int]]:
    load = Load(bootstrap(brokers), topic, PARTITIONS)
    return dict(load.read_back().read)


def hold_elections(brokers: Brokers, topic: str, count: int) -> None:
    """Have leaders elected *count* times and more, by brokers that stop, and by calling preferred ones back."""
    for number in range(count // 2):
        one = 1 + number % 3
        brokers[one].stop()
        brokers[one].start()
        wait_for(all_in_sync(brokers, topic), "all replicas are in sync")
        call_back(brokers, topic)
        producer = Producer({"bootstrap.servers": bootstrap(brokers), "acks": "all"})
        for partition in range(PARTITIONS):
            producer.produce(topic, str(1_000_000 + number), partition=partition)
        assert producer.flush(30) == 0


def call_back(brokers: Brokers, topic: str) -> None:
    """Have the preferred leaders of a topic lead."""
    admin = AdminClient({"bootstrap.servers": bootstrap(brokers)})
    admin.elect_leaders(
        ElectionType.PREFERRED, [KafkaPartition(topic, partition) for partition in range(PARTITIONS)]
    ).result(20)


def move_store(brokers: Brokers, before: ZooKeeper, after: ZooKeeper) -> None:
    """Let all brokers use another ensemble, as after the loss of the one they had."""
    for broker in brokers.values():
        file = broker.data_dir.parent / "broker.yml"
        file.write_text(file.read_text().replace(before.hosts, after.hosts))


def read_ends(brokers: Brokers, directory: Path) -> list[str]:
    options: list[str] = []
    for number, broker in brokers.items():
        done = pylog("log", "ends", str(broker.data_dir), "--format", "json")
        assert done.returncode == 0, done.stderr
        file = directory / f"ends-{number}.json"
        file.write_text(done.stdout)
        options += ["--ends", str(file)]
    return options


def test_rule_17_a_backup_from_before_ten_elections_and_a_new_topic(
    brokers: Brokers, ensemble: ZooKeeper, tmp_path: Path
) -> None:
    create(brokers[1], "old", PARTITIONS, 3, min_insync_replicas="2", retention_ms="86400000")
    wait_for(all_in_sync(brokers, "old"), "all replicas are in sync")
    first = write(brokers, "old")
    config, backup = config_of(brokers), tmp_path / "metadata.json"
    made = pylog("cluster", "backup", "--config", str(config), "--to", str(backup))
    assert made.returncode == 0, made.stderr
    assert backup.stat().st_mode & 0o777 == 0o600
    hold_elections(brokers, "old", 10)
    create(brokers[1], "new", PARTITIONS, 3)
    wait_for(all_in_sync(brokers, "new"), "all replicas of the new topic are in sync")
    second = write(brokers, "new")
    before, old_log, new_log = epochs(ensemble), read(brokers, "old"), read(brokers, "new")
    refused = pylog("log", "ends", str(brokers[1].data_dir))
    assert refused.returncode == 1
    assert "another broker has this data directory open" in refused.stderr
    for broker in brokers.values():
        broker.stop()

    ends = read_ends(brokers, tmp_path)
    with ZooKeeper(tmp_path / "second") as emptied:
        move_store(brokers, ensemble, emptied)
        restore = ["cluster", "restore", str(backup), "--config", str(config), *ends]
        foreign = tmp_path / "foreign.json"
        document = json.loads(Path(ends[1]).read_text())
        foreign.write_text(json.dumps(document | {"cluster_id": "another"}))
        done = pylog(*restore[:5], "--ends", str(foreign), *ends[2:], "--yes")
        assert done.returncode == 1
        assert "is of cluster another" in done.stderr
        shown = pylog(*restore, "--format", "json")
        assert shown.returncode == 0, shown.stderr
        check_shown(json.loads(shown.stdout))
        done = pylog(*restore, "--yes")
        assert done.returncode == 0, done.stderr
        for broker in brokers.values():
            broker.start()
        for topic in ("old", "new"):
            wait_for(all_in_sync(brokers, topic), f"all replicas of {topic} are in sync")
        after = epochs(emptied)
        assert before.keys() <= after.keys()
        assert all(after[path] > before[path] for path in before), "no epoch goes backwards"
        assert read(brokers, "old") == old_log
        assert read(brokers, "new") == new_log
        assert all(set(rows) <= set(old_log[number]) for number, rows in first.acknowledged.items())
        assert all(set(rows) <= set(new_log[number]) for number, rows in second.acknowledged.items())
        call_back(brokers, "new")
        wait_for(lambda: set(leaders(brokers, "new").values()) == {1, 2, 3}, "each partition prefers another leader")
        for topic in ("old", "new"):
            write(brokers, topic)
        assert not [path for broker in brokers.values() for path in broker.data_dir.glob("*-stray")]


def check_shown(shown: dict[str, Any]) -> None:
    """What a restoration says beforehand, with nothing written."""
    rows = {row["topic"]: row for row in shown["topics"]}
    assert not shown["restored"]
    assert rows["old"]["known_from"] == "backup and disks"
    assert rows["new"]["known_from"] == "disks alone: made after the backup"
    assert not any(row["waiting"] or row["uncertain"] for row in rows.values())


def test_nothing_is_restored_beside_a_running_broker(brokers: Brokers, tmp_path: Path) -> None:
    create(brokers[1], "old", PARTITIONS, 3)
    wait_for(all_in_sync(brokers, "old"), "all replicas are in sync")
    backup, config = tmp_path / "metadata.json", str(config_of(brokers))
    assert pylog("cluster", "backup", "--config", config, "--to", str(backup)).returncode == 0
    again = pylog("cluster", "backup", "--config", config, "--to", str(backup))
    assert again.returncode == 1
    assert "File exists" in again.stderr
    for one in (1, 2, 3):
        brokers[one].stop()
    ends = read_ends(brokers, tmp_path)
    brokers[3].start()
    done = pylog("cluster", "restore", str(backup), "--config", config, *ends, "--yes")
    assert done.returncode == 1
    assert "broker 3 is registered" in done.stderr


def test_a_standalone_broker_moves_into_a_cluster_with_its_data(ensemble: ZooKeeper, tmp_path: Path) -> None:
    home = tmp_path / "alone"
    with BrokerProcess(home) as alone:
        create(alone, "old", PARTITIONS)
        written = write({0: alone}, "old")
        refused = pylog("cluster", "backup", "--data", str(alone.data_dir))
        assert refused.returncode != 0
        assert "in use by another process" in refused.stderr
    config, backup, ends = write_config(home, 0, ensemble), tmp_path / "metadata.json", tmp_path / "ends.json"
    keys = tmp_path / "backup.key"
    keys.write_text("0123456789abcdef" * 2 + "\n")
    keys.chmod(0o600)
    sealed = ("--key-file", str(keys))
    assert pylog("cluster", "backup", "--data", str(alone.data_dir), "--to", str(backup), *sealed).returncode == 0
    assert '"nodes"' not in backup.read_text()
    ends.write_text(pylog("log", "ends", str(alone.data_dir), "--format", "json").stdout)
    restore = ("cluster", "restore", str(backup), "--config", str(config), "--ends", str(ends), "--yes")
    done = pylog(*restore)
    assert done.returncode == 2
    assert "the backup is sealed" in done.stderr
    done = pylog(*restore, *sealed)
    assert done.returncode == 0, done.stderr
    with BrokerProcess(home, config_file=config) as member:
        found = read({0: member}, "old")
        assert {number: rows for number, rows in written.acknowledged.items() if rows} == found
        write({0: member}, "old")
