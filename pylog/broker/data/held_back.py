"""Batches that were refused, and have to come before later ones of their producer.

A producer has several batches in flight.  What refuses the first of them may be over before the second one comes: a
replica is in sync again, a broker has heard that it leads, a coordinator has loaded.  A partition that does not know
the producer would take the second batch, whatever its sequence, and never the first one afterwards.  One that knows it
would call the second one out of order: librdkafka then begins a new epoch in all its partitions, and sends again under
it what another partition has stored and not acknowledged yet, which doubles it.

Source: KIP-890, part 1, for the first batches of a transaction (the lowest sequence in Kafka's VerificationStateEntry);
`rd_kafka_handle_idempotent_Produce_error` of librdkafka, "skipped sequence numbers".
"""

from typing import NamedTuple, TypeAlias

from pylog.log.producers import MAX_RUN, SEQUENCE_MASK, ProducerProgress
from pylog.model import Key
from pylog.wire.records import BatchHeader

MAX_COUNT = 10_000
"""Producers and partitions remembered, some 300 bytes each; what was refused first is forgotten first.

A coordinator that loads for a while refuses the producers of its ids, and each of them has a few partitions.
"""

_Key: TypeAlias = tuple[Key, int, int]


class _First(NamedTuple):
    """What has to come first, as long as the leadership is the same and nothing of the producer was written.

    Attributes:
        leading_since: of the leadership that refused it; None if this broker did not lead, and then any may follow.
        progress: of the producer when the batch was refused; a batch or marker since then makes it another one.
    """

    sequence: int
    leading_since: int | None
    progress: ProducerProgress


class HeldBack:
    """The lowest sequence that was refused, by partition, producer id and epoch.

    A topic that is made again has partitions of the same names.  What its former one refused holds back nothing there
    but what comes later of the same producer and epoch, while the new partition knows neither.

    Attributes:
        first: empty nearly always, which is asked for every batch.
    """

    def __init__(self) -> None:
        self.first: dict[_Key, _First] = {}

    def refused(self, key: Key, header: BatchHeader, leading_since: int | None, progress: ProducerProgress) -> None:
        """Take note of a batch that is not stored, and that its producer shall send again."""
        if self.must_wait(key, header, leading_since, progress):
            return
        entry = key, header.producer_id, header.producer_epoch
        if entry not in self.first and len(self.first) >= MAX_COUNT:
            del self.first[next(iter(self.first))]
        self.first[entry] = _First(header.base_sequence, leading_since, progress)

    def must_wait(self, key: Key, header: BatchHeader, leading_since: int | None, progress: ProducerProgress) -> bool:
        """Whether an earlier batch than this one has to come before it."""
        entry = key, header.producer_id, header.producer_epoch
        first = self.first.get(entry)
        if first is None or not _is_after(header.base_sequence, first.sequence):
            return False
        if first.progress == progress and (first.leading_since is None or first.leading_since == leading_since):
            return True
        del self.first[entry]  # a batch or marker came, or another broker led meanwhile
        return False

    def settled(self, key: Key, header: BatchHeader) -> None:
        """Take note of a batch that was appended, or was refused for good."""
        entry = key, header.producer_id, header.producer_epoch
        first = self.first.get(entry)
        if first is not None and not _is_after(header.base_sequence, first.sequence):
            del self.first[entry]


def _is_after(sequence: int, first: int) -> bool:
    return 0 < ((sequence - first) & SEQUENCE_MASK) < MAX_RUN
