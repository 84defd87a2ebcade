"""Going back after a bug: `python examples/replay.py HOST:PORT ZOOKEEPER`.

Messages are not deleted when they are read, so a corrected program reads them again.
"""

import sys
from collections.abc import Callable

from pylog.client import ConsumerConnector, Message, MessageSet, Producer
from pylog.client.paper.registries import reset_offsets
from pylog.model import TopicPartition
from pylog.store.zookeeper import ZooKeeperStore

cluster, zookeeper = sys.argv[1:3]
with Producer(cluster) as producer:
    producer.send("prices", MessageSet(Message(b"%d" % price, partition=0) for price in (3, 4, 5)))


def total(add: Callable[[int, int], int]) -> int:
    """Return what the group's program makes of the next three messages."""
    result = 0
    with ConsumerConnector(cluster, zookeeper, "totals", start="smallest") as consumer:
        for count, message in enumerate(consumer.createMessageStreams("prices", 1)[0], start=1):
            result = add(result, int(message.payload()))
            if count == 3:
                break
    return result


print("with the bug:", total(lambda result, price: result - price))
store = ZooKeeperStore(zookeeper)
store.connect()
reset_offsets(store, "totals", {TopicPartition("prices", 0): 0})  # refused while the group has consumers
store.close()
print("corrected:", total(lambda result, price: result + price))
