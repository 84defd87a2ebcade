"""Batches that were refused, and have to come before later ones of their producer.

A producer has several batches in flight.  What refuses the first of them may be over before the second one comes: a
replica is in sync again, a broker has heard that it leads, a coordinator has loaded.  A partition that does not know
the producer would take the second batch, whatever its sequence, and never the first one afterwards.  One that knows it
would call the second one out of order: librdkafka then begins a new epoch in all its partitions, and sends again under
it what another partition has stored and not acknowledged yet, which doubles it.

Source: KIP-890, part 1, for the first batches of a transaction (the lowest sequence in Kafka's VerificationStateEntry);
`rd_kafka_handle_idempotent_Produce_error` of librdkafka, "skipped sequence numbers".
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from pylog.log.producers import MAX_RUN, SEQUENCE_MASK, ProducerProgress
from pylog.model import Key
from pylog.wire.records import TRANSACTIONAL, BatchHeader

MAX_COUNT = 10_000
"""Producers and partitions remembered, some 300 bytes each; what was refused first is forgotten first.

A coordinator that loads for a while refuses the producers of its ids, and each of them has a few partitions.
"""

HOLD_MS = 10_000
"""How long a batch that was refused holds others back.

Those that were sent before its producer knew of the refusal come at once; who sends it again comes before them, and is
noted anew.  It may come to another leader meanwhile and never here again.
"""

_Key: TypeAlias = tuple[Key, int, int, bool]


class _First(NamedTuple):
    """What has to come first, as long as the leadership is the same and nothing of the producer was written.

    Attributes:
        leading_since: of the leadership that refused it; None if this broker did not lead, and then any may follow.
        progress: of the producer when the batch was refused; a batch or marker since then makes it another one.
        until_ms: then it is forgotten.
    """

    sequence: int
    leading_since: int | None
    progress: ProducerProgress
    until_ms: int


class HeldBack:
    """The lowest sequence that was refused lately, by partition, producer id and epoch, in transactions and outside.

    Outside of transactions anybody may name the id of a transactional producer, and holds back nothing of it.

    Attributes:
        first: those noted last at the end; empty nearly always, which is asked for every batch.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """Make it; *now_ms* is a clock that nobody sets."""
        self.first: dict[_Key, _First] = {}
        self._now_ms = now_ms

    def refused(self, key: Key, header: BatchHeader, leading_since: int | None, progress: ProducerProgress) -> None:
        """Take note of a batch that is not stored, and that its producer shall send again."""
        if self.must_wait(key, header, leading_since, progress):
            return
        entry = _entry(key, header)
        self.first.pop(entry, None)  # to the end
        if len(self.first) >= MAX_COUNT:
            del self.first[next(iter(self.first))]
        until_ms = self._now_ms() + HOLD_MS
        self.first[entry] = _First(header.base_sequence, leading_since, progress, until_ms)

    def must_wait(self, key: Key, header: BatchHeader, leading_since: int | None, progress: ProducerProgress) -> bool:
        """Whether an earlier batch than this one has to come before it."""
        self._forget_old()
        entry = _entry(key, header)
        first = self.first.get(entry)
        if first is None or not _is_after(header.base_sequence, first.sequence):
            return False
        if first.progress == progress and (first.leading_since is None or first.leading_since == leading_since):
            return True
        del self.first[entry]  # a batch or marker came, or another broker led meanwhile
        return False

    def settled(self, key: Key, header: BatchHeader) -> None:
        """Take note of a batch that was appended, or was refused for good."""
        entry = _entry(key, header)
        first = self.first.get(entry)
        if first is not None and not _is_after(header.base_sequence, first.sequence):
            del self.first[entry]

    def _forget_old(self) -> None:
        now_ms = self._now_ms()
        while self.first:
            oldest = next(iter(self.first))
            if self.first[oldest].until_ms > now_ms:
                return
            del self.first[oldest]


def _entry(key: Key, header: BatchHeader) -> _Key:
    return key, header.producer_id, header.producer_epoch, bool(header.attributes & TRANSACTIONAL)


def _is_after(sequence: int, first: int) -> bool:
    return 0 < ((sequence - first) & SEQUENCE_MASK) < MAX_RUN
