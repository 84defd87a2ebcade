"""Queue and publish/subscribe at once: `python examples/two_groups.py HOST:PORT ZOOKEEPER`.

Every group gets every message; inside a group each message goes to one consumer.
"""

import sys
import threading
from collections import Counter

from pylog.client import ConsumerConnector, Message, MessageStream, Producer

cluster, zookeeper = sys.argv[1:3]
with Producer(cluster) as producer:
    for number in range(40):
        producer.send("orders", Message(b"order %d" % number, key=b"%d" % number))

got: Counter[str] = Counter()
is_done = threading.Event()


def work(group: str, stream: MessageStream) -> None:
    """Count what one consumer of *group* gets."""
    for _ in stream:
        got[group] += 1
        if got == {"billing": 40, "shipping": 40}:
            is_done.set()


members = []
for group in ("billing", "billing", "shipping"):
    member = ConsumerConnector(cluster, zookeeper, group, start="smallest")
    [stream] = member.create_message_streams({"orders": 1})["orders"]
    threading.Thread(target=work, args=(group, stream)).start()
    members.append(member)
is_done.wait()
for member in members:
    member.close()  # ends its stream, and with it the thread
print(", ".join(f"{group} got {count}" for group, count in sorted(got.items())))
