"""A new store for a standalone broker that lost its own: topics from what lies in its data directory.

Every partition directory names its topic in `partition.metadata`.  Settings of topics were in the store alone; of
those, what retention and compaction go by also stands in `retention.json`, and is taken from there.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pylog.broker.config import STANDALONE_ID, STORE
from pylog.broker.control.topics import new_topic_ids
from pylog.cluster import znodes
from pylog.cluster.image import PartitionImage, TopicImage
from pylog.errors import ConfigError
from pylog.log import checkpoint, offline
from pylog.log.config import LogConfig
from pylog.log.directory import LogDirectory
from pylog.log.layout import partitions_in, read_topic_id
from pylog.log.log import Log
from pylog.model import TopicPartition
from pylog.store.base import Set
from pylog.store.embedded import EmbeddedTree
from pylog.store.tree import ClusterTree
from pylog.wire.markers import Marker, encode_marker
from pylog.wire.records import parse_header

_SESSION_TIMEOUT_S = 10.0
_RETAINED = {"cleanup.policy": "cleanup_policy", "retention.ms": "retention_ms", "retention.bytes": "retention_bytes"}


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """A topic by its directories.

    Attributes:
        topic_id: None where no directory names one; a new one is given then.
        partitions: numbers of those found.
        missing: numbers below the highest found that have no directory; they begin empty.
        policy: what retention and compaction went by, as far as that is known.
    """

    name: str
    topic_id: uuid.UUID | None
    partitions: tuple[int, ...]
    missing: tuple[int, ...]
    policy: LogConfig

    @property
    def configs(self) -> dict[str, str]:
        """Settings of the topic's own."""
        default = LogConfig()
        return {
            name: str(getattr(self.policy, field))
            for name, field in _RETAINED.items()
            if getattr(self.policy, field) != getattr(default, field)
        }


def find_topics(path: Path) -> list[FoundTopic]:
    """Return the topics whose partitions lie in the data directory *path*.

    Raises:
        ConfigError: directories of one topic name different ids.
        StorageError: `retention.json` is damaged.
        OSError: the disk fails.
    """
    policies = offline.read_policies(path)
    by_topic: dict[str, dict[int, Path]] = {}
    for key, directory in partitions_in(path).items():
        by_topic.setdefault(key.topic, {})[key.partition] = directory
    return [_found(name, directories, policies) for name, directories in sorted(by_topic.items())]


def _found(name: str, directories: Mapping[int, Path], policies: Mapping[str, LogConfig]) -> FoundTopic:
    ids = {number: read_topic_id(directory) for number, directory in directories.items()}
    known = {topic_id for topic_id in ids.values() if topic_id is not None}
    if len(known) > 1:
        raise ConfigError(
            f"directories of {name} are of different topics of that name: "
            + ", ".join(f"{name}-{number} of {topic_id}" for number, topic_id in sorted(ids.items()))
            + "; move those away that are not wanted"
        )
    return FoundTopic(
        name,
        next(iter(known), None),
        tuple(sorted(directories)),
        tuple(sorted(set(range(max(directories))) - set(directories))),
        next((policies[one.name] for one in directories.values() if one.name in policies), LogConfig()),
    )


def adopt(path: Path, now_ms: int) -> list[FoundTopic]:
    """Write a store for the data directory *path*, which names no cluster or is not there, and return its topics.

    Raises:
        ConfigError: the store knows a cluster already, or the directory none; nothing was written.
        StorageError: a broker runs in the directory, a log is damaged, or the disk fails.
    """
    try:
        topics = find_topics(path)
        directory = LogDirectory.open(path, broker_id=STANDALONE_ID)
        try:
            return _write_store(directory, topics, now_ms)
        finally:
            directory.close()
    except OSError as error:
        raise ConfigError(f"{error.filename or path}: {error.strerror}") from error


def _write_store(directory: LogDirectory, found: list[FoundTopic], now_ms: int) -> list[FoundTopic]:
    if directory.cluster_id is None:
        raise ConfigError(f"{directory.path / checkpoint.META_PROPERTIES} names no cluster; there is nothing to adopt")
    new_ids = new_topic_ids(topic.name for topic in found)
    topics = [replace(topic, topic_id=topic.topic_id or new_ids[topic.name]) for topic in found]
    images, next_producer_id = _open_logs(directory, topics)
    # Before a log is taken for one of ours, the store must be free for it.
    store = EmbeddedTree(directory.path / STORE)
    session = store.session()
    session.connect(_SESSION_TIMEOUT_S)
    try:
        tree = ClusterTree(session)
        tree.prepare()
        if (known := tree.cluster_id()) is not None:
            raise ConfigError(f"{directory.path / STORE} is the store of cluster {known}; there is nothing to adopt")
        fence = tree.claim_controller(STANDALONE_ID, now_ms)
        assert fence is not None, "nobody else has this directory open"
        tree.create_topics(fence, images)
        if next_producer_id:
            # Block by block, as brokers take them: nobody may get an id that stands in a log.
            first = next_producer_id - next_producer_id % -znodes.PRODUCER_ID_BLOCK_SIZE
            block = znodes.encode_producer_id_block(STANDALONE_ID, first - znodes.PRODUCER_ID_BLOCK_SIZE)
            tree.write(fence, [Set(znodes.PRODUCER_ID_BLOCK, block)])
        for log in directory.logs.values():
            _abort_transactions(log, now_ms)
        # Last, for it says that the store is whole.
        tree.give_cluster_id(directory.cluster_id)
    finally:
        session.close()
        store.close()
    return topics


def _open_logs(directory: LogDirectory, topics: list[FoundTopic]) -> tuple[list[TopicImage], int]:
    """Return the topics as the store is to have them, and a producer id above all that their logs know."""
    images: list[TopicImage] = []
    next_producer_id = 0
    for topic in topics:
        assert topic.topic_id is not None
        states: dict[int, PartitionImage] = {}
        for number in sorted({*topic.partitions, *topic.missing}):
            epoch = -1
            if number in topic.partitions:
                key = TopicPartition(topic.name, number)
                directory.name_topic(key, topic.topic_id)
                # Time 0: no producer is forgotten.
                log = directory.get_or_create(key, topic.topic_id, topic.policy, now_ms=0)
                epoch = log.epochs.latest
                next_producer_id = max([next_producer_id, *(one.producer_id + 1 for one in log.producers.facts())])
            # One above what was written last: what this term writes is told from what the lost store's last one did.
            states[number] = PartitionImage(STANDALONE_ID, epoch + 1, (STANDALONE_ID,), (STANDALONE_ID,), 0)
        images.append(TopicImage(topic.name, topic.topic_id, states, topic.configs))
    return images, next_producer_id


def _abort_transactions(log: Log, now_ms: int) -> None:
    """End the open transactions of a log: their coordinator is gone, and readers would wait for it for ever."""
    for one in log.producers.facts():
        if one.transaction_start >= 0:
            marker = Marker(is_commit=False, coordinator_epoch=max(one.coordinator_epoch, 0))
            batch = memoryview(bytearray(encode_marker(one.producer_id, one.epoch, marker, now_ms)))
            log.append_as_leader(batch, parse_header(batch), log.epochs.latest, now_ms, marker)
