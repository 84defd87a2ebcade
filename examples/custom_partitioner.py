"""A partition function of one's own: `python examples/custom_partitioner.py HOST:PORT`.

Keys are ``country:user``; one country's users stay together and in order, which hashing the whole key would not do.
"""

import sys
from zlib import crc32

from pylog.client import Admin, Consumer, Message, Producer


def by_country(key: bytes | None, partition_count: int) -> int:
    """Return the partition of the key's country."""
    country = (key or b"").partition(b":")[0]
    return crc32(country) % partition_count


cluster = sys.argv[1]
Admin(cluster).create_topic("users", partitions=4, replication_factor=1)
with Producer(cluster, partitioner=by_country) as producer:
    for key in (b"fr:ada", b"de:bob", b"fr:cyd", b"de:dan", b"fr:eve"):
        producer.send("users", Message(b"signed up", key=key))

partitions: dict[str, set[int]] = {}
with Consumer(cluster) as consumer:
    consumer.assign_topic("users")
    for record in consumer.records_to_end():
        partitions.setdefault((record.key or b"").decode().partition(":")[0], set()).add(record.partition)
for country, found in sorted(partitions.items()):
    print(country, "is in", len(found), "partition")
