"""Each click with the name of who made it, two topics joined by key: `python examples/join.py HOST:PORT ZOOKEEPER`.

Equal keys lie in equally numbered partitions, and a consumer of the group has the same numbers of both topics: so each
joins its share alone, and keeps no more than that.  `check_co_partitioned` makes sure of the first.
"""

import sys
import threading
from collections import Counter, defaultdict

from pylog.client import Admin, ConsumerConnector, Message, MessageStream, Producer

CLICKS = 40
cluster, zookeeper = sys.argv[1:3]
admin = Admin(cluster)
for topic in ("members", "clicks"):
    admin.create_topic(topic, partitions=4, replication_factor=1)
admin.check_co_partitioned("members", "clicks")
with Producer(cluster) as producer:
    for number in range(CLICKS):
        producer.send("clicks", Message(b"/jobs/%d" % number, key=b"member %d" % (number % 2)))
    for number, member in enumerate((b"Ada", b"Bob")):
        producer.send("members", Message(member, key=b"member %d" % number))

clicks_of: Counter[str] = Counter()
is_done = threading.Event()


class Join:
    """What one consumer knows: the members of its partitions, and clicks that came before their member."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: dict[bytes | None, str] = {}
        self._early: defaultdict[bytes | None, int] = defaultdict(int)

    def read_members(self, stream: MessageStream) -> None:
        """Keep the latest name of each member."""
        for message in stream:
            with self._lock:
                self._names[message.key()] = name = message.payload().decode()
                self._found(name, self._early.pop(message.key(), 0))

    def read_clicks(self, stream: MessageStream) -> None:
        """Find the name of each click's member, now or later."""
        for message in stream:
            with self._lock:
                if message.key() in self._names:
                    self._found(self._names[message.key()], 1)
                else:
                    self._early[message.key()] += 1

    def _found(self, name: str, count: int) -> None:
        clicks_of[name] += count
        if clicks_of.total() == CLICKS:
            is_done.set()


consumers = []
for _ in range(2):
    consumer, join = ConsumerConnector(cluster, zookeeper, "joined", start="smallest"), Join()
    streams = consumer.create_message_streams({"members": 1, "clicks": 1})
    threading.Thread(target=join.read_members, args=streams["members"]).start()
    threading.Thread(target=join.read_clicks, args=streams["clicks"]).start()
    consumers.append(consumer)
is_done.wait()
for consumer in consumers:
    consumer.close()
for name, count in sorted(clicks_of.items()):
    print(f"{name} clicked {count} times")
