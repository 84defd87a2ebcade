"""The topic that keeps groups, `__consumer_offsets`."""

from pylog.broker.data.partitions import Partitions
from pylog.broker.shards.topic import StateTopic
from pylog.broker.tasks import Tasks
from pylog.group import records as group_records

OFFSETS_TOPIC_CONFIGS = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": str(100 << 20)}


class OffsetsTopic(StateTopic):
    """See the module."""

    def __init__(self, partitions: Partitions, partition_count: int, replication_factor: int, tasks: Tasks) -> None:
        name, configs = group_records.TOPIC, OFFSETS_TOPIC_CONFIGS
        super().__init__(partitions, name, "group", configs, partition_count, replication_factor, tasks)
