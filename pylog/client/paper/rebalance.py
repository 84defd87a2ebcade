"""Who reads what in a group without a coordinator: the paper's Algorithm 1 as a function.

Every consumer computes it alone from what it reads in ZooKeeper, so it depends on nothing else and on no order.

Source: section 3.2 of "Kafka: a Distributed Messaging System for Log Processing"; the way Kafka 0.8 divides what does
not come out even, which the paper leaves open.
"""

from collections.abc import Iterable, Mapping

from pylog.model import TopicPartition


def stream_name(consumer_id: str, number: int) -> str:
    """Return how the *number*-th stream of a consumer is called in the ownership registry."""
    return f"{consumer_id}-{number}"


def assign(
    partitions: Mapping[str, Iterable[int]], members: Mapping[str, Mapping[str, int]]
) -> dict[TopicPartition, str]:
    """Return the stream that owns each partition of each topic that some member subscribes to.

    Within a topic, both sides are sorted and each stream gets its chunk: P // C partitions, and one more for the first
    P % C streams, so that two streams never differ by more than one.

    Args:
        partitions: topic -> its partitions.
        members: consumer id -> topic -> how many streams it reads the topic with.
    """
    owners: dict[TopicPartition, str] = {}
    for topic, numbers in partitions.items():
        streams = sorted(
            stream_name(consumer_id, number)
            for consumer_id, counts in members.items()
            for number in range(counts.get(topic, 0))
        )
        if not streams:
            continue
        ordered = sorted(numbers)
        share, more = divmod(len(ordered), len(streams))
        start = 0
        for index, stream in enumerate(streams):
            end = start + share + (index < more)
            owners.update((TopicPartition(topic, number), stream) for number in ordered[start:end])
            start = end
    return owners
