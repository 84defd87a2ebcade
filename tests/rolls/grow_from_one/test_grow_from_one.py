"""One broker beside one ZooKeeper server become three of each, and nothing that the one had is lost."""

import subprocess
import sys
import time

from tests.rolls import cluster

NEW = ("live2", "live3")
MONITOR = (
    "import socket; s = socket.create_connection(('localhost', 2181)); s.sendall(b'mntr'); print(s.makefile().read())"
)


def ensemble() -> dict[str, dict[str, str]]:
    """Return host -> what its ZooKeeper server says of itself."""
    return {
        target.name: dict(
            line.split("\t") for line in cluster.on(target.name, f'python3 -c "{MONITOR}"').splitlines() if line
        )
        for target in cluster.targets()
    }


def factors() -> dict[str, int]:
    """Return topic -> its replicas."""
    return {row["name"]: row["replication_factor"] for row in cluster.said("topic", "list")}


def test_one_becomes_three_under_load() -> None:
    known = cluster.bootstrap()
    cluster.fill("filled", 8)
    [(_, alone)] = ensemble().items()
    assert alone["zk_server_state"] == "standalone"
    member = ["consume", "filled", "--group", "early", "--count", "1", "--bootstrap", known]
    subprocess.run([sys.executable, "-m", "pylog", *member], check=True, stdout=subprocess.DEVNULL, timeout=60)
    began_s = time.monotonic()
    with cluster.loaded("grow", known) as load:
        before = factors()
        assert set(before.values()) == {1}
        assert "__consumer_offsets" in before
        for name in NEW:
            cluster.add(name)
        assert cluster.playbook("expand").returncode == 0
    load.check()
    assert before.keys() <= factors().keys(), "the cluster's metadata came along"
    assert cluster.health()["problems"] == []
    cluster.keep_result("grow_from_one", {"seconds": round(time.monotonic() - began_s), "clients": load.reports})


def test_three_servers_vote_and_have_the_same() -> None:
    found = ensemble()
    assert sorted(one["zk_server_state"] for one in found.values()) == ["follower", "follower", "leader"]
    cluster.wait_for(lambda: len({one["zk_znode_count"] for one in ensemble().values()}) == 1)
    assert cluster.playbook("site").returncode == 0


def test_topics_of_the_clusters_own_have_three_replicas_and_new_ones_too() -> None:
    cluster.fill("later", 1)
    assert factors()["later"] == 3
    assert factors()["__consumer_offsets"] == 3
