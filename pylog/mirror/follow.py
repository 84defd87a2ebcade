"""Keeps the target's topics like the source's, and reads what is known of both."""

from collections.abc import Iterable

from pylog.client.configs import ConfigAdmin, Holder
from pylog.client.consumer import Consumer
from pylog.client.partitions import PartitionAdmin
from pylog.client.raw import RawClient, RawConfig
from pylog.errors import ApiError, ErrorCode
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


def follow(config: MirrorConfig) -> list[str]:
    """Make the target's topics like the source's; return the names that are mirrored."""
    source, target = PartitionAdmin(config.source.connection), PartitionAdmin(config.target.connection)
    names = mirrored(config, source.cluster().topics)
    wanted = _topics(source, names)
    there = target.cluster().topics
    for change in changes(wanted, _topics(target, [name for name in names if name in there])):
        match change:
            case Create(name, partitions, settings):
                _create(target, config, name, partitions, dict(settings))
            case Grow(name, partitions):
                target.add_partitions(name, partitions)
            case Alter(name, set_, delete):
                ConfigAdmin(config.target.connection).alter(Holder.TOPIC, name, set_, delete)
    return names


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
    timeout_ms = int(cluster.connection.timeout_s * 1000)
    with RawClient(cluster.connection.bootstrap, RawConfig(retry_ms=timeout_ms, request_timeout_ms=timeout_ms)) as raw:
        return {name: str(topic.topic_id) for name, topic in raw.topics(names).items()}


def load_maps(config: MirrorConfig) -> dict[MapKey, OffsetMap]:
    """Return the last map of every partition."""
    found: dict[MapKey, OffsetMap] = {}
    with Consumer(config.target.connection) as consumer:
        consumer.assign_topic(config.map_topic)
        for record in consumer.records_to_end():
            if record.key is not None and record.value is not None:
                found[MapKey.decode(record.key)] = OffsetMap.decode(record.value)
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
