"""The replication throttles of one broker, as the newest image has them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pylog.broker.data.partitions import Partition, Partitions
from pylog.broker.settings import Value, broker_setting, typed
from pylog.model import Key
from pylog.replica.throttle import throttled_partitions
from pylog.token_bucket import TokenBucket

_LEADER_REPLICAS = "leader.replication.throttled.replicas"
_FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
_LEADER_RATE = "leader.replication.throttled.rate"
_FOLLOWER_RATE = "follower.replication.throttled.rate"
LEADER, FOLLOWER = "leader", "follower"
"""The sides of a throttle, as labels of metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleConfig:
    """The rates, in bytes a second; see `pylog.broker.settings`."""

    leader_replication_throttled_rate: int
    follower_replication_throttled_rate: int


@dataclass(slots=True)
class Share:
    """What one answer to a follower may bring of throttled partitions that it catches up with, of all together.

    Attributes:
        left: bytes; the last batch may exceed them.
    """

    _keys: frozenset[Key]
    left: int

    def covers(self, key: Key, *, is_awaited: bool) -> bool:
        """Whether what is sent of this partition comes out of it."""
        return not is_awaited and key in self._keys


class Throttles:
    """How much of partitions that catch up may go over the network, on the side that sends and on the one that fetches.

    Each answer is kept to a second's worth, and to a batch: else a low rate would hold in the mean of minutes only.
    Nobody is throttled for whom others wait: a replica in sync, or about to be.

    Attributes:
        listed_count: partitions hosted here that one of the lists names.
        moved_bytes: bytes that went under a throttle, by side: sent as leader, fetched as follower.
    """

    def __init__(
        self, broker_id: int, settings: Mapping[str, Value], partitions: Partitions, now_ms: Callable[[], int]
    ) -> None:
        self._broker_id = broker_id
        self._settings = settings
        self._partitions = partitions
        self._now_ms = now_ms
        config = typed(ThrottleConfig, settings)
        self._leader = TokenBucket(config.leader_replication_throttled_rate, now_ms())
        self._follower = TokenBucket(config.follower_replication_throttled_rate, now_ms())
        self._sent: frozenset[Key] = frozenset()
        self._fetched: frozenset[Key] = frozenset()
        self.listed_count = 0
        self.moved_bytes = {(LEADER,): 0, (FOLLOWER,): 0}
        self._fetching = 1

    def limits(self) -> dict[tuple[str], float]:
        """Return the rates in force in bytes a second, by side; none while nothing is throttled."""
        return {(LEADER,): self._leader.rate, (FOLLOWER,): self._follower.rate} if self.listed_count else {}

    def image_applied(self) -> None:
        """Take rates and lists from the image in force."""
        image = self._partitions.image
        for throttle, name in ((self._leader, _LEADER_RATE), (self._follower, _FOLLOWER_RATE)):
            rate = int(broker_setting(name, self._settings, image.broker_configs, self._broker_id))
            if rate != throttle.rate:
                throttle.set_rate(rate)
        self._sent = self._listed(_LEADER_REPLICAS)
        self._fetched = self._listed(_FOLLOWER_REPLICAS)
        self.listed_count = len(self._sent | self._fetched)
        followed = (self._partitions.get(*key) for key in self._fetched)
        self._fetching = sum(one is not None and one.leading is None and self._counts(one) for one in followed) or 1

    def share(self) -> Share | None:
        """Return what a leader's next answer to a follower may bring of throttled partitions; None without any."""
        return Share(self._sent, self._grant(self._leader)) if self._sent else None

    def sent(self, key: Key, count: int, *, is_awaited: bool) -> None:
        """Take note of bytes that a leader sends to a follower."""
        if not is_awaited and key in self._sent:
            self._leader.take(count, self._now_ms())
            self.moved_bytes[LEADER,] += count

    @property
    def followed(self) -> frozenset[Key]:
        """Partitions that a follower here is held back in."""
        return self._fetched

    def most(self, partition: Partition, wanted: int) -> int:
        """Return how many of *wanted* bytes to ask for of this partition now; 0 for not at all."""
        if not self._counts(partition):
            return wanted
        granted = self._grant(self._follower)
        # They are asked for together; of each at least a batch comes, in turn.
        return min(wanted, max(granted // self._fetching, 1)) if granted else 0

    def fetched(self, partition: Partition, count: int) -> None:
        """Take note of bytes that we fetched."""
        if self._counts(partition):
            self._follower.take(count, self._now_ms())
            self.moved_bytes[FOLLOWER,] += count

    def _grant(self, bucket: TokenBucket) -> int:
        """Return how many bytes may be taken at once now: a second's worth, or none while a debt is left.

        Not what is left of the second: a follower that took what each millisecond brings would fetch all the time.
        """
        return int(bucket.rate) if bucket.left(self._now_ms()) > 0 else 0

    def _counts(self, partition: Partition) -> bool:
        if not self._fetched or partition.key not in self._fetched:
            return False
        if partition.state is not None and self._broker_id in partition.state.isr:
            return False
        # With more than is acknowledged we may be about to be in sync, and whoever writes with acks=all waits for us.
        return partition.log is None or partition.log.log_end_offset <= partition.log.high_watermark

    def _listed(self, setting: str) -> frozenset[Key]:
        keys: set[Key] = set()
        for name, topic in self._partitions.image.topics.items():
            text = topic.configs.get(setting)
            if text:
                numbers = throttled_partitions(text, self._broker_id)
                keys.update((name, number) for number in (topic.partitions if numbers is None else numbers))
        return frozenset(keys)
