"""End-to-end latency: one message at a time, from produce() until a waiting consumer has it.

python -m bench.broker.latency HOST:PORT TOPIC [--count 3000] [--acks 1] [--size 100]
"""

import argparse
import statistics
import sys
import time
from collections.abc import Sequence

from confluent_kafka import Consumer, Producer, TopicPartition

_WARM_UP = 200
_PATIENCE_S = 30.0


def latencies_ms(bootstrap: str, topic: str, count: int, acks: str, size: int) -> list[float]:
    """Return the milliseconds of *count* messages, sorted."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 0})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "latency", "enable.auto.commit": False})
    partition = TopicPartition(topic, 0)
    partition.offset = consumer.get_watermark_offsets(partition, timeout=_PATIENCE_S)[1]
    consumer.assign([partition])
    took = []
    for number in range(count + _WARM_UP):
        value = (b"%020d" % number).ljust(size, b"x")
        start = time.perf_counter()
        producer.produce(topic, value, partition=0)
        message = consumer.poll(_PATIENCE_S)
        took.append((time.perf_counter() - start) * 1e3)
        assert message is not None, f"message {number} did not arrive in {_PATIENCE_S} s"
        assert message.value() == value, f"message {number} came back changed"
        producer.poll(0)
    consumer.close()
    return sorted(took[_WARM_UP:])


def main(arguments: Sequence[str]) -> int:
    """Print the percentiles."""
    parser = argparse.ArgumentParser(prog="python -m bench.broker.latency", description=__doc__)
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("--count", type=int, default=3_000)
    parser.add_argument("--acks", default="1")
    parser.add_argument("--size", type=int, default=100)
    options = parser.parse_args(arguments)
    took = latencies_ms(options.bootstrap, options.topic, options.count, options.acks, options.size)
    cuts = statistics.quantiles(took, n=1_000)
    print(f"p50={cuts[499]:.2f} p99={cuts[989]:.2f} p99.9={cuts[998]:.2f} max={took[-1]:.2f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
