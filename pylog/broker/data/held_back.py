"""Batches that were refused before their partition knew their transaction, and have to come before later ones.

A producer has several batches in flight.  If the coordinator could be asked about the second one only, a partition that
does not know the producer would take the second, whatever its sequence, and never the first one afterwards.

Source: KIP-890, part 1; the lowest sequence in Kafka's VerificationStateEntry.
"""

from typing import NamedTuple, TypeAlias
from uuid import UUID

from pylog.broker.data.partitions import Partition
from pylog.log.producers import MAX_RUN, SEQUENCE_MASK, ProducerProgress
from pylog.wire.records import BatchHeader

MAX_COUNT = 10_000
"""Producers and partitions remembered, some 300 bytes each; what was refused first is forgotten first.

A coordinator that loads for a while refuses the producers of its ids, and each of them has a few partitions.
"""

_Key: TypeAlias = tuple[UUID, int, int, int]


class _First(NamedTuple):
    """What has to come first, as long as the leadership is the same and nothing of the producer was written.

    Attributes:
        progress: of the producer when the batch was refused; a batch or marker since then makes it another one.
    """

    sequence: int
    leading_since: int
    progress: ProducerProgress


class HeldBack:
    """The lowest sequence that was refused, by partition, producer id and epoch."""

    def __init__(self) -> None:
        self._first: dict[_Key, _First] = {}

    def __len__(self) -> int:
        return len(self._first)

    def refused(self, partition: Partition, header: BatchHeader, progress: ProducerProgress) -> None:
        """Take note of a batch that its producer shall send again."""
        if self.must_wait(partition, header, progress):
            return
        key = _key(partition, header)
        if key not in self._first and len(self._first) >= MAX_COUNT:
            del self._first[next(iter(self._first))]
        self._first[key] = _First(header.base_sequence, partition.leading_since, progress)

    def must_wait(self, partition: Partition, header: BatchHeader, progress: ProducerProgress) -> bool:
        """Whether an earlier batch than this one has to come before it."""
        first = self._first.get(_key(partition, header))
        if first is None or not _is_after(header.base_sequence, first.sequence):
            return False
        if first[1:] == (partition.leading_since, progress):
            return True
        del self._first[_key(partition, header)]  # a marker came, or another broker led meanwhile
        return False

    def settled(self, partition: Partition, header: BatchHeader) -> None:
        """Take note of a batch that was appended, or was refused for good."""
        key = _key(partition, header)
        first = self._first.get(key)
        if first is not None and not _is_after(header.base_sequence, first.sequence):
            del self._first[key]


def _key(partition: Partition, header: BatchHeader) -> _Key:
    return partition.topic_id, partition.key.partition, header.producer_id, header.producer_epoch


def _is_after(sequence: int, first: int) -> bool:
    return 0 < ((sequence - first) & SEQUENCE_MASK) < MAX_RUN
