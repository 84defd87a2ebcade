"""Commands that need more than one broker, or ZooKeeper."""

import pytest

from pylog.client.admin import Admin
from tests.cluster.conftest import Brokers, bootstrap, create, wait_for
from tests.command import Command
from tests.servers.zookeeper import ZooKeeper


@pytest.fixture
def pylog(brokers: Brokers) -> Command:
    return Command(bootstrap(brokers))


def test_zookeeper_is_shown(pylog: Command, brokers: Brokers, zookeeper: ZooKeeper) -> None:
    create(brokers[1], "kept", 2)
    show = ["zk", "show", "--zookeeper", zookeeper.hosts, "--format", "json"]
    nodes = {node["path"]: node for node in pylog(*show, "/brokers/ids").json}
    assert nodes.keys() == {"/brokers/ids", *(f"/brokers/ids/{broker_id}" for broker_id in brokers)}
    assert nodes["/brokers/ids/2"]["data"]["host"] == "127.0.0.1"
    assert nodes["/brokers/ids/2"]["ephemeral"] is True
    [topic] = pylog(*show, "/brokers/topics/kept", "--depth", "0").json
    assert topic["data"]["partitions"].keys() == {"0", "1"}
    text = pylog("zk", "show", "/controller", environment={"PYLOG_ZOOKEEPER": zookeeper.hosts}).text
    assert text.startswith("/controller  {")
    assert text.rstrip().endswith("(ephemeral)")
    wide = pylog("zk", "show", "/controller", "--zookeeper", zookeeper.hosts, "--format", "wide").text
    assert "(ephemeral, session 0x" in wide
    gone = pylog("zk", "show", "/does/not/exist", "--zookeeper", zookeeper.hosts, exit_code=1)
    assert "[PYLOG-0207]" in gone.notes


def test_the_preferred_replica_is_given_its_partitions_back(pylog: Command, brokers: Brokers) -> None:
    create(brokers[1], "given", 6, replicas=3)
    wait_for(lambda: is_in_sync(brokers, "given"), "all in sync")
    brokers[2].restart()
    wait_for(lambda: is_in_sync(brokers, "given"), "all in sync")
    assert led_by(pylog, 2) == []
    rows = pylog("partition", "elect", "--topic", "given", "--format", "json").json
    assert [(row["leader"], row["problem"]) for row in rows] == [(2, None)] * len(rows)
    assert sorted(row["partition"] for row in rows) == led_by(pylog, 2) != []


def is_in_sync(brokers: Brokers, name: str) -> bool:
    views = [Admin(broker.bootstrap).cluster() for broker in brokers.values()]
    topics = [view.topics.get(name) for view in views]
    return all(topic is not None and all(one.is_in_sync for one in topic.partitions) for topic in topics)


def led_by(pylog: Command, broker: int) -> list[int]:
    rows = pylog("topic", "describe", "given", "--format", "json").json["partitions"]
    return [row["partition"] for row in rows if row["leader"] == broker]
