"""ZooKeeper's data is gone on every host; the playbooks bring the cluster back from an older backup."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from pylog.ops.inventory import Target
from tests.infra import load
from tests.rolls import cluster

COUNT = 600


def hosts() -> list[Target]:
    return cluster.targets()


def everywhere(command: str) -> None:
    for target in hosts():
        cluster.on(target.name, command)


def write(topic: str) -> None:
    load.create(cluster.bootstrap(), topic)
    producer = Producer({"bootstrap.servers": cluster.bootstrap(), "acks": "all"})
    failures: list[object] = []
    for number in range(COUNT):
        producer.produce(topic, str(number), partition=number % load.PARTITIONS,
                         on_delivery=lambda error, _: failures.append(error) if error else None)  # fmt: skip
    assert producer.flush(60) == 0
    assert failures == []


@contextmanager
def brokers_stopped() -> Iterator[None]:
    everywhere("systemctl stop 'pylog-broker@*'")
    try:
        yield
    finally:
        for target in hosts():
            cluster.on(target.name, f"systemctl start pylog-broker@{target.broker_ids[0]}")


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    write("before")
    directory = tmp_path_factory.mktemp("backups")
    done = cluster.playbook("backup_metadata", {"backup_dir": str(directory)})
    assert done.returncode == 0
    [file] = directory.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads(file.read_text())["cluster_id"]
    return file


def test_nothing_is_read_or_written_beside_running_brokers(backup: Path) -> None:
    done = cluster.playbook("restore_metadata", {"restore_file": str(backup), "restore_yes": True})
    assert done.returncode != 0
    assert "another broker has this data directory open" in done.stdout
    assert cluster.health()["problems"] == []


def test_an_emptied_ensemble_gets_everything_back(backup: Path) -> None:
    write("after")
    with brokers_stopped():
        # The handbook's command; without the last file a server that has nothing votes for nobody.
        everywhere(
            "systemctl stop pylog-zookeeper; rm -rf /var/lib/pylog-zookeeper/version-2; "
            "install -o pylog-zookeeper /dev/null /var/lib/pylog-zookeeper/initialize"
        )
        everywhere("systemctl start pylog-zookeeper")
        shown = cluster.playbook("restore_metadata", {"restore_file": str(backup)})
        assert shown.returncode == 0
        assert "nothing was written" in shown.stdout
        assert "made after the backup" in shown.stdout
        done = cluster.playbook("restore_metadata", {"restore_file": str(backup), "restore_yes": True})
        assert done.returncode == 0
    assert cluster.health()["problems"] == []
    for topic in ("before", "after"):
        assert len(load.read_back(cluster.bootstrap(), topic)) == COUNT
    for target in hosts():
        assert cluster.on(target.name, "ls /var/lib/pylog/*/* | grep -c -- -stray || true") == "0"
