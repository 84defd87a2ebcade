"""One transactional id as a state machine, for both protocols that clients speak.

Classic: the client names the partitions (AddPartitionsToTxn), and one epoch serves all transactions of a producer.
KIP-890: partition leaders name the partitions, and each transaction has an epoch of its own, so that a late request of
one transaction cannot end the next one.

Every change is written to the log of the coordinator first.  A method returns a `Write`; the metadata in force changes
when the caller reports that every in-sync replica has the record (`written`).  Until then each other request gets
CONCURRENT_TRANSACTIONS, which clients try again.  A record that was appended and is not acknowledged yet is neither
written nor refused: the caller may tell its client to try again, and reports the outcome when it is known.

Source: KIP-98, KIP-360, KIP-890; TransactionCoordinator and TransactionMetadata of Apache Kafka 3.9 and 4.3.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Any, TypeAlias
from uuid import UUID

from pylog.errors import ErrorCode
from pylog.model import Key

NO_PRODUCER_ID = -1
NO_EPOCH = -1
MAX_EPOCH = 32767
"""Kept for the coordinator, so that it can always fence a producer whose epoch is the last that clients get."""

NO_TIME = -1


class TransactionState(IntEnum):
    """State of a transactional id; the values are those of the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def is_ending(self) -> bool:
        """Whether the decision is made, and markers are on their way."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_commit(self) -> bool:
        """Whether the decision is, or was, to commit."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


_NEXT: Mapping[TransactionState, frozenset[TransactionState]] = {
    TransactionState.EMPTY: frozenset(
        {TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_ABORT}
    ),
    TransactionState.ONGOING: frozenset(
        {TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT}
    ),
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.COMPLETE_COMMIT}),
    TransactionState.PREPARE_ABORT: frozenset({TransactionState.COMPLETE_ABORT}),
    TransactionState.COMPLETE_COMMIT: frozenset(
        {TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_ABORT}
    ),
    TransactionState.COMPLETE_ABORT: frozenset(
        {TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_ABORT}
    ),
}

Token: TypeAlias = Any
"""Identifies the client that waits for an answer; None if nobody does."""

NewProducerId: TypeAlias = Callable[[], int | None]
"""Draws a producer id that nobody has; None while the next block of ids is being fetched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """Bounds of all transactions, in milliseconds.

    Attributes:
        max_timeout_ms: a client may not ask for a longer time-out; `transaction.max.timeout.ms`.
        expiration_ms: an id that is unused for so long is forgotten; `transactional.id.expiration.ms`.
    """

    max_timeout_ms: int = 900_000
    expiration_ms: int = 604_800_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMetadata:
    """What the log says of one transactional id.

    Attributes:
        producer_epoch: of the next request of the producer; of the markers while the transaction ends.
        last_epoch: the epoch before the last bump by InitProducerId, whose retry gets the same answer.  It is not in
            the log: the retry of a request that an earlier coordinator answered is fenced.
        previous_producer_id: whose epochs were used up.
        next_producer_id: the producer's id after this transaction, if its epochs are used up.
        timeout_ms: an open transaction is aborted after that.
        partitions: of the open transaction, or of the one that ends; empty in all other states.
        topic_ids: of the topics of *partitions*, so that a topic of the same name is not taken for them.
        start_ms: when the transaction began, by the wall clock; NO_TIME without one.
        update_ms: when this was written.
        is_per_epoch: whether each transaction has an epoch of its own (KIP-890); of an ending one, whether its markers
            have a higher epoch than its batches.
    """

    producer_id: int
    producer_epoch: int
    last_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[Key] = frozenset()
    topic_ids: Mapping[str, UUID] = field(default_factory=lambda: MappingProxyType({}))
    start_ms: int = NO_TIME
    update_ms: int
    is_per_epoch: bool = False

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer needs a new id, since clients get no higher epoch."""
        return self.producer_epoch >= MAX_EPOCH - 1

    @property
    def has_own_marker_epoch(self) -> bool:
        """Whether no batch of the producer has the epoch of its markers before the transaction has ended."""
        return self.is_per_epoch and self.producer_epoch < MAX_EPOCH

    @property
    def late_ms(self) -> int:
        """After which time the transaction, if it is open, is open for too long."""
        return self.start_ms + self.timeout_ms


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer *token*; the producer id and epoch are those of the producer's next request."""

    token: Token
    code: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class Write:
    """Write *metadata* down, then call `Transaction.written` or `Transaction.refused`.

    Attributes:
        metadata: None deletes the id.
        token: gets *code* once it is written.
    """

    metadata: TransactionMetadata | None
    token: Token = None
    code: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class SendMarkers:
    """Have the end of the transaction written to *partitions*; report each to `Transaction.marked`.

    Attributes:
        is_restored: whether a later transaction of the producer may be open there, of which the log of ids knows
            nothing; that one is aborted.
    """

    producer_id: int
    producer_epoch: int
    is_commit: bool
    partitions: frozenset[Key]
    is_restored: bool = False


@dataclass(frozen=True, slots=True)
class Forget:
    """The id is deleted: drop its `Transaction`."""


Action: TypeAlias = Answer | Write | SendMarkers | Forget


class Transaction:
    """See the module.

    Attributes:
        metadata: in force; None before the first producer.
        pending: what is being written.
        unmarked: partitions of an ending transaction that have no marker yet.
    """

    def __init__(self, config: TransactionConfig, metadata: TransactionMetadata | None = None) -> None:
        """Begin with what the log says; call `resume` if that is an ending transaction."""
        self.metadata = metadata
        self.pending: Write | None = None
        self.unmarked: frozenset[Key] = frozenset()
        self._is_restored = False
        self._config = config

    # -- requests --------------------------------------------------------------------------------------------------

    def initialize(
        self,
        token: Token,
        producer_id: int,
        producer_epoch: int,
        timeout_ms: int,
        now_ms: int,
        new_producer_id: NewProducerId,
        *,
        is_per_epoch: bool = False,
    ) -> list[Action]:
        """Carry InitProducerId out: end the open transaction, or give the producer its next epoch.

        Args:
            token: of the client.
            producer_id: what the client had before; NO_PRODUCER_ID and NO_EPOCH for one that starts.
            producer_epoch: see *producer_id*.
            timeout_ms: of its transactions.
            now_ms: the wall clock.
            new_producer_id: draws an id.
            is_per_epoch: whether the client knows KIP-890.
        """
        is_new = producer_id == NO_PRODUCER_ID
        if is_new != (producer_epoch == NO_EPOCH):
            return [Answer(token, ErrorCode.INVALID_REQUEST)]
        if not 0 < timeout_ms <= self._config.max_timeout_ms:
            return [Answer(token, ErrorCode.INVALID_TRANSACTION_TIMEOUT)]
        if self.pending is not None:
            return [Answer(token, ErrorCode.CONCURRENT_TRANSACTIONS)]
        before = self.metadata
        if before is None:
            return self._give_new_id(token, None, timeout_ms, now_ms, new_producer_id, is_per_epoch=is_per_epoch)
        if _is_next_producer(before, producer_id, producer_epoch):
            return [Answer(token, ErrorCode.CONCURRENT_TRANSACTIONS)]
        if not is_new and not _is_producer(before, producer_id, producer_epoch):
            return [Answer(token, ErrorCode.PRODUCER_FENCED)]
        if before.state.is_ending:
            return [Answer(token, ErrorCode.CONCURRENT_TRANSACTIONS)]
        if before.state is TransactionState.ONGOING:
            if not is_new and (producer_id, producer_epoch) != (before.producer_id, before.producer_epoch):
                # Apache Kafka aborts here: an outdated producer ends the transaction of its successor.
                return [Answer(token, ErrorCode.PRODUCER_FENCED)]
            return self._fence(token, now_ms, new_producer_id)
        after = replace(
            before,
            state=TransactionState.EMPTY,
            partitions=frozenset(),
            topic_ids=MappingProxyType({}),
            start_ms=NO_TIME,
            update_ms=now_ms,
            timeout_ms=timeout_ms,
            is_per_epoch=is_per_epoch,
        )
        if not is_new and producer_epoch == before.last_epoch:
            return self._write(after, token)  # the answer was lost: the same again, and no bump
        if not is_new and (producer_id, producer_epoch) != (before.producer_id, before.producer_epoch):
            return [Answer(token, ErrorCode.PRODUCER_FENCED)]
        last_epoch = NO_EPOCH if is_new else before.producer_epoch
        if before.is_exhausted:
            return self._give_new_id(
                token, before, timeout_ms, now_ms, new_producer_id, last_epoch=last_epoch, is_per_epoch=is_per_epoch
            )
        return self._write(replace(after, producer_epoch=before.producer_epoch + 1, last_epoch=last_epoch), token)

    def add(
        self,
        token: Token,
        producer_id: int,
        producer_epoch: int,
        topic_ids: Mapping[str, UUID],
        partitions: Collection[Key],
        now_ms: int,
        *,
        is_per_epoch: bool = False,
    ) -> list[Action]:
        """Add *partitions* to the open transaction, or begin one with them; *topic_ids* are of their topics.

        By KIP-890 (*is_per_epoch*) the leader asks that has a batch, as it asks `verify` in the classic protocol: what
        the transaction wrote to another topic of the same name is lost, and the client is told to abort it.
        """
        code = self._check(producer_id, producer_epoch)
        if code is not ErrorCode.NONE:
            return [Answer(token, code)]
        before = self.metadata
        assert before is not None
        if before.state.is_ending:
            return [Answer(token, ErrorCode.CONCURRENT_TRANSACTIONS)]
        is_open = before.state is TransactionState.ONGOING
        if is_open and is_per_epoch and any(before.topic_ids.get(name, one) != one for name, one in topic_ids.items()):
            return [Answer(token, ErrorCode.TRANSACTION_ABORTABLE)]
        if is_open and before.partitions.issuperset(partitions):
            return [Answer(token, ErrorCode.NONE, before.producer_id, before.producer_epoch)]
        return self._write(
            replace(
                before,
                state=TransactionState.ONGOING,
                partitions=before.partitions.union(partitions) if is_open else frozenset(partitions),
                topic_ids=MappingProxyType({**(before.topic_ids if is_open else {}), **topic_ids}),
                start_ms=before.start_ms if is_open else now_ms,
                update_ms=now_ms,
                last_epoch=NO_EPOCH,
                is_per_epoch=is_per_epoch,
            ),
            token,
        )

    def verify(self, producer_id: int, producer_epoch: int, partition: Key) -> ErrorCode:
        """Return whether *partition* belongs to the open transaction: NONE, or TRANSACTION_ABORTABLE."""
        before = self.metadata
        if _is_next_producer(before, producer_id, producer_epoch):
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if before is None or before.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if before.producer_epoch != producer_epoch:
            return ErrorCode.PRODUCER_FENCED
        if before.state.is_ending:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        is_in = before.state is TransactionState.ONGOING and partition in before.partitions
        return ErrorCode.NONE if is_in else ErrorCode.TRANSACTION_ABORTABLE

    def end(self, token: Token, producer_id: int, producer_epoch: int, now_ms: int, *, is_commit: bool) -> list[Action]:
        """Commit or abort by the classic protocol: EndTxn up to version 4."""
        code = self._check(producer_id, producer_epoch)
        if code is not ErrorCode.NONE:
            return [Answer(token, code)]
        before = self.metadata
        assert before is not None
        if before.state is TransactionState.ONGOING:
            # Whoever added its partitions: it ends under the epoch that it had.
            before = replace(before, is_per_epoch=False)
            return self._write(_prepared(before, now_ms, is_commit=is_commit), token)
        code = _end_repeated(before.state, is_commit=is_commit)
        return [Answer(token, code, before.producer_id, before.producer_epoch)]

    def end_epoch(
        self,
        token: Token,
        producer_id: int,
        producer_epoch: int,
        now_ms: int,
        new_producer_id: NewProducerId,
        *,
        is_commit: bool,
    ) -> list[Action]:
        """Commit or abort by KIP-890: EndTxn from version 5.  The answer has the epoch of the next transaction."""
        if self.pending is not None:
            return [Answer(token, ErrorCode.CONCURRENT_TRANSACTIONS)]
        before = self.metadata
        if before is None:
            return [Answer(token, ErrorCode.INVALID_PRODUCER_ID_MAPPING)]
        if _is_end_retry(before, producer_id, producer_epoch):
            # One epoch serves all transactions of a classic producer: the epoch before was its predecessor's.
            if not before.is_per_epoch or before.state in (TransactionState.EMPTY, TransactionState.ONGOING):
                return [Answer(token, ErrorCode.PRODUCER_FENCED)]
            code = _end_repeated(before.state, is_commit=is_commit)
            return [Answer(token, code, before.producer_id, before.producer_epoch)]
        if _is_next_producer(before, producer_id, producer_epoch):
            return [Answer(token, ErrorCode.CONCURRENT_TRANSACTIONS)]
        if before.producer_id != producer_id:
            return [Answer(token, ErrorCode.INVALID_PRODUCER_ID_MAPPING)]
        if before.producer_epoch != producer_epoch or before.state.is_ending:
            return [Answer(token, ErrorCode.PRODUCER_FENCED)]
        is_open = before.state is TransactionState.ONGOING
        if is_commit and not is_open:
            return [Answer(token, ErrorCode.INVALID_TXN_STATE)]
        if not is_open:
            # The client may not know whether a leader had added its partition: to abort nothing is allowed.
            before = replace(before, partitions=frozenset(), topic_ids=MappingProxyType({}), start_ms=now_ms)
        return self._end_with_next_epoch(token, before, now_ms, new_producer_id, is_commit=is_commit)

    # -- what happens meanwhile ------------------------------------------------------------------------------------

    def written(self) -> list[Action]:
        """Every in-sync replica has what was pending: it is in force."""
        write = self.pending
        assert write is not None, "nothing is being written"
        self.pending = None
        self.metadata = after = write.metadata
        if after is None:
            return [Forget()]
        actions: list[Action] = []
        if write.token is not None:
            has_ids = write.code is ErrorCode.NONE
            producer_id = after.producer_id if after.next_producer_id == NO_PRODUCER_ID else after.next_producer_id
            epoch = after.producer_epoch if after.next_producer_id == NO_PRODUCER_ID else 0
            actions.append(
                Answer(write.token, write.code, producer_id, epoch) if has_ids else Answer(write.token, write.code)
            )
        return actions + self.resume(after.update_ms)

    def refused(self, code: ErrorCode) -> list[Action]:
        """What was pending is not in the log and never will be: nothing changed.

        The end of a transaction is written again; all else is left to the client that asked for it.
        """
        write = self.pending
        assert write is not None, "nothing is being written"
        self.pending = None
        if self.metadata is not None and self.metadata.state.is_ending:
            return self._write(write.metadata, None)
        return [] if write.token is None else [Answer(write.token, code)]

    def resume(self, now_ms: int) -> list[Action]:
        """Go on with an ending transaction: after loading, and after the decision."""
        metadata = self.metadata
        if metadata is None or not metadata.state.is_ending or self.pending is not None:
            return []
        self.unmarked = metadata.partitions
        if not self.unmarked:
            return self._complete(now_ms)
        producer = metadata.producer_id, metadata.producer_epoch
        return [SendMarkers(*producer, metadata.state.is_commit, metadata.partitions, self._is_restored)]

    def marked(self, partition: Key, now_ms: int) -> list[Action]:
        """Every in-sync replica of *partition* has the marker, or its topic is deleted."""
        if partition not in self.unmarked:
            return []
        self.unmarked -= {partition}
        return [] if self.unmarked else self._complete(now_ms)

    def expire(self, now_ms: int, new_producer_id: NewProducerId, *, is_prepared: bool = False) -> list[Action]:
        """Abort a transaction that is open for too long, or delete an id that nobody uses.

        A transaction that a sink has prepared (*is_prepared*) is left to the sink.
        """
        metadata = self.metadata
        if metadata is None or self.pending is not None or metadata.state.is_ending:
            return []
        if metadata.state is TransactionState.ONGOING:
            is_late = metadata.late_ms < now_ms
            return self._fence(None, now_ms, new_producer_id) if is_late and not is_prepared else []
        is_unused = metadata.update_ms + self._config.expiration_ms <= now_ms
        return self._write(None, None) if is_unused else []

    def follow_jump(self, ahead_ms: int, now_ms: int) -> None:
        """Take over a clock that was set ahead by *ahead_ms*, to *now_ms*: nothing has become older by that."""
        if self.metadata is not None:
            self.metadata = _after_jump(self.metadata, ahead_ms, now_ms)
        if self.pending is not None and self.pending.metadata is not None:
            self.pending = replace(self.pending, metadata=_after_jump(self.pending.metadata, ahead_ms, now_ms))

    def replace_producer(self, producer_id: int, now_ms: int) -> list[Action]:
        """Take the id away from everybody who had it; *producer_id*, which nobody has, goes to the next who asks.

        For an id whose log may lack its newest epochs: an epoch above those of the log may have been given out, so only
        another producer id fences all of its producers.  What is decided stays decided.  An open transaction is aborted
        under the highest epoch there is, so that it ends in each partition whatever its epoch.  A committed one may
        have ended long ago, and a later transaction be open: see `SendMarkers`.

        Nothing else may be pending.  If the write is refused nothing has changed.  Of a transaction that ends already
        the new producer id is in the log once it has ended; whoever loads it before that replaces the producer again.
        """
        before = self.metadata
        assert before is not None
        assert self.pending is None, "something is being written"
        if before.state is TransactionState.ONGOING:
            before = replace(before, producer_epoch=MAX_EPOCH, next_producer_id=producer_id)
            return self._write(_prepared(before, now_ms, is_commit=False), None)
        if before.state is TransactionState.PREPARE_ABORT:
            self.metadata = replace(before, producer_epoch=MAX_EPOCH, next_producer_id=producer_id)
            return self.resume(now_ms)
        if before.state is TransactionState.PREPARE_COMMIT:
            self.metadata = replace(before, next_producer_id=producer_id)
            self._is_restored = True
            return self.resume(now_ms)
        after = TransactionMetadata(
            producer_id=producer_id,
            producer_epoch=0,
            timeout_ms=before.timeout_ms,
            update_ms=now_ms,
            is_per_epoch=before.is_per_epoch,
        )
        return self._write(after, None)

    # -- steps -----------------------------------------------------------------------------------------------------

    def _check(self, producer_id: int, producer_epoch: int) -> ErrorCode:
        if self.pending is not None:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if _is_next_producer(self.metadata, producer_id, producer_epoch):
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if self.metadata is None or self.metadata.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if self.metadata.producer_epoch != producer_epoch:
            return ErrorCode.PRODUCER_FENCED
        return ErrorCode.NONE

    def _give_new_id(
        self,
        token: Token,
        before: TransactionMetadata | None,
        timeout_ms: int,
        now_ms: int,
        new_producer_id: NewProducerId,
        *,
        last_epoch: int = NO_EPOCH,
        is_per_epoch: bool,
    ) -> list[Action]:
        producer_id = new_producer_id()
        if producer_id is None:
            return [Answer(token, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
        after = TransactionMetadata(
            producer_id=producer_id,
            producer_epoch=0,
            last_epoch=last_epoch,
            previous_producer_id=NO_PRODUCER_ID if before is None else before.producer_id,
            timeout_ms=timeout_ms,
            update_ms=now_ms,
            is_per_epoch=is_per_epoch,
        )
        return self._write(after, token)

    def _fence(self, token: Token, now_ms: int, new_producer_id: NewProducerId) -> list[Action]:
        """Abort under an epoch that the producer does not have, so that none of its requests counts any more.

        The client that asked is told to ask again: its own epoch is the one after that.
        """
        before = self.metadata
        assert before is not None
        code = ErrorCode.CONCURRENT_TRANSACTIONS
        if before.producer_epoch < MAX_EPOCH:
            before = replace(before, producer_epoch=before.producer_epoch + 1)
            return self._write(_prepared(before, now_ms, is_commit=False), token, code)
        # Nobody has this epoch, unless another implementation wrote it down: then the id must change.
        next_id = new_producer_id()
        if next_id is None:
            return [] if token is None else [Answer(token, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
        before = replace(before, next_producer_id=next_id)
        return self._write(_prepared(before, now_ms, is_commit=False), token, code)

    def _end_with_next_epoch(
        self,
        token: Token,
        before: TransactionMetadata,
        now_ms: int,
        new_producer_id: NewProducerId,
        *,
        is_commit: bool,
    ) -> list[Action]:
        if before.is_exhausted:
            next_id = new_producer_id()
            if next_id is None:
                return [Answer(token, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
            before = replace(before, producer_epoch=MAX_EPOCH, next_producer_id=next_id)
        else:
            before = replace(before, producer_epoch=before.producer_epoch + 1)
        before = replace(before, is_per_epoch=True)
        return self._write(_prepared(before, now_ms, is_commit=is_commit), token)

    def _complete(self, now_ms: int) -> list[Action]:
        before = self.metadata
        assert before is not None
        assert before.state.is_ending, before.state.name
        assert not self.unmarked, f"{len(self.unmarked)} partitions have no marker"
        self._is_restored = False
        state = TransactionState.COMPLETE_COMMIT if before.state.is_commit else TransactionState.COMPLETE_ABORT
        after = replace(
            before,
            state=state,
            partitions=frozenset(),
            topic_ids=MappingProxyType({}),
            update_ms=now_ms,
        )
        if before.next_producer_id != NO_PRODUCER_ID:
            after = replace(
                after,
                producer_id=before.next_producer_id,
                producer_epoch=0,
                previous_producer_id=before.producer_id,
                next_producer_id=NO_PRODUCER_ID,
            )
        return self._write(after, None)

    def _write(
        self, metadata: TransactionMetadata | None, token: Token, code: ErrorCode = ErrorCode.NONE
    ) -> list[Action]:
        assert self.pending is None, "one change at a time"
        before = self.metadata
        if before is not None and metadata is not None:
            assert metadata.state in _NEXT[before.state], f"{before.state.name} -> {metadata.state.name}"
            if metadata.update_ms < before.update_ms:
                metadata = replace(metadata, update_ms=before.update_ms)  # the clock was set back
        self.pending = Write(metadata, token, code)
        return [self.pending]


def _after_jump(metadata: TransactionMetadata, ahead_ms: int, now_ms: int) -> TransactionMetadata:
    start_ms = metadata.start_ms
    if start_ms != NO_TIME:
        start_ms = min(start_ms + ahead_ms, now_ms)
    return replace(metadata, start_ms=start_ms, update_ms=min(metadata.update_ms + ahead_ms, now_ms))


def _is_next_producer(metadata: TransactionMetadata | None, producer_id: int, producer_epoch: int) -> bool:
    """Whether a client goes on under the id that the end of its transaction gave it, while that is not complete."""
    return metadata is not None and 0 <= producer_id == metadata.next_producer_id and producer_epoch == 0


def _is_producer(metadata: TransactionMetadata, producer_id: int, producer_epoch: int) -> bool:
    if producer_id == metadata.producer_id:
        return True
    return producer_id == metadata.previous_producer_id and producer_epoch >= MAX_EPOCH - 1


def _is_end_retry(metadata: TransactionMetadata, producer_id: int, producer_epoch: int) -> bool:
    """Whether a client ends the transaction before, whose answer was lost."""
    if producer_id == metadata.producer_id:
        return 0 <= producer_epoch == metadata.producer_epoch - 1
    is_first = metadata.producer_epoch == 0
    return is_first and producer_id == metadata.previous_producer_id and producer_epoch == MAX_EPOCH - 1


def _end_repeated(state: TransactionState, *, is_commit: bool) -> ErrorCode:
    """Return the answer to the end of a transaction that is not open."""
    if state is TransactionState.EMPTY or state.is_commit != is_commit:
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode.CONCURRENT_TRANSACTIONS if state.is_ending else ErrorCode.NONE


def _prepared(before: TransactionMetadata, now_ms: int, *, is_commit: bool) -> TransactionMetadata:
    state = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
    # In its markers this time tells a transaction from the one before, also where a clock was set back.
    update_ms = max(now_ms, before.update_ms + 1)
    return replace(before, state=state, update_ms=update_ms, last_epoch=NO_EPOCH)
