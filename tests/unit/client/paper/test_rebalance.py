"""The paper's Algorithm 1 (F70): every consumer computes the same, alone."""

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pylog.client.paper.rebalance import assign
from pylog.model import TopicPartition

TOPICS = st.sampled_from(["clicks", "logins", "searches"])
PARTITIONS = st.dictionaries(TOPICS, st.sets(st.integers(0, 40), min_size=1), max_size=3)
MEMBERS = st.dictionaries(
    st.text("abcdefg-0123456789", min_size=1, max_size=4),
    st.dictionaries(TOPICS, st.integers(1, 4), max_size=3),
    max_size=8,
)


@given(PARTITIONS, MEMBERS)
def test_complete_disjoint_and_only_to_those_who_asked(
    partitions: dict[str, set[int]], members: dict[str, dict[str, int]]
) -> None:
    owners = assign(partitions, members)
    read = {topic for counts in members.values() for topic in counts}
    assert owners.keys() == {
        TopicPartition(topic, number) for topic in partitions if topic in read for number in partitions[topic]
    }
    for (topic, _), stream in owners.items():
        consumer_id, _, number = stream.rpartition("-")
        assert int(number) < members[consumer_id][topic]


@given(PARTITIONS, MEMBERS)
def test_streams_of_a_topic_differ_by_at_most_one(
    partitions: dict[str, set[int]], members: dict[str, dict[str, int]]
) -> None:
    owners = assign(partitions, members)
    for topic, numbers in partitions.items():
        stream_count = sum(counts.get(topic, 0) for counts in members.values())
        if not stream_count:
            continue
        counts = Counter(stream for partition, stream in owners.items() if partition.topic == topic)
        assert all(
            len(numbers) // stream_count <= count <= -(-len(numbers) // stream_count) for count in counts.values()
        )
        assert len(counts) == min(len(numbers), stream_count)


@given(PARTITIONS, MEMBERS, st.randoms(use_true_random=False))
def test_the_order_in_which_things_were_read_does_not_matter(
    partitions: dict[str, set[int]], members: dict[str, dict[str, int]], chance: random.Random
) -> None:
    def shuffled(given_: dict) -> dict:  # type: ignore[type-arg]
        items = list(given_.items())
        chance.shuffle(items)
        return dict(items)

    assert assign(shuffled(partitions), shuffled(members)) == assign(partitions, members)


@given(PARTITIONS, MEMBERS)
def test_each_stream_has_neighbours_in_the_order_of_the_streams(
    partitions: dict[str, set[int]], members: dict[str, dict[str, int]]
) -> None:
    owners = assign(partitions, members)
    for topic in partitions:
        in_order = [owners[one] for one in sorted(owners) if one.topic == topic]
        assert in_order == sorted(in_order)


def test_the_chunks_of_kafka_0_8() -> None:
    owners = assign({"t": range(10)}, {"b": {"t": 2}, "a": {"t": 1}, "c": {"t": 1}})
    chunks = {
        stream: [one.partition for one, owner in owners.items() if owner == stream]
        for stream in ("a-0", "b-0", "b-1", "c-0")
    }
    assert chunks == {"a-0": [0, 1, 2], "b-0": [3, 4, 5], "b-1": [6, 7], "c-0": [8, 9]}


def test_more_streams_than_partitions_leave_some_without() -> None:
    owners = assign({"t": [0]}, {"a": {"t": 1}, "b": {"t": 1}})
    assert owners == {TopicPartition("t", 0): "a-0"}
