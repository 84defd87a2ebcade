"""How long a standalone broker takes to be ready: empty, over a large log stopped cleanly and killed; a large topic.

    python -m bench.broker.startup [--gib 5] [--partitions 4] [--directory DIR]

Wall time is from the start of the process to its `ready` line; processor time says what other load cannot hide.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pylog.testing import BrokerProcess

VALUE = b"x" * 100_000
CREATED_PARTITIONS = 1_000
_HZ = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Return the processor time a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _HZ


def fill(bootstrap: str, topic: str, partitions: int, size_bytes: int) -> None:
    """Write *size_bytes* in all, spread over the partitions."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.size": 1_000_000})
    for number in range(size_bytes // len(VALUE)):
        while True:
            try:
                producer.produce(topic, VALUE, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(120) == 0


def create(broker: BrokerProcess, topic: str, partitions: int) -> float:
    """Create a topic and return how long that took, in seconds."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.list_topics(timeout=30)  # connected
    begun_s = time.monotonic()
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(120)
    return time.monotonic() - begun_s


def measure(what: str, broker: BrokerProcess, start: Callable[[], None]) -> None:
    """Start a broker and say what that took."""
    begun_s = time.monotonic()
    start()
    wall_s = time.monotonic() - begun_s
    print(f"{what:60} {wall_s:6.2f} s wall  {cpu_s(broker.pid):6.2f} s cpu")


def main() -> None:
    """Measure all of it and print one line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=5)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--directory", type=Path)
    options = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    size_bytes = int(options.gib * (1 << 30))
    with tempfile.TemporaryDirectory(dir=options.directory) as path:
        broker = BrokerProcess(Path(path))
        measure("ready, nothing there yet", broker, broker.start)
        create(broker, "bulk", options.partitions)
        fill(broker.bootstrap, "bulk", options.partitions, size_bytes)
        broker.stop()
        measure(f"ready over {options.gib:g} GiB, stopped cleanly", broker, broker.start)
        broker.kill()
        measure(f"ready over {options.gib:g} GiB, killed", broker, broker.start)
        fill(broker.bootstrap, "bulk", options.partitions, size_bytes // 5)
        broker.kill()
        measure(f"the same, killed {options.gib / 5:g} GiB after the last sync", broker, broker.start)
        cpu_before_s = cpu_s(broker.pid)
        took_s = create(broker, "wide", CREATED_PARTITIONS)
        used_s = cpu_s(broker.pid) - cpu_before_s
        print(f"{f'topic of {CREATED_PARTITIONS} partitions':60} {took_s:6.2f} s wall  {used_s:6.2f} s cpu")
        broker.stop()
        measure(f"ready over {CREATED_PARTITIONS} partitions more, stopped cleanly", broker, broker.start)
        broker.kill()
        measure("the same, killed", broker, broker.start)
        broker.stop()


if __name__ == "__main__":
    main()
