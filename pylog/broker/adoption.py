"""A new store for a standalone broker that lost its own: topics from what lies in its data directory.

Every partition directory names its topic in `partition.metadata`.  Settings of topics were in the store alone; of
those, what retention and compaction go by also stands in `retention.json`, and is taken from there.
"""

import logging
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from pylog.broker.config import STANDALONE_ID, STORE
from pylog.broker.control.topics import new_topic_ids
from pylog.broker.groups.topic import OFFSETS_TOPIC_CONFIGS
from pylog.broker.transactions.coordinator import TRANSACTIONS_TOPIC_CONFIGS
from pylog.cluster import znodes
from pylog.cluster.image import PartitionImage, TopicImage
from pylog.cluster.restore import EPOCH_MARGIN, producer_id_block
from pylog.cluster.topics import MAX_PARTITIONS
from pylog.errors import ApiError, ConfigError, ProtocolError
from pylog.group.records import TOPIC as OFFSETS_TOPIC
from pylog.group.records import OffsetKey, partition_for
from pylog.group.records import decode_key as decode_group_key
from pylog.log import checkpoint, offline
from pylog.log.config import LogConfig
from pylog.log.directory import LogDirectory
from pylog.log.layout import partitions_in, read_topic_id
from pylog.log.log import Log
from pylog.log.producers import MAX_COUNTED_PRODUCER_ID
from pylog.model import INTERNAL_TOPICS, TRANSACTIONS_TOPIC, OnProgress, TopicPartition, nobody
from pylog.store.base import Set
from pylog.store.embedded import EmbeddedTree
from pylog.store.tree import ClusterTree
from pylog.transaction.records import decode_key as decode_transactional_key
from pylog.transaction.records import decode_transaction
from pylog.transaction.state import TransactionMetadata, TransactionState
from pylog.wire.markers import Marker, encode_marker
from pylog.wire.records import Record, decode_records, parse_header

_logger = logging.getLogger(__name__)

_SESSION_TIMEOUT_S = 10.0
_RETAINED = {"cleanup.policy": "cleanup_policy", "retention.ms": "retention_ms", "retention.bytes": "retention_bytes"}
_INTERNAL_CONFIGS = {OFFSETS_TOPIC: OFFSETS_TOPIC_CONFIGS, TRANSACTIONS_TOPIC: TRANSACTIONS_TOPIC_CONFIGS}


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
        """Settings of the topic's own; an internal topic that lost its own would be deleted by age."""
        default = LogConfig()
        return {
            **_INTERNAL_CONFIGS.get(self.name, {}),
            **{
                name: str(getattr(self.policy, field))
                for name, field in _RETAINED.items()
                if getattr(self.policy, field) != getattr(default, field)
            },
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


def adopt(path: Path, now_ms: int, on_progress: OnProgress = nobody) -> list[FoundTopic]:
    """Write a store for the data directory *path*, which names no cluster or is not there, and return its topics.

    Args:
        path: of a standalone broker that is down.
        now_ms: the time.
        on_progress: told how many topics' logs were read.

    Raises:
        ConfigError: the store knows a cluster already, or the directory none; nothing was written.
        StorageError: a broker runs in the directory, a log is damaged, or the disk fails.
    """
    try:
        topics = find_topics(path)
        directory = LogDirectory.open(path, broker_id=STANDALONE_ID)
        try:
            return _write_store(directory, topics, now_ms, on_progress)
        finally:
            directory.close()
    except OSError as error:
        raise ConfigError(f"{error.filename or path}: {error.strerror}") from error


def _write_store(
    directory: LogDirectory, found: list[FoundTopic], now_ms: int, on_progress: OnProgress
) -> list[FoundTopic]:
    if directory.cluster_id is None:
        raise ConfigError(f"{directory.path / checkpoint.META_PROPERTIES} names no cluster; there is nothing to adopt")
    new_ids = new_topic_ids(topic.name for topic in found)
    topics = [replace(topic, topic_id=topic.topic_id or new_ids[topic.name]) for topic in found]
    topics, images, newest_producer_id = _open_logs(directory, topics, on_progress)
    # Before a log is taken for one of ours, the store must be free for it.
    store = EmbeddedTree(directory.path / STORE)
    session = store.session()
    try:
        session.connect(_SESSION_TIMEOUT_S)
        tree = ClusterTree(session)
        tree.prepare()
        if (known := tree.cluster_id()) is not None:
            raise ConfigError(f"{directory.path / STORE} is the store of cluster {known}; there is nothing to adopt")
        fence = tree.claim_controller(STANDALONE_ID, now_ms)
        assert fence is not None, "nobody else has this directory open"
        tree.create_topics(fence, images)
        tree.write(fence, [Set(znodes.PRODUCER_ID_BLOCK, producer_id_block(b"", newest_producer_id))])
        coordinated = _known_transactions(directory, {one.name: one.topic_id for one in topics})
        for log in directory.logs.values():
            _end_transactions(log, coordinated.get(log.topic_partition, _Coordinated()), now_ms)
        # Last, for it says that the store is whole.
        tree.give_cluster_id(directory.cluster_id)
    finally:
        session.close()
        store.close()
    return topics


def _open_logs(
    directory: LogDirectory, found: list[FoundTopic], on_progress: OnProgress
) -> tuple[list[FoundTopic], list[TopicImage], int]:
    """Return the topics, how the store is to have them, and the highest producer id in their logs, -1 without one."""
    topics: list[FoundTopic] = []
    images: list[TopicImage] = []
    newest_producer_id = -1
    for topic in found:
        topic_id = topic.topic_id
        assert topic_id is not None
        logs: dict[int, Log] = {}
        for number in topic.partitions:
            key = TopicPartition(topic.name, number)
            directory.name_topic(key, topic_id)
            # Time 0: no producer is forgotten.
            logs[number] = log = directory.get_or_create(key, topic_id, topic.policy, now_ms=0)
            newest_producer_id = max(newest_producer_id, _newest_producer_id(log))
        if topic.name in INTERNAL_TOPICS:
            missing = sorted(set(range(_partition_count(logs))) - set(logs))
            topic = replace(topic, missing=tuple(missing))
        states: dict[int, PartitionImage] = {}
        for number in sorted({*topic.partitions, *topic.missing}):
            # Above what any client may have heard of: a leader writes its epoch down with its first batch only.
            epoch = (logs[number].epochs.latest if number in logs else 0) + EPOCH_MARGIN
            states[number] = PartitionImage(STANDALONE_ID, epoch, (STANDALONE_ID,), (STANDALONE_ID,), 0)
        topics.append(topic)
        images.append(TopicImage(topic.name, topic_id, states, topic.configs))
        on_progress(len(topics), len(found))
    return topics, images, newest_producer_id


def _newest_producer_id(log: Log) -> int:
    """Return the highest producer id of a log, -1 without one; those that a log forgot stand in its batches still."""
    known = (one.producer_id for one in log.producers.facts())
    written = (header.producer_id for segment in log.segments for _, header in segment.batches(0))
    return max((one for one in chain(known, written) if one < MAX_COUNTED_PRODUCER_ID), default=-1)


def _partition_count(logs: Mapping[int, Log]) -> int:
    """Return how many partitions an internal topic had, of which the highest may have no directory any more.

    A group or a transactional id belongs to the partition that its name and the number of partitions give.  So the
    number is the lowest with which all that is found belongs where it is.
    """
    names = {name: number for number, log in logs.items() for name in _names_in(log)}
    lowest = max(logs) + 1
    for count in range(lowest, MAX_PARTITIONS + 1):
        if all(partition_for(name, count) == number for name, number in names.items()):
            return count
    return lowest  # the topic once had fewer


def _names_in(log: Log) -> Iterator[str]:
    """Yield the groups and transactional ids that the records of an internal topic's log are of."""
    is_of_groups = log.topic_partition.topic != TRANSACTIONS_TOPIC
    try:
        for record in _records_of(log):
            key = decode_group_key(record.key or b"") if is_of_groups else decode_transactional_key(record.key or b"")
            if key is not None:
                yield key.group_id if isinstance(key, OffsetKey) else key
    except (ApiError, ProtocolError) as error:
        _note_undecoded(log, error)  # what is before it tells enough


def _records_of(log: Log) -> Iterator[Record]:
    """Yield the records of a log that tell something to whoever coordinates, oldest first."""
    for segment in log.segments:
        for position, header in segment.batches(0):
            if not header.is_control:
                yield from decode_records(segment.read_batch(position, header.size_bytes), header)


def _note_undecoded(log: Log, error: Exception) -> None:
    _logger.warning("records do not decode partition=%s reason=%s", log.topic_partition, error)


@dataclass(slots=True)
class _Coordinated:
    """What the adopted `__transaction_state` says of one partition.

    Attributes:
        left: producers whose transactions their coordinator will end: it knows how.  It aborts those that are open,
            since their producers belong to another cluster, and commits what was decided to be committed, which
            producers were told of.
        committed: epoch by producer of transactions that were decided so, and that their coordinator will not end.
    """

    left: set[int] = field(default_factory=set)
    committed: dict[int, int] = field(default_factory=dict)


def _known_transactions(
    directory: LogDirectory, topic_ids: Mapping[str, uuid.UUID | None]
) -> Mapping[TopicPartition, _Coordinated]:
    """Return what is known of the transactions of partitions; *topic_ids* are those that topics have from now on."""
    found: dict[TopicPartition, _Coordinated] = {}
    for log in directory.logs.values():
        if log.topic_partition.topic != TRANSACTIONS_TOPIC:
            continue
        ids: dict[str, TransactionMetadata] = {}
        # With one record that does not decode, no broker coordinates the ids of this partition.
        is_readable = True
        try:
            for record in _records_of(log):
                is_readable &= _take_in(record, ids, log)
        except ApiError as error:
            _note_undecoded(log, error)
            is_readable = False
        for metadata in ids.values():
            for name, number in metadata.partitions:
                one = found.setdefault(TopicPartition(name, number), _Coordinated())
                # Where the directory had lost its id, the topic has another one than the coordinator looks for.
                if is_readable and metadata.topic_ids.get(name) in (None, topic_ids.get(name)):
                    one.left.add(metadata.producer_id)
                elif metadata.state is TransactionState.PREPARE_COMMIT:
                    one.committed[metadata.producer_id] = metadata.producer_epoch
    return found


def _take_in(record: Record, ids: dict[str, TransactionMetadata], log: Log) -> bool:
    """Note in *ids* what a record says of one; return whether it decodes."""
    try:
        transactional_id = decode_transactional_key(record.key or b"")
        if transactional_id is None:
            return True
        ids.pop(transactional_id, None)
        if record.value is not None:
            ids[transactional_id] = decode_transaction(record.value, record.headers)
    except ProtocolError as error:
        _note_undecoded(log, error)
        return False
    return True


def _end_transactions(log: Log, known: _Coordinated, now_ms: int) -> None:
    """End the open transactions of a log that nobody else will end: readers would wait for them for ever."""
    for one in log.producers.facts():
        if one.transaction_start >= 0 and one.producer_id not in known.left:
            is_commit = known.committed.get(one.producer_id) == one.epoch
            marker = Marker(is_commit, coordinator_epoch=max(one.coordinator_epoch, 0))
            batch = memoryview(bytearray(encode_marker(one.producer_id, one.epoch, marker, now_ms)))
            log.append_as_leader(batch, parse_header(batch), log.epochs.latest, now_ms, marker)
