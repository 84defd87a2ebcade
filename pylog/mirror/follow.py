"""Keeps the target's topics like the source's, and reads what is known of both."""

from collections.abc import Iterable, Mapping

from pylog.client import raw
from pylog.client.admin.configs import ConfigAdmin, Holder
from pylog.client.admin.partitions import PartitionAdmin
from pylog.client.consumer import Consumer
from pylog.client.raw import RawClient, RawConfig
from pylog.errors import ApiError, ConfigError, ErrorCode
from pylog.mirror.config import Cluster, MirrorConfig
from pylog.mirror.offsets import MapKey, OffsetMap
from pylog.mirror.plan import HEADROOM_BYTES, MAX_MESSAGE, Alter, Create, Grow, Topic, changes, chosen
from pylog.model import Offset, TopicPartition
from pylog.wire.records import check_stored_batch, iter_batches

MAX_BATCH_BYTES = 1_000_000
"""Of what is sent, whatever a topic would take."""

MAX_PARKED_BYTES = 100_000_000
"""Of a record that is parked: as much as a broker takes in one request."""


def ensure_map_topic(config: MirrorConfig) -> None:
    """Make the topic for offset maps unless it is there."""
    create_compacted(config.target, config.map_topic, config.internal_replication_factor)


def ensure_parked_topic(config: MirrorConfig) -> None:
    """Make the topic for records that the target refuses unless it is there; it keeps them for ever."""
    settings = {"cleanup.policy": "delete", "retention.ms": "-1", MAX_MESSAGE: str(MAX_PARKED_BYTES)}
    _create_internal(config.target, config.parked_topic, config.internal_replication_factor, settings)


def create_compacted(cluster: Cluster, topic: str, replication_factor: int) -> None:
    """Make a compacted topic of one partition unless it is there."""
    _create_internal(cluster, topic, replication_factor, {"cleanup.policy": "compact"})


def _create_internal(cluster: Cluster, topic: str, replication_factor: int, settings: dict[str, str]) -> None:
    admin = PartitionAdmin(cluster.connection)
    if topic in admin.cluster().topics:
        return
    try:
        admin.create_topic(topic, partitions=1, replication_factor=replication_factor, config=settings)
    except ApiError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


def follow(config: MirrorConfig, only: Iterable[str] | None = None) -> tuple[list[str], dict[str, ApiError]]:
    """Make the target's topics like the source's: four requests, however many topics there are, and one a change.

    Args:
        config: of the mirror.
        only: the topics to look at; all that are mirrored if None.

    Returns:
        The topics to mirror, and what the target refused for good, by topic: one that it does not take at all, or not
        with all of its partitions, is not among the former and holds up no other.

    Raises:
        PylogError: try again.
    """
    source, target = PartitionAdmin(config.source.connection), PartitionAdmin(config.target.connection)
    views = source.cluster().topics
    names = mirrored(config, views.keys() if only is None else views.keys() & set(only))
    refused: dict[str, ApiError] = {}
    incomplete = set()
    for change in changes(_topics(source, names), _topics(target, names)):
        try:
            match change:
                case Create(name, partitions, settings):
                    _create(target, config, name, partitions, dict(settings))
                case Grow(name, partitions):
                    target.add_partitions(name, partitions)
                case Alter(name, set_, delete):
                    ConfigAdmin(config.target.connection).alter(Holder.TOPIC, name, set_, delete)
        except ApiError as error:
            if error.retriable:
                raise
            refused[change.name] = error
            if not isinstance(change, Alter):
                incomplete.add(change.name)
    return [name for name in names if name not in incomplete], refused


def mirrored(config: MirrorConfig, names: Iterable[str]) -> list[str]:
    """Return which of the source's topics are mirrored."""
    return chosen(names, config.topics, config.exclude)


def batch_bytes(config: MirrorConfig, names: Iterable[str]) -> int:
    """Return how much every one of the target's topics takes in one batch."""
    admin = PartitionAdmin(config.target.connection)
    limits = [MAX_BATCH_BYTES]
    for settings in admin.topic_configs(list(names)).values():
        limits += [int(settings[key].value or 0) - HEADROOM_BYTES for key in (MAX_MESSAGE, "segment.bytes")]
    return max(HEADROOM_BYTES, min(limits))


def epoch_ends(cluster: Cluster, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset]:
    """Return where leader epochs end, for the partitions whose leader knows."""
    if not epochs:
        return {}
    retry = RawConfig(retry_ms=int(cluster.connection.timeout_s * 1000))
    with RawClient(cluster.connection.bootstrap, retry, cluster.connection.security()) as client:
        return {partition: end for partition, end in client.epoch_ends(epochs).items() if end >= 0}


def last_offset_of_batch(cluster: Cluster, partition: TopicPartition, offset: Offset) -> Offset | None:
    """Return the last offset of the stored batch that holds *offset*; None if no whole batch there does.

    Raises:
        PylogError: the cluster does not answer, or the batch is damaged.
    """
    retry = RawConfig(retry_ms=int(cluster.connection.timeout_s * 1000))
    with RawClient(cluster.connection.bootstrap, retry, cluster.connection.security()) as client:
        view = client.fetch({partition: offset})[partition].records
        for position, header in iter_batches(view):
            if header.base_offset <= offset <= header.last_offset:
                return check_stored_batch(view, position).last_offset
    return None


def topic_ids(cluster: Cluster, names: Iterable[str]) -> dict[str, str]:
    """Return the id of each topic, as text."""
    connection = cluster.connection
    return raw.topic_ids(connection.bootstrap, names, connection.timeout_s, connection.security())


def load_maps(config: MirrorConfig) -> dict[MapKey, OffsetMap]:
    """Return the last map of every partition."""
    found: dict[MapKey, OffsetMap] = {}
    with Consumer(config.target.connection) as consumer:
        consumer.assign_topic(config.map_topic)
        for record in consumer.records_to_end():
            if record.key is not None and record.value is not None:
                try:
                    found[MapKey.decode(record.key)] = OffsetMap.decode(record.value)
                except ValueError as error:
                    where = f"{config.target.name}: {config.map_topic} offset {record.offset}"
                    raise ConfigError(f"{where}: {error}; a release that knows it is wanted, or a tombstone") from error
    return found


def _create(target: PartitionAdmin, config: MirrorConfig, name: str, partitions: int, settings: dict[str, str]) -> None:
    try:
        target.create_topic(name, partitions=partitions, replication_factor=config.replication_factor, config=settings)
    except ApiError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # another instance was faster
            raise


def _topics(admin: PartitionAdmin, names: Iterable[str]) -> dict[str, Topic]:
    views = admin.cluster().topics
    found = {}
    for name, settings in admin.topic_configs([name for name in names if name in views]).items():
        own = {key: setting.value or "" for key, setting in settings.items() if setting.is_own}
        found[name] = Topic(len(views[name].partitions), own, int(settings[MAX_MESSAGE].value or 0))
    return found
