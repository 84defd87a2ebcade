"""What accounting for its records costs a producer: CPU of the process, the same messages with and without, by turns.

python -m bench.audit [--rounds 5] [--messages 300000] [--size 200]

plain     confluent-kafka's own producer in the shortest loop there is
header    the same with a header as long as a stamp, the same one on each record: what carrying one costs in C
audited   `pylog.audit.producer.AuditedProducer`: stamps, counts, checksums, reports

All with acks=all, idempotence and five milliseconds of linger.  The process does nothing but send, so the ratio is the
worst there is; what a service pays is the difference, for each record that it sends.
"""

import argparse
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka import Producer

from pylog.audit.load import ensure_topic
from pylog.audit.producer import AuditedProducer
from pylog.client.admin import Admin
from pylog.client.connection import Connection
from pylog.client.counting import STAMP_HEADER, Stamp
from pylog.testing import BrokerProcess

TOPIC = "audited"
_POLL_EVERY = 1_000


def plain(bootstrap: str, values: Sequence[bytes], headers: list[tuple[str, str | bytes | None]] | None = None) -> None:
    """Send as confluent-kafka's users do."""
    failed = []
    producer = Producer({
        "bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all", "linger.ms": 5,
        "queue.buffering.max.messages": 500_000, "partitioner": "murmur2_random",
        "delivery.report.only.error": True, "on_delivery": lambda error, _: failed.append(error)})
    produce = producer.produce
    for number, value in enumerate(values):
        while True:
            try:
                if headers is None:
                    produce(TOPIC, value)
                else:
                    produce(TOPIC, value, headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
        if number % _POLL_EVERY == 0:
            producer.poll(0)
    producer.flush()
    assert not failed, failed[0]


def with_header(bootstrap: str, values: Sequence[bytes]) -> None:
    """Send with a header that nobody makes."""
    stamp = Stamp("0123456789abcdef", 123_456, time.time_ns() // 1_000_000, "web-17.example").encode()
    plain(bootstrap, values, [(STAMP_HEADER, stamp)])


def audited(bootstrap: str, values: Sequence[bytes]) -> None:
    """Send with everything."""
    with AuditedProducer(bootstrap, host="web-17.example") as producer:
        send = producer.send
        for value in values:
            send(TOPIC, value)


WAYS: dict[str, Callable[[str, Sequence[bytes]], None]] = {"plain": plain, "header": with_header, "audited": audited}


def main(arguments: Sequence[str]) -> int:
    """Print each round and the medians."""
    parser = argparse.ArgumentParser(prog="python -m bench.audit", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("rounds", 5), ("messages", 300_000), ("size", 200)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args(arguments)
    values = [b"%08d" % number + b"x" * (options.size - 8) for number in range(options.messages)]
    gc.freeze()
    found: dict[str, list[float]] = {name: [] for name in WAYS}
    with tempfile.TemporaryDirectory() as directory, BrokerProcess(Path(directory)) as broker:
        Admin(broker.bootstrap).create_topic(TOPIC, partitions=4, replication_factor=1)
        ensure_topic(Connection(bootstrap=broker.bootstrap), 1)
        for number in range(options.rounds + 1):
            for name, send in WAYS.items():
                began_s = time.process_time()
                send(broker.bootstrap, values)
                us = (time.process_time() - began_s) / len(values) * 1e6
                if number:  # the first round warms up
                    found[name].append(us)
            if number:
                print(f"round {number}: " + ", ".join(f"{name} {each[-1]:.2f} us" for name, each in found.items()),
                      flush=True)
    median = {name: statistics.median(each) for name, each in found.items()}
    more_us = statistics.median(a - b for a, b in zip(found["audited"], found["plain"], strict=True))
    print("median: " + ", ".join(f"{name} {us:.2f} us ({us / median['plain']:.2f} times)"
                                 for name, us in median.items()))
    print(f"{more_us:.2f} us more a record: 2 % of a core is {20_000 / more_us:,.0f} records a second")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
