"""The paper's registries in ZooKeeper, in Kafka 0.8's paths and formats.

/consumers/G/ids/CONSUMER             ephemeral   {"version":1,"subscription":{TOPIC: streams},"pattern":
                                                  "static" | "white_list","timestamp": text}
/consumers/G/owners/TOPIC/PARTITION   ephemeral   CONSUMER-STREAM
/consumers/G/offsets/TOPIC            persistent  id of the topic that the offsets below are of (empty in Kafka 0.8)
/consumers/G/offsets/TOPIC/PARTITION  persistent  the next offset to read, in decimal
/brokers/ids/BROKER                   ephemeral   } the brokers' own,
/brokers/topics/TOPIC                 persistent  } see `pylog.cluster.znodes`

With "white_list" the one name in the subscription is a regular expression for whole topic names.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from pylog.cluster import znodes
from pylog.cluster.image import parse_topic_id, topic_id_text
from pylog.cluster.znodes import CONSUMERS, consumer_ids_path
from pylog.errors import ConfigError, ProtocolError
from pylog.model import INTERNAL_TOPICS, Offset, TopicPartition
from pylog.store.base import Create, Delete, NoNode, NotEmpty, Operation, Set, Store, Watch

STATIC = "static"
WHITE_LIST = "white_list"

_MAX_GROUP_ID_CHARACTERS = 255


@dataclass(frozen=True, slots=True)
class Subscription:
    """What one consumer wants: topic, or pattern of topics, -> how many streams."""

    counts: Mapping[str, int]
    pattern: str = STATIC

    def of(self, topics: Iterable[str]) -> dict[str, int]:
        """Return how many streams it reads each of *topics* with, without those it does not read."""
        if self.pattern == STATIC:
            return {topic: self.counts[topic] for topic in topics if topic in self.counts}
        [(pattern, count)] = self.counts.items()
        matches = re.compile(pattern).fullmatch
        return {topic: count for topic in topics if topic not in INTERNAL_TOPICS and matches(topic)}


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """What the registries say at one moment.

    Attributes:
        members: consumer id -> topic -> streams.
        partitions: topic -> its partitions, for every topic that somebody reads.
        topic_ids: topic -> its id, for the same topics.
    """

    members: Mapping[str, Mapping[str, int]]
    partitions: Mapping[str, tuple[int, ...]]
    topic_ids: Mapping[str, UUID]


def check_group(group: str) -> str:
    """Return *group* if it can name a node, else raise ConfigError."""
    if not re.fullmatch(r"[A-Za-z0-9._-]+", group) or group in {".", ".."} or len(group) > _MAX_GROUP_ID_CHARACTERS:
        raise ConfigError(
            f"group {group!r}; wanted letters, digits, '.', '_' and '-', at most {_MAX_GROUP_ID_CHARACTERS}"
        )
    return group


def id_path(group: str, consumer_id: str) -> str:
    """Return the path of a consumer's registration."""
    return f"{consumer_ids_path(group)}/{consumer_id}"


def owner_path(group: str, partition: TopicPartition) -> str:
    """Return the path that names who owns *partition*."""
    return f"{CONSUMERS}/{group}/owners/{partition.topic}/{partition.partition}"


def offset_path(group: str, partition: TopicPartition) -> str:
    """Return the path of the offset to read next."""
    return f"{topic_offsets_path(group, partition.topic)}/{partition.partition}"


def topic_offsets_path(group: str, topic: str) -> str:
    """Return the path above the offsets of *topic*, which says by the topic's id whose they are."""
    return f"{CONSUMERS}/{group}/offsets/{topic}"


def encode_subscription(subscription: Subscription, now_ms: int) -> bytes:
    """Return a consumer's node."""
    document = {
        "version": 1,
        "subscription": dict(subscription.counts),
        "pattern": subscription.pattern,
        "timestamp": str(now_ms),
    }
    return json.dumps(document, separators=(",", ":")).encode()


def decode_subscription(data: bytes) -> Subscription:
    """Return what a consumer's node says.

    Raises:
        ProtocolError: it is no such node, or a pattern that nobody here can read.
    """
    try:
        document = json.loads(data)
        pattern = str(document.get("pattern", STATIC))
        counts = {str(topic): int(count) for topic, count in document["subscription"].items()}
        if pattern not in (STATIC, WHITE_LIST) or (pattern == WHITE_LIST and len(counts) != 1):
            raise ValueError(f"pattern {pattern!r} of {len(counts)} names")
        if pattern == WHITE_LIST:
            re.compile(next(iter(counts)))
    except (ValueError, KeyError, TypeError, AttributeError, re.error) as error:
        raise ProtocolError(f"subscription in a consumer's node: {error!r} in {data!r:.500}") from error
    return Subscription(counts, pattern)


def decode_offset(partition: TopicPartition, data: bytes) -> Offset:
    """Return the offset that *partition*'s node holds."""
    try:
        return int(data)
    except ValueError as error:
        raise ProtocolError(f"offset of {partition} in ZooKeeper: found {data!r:.100}, wanted a number") from error


def encode_topic_id(topic_id: UUID) -> bytes:
    """Return the node above the offsets of a topic."""
    return topic_id_text(topic_id).encode()


def decode_topic_id(data: bytes) -> UUID | None:
    """Return the topic that the offsets below a node are of; None if the node does not say.

    Kafka 0.8 and pylog before 0.2.0 leave it empty: these offsets count for the topic that has the name now.
    """
    try:
        return parse_topic_id(data.decode())
    except ValueError:
        return None


def read_topics(store: Store, topics: Iterable[str]) -> dict[str, znodes.Assignment]:
    """Return ids and partitions of those of *topics* that exist."""
    wanted = list(topics)
    nodes = zip(wanted, store.get_many(map(znodes.topic_path, wanted)), strict=True)
    return {topic: znodes.decode_assignment(node[0]) for topic, node in nodes if node is not None}


def read_snapshot(store: Store, group: str, watch: Watch) -> GroupSnapshot:
    """Return who is in *group* and which partitions there are; *watch* fires when that may have changed.

    Raises:
        ProtocolError: some consumer's node is not readable: nobody can know what it counts on.
    """
    store.children(znodes.BROKER_IDS, watch)
    ids = store.children(consumer_ids_path(group), watch)
    topics = store.children(znodes.TOPICS, watch)
    nodes = zip(ids, store.get_many(id_path(group, each) for each in ids), strict=True)
    members = {each: decode_subscription(node[0]).of(topics) for each, node in nodes if node is not None}
    partitions: dict[str, tuple[int, ...]] = {}
    topic_ids: dict[str, UUID] = {}
    for topic in sorted({topic for counts in members.values() for topic in counts}):
        try:
            data, _ = store.get(znodes.topic_path(topic), watch)
        except NoNode:  # deleted just now, as the watch on its parent tells too
            continue
        found = znodes.decode_assignment(data)
        partitions[topic], topic_ids[topic] = tuple(found.replicas), found.topic_id
    return GroupSnapshot(members, partitions, topic_ids)


def reset_offsets(store: Store, group: str, offsets: Mapping[TopicPartition, Offset]) -> None:
    """Set where *group* goes on, forward or back: to replay after a bug, to skip.

    Raises:
        ConfigError: the group has consumers; stop them first.
    """
    check_group(group)
    ids = consumer_ids_path(group)
    paths = {partition: offset_path(group, partition) for partition in offsets}
    store.ensure(ids, *paths.values())
    written = {path: str(offsets[partition]).encode() for partition, path in paths.items()}
    for topic in sorted({partition.topic for partition in offsets}):
        written = _of_present_topic(store, group, topic) | written
    # Only a node without children can be deleted, so this is done to a group without consumers or not at all.
    empty: list[Operation] = [Delete(ids), Create(ids)]
    try:
        store.multi([*empty, *(Set(path, data) for path, data in written.items())])
    except NotEmpty as error:
        found = ", ".join(store.children(ids))
        raise ConfigError(f"group {group!r} has consumers, {found}; stop them first") from error


def _of_present_topic(store: Store, group: str, topic: str) -> dict[str, bytes]:
    """Return what to write so that the offsets of *topic* are of the topic that has the name now, by path."""
    parent = topic_offsets_path(group, topic)
    kept = decode_topic_id(store.get(parent)[0])
    present = read_topics(store, [topic]).get(topic)
    if present is None or kept == present.topic_id:
        return {}
    written = {parent: encode_topic_id(present.topic_id)}
    if kept is not None:  # whatever the group has not been told to begin with is new to it
        written |= {f"{parent}/{number}": b"0" for number in store.children(parent) if number.isdigit()}
    return written
