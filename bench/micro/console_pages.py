"""CPU that pages of the console take with a large cluster, and the memory of the process, without a network.

python -m bench.micro.console_pages [--topics 1000] [--partitions 8] [--groups 100] [--rounds 20]

The models, the templates and the HTTP application are the console's own; the answers of the brokers are made here.
CPU is the process's own, so a busy neighbour shows little.
"""

import argparse
import statistics
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from starlette.testclient import TestClient

from pylog.client.admin.cluster import ClusterView, OffsetRange, PartitionView, TopicView
from pylog.client.admin.configs import Setting
from pylog.client.admin.disks import BrokerDisks, LogDir, ReplicaSize
from pylog.client.admin.groups import GroupListing
from pylog.client.admin.reassignment import Reassignment
from pylog.client.connection import Connection
from pylog.console.app import Console
from pylog.console.config import ConsoleConfig
from pylog.console.counts import Counts, Look
from pylog.console.readings import Reading
from pylog.console.sources import ClusterSource, Lags
from pylog.model import NodeAddress, TopicPartition
from pylog.probe.reader import Latest

BROKERS = 3
PAGES = ("/", "/topics", "/topics/topic-0500", "/topics/topic-0500/3", "/groups", "/brokers", "/api/topics")


def read(value: Any) -> Reading[Any]:  # noqa: ANN401  # whatever a page asks for
    """Return *value* as a reading that has just succeeded."""
    return Reading(value, 1, "", None, 1)


class Made(ClusterSource):
    """A large healthy cluster."""

    large: ClusterView
    sizes: dict[int, BrokerDisks]
    listed: list[GroupListing]

    def view(self) -> Reading[ClusterView]:
        """Return brokers and topics."""
        return read(self.large)

    def answering(self) -> Reading[set[int]]:
        """Return all brokers."""
        return read(set(range(BROKERS)))

    def disks(self) -> Reading[dict[int, BrokerDisks]]:
        """Return the sizes of all replicas."""
        return read(self.sizes)

    def groups(self) -> Reading[list[GroupListing]]:
        """Return all groups."""
        return read(self.listed)

    def moves(self) -> Reading[dict[TopicPartition, Reassignment]]:
        """Return nothing on the move."""
        return read({})

    def settings(self, topic: str) -> Reading[list[Setting]]:
        """Return a few settings."""
        return read([Setting("retention.ms", "604800000", "default", False)])

    def offsets(self, topic: TopicView) -> Reading[dict[TopicPartition, OffsetRange]]:
        """Return the offsets of one topic."""
        return read({TopicPartition(topic.name, one.partition): OffsetRange(0, 1_000) for one in topic.partitions})


class NoCounts(Counts):
    """Nobody counts."""

    def latest(self) -> Look:
        """Return that nothing is known."""
        return Look(0, None)


def fill(topics: int, partitions: int, groups: int) -> None:
    """Make the cluster that `Made` shows."""
    replicas = [tuple((first + n) % BROKERS for n in range(BROKERS)) for first in range(BROKERS)]
    names = [f"topic-{number:04}" for number in range(topics)]
    Made.large = ClusterView(
        "bench",
        0,
        tuple(NodeAddress(broker, f"log-{broker}.example", 9092) for broker in range(BROKERS)),
        {
            name: TopicView(
                name,
                tuple(
                    PartitionView(one, one % BROKERS, replicas[one % BROKERS], replicas[one % BROKERS])
                    for one in range(partitions)
                ),
            )
            for name in names
        },
    )
    held = {TopicPartition(name, one): ReplicaSize(1 << 20, 0) for name in names for one in range(partitions)}
    Made.sizes = {broker: BrokerDisks((LogDir("/data", 1 << 40, 1 << 39, held),)) for broker in range(BROKERS)}
    Made.listed = [GroupListing(f"group-{number:03}", "Stable") for number in range(groups)]


def resident_mb() -> float:
    """Return the resident memory of this process in MB."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) * 1024 / 1e6


def main() -> None:
    """Print one row a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    fill(options.topics, options.partitions, options.groups)
    cluster = Connection(bootstrap="127.0.0.1:1")
    lags: Any = SimpleNamespace(latest=Latest())
    console = Console(ConsoleConfig(cluster=cluster), Lags(lags), NoCounts((cluster,), 60_000), source_of=Made)
    before_mb = resident_mb()
    print("| page | first, ms of CPU | median, ms of CPU | bytes |\n|---|--:|--:|--:|")
    with TestClient(console.app(), base_url="http://localhost") as client:
        for path in PAGES:
            spent = []
            for _ in range(options.rounds):
                start = time.process_time()
                answer = client.get(path)
                spent.append((time.process_time() - start) * 1000)
                assert answer.status_code == 200, answer.text
            print(f"| `{path}` | {spent[0]:.1f} | {statistics.median(spent[1:]):.1f} | {len(answer.content):,} |")
    print(f"\nResident: {before_mb:.0f} MB with the cluster before the first page, {resident_mb():.0f} MB after all.")


if __name__ == "__main__":
    main()
