"""Keeps the target's topics like the source's, and reads what is known of both."""

from collections.abc import Iterable

from pylog.client import raw
from pylog.client.admin.configs import ConfigAdmin, Holder
from pylog.client.admin.partitions import PartitionAdmin
from pylog.client.consumer import Consumer
from pylog.errors import ApiError, ConfigError, ErrorCode
from pylog.mirror.config import Cluster, MirrorConfig
from pylog.mirror.offsets import MapKey, OffsetMap
from pylog.mirror.plan import HEADROOM_BYTES, MAX_MESSAGE, Alter, Create, Grow, Topic, changes, chosen

MAX_BATCH_BYTES = 1_000_000
"""Of what is sent, whatever a topic would take."""


def ensure_map_topic(config: MirrorConfig) -> None:
    """Make the topic for offset maps unless it is there."""
    create_compacted(config.target, config.map_topic, config.internal_replication_factor)


def create_compacted(cluster: Cluster, topic: str, replication_factor: int) -> None:
    """Make a compacted topic of one partition unless it is there."""
    admin = PartitionAdmin(cluster.connection)
    if topic in admin.cluster().topics:
        return
    try:
        admin.create_topic(
            topic, partitions=1, replication_factor=replication_factor, config={"cleanup.policy": "compact"}
        )
    except ApiError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


def follow(config: MirrorConfig) -> tuple[list[str], dict[str, ApiError]]:
    """Make the target's topics like the source's.

    Returns:
        The topics to mirror, and what the target refused for good, by topic: one that it does not take at all, or not
        with all of its partitions, is not among the former and holds up no other.

    Raises:
        PylogError: try again.
    """
    source, target = PartitionAdmin(config.source.connection), PartitionAdmin(config.target.connection)
    names = mirrored(config, source.cluster().topics)
    wanted = _topics(source, names)
    there = target.cluster().topics
    refused: dict[str, ApiError] = {}
    incomplete = set()
    for change in changes(wanted, _topics(target, [name for name in names if name in there])):
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
    for name in names:
        settings = admin.topic_config(name)
        limits += [int(settings[key].value or 0) - HEADROOM_BYTES for key in (MAX_MESSAGE, "segment.bytes")]
    return max(HEADROOM_BYTES, min(limits))


def topic_ids(cluster: Cluster, names: Iterable[str]) -> dict[str, str]:
    """Return the id of each topic, as text."""
    return raw.topic_ids(cluster.connection.bootstrap, names, cluster.connection.timeout_s)


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
    for name in names:
        if name in views:
            settings = admin.topic_config(name)
            own = {key: setting.value or "" for key, setting in settings.items() if setting.is_own}
            found[name] = Topic(len(views[name].partitions), own, int(settings[MAX_MESSAGE].value or 0))
    return found
