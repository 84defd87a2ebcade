"""The paper's producer and consumer: `python examples/streams.py HOST:PORT ZOOKEEPER`.

The brokers coordinate nothing here: consumers share a topic's partitions among themselves, through ZooKeeper.
"""

import sys

from pylog.client import ConsumerConnector, Message, MessageSet, Producer

cluster, zookeeper = sys.argv[1:3]
with Producer(cluster, sync=True) as producer:
    producer.send("views", MessageSet(Message(b"page %d" % number) for number in range(5)))

with ConsumerConnector(cluster, zookeeper, "readers", start="smallest") as consumer:
    [stream] = consumer.create_message_streams({"views": 1})["views"]
    for count, message in enumerate(stream, start=1):  # never ends by itself: it waits for the next message
        print(message.payload().decode())
        if count == 5:
            break
# What was handed out is committed; the next consumer of the group goes on behind it.
