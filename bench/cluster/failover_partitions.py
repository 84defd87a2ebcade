"""How long a dead broker's partitions are without leader: three brokers, a real ZooKeeper, thousands of partitions.

    python -m bench.cluster.failover_partitions [--partitions 5000] [--rounds 3]

Each round kills a broker that is not the controller with SIGKILL.  Time runs from the moment ZooKeeper has ended its
session (which this program watches, as the controller does) until the Metadata of each broker that is left names
another leader for partitions that the dead one led; images are applied whole, so some stand for all.
"""

import argparse
import json
import os
import socket
import statistics
import struct
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import yaml
from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient

from pylog.client.admin.cluster import Admin
from pylog.testing import BrokerProcess
from tests.servers.ports import free_ports
from tests.servers.zookeeper import ZooKeeper

TOPICS = 50
SETTLE_S = 3.0
POLL_S = 0.01
"""Between two questions to one broker; a question for one topic costs it about 0.1 ms."""


SETTINGS = {"replica.lag.time.max.ms": 10_000, "log.index.size.max.bytes": 4096}
"""A large index file for each of thousands of empty logs would only measure the disk."""


@contextmanager
def cluster(
    directory: Path,
    zookeeper: ZooKeeper,
    *,
    session_timeout_ms: int = 2000,
    settings: Mapping[str, object] = SETTINGS,
) -> Iterator[dict[int, BrokerProcess]]:
    """Three brokers; here their session time-out does not count."""
    with ExitStack() as stack:
        brokers: dict[int, BrokerProcess] = {}
        for broker_id in (1, 2, 3):
            home = directory / str(broker_id)
            home.mkdir(parents=True)
            client, internal = free_ports(2)
            (home / "secret").write_bytes(b"bench")
            config = {
                "version": 1,
                "broker_id": broker_id,
                "listeners": {
                    "client": {"host": "127.0.0.1", "port": client},
                    "internal": {"host": "127.0.0.1", "port": internal},
                },
                "data_dir": str(home / "data"),
                "admin_socket": str(home / "admin.sock"),
                "store": {"kind": "zookeeper", "hosts": zookeeper.hosts, "session_timeout_ms": session_timeout_ms},
                "cluster_secret_file": str(home / "secret"),
                "config": dict(settings),
            }
            path = home / "broker.yml"
            path.write_text(yaml.safe_dump(config))
            brokers[broker_id] = stack.enter_context(BrokerProcess(home, config_file=path))
        yield brokers


class LeaderProbe:
    """Asks one broker again and again who leads one partition; its own 40 lines of client cost less than a library."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), 5)
        name = topic.encode()
        # Metadata v1: key, version, correlation, client id (null), topics: [name]
        body = struct.pack(">hhihi", 3, 1, 1, -1, 1) + struct.pack(">h", len(name)) + name
        self._request = struct.pack(">i", len(body)) + body

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def leaders(self) -> dict[int, int]:
        """Return the leader of each partition of the topic."""
        self._socket.sendall(self._request)
        with self._socket.makefile("rb") as stream:
            (size,) = struct.unpack(">i", stream.read(4))
            return _leaders(stream.read(size))


def _leaders(reply: bytes) -> dict[int, int]:
    at = 4
    (count,) = struct.unpack_from(">i", reply, at)
    at += 4
    for _ in range(count):
        (length,) = struct.unpack_from(">h", reply, at + 4)
        at += 6 + length + 4
        (rack,) = struct.unpack_from(">h", reply, at)
        at += 2 + max(rack, 0)
    at += 8  # controller, number of topics
    _, length = struct.unpack_from(">hh", reply, at)
    at += 4 + length + 1
    (count,) = struct.unpack_from(">i", reply, at)
    at += 4
    found: dict[int, int] = {}
    for _ in range(count):
        _, partition, leader, replicas = struct.unpack_from(">hiii", reply, at)
        at += 14 + 4 * replicas
        (isr,) = struct.unpack_from(">i", reply, at)
        at += 4 + 4 * isr
        found[partition] = leader
    return found


def fail_over(brokers: dict[int, BrokerProcess], zookeeper: KazooClient, topic: str) -> dict[int, float]:
    """Kill a broker; return after how many seconds each other one knows the next leaders."""
    controller = json.loads(zookeeper.get("/controller")[0])["brokerid"]
    victim = max(one for one in brokers if one != controller)
    left = {one: broker for one, broker in brokers.items() if one != victim}
    gone_s: list[float] = []
    is_gone = threading.Event()

    def watch(event: object) -> None:
        gone_s.append(time.monotonic())
        is_gone.set()

    zookeeper.exists(f"/brokers/ids/{victim}", watch=watch)
    seen: dict[int, float] = {}

    def follow(one: int, broker: BrokerProcess) -> None:
        with closing(LeaderProbe(broker.bootstrap, topic)) as probe:
            assert victim in probe.leaders().values(), "it leads nothing that could be missed"
            while victim in probe.leaders().values():
                time.sleep(POLL_S)
            seen[one] = time.monotonic()

    threads = [threading.Thread(target=follow, args=item) for item in left.items()]
    for thread in threads:
        thread.start()
    time.sleep(0.5)  # until they have asked once
    brokers[victim].kill()
    for thread in threads:
        thread.join()
    assert is_gone.wait(30)
    return {one: at_s - gone_s[0] for one, at_s in seen.items()}


def load() -> str:
    """Return how busy the machine is; on a busy one this measures the neighbours."""
    return f"load average {os.getloadavg()[0]:.1f}"


def give_back_leaders(bootstrap: str) -> None:
    """Let every broker lead its share again."""
    admin = AdminClient({"bootstrap.servers": bootstrap})  # must outlive its answer
    admin.elect_leaders(ElectionType.PREFERRED, None).result(60)


def wait_in_sync(admin: Admin) -> None:
    """Wait until every partition has all its replicas in sync."""
    while True:
        partitions = [one for topic in admin.cluster().topics.values() for one in topic.partitions]
        if all(one.is_in_sync and one.has_leader for one in partitions):
            return
        time.sleep(0.5)


def main() -> None:
    """Run the rounds and print the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("PYLOG_BENCH_DIR")) as scratch:
        directory = Path(scratch)
        with ZooKeeper(directory / "zookeeper") as ensemble, cluster(directory, ensemble) as brokers:
            zookeeper = KazooClient(ensemble.hosts)
            zookeeper.start()
            bootstrap = ",".join(broker.bootstrap for broker in brokers.values())
            admin = Admin(bootstrap)
            began_s = time.monotonic()
            for number in range(TOPICS):
                admin.create_topic(f"t{number}", partitions=arguments.partitions // TOPICS, replication_factor=3)
            wait_in_sync(admin)
            print(f"{arguments.partitions} partitions made in {time.monotonic() - began_s:.1f} s, {load()}")
            worst: list[float] = []
            for number in range(arguments.rounds):
                found = fail_over(brokers, zookeeper, "t0")
                worst.append(max(found.values()))
                print(f"round {number + 1}: " + ", ".join(f"broker {k}: {v * 1000:.0f} ms" for k, v in found.items()))
                for broker in brokers.values():
                    if broker.has_ended:
                        broker.start()
                wait_in_sync(admin)
                give_back_leaders(bootstrap)
                time.sleep(SETTLE_S)
            print(f"slowest broker, median of rounds: {statistics.median(worst) * 1000:.0f} ms, {load()}")
            zookeeper.stop()


if __name__ == "__main__":
    main()
