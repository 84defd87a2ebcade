"""The replication throttles of one broker, as the newest image has them."""

from collections.abc import Callable, Mapping

from pylog.broker.partitions import Partition, Partitions
from pylog.broker.settings import Value, broker_settings
from pylog.replica.throttle import Throttle, throttled_partitions

_LEADER_RATE = "leader.replication.throttled.rate"
_FOLLOWER_RATE = "follower.replication.throttled.rate"
_LEADER_REPLICAS = "leader.replication.throttled.replicas"
_FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"

Key = tuple[str, int]


class Throttles:
    """Whether a partition that is catching up must wait, on the side that sends and on the side that fetches."""

    def __init__(
        self, broker_id: int, settings: Mapping[str, Value], partitions: Partitions, now_ms: Callable[[], int]
    ) -> None:
        self._broker_id = broker_id
        self._settings = settings
        self._partitions = partitions
        self._now_ms = now_ms
        self._leader = Throttle(int(settings[_LEADER_RATE]), now_ms())
        self._follower = Throttle(int(settings[_FOLLOWER_RATE]), now_ms())
        self._sent: frozenset[Key] = frozenset()
        self._fetched: frozenset[Key] = frozenset()

    def image_applied(self) -> None:
        """Take rates and lists from the image in force."""
        image = self._partitions.image
        found = broker_settings(self._settings, image.broker_configs, self._broker_id)
        for throttle, name in ((self._leader, _LEADER_RATE), (self._follower, _FOLLOWER_RATE)):
            rate = int(found[name].value)
            if rate != throttle.rate:
                throttle.set_rate(rate)
        self._sent = self._listed(_LEADER_REPLICAS)
        self._fetched = self._listed(_FOLLOWER_REPLICAS)

    def holds_back(self, key: Key, *, is_in_sync: bool) -> bool:
        """Whether a leader sends nothing of this partition to a follower now."""
        return not is_in_sync and key in self._sent and self._leader.is_exceeded(self._now_ms())

    def sent(self, key: Key, count: int, *, is_in_sync: bool) -> None:
        """Take note of bytes that a leader sends to a follower."""
        if not is_in_sync and key in self._sent:
            self._leader.take(count)

    def is_waiting(self, partition: Partition) -> bool:
        """Whether we fetch nothing of this partition now."""
        return self._counts(partition) and self._follower.is_exceeded(self._now_ms())

    def fetched(self, partition: Partition, count: int) -> None:
        """Take note of bytes that we fetched."""
        if self._counts(partition):
            self._follower.take(count)

    def _counts(self, partition: Partition) -> bool:
        if not self._fetched or partition.key not in self._fetched:
            return False
        return partition.state is None or self._broker_id not in partition.state.isr

    def _listed(self, setting: str) -> frozenset[Key]:
        keys: set[Key] = set()
        for name, topic in self._partitions.image.topics.items():
            text = topic.configs.get(setting)
            if text:
                numbers = throttled_partitions(text, self._broker_id)
                keys.update((name, number) for number in (topic.partitions if numbers is None else numbers))
        return frozenset(keys)
