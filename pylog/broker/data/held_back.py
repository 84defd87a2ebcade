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

MAX_COUNT = 100_000
"""Producers and partitions remembered, some 300 bytes each; what was refused first is forgotten first.

A broker that leads 4,000 partitions, each with a few producers, refuses all of them when one follower is away for a
moment.
"""

HOLD_MS = 10_000
"""How long a batch that was refused holds others back.

Those that were sent before its producer knew of the refusal come at once; who sends it again comes before them, and is
noted anew.  It may come to another leader meanwhile and never here again.
"""

_Key: TypeAlias = tuple[Key, int, int, str | None]


class _First(NamedTuple):
    """What has to come first, as long as the leadership is the same and nothing of the producer was written.

    Attributes:
        leading_since: of the leadership that refused it; None if this broker did not lead, and then any may follow.
        progress: of the producer when the batch was refused; a batch or marker since then makes it another one.  None
            if nobody could say, and then any may follow.
        until_ms: then it is forgotten.
    """

    sequence: int
    leading_since: int | None
    progress: ProducerProgress | None
    until_ms: int


class HeldBack:
    """The lowest sequence that was refused lately, by partition, producer id and epoch, and transactional id.

    A batch in a transaction is its transactional id's, which its sender may use.  Whoever names the producer id of
    another one, in transactions or outside, holds back nothing of it.

    Attributes:
        first: those noted last at the end; empty nearly always, which is asked for every batch.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """Make it; *now_ms* is a clock that nobody sets."""
        self.first: dict[_Key, _First] = {}
        self._now_ms = now_ms

    def refused(
        self,
        key: Key,
        header: BatchHeader,
        name: str | None,
        leading_since: int | None,
        progress: ProducerProgress | None,
        *,
        is_known: bool = True,
    ) -> None:
        """Take note of a batch that is not stored, and that its producer shall send again.

        Args:
            key: of the partition.
            header: of the batch.
            name: transactional id of the request.
            leading_since: see `_First`.
            progress: see `_First`.
            is_known: this broker has the partition; others take nobody's place, since anybody can name any number.
        """
        if self.must_wait(key, header, name, leading_since, progress):
            return
        entry = _entry(key, header, name)
        if entry not in self.first and len(self.first) >= MAX_COUNT:
            if not is_known:
                return
            del self.first[next(iter(self.first))]
        self.first.pop(entry, None)  # to the end
        until_ms = self._now_ms() + HOLD_MS
        self.first[entry] = _First(header.base_sequence, leading_since, progress, until_ms)

    def must_wait(
        self,
        key: Key,
        header: BatchHeader,
        name: str | None,
        leading_since: int | None,
        progress: ProducerProgress | None,
    ) -> bool:
        """Whether an earlier batch than this one has to come before it; arguments as for `refused`."""
        self._forget_old()
        entry = _entry(key, header, name)
        first = self.first.get(entry)
        if first is None or not _is_after(header.base_sequence, first.sequence):
            return False
        is_same = progress is None or first.progress is None or first.progress == progress
        if is_same and (first.leading_since is None or first.leading_since == leading_since):
            return True
        del self.first[entry]  # a batch or marker came, or another broker led meanwhile
        return False

    def settled(self, key: Key, header: BatchHeader, name: str | None) -> None:
        """Take note of a batch that was appended, or was refused for good."""
        entry = _entry(key, header, name)
        first = self.first.get(entry)
        if first is not None and first.sequence == header.base_sequence:
            del self.first[entry]

    def _forget_old(self) -> None:
        now_ms = self._now_ms()
        while self.first:
            oldest = next(iter(self.first))
            if self.first[oldest].until_ms > now_ms:
                return
            del self.first[oldest]


def _entry(key: Key, header: BatchHeader, name: str | None) -> _Key:
    return key, header.producer_id, header.producer_epoch, name if header.attributes & TRANSACTIONAL else None


def _is_after(sequence: int, first: int) -> bool:
    return 0 < ((sequence - first) & SEQUENCE_MASK) < MAX_RUN
