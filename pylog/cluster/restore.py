"""What the store of a cluster must hold again: a backup of it, brought up to what the brokers' disks say (rule 17).

A backup is older than the data.  Since it was made leaders were elected, records written, topics created and moved;
all of that left its traces beside the logs.  Where both speak, the disks are right about which replicas there are, how
far each reaches and under which epochs it was written, and the backup about what stands on no disk: settings, quotas,
who shall lead.  Nothing here orders a deletion that the backup did not, and none is repeated that could hit newer data.
"""

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pylog.cluster import znodes
from pylog.cluster.election import fullest
from pylog.cluster.formats import TRANSACTION_LEVEL
from pylog.cluster.image import FIRST_LEVEL, PartitionImage, TopicImage
from pylog.errors import PylogError
from pylog.model import NO_LEADER, TRANSACTIONS_TOPIC, Offset, TopicPartition

EPOCH_MARGIN = 100_000
"""Elections that no disk may know of: a leader writes its epoch down with its first batch.  Clients remember epochs and
refuse what a lower one says, so the margin is generous; a leader epoch has room for two thousand million.

A coordinator of transactions takes so large a gap for a restoration, which costs all producers their ids.  Within the
seven days after which an unused id is forgotten, elections make one only at a rate of one in six seconds.
"""

PRODUCER_ID_MARGIN = 1_000 * znodes.PRODUCER_ID_BLOCK_SIZE
"""Ids that were handed out since the backup to producers that have not written yet."""

LONG_AGO_MS = 1
"""Creation time of a restored topic whose backup has none.  The time of its new node would be later than commits that
are the topic's own."""

_SEPARATE = (znodes.TOPICS, znodes.DELETE_TOPICS, znodes.CLUSTER_ID)
"""What is not copied from the backup: topics are made anew, and orders to delete them by name could hit their
successors."""


class RestoreRefused(PylogError):
    """The backup and the brokers' data do not belong together, or something is missing; nothing was written."""

    fault = 213


class Origin(StrEnum):
    """Where a restored topic is known from."""

    BOTH = "backup and disks"
    BACKUP = "backup alone: begins empty"
    DISKS = "disks alone: made after the backup"
    REMADE = "disks: made anew after the backup"


@dataclass(frozen=True, slots=True)
class FoundLog:
    """One partition's log on one broker.

    Attributes:
        topic_id: None where the directory names none.
        epochs: (leader epoch, first offset written under it), oldest first.
        start: log start offset.
        end: log end offset.
        configs: settings of its topic that stand beside it.
    """

    key: TopicPartition
    topic_id: uuid.UUID | None
    epochs: tuple[tuple[int, Offset], ...]
    start: Offset
    end: Offset
    configs: Mapping[str, str]

    @property
    def last_epoch(self) -> int:
        """The newest epoch something was written under, -1 in an empty log."""
        return self.epochs[-1][0] if self.epochs else -1

    def agrees(self, other: "FoundLog") -> bool:
        """Say whether both hold the same records from where both begin.

        A log that was emptied and names no epoch agrees with one that ends at the same offset.
        """
        start = max(self.start, other.start)
        if self.end != other.end:
            return False
        is_unnamed = start == self.end and not (self.epochs and other.epochs)
        return is_unnamed or self._epochs_from(start) == other._epochs_from(start)

    def _epochs_from(self, start: Offset) -> list[tuple[int, Offset]]:
        before = [(epoch, start) for epoch, first in self.epochs if first <= start][-1:]
        return [*before, *((epoch, first) for epoch, first in self.epochs if first > start)]


@dataclass(frozen=True, slots=True)
class FoundBroker:
    """What lies in one broker's data directory.

    Attributes:
        cluster_id: None in a directory that belongs to no cluster yet.
    """

    broker_id: int
    cluster_id: str | None
    logs: Mapping[TopicPartition, FoundLog]
    newest_producer_id: int = -1


@dataclass(frozen=True, slots=True)
class RestoredTopic:
    """A topic as it will be.

    Attributes:
        catching_up: partitions of which some replica has to fetch before it is in sync again.
        waiting: partitions that stay without leader until a broker that was not read comes back with its data.
        uncertain: partitions of which a broker that was not read may have had more than the others.
        image: what is written.
    """

    name: str
    origin: Origin
    catching_up: tuple[int, ...]
    waiting: tuple[int, ...]
    uncertain: tuple[int, ...]
    image: TopicImage


@dataclass(frozen=True, slots=True)
class Restoration:
    """What to write, and what to tell.

    Attributes:
        nodes: every node that the store shall hold, with its data.
        topics: in the order of their names.
        left_out: "broker N: topic-partition: why" of directories that will belong to no replica; they are kept.
        dropped_orders: topics whose deletion had been ordered when the backup was made.
        level: the formats that brokers may write, see `pylog.cluster.formats`.
        backup_level: those of the backup; the cluster may have been finalized since.
    """

    cluster_id: str
    controller_epoch: int
    nodes: Mapping[str, bytes]
    topics: Sequence[RestoredTopic]
    left_out: Sequence[str]
    dropped_orders: Sequence[str]
    level: int
    backup_level: int


def found_broker(document: Mapping[str, Any], name: str) -> FoundBroker:
    """Return what `pylog log ends` wrote.

    Args:
        document: its JSON.
        name: what it came from, for messages.

    Raises:
        RestoreRefused: it is something else, or a data directory in which no broker ever started.
    """
    try:
        if document["version"] != 1:
            raise ValueError(f"version {document['version']!r}, wanted 1")
        logs = [_found_log(one) for one in document["partitions"]]
        return FoundBroker(
            int(document["broker_id"]),
            document["cluster_id"],
            {log.key: log for log in logs},
            max((int(one["newest_producer_id"]) for one in document["partitions"]), default=-1),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RestoreRefused(f"{name}: {error!r}; wanted what `pylog log ends` writes") from error


def _found_log(one: Mapping[str, Any]) -> FoundLog:
    return FoundLog(
        TopicPartition(one["topic"], int(one["partition"])),
        None if one["topic_id"] is None else uuid.UUID(one["topic_id"]),
        tuple((int(epoch), int(start)) for epoch, start in one["epochs"]),
        int(one["start"]),
        int(one["end"]),
        dict(one["config"]),
    )


def plan_restore(
    nodes: Mapping[str, bytes], found: Iterable[FoundBroker], *, lost: Collection[int] = ()
) -> Restoration:
    """Return what the store shall hold.

    Args:
        nodes: the backup's, by path.
        found: what every broker has on its disks.
        lost: brokers that nobody can read; what only they had waits for them.

    Raises:
        RestoreRefused: brokers of another cluster, a broker that was not read, or a topic of two ids.
        ProtocolError: the backup holds what no cluster writes.
    """
    brokers = _by_id(found)
    if znodes.CLUSTER_ID not in nodes:
        raise RestoreRefused("the backup names no cluster")
    cluster_id = znodes.decode_cluster_id(nodes[znodes.CLUSTER_ID])
    for broker in brokers.values():
        if broker.cluster_id not in (None, cluster_id):
            raise RestoreRefused(
                f"the backup is of cluster {cluster_id}, but the data of broker {broker.broker_id} is of cluster "
                f"{broker.cluster_id}: wanted a backup of that one"
            )
    known = _known_topics(nodes)
    named = {one for topic in known.values() for state in topic.partitions.values() for one in state.replicas}
    if missing := sorted(named - brokers.keys() - set(lost)):
        raise RestoreRefused(
            f"by the backup broker {missing[0]} holds replicas, and its disks were not read: read them with `pylog log "
            f"ends`, or give --lost {missing[0]} to let what only it had wait for it"
        )
    left_out: list[str] = []
    logs: dict[str, dict[int, dict[int, FoundLog]]] = {}
    for broker_id, broker in sorted(brokers.items()):
        for key, log in broker.logs.items():
            if log.topic_id is None:
                left_out.append(f"broker {broker_id}: {key.topic}-{key.partition}: it names no topic id")
            elif znodes.deleted_topic_path(log.topic_id) not in nodes:  # else its deletion goes on
                logs.setdefault(key.topic, {}).setdefault(key.partition, {})[broker_id] = log
    topics = [
        _restore_topic(name, known.get(name), logs.get(name, {}), lost, left_out) for name in sorted({*known, *logs})
    ]
    controller_epoch = _controller_epoch(nodes) + EPOCH_MARGIN
    newest_producer_id = max((broker.newest_producer_id for broker in brokers.values()), default=-1)
    written = {
        path: data
        for path, data in nodes.items()
        if not any(path == one or path.startswith(f"{one}/") for one in _SEPARATE)
    }
    written |= {znodes.CLUSTER_ID: nodes[znodes.CLUSTER_ID]}
    written |= {znodes.CONTROLLER_EPOCH: znodes.encode_controller_epoch(controller_epoch)}
    written |= {
        znodes.PRODUCER_ID_BLOCK: producer_id_block(nodes.get(znodes.PRODUCER_ID_BLOCK, b""), newest_producer_id)
    }
    backup_level = znodes.decode_level(nodes[znodes.FORMAT_LEVEL]) if znodes.FORMAT_LEVEL in nodes else FIRST_LEVEL
    level = max(backup_level, _proven_level(brokers.values()))
    written |= {znodes.FORMAT_LEVEL: znodes.encode_level(level)}
    for topic in topics:
        written |= _topic_nodes(topic, controller_epoch, nodes)
    orders = sorted(path.removeprefix(f"{znodes.DELETE_TOPICS}/") for path in nodes
                    if path.startswith(f"{znodes.DELETE_TOPICS}/"))  # fmt: skip
    return Restoration(cluster_id, controller_epoch, written, topics, left_out, orders, level, backup_level)


def _proven_level(brokers: Iterable[FoundBroker]) -> int:
    """Return the level without which nobody can have written what lies on the disks.

    An older release that was let into the cluster would read transactions as if all were committed.
    """
    has_transactions = any(
        log.key.topic == TRANSACTIONS_TOPIC and log.end for one in brokers for log in one.logs.values()
    )
    return TRANSACTION_LEVEL if has_transactions else FIRST_LEVEL


def _by_id(found: Iterable[FoundBroker]) -> dict[int, FoundBroker]:
    brokers: dict[int, FoundBroker] = {}
    for broker in found:
        if broker.broker_id in brokers:
            raise RestoreRefused(f"broker {broker.broker_id} was read twice: wanted one data directory of each broker")
        brokers[broker.broker_id] = broker
    return brokers


def _known_topics(nodes: Mapping[str, bytes]) -> dict[str, TopicImage]:
    """Return the backup's topics; a partition without state, whose creation was interrupted, has none yet."""
    topics: dict[str, TopicImage] = {}
    for path, data in nodes.items():
        name = path.removeprefix(f"{znodes.TOPICS}/")
        if name == path or "/" in name:
            continue
        assignment = znodes.decode_assignment(data)
        partitions = {}
        for number, replicas in assignment.replicas.items():
            state = nodes.get(znodes.state_path(name, number))
            blank = PartitionImage(NO_LEADER, 0, replicas, replicas, 0)
            partitions[number] = blank if state is None else znodes.decode_state(state, 0, replicas)
        config = nodes.get(znodes.topic_config_path(name))
        configs = {} if config is None else znodes.decode_configs(config)
        topics[name] = TopicImage(
            name, assignment.topic_id, partitions, configs, assignment.moves, created_ms=assignment.created_ms
        )
    return topics


def _restore_topic(
    name: str,
    known: TopicImage | None,
    logs: Mapping[int, Mapping[int, FoundLog]],
    lost: Collection[int],
    left_out: list[str],
) -> RestoredTopic:
    """Return one topic; *logs* are those found, by partition and broker."""
    ids = {log.topic_id for holders in logs.values() for log in holders.values()}
    if len(ids) > 1:
        places = sorted(f"{name}-{number} of {log.topic_id} on broker {broker}" for number, holders in logs.items()
                        for broker, log in holders.items())  # fmt: skip
        raise RestoreRefused(
            f"there are directories of different topics named {name}: {', '.join(places)}; move those away that are "
            "not wanted"
        )
    topic_id = next(iter(ids), None) or (known.topic_id if known is not None else None)
    assert topic_id is not None, f"{name} is known from nowhere"
    origin = Origin.BOTH if logs else Origin.BACKUP
    if known is None or known.topic_id != topic_id:
        origin, known = (Origin.DISKS if known is None else Origin.REMADE), None
    before = known.partitions if known is not None else {}
    factor = max((len(holders) for holders in logs.values()), default=1)
    everyone = sorted({broker for holders in logs.values() for broker in holders})
    partitions: dict[int, PartitionImage] = {}
    notes: dict[str, list[int]] = {"catching_up": [], "waiting": [], "uncertain": []}
    for number in range(max([*before, *logs]) + 1):
        holders = logs.get(number, {})
        state = before.get(number)
        wanted = known.factor(number) if known is not None and state is not None else factor
        pool = state.replicas if state is not None else _turned(everyone, number)
        after = _restore_partition(state, holders, pool, wanted, lost)
        partitions[number] = after
        left_out += [f"broker {one}: {name}-{number}: it has as many replicas as it shall have without this one"
                     for one in holders if one not in after.replicas]  # fmt: skip
        if not holders and set(after.replicas) & set(lost):
            notes["waiting"].append(number)
        elif set(after.isr) < set(after.replicas):
            notes["catching_up"].append(number)
        if holders and set(pool) & set(lost):
            notes["uncertain"].append(number)
    configs = known.configs if known is not None else _configs_of(logs)
    catching_up, waiting, uncertain = (tuple(notes[one]) for one in ("catching_up", "waiting", "uncertain"))
    created_ms = known.created_ms if known is not None else 0
    image = TopicImage(name, topic_id, partitions, configs, created_ms=created_ms or LONG_AGO_MS)
    return RestoredTopic(name, origin, catching_up, waiting, uncertain, image)


def _restore_partition(
    state: PartitionImage | None,
    holders: Mapping[int, FoundLog],
    pool: tuple[int, ...],
    factor: int,
    lost: Collection[int],
) -> PartitionImage:
    """Return one partition, led by nobody until a controller sees who lives.

    The log of the highest (last epoch, end) has everything acknowledged with acks=all: leaders come from the ISR, and a
    replica outside of it is a prefix of one inside, or of an older epoch.  So it and those that equal it are in sync.
    A log that was emptied and names no epoch is compared by its end (`fullest`).
    Of these only those that begin last: an answered deletion of records was carried out by every member of the ISR, and
    one that was away meanwhile would show the records again as a leader.  The others follow, and begin as late then.

    Args:
        state: the backup's, if it knows the partition.
        holders: its logs by broker.
        pool: brokers to take replicas from beside those, in this order.
        factor: replicas it shall have.
        lost: brokers that were not read.
    """
    found_epoch = max((log.last_epoch for log in holders.values()), default=-1)
    epoch = max(found_epoch, state.leader_epoch if state is not None else 0) + EPOCH_MARGIN
    if not holders:
        replicas = pool[:factor]
        # Only a broker that was not read can have anything of it; without one there is nothing to lack.
        isr = tuple(one for one in replicas if one in lost) or replicas
        return PartitionImage(NO_LEADER, epoch, isr, replicas, 0)
    best = holders[fullest({one: (log.last_epoch, log.end) for one, log in holders.items()})[0]]
    order = [*(one for one in pool if one in holders), *(one for one in holders if one not in pool)]
    equal = [one for one in order if holders[one].agrees(best)]
    last_start = max(holders[one].start for one in equal)
    complete = [one for one in equal if holders[one].start == last_start]
    behind = [one for one in order if one not in complete]
    absent = [one for one in pool if one not in holders]
    chosen = [*complete, *behind, *absent][:factor]
    replicas = tuple(dict.fromkeys(one for one in [*pool, *order] if one in chosen))
    return PartitionImage(NO_LEADER, epoch, tuple(one for one in replicas if one in complete), replicas, 0)


def _turned(brokers: Sequence[int], number: int) -> tuple[int, ...]:
    """Return *brokers* so that each partition prefers another leader."""
    first = number % len(brokers)
    return (*brokers[first:], *brokers[:first])


def _configs_of(logs: Mapping[int, Mapping[int, FoundLog]]) -> Mapping[str, str]:
    """Return the settings of a topic that the backup does not know, as far as they stand beside its logs."""
    return next((log.configs for holders in logs.values() for log in holders.values() if log.configs), {})


def _controller_epoch(nodes: Mapping[str, bytes]) -> int:
    data = nodes.get(znodes.CONTROLLER_EPOCH)
    return 0 if data is None else znodes.decode_controller_epoch(data)


def producer_id_block(known: bytes, newest: int) -> bytes:
    """Return the block of producer ids behind which brokers go on, above all that producers may have.

    Args:
        known: the last block of a backup, b"" without one.
        newest: the highest id that any log has, -1 without one.
    """
    first = max(znodes.next_producer_id(known), newest + 1) + PRODUCER_ID_MARGIN
    return znodes.encode_producer_id_block(-1, first - first % znodes.PRODUCER_ID_BLOCK_SIZE)


def _topic_nodes(topic: RestoredTopic, controller_epoch: int, nodes: Mapping[str, bytes]) -> dict[str, bytes]:
    image = topic.image
    config_path = znodes.topic_config_path(topic.name)
    is_known = topic.origin in (Origin.BOTH, Origin.BACKUP) and config_path in nodes
    top = znodes.topic_path(topic.name)
    written = {
        config_path: nodes[config_path] if is_known else znodes.encode_configs(image.configs),
        top: znodes.encode_assignment(image),
        f"{top}/partitions": b"",
    }
    for number, state in image.partitions.items():
        written[znodes.partition_path(topic.name, number)] = b""
        written[znodes.state_path(topic.name, number)] = znodes.encode_state(state, controller_epoch)
    return written
