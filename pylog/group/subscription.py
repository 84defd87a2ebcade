"""What a member of a consumer group wants to read, and what it was given.

subscription => version: int16, topics: [string], rest      (array: int32 count; string: int16 length)
assignment   => version: int16, topics: [name: string, partitions: [int32]], rest

Groups hand both on unread; only few questions need what is in them.

Source: Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment message definitions.
"""

import struct
from collections.abc import Iterator

from pylog.model import TopicPartition

CONSUMER_PROTOCOL = "consumer"


def subscribed_topics(raw: bytes) -> frozenset[str] | None:
    """Return the topics of a subscription, or None if it cannot be read."""
    topics = set()
    try:
        (count,) = struct.unpack_from(">i", raw, 2)
        position = 6
        for _ in range(min(count, len(raw))):
            (length,) = struct.unpack_from(">h", raw, position)
            name = raw[position + 2 : position + 2 + length]
            if len(name) != length:
                return None
            topics.add(name.decode())
            position += 2 + length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)


def is_assigned(raw: bytes, topic: str, partition: int) -> bool:
    """Whether an assignment has *partition* of *topic*; False if it cannot be read."""
    wanted = topic.encode()
    try:
        for name, count, position in _assigned_topics(raw):
            if name == wanted:
                return partition in struct.unpack_from(f">{count}i", raw, position)
    except struct.error:
        pass
    return False


def assigned_partitions(raw: bytes) -> list[TopicPartition] | None:
    """Return the partitions of an assignment, in its order, or None if it cannot be read."""
    found: list[TopicPartition] = []
    try:
        for name, count, position in _assigned_topics(raw):
            topic = name.decode()
            found += [TopicPartition(topic, one) for one in struct.unpack_from(f">{count}i", raw, position)]
    except (struct.error, UnicodeDecodeError):
        return None
    return found


def _assigned_topics(raw: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield (name, number of partitions, position of the first) of each topic of an assignment.

    Raises:
        struct.error: it cannot be read from here on.
    """
    (count,) = struct.unpack_from(">i", raw, 2)
    position = 6
    for _ in range(min(count, len(raw))):
        (length,) = struct.unpack_from(">h", raw, position)
        name = raw[position + 2 : position + 2 + length]
        position += 2 + length
        (partitions,) = struct.unpack_from(">i", raw, position)
        position += 4
        if len(name) != length or not 0 <= partitions <= len(raw):
            raise struct.error("a length that is not there")
        yield name, partitions, position
        position += 4 * partitions


def is_same_subscription(protocol_type: str | None, old: bytes, new: bytes) -> bool:
    """Whether a member that comes back with *new* wants what it wanted with *old*.

    Beside the topics stand the partitions it owned, which a restarted member does not know any more.
    """
    if old == new:
        return True
    if protocol_type != CONSUMER_PROTOCOL:
        return False
    topics = subscribed_topics(new)
    return topics is not None and topics == subscribed_topics(old)
