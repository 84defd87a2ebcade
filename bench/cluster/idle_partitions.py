"""What partitions cost that nobody uses: three brokers, a real ZooKeeper, every partition on all of them.

    python -m bench.cluster.idle_partitions [--partitions 1000] [--seconds 20]

Prints each broker's CPU in hundredths of one core, with the partitions and, before they are made, without.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

from bench.cluster.failover_partitions import SETTLE_S, TOPICS, cluster, load, wait_in_sync
from pylog.client.admin.cluster import Admin
from pylog.testing import BrokerProcess
from tests.servers.zookeeper import ZooKeeper

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def cpu_s(broker: BrokerProcess) -> float:
    """Return the CPU that a broker has used so far."""
    fields = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def percent_of_a_core(brokers: dict[int, BrokerProcess], seconds: float) -> dict[int, float]:
    """Return what each broker uses while nobody asks anything."""
    before = {one: cpu_s(broker) for one, broker in brokers.items()}
    began_s = time.monotonic()
    time.sleep(seconds)
    took_s = time.monotonic() - began_s
    return {one: (cpu_s(broker) - before[one]) / took_s * 100 for one, broker in brokers.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("PYLOG_BENCH_DIR")) as scratch:
        directory = Path(scratch)
        with ZooKeeper(directory / "zookeeper") as ensemble, cluster(directory, ensemble) as brokers:
            admin = Admin(",".join(broker.bootstrap for broker in brokers.values()))
            empty = percent_of_a_core(brokers, arguments.seconds)
            for number in range(TOPICS):
                admin.create_topic(f"t{number}", partitions=arguments.partitions // TOPICS, replication_factor=3)
            wait_in_sync(admin)
            time.sleep(SETTLE_S)
            full = percent_of_a_core(brokers, arguments.seconds)
            for one in brokers:
                print(f"broker {one}: {full[one]:.1f} % of a core, {empty[one]:.1f} % without partitions")
            print(f"{arguments.partitions} partitions, {load()}")


if __name__ == "__main__":
    main()
