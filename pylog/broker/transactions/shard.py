"""One shard: the transactional ids of one partition of `__transaction_state`, loaded from its log and written to it.

The ids decide for themselves (`pylog.transaction.state`); here is what waits.  A change counts once every in-sync
replica has it.  What was appended and is not acknowledged in time is neither written nor refused: the client is told to
ask again, and the id stays as it is until the record is everywhere or another broker leads.
"""

import asyncio
import itertools
import logging
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from pylog.broker.data.acks import Acknowledgements
from pylog.broker.data.partitions import Appended, Partitions
from pylog.broker.shards.loading import LoadedShard
from pylog.broker.shards.log import ShardLog
from pylog.broker.tasks import Tasks
from pylog.cluster.restore import EPOCH_MARGIN
from pylog.errors import ApiError, ErrorCode
from pylog.model import Key
from pylog.transaction.deadlines import Deadlines
from pylog.transaction.records import TOPIC, decode_key, decode_transaction, encode_transaction
from pylog.transaction.state import (
    Action,
    Answer,
    Forget,
    NewProducerId,
    SendMarkers,
    Transaction,
    TransactionConfig,
    TransactionMetadata,
    Write,
)
from pylog.wire import records
from pylog.wire.records import BatchHeader

_logger = logging.getLogger(__name__)

RETRY_S = 0.1
"""How long a write rests that was refused, or whose outcome is not known yet, before it is looked at again."""


FILL_RETRY_S = 1.0
"""How long a shard rests that needs producer ids while no controller gives any."""

AT_A_TIME = 100
"""Ids that get another producer before others of this process have their turn."""

ALLOWED_BYTES = sys.maxsize
"""What is written of an id: the partitions of the cluster bound it, and readers would wait for ever for an end that is
refused."""


class SendsMarkers(Protocol):
    """Has the ends of transactions written to partitions; see `pylog.broker.transactions.markers`."""

    def send(self, shard: "TransactionShard", transactional_id: str, markers: SendMarkers) -> None:
        """Have *markers* written, and report each to `TransactionShard.marked`."""

    def drop(self, shard: "TransactionShard") -> None:
        """Send nothing more for *shard*."""


@dataclass(frozen=True, slots=True)
class TransactionContext:
    """What all shards share.

    Attributes:
        partitions: where the shards' logs are, and the image in force.
        acknowledgements: wait for in-sync replicas.
        wall_ms: the clock for records and time-outs.
        config: bounds of transactions.
        tasks: run what waits.
        new_producer_id: draws an id.
        fill_ids: makes sure that there is an id to draw; raises ApiError where no controller gives any.
        markers: sends markers.
    """

    partitions: Partitions
    acknowledgements: Acknowledgements
    wall_ms: Callable[[], int]
    config: TransactionConfig
    tasks: Tasks
    new_producer_id: NewProducerId
    fill_ids: Callable[[], Coroutine[None, None, None]]
    markers: SendsMarkers


class _Read(NamedTuple):
    metadata: TransactionMetadata
    leader_epoch: int


class TransactionShard(LoadedShard):
    """See the module.

    Attributes:
        leading_since: since when this broker leads the partition, see `Partition.leading_since`.
        ids: by transactional id; complete once the shard is loaded.
    """

    def __init__(self, number: int, leading_since: int, context: TransactionContext) -> None:
        """Begin with the ids of partition *number* not loaded."""
        super().__init__(TOPIC, number, context.partitions)
        self.leading_since = leading_since
        self.ids: dict[str, Transaction] = {}
        self._read: dict[str, _Read] = {}
        self._outdated: dict[str, TransactionMetadata] = {}
        self._deadlines = Deadlines(context.config)
        self._log = ShardLog(
            TOPIC, number, context.partitions, context.acknowledgements, context.wall_ms, ALLOWED_BYTES
        )
        self._context = context
        self._looked_ms = 0

    @property
    def number(self) -> int:
        """Of the partition."""
        return self._number

    # -- loading ---------------------------------------------------------------------------------------------------

    def _forget_read(self) -> None:
        self._read = {}

    def _take_in(self, data: memoryview, position: int, header: BatchHeader) -> None:
        if header.is_control:
            return
        for row in records.decode_records(data, header, position):
            transactional_id = decode_key(row.key or b"")
            if transactional_id is None:
                continue  # of a later version
            if row.value is None:
                self._read.pop(transactional_id, None)
            else:
                metadata = decode_transaction(row.value, row.headers)
                self._read[transactional_id] = _Read(metadata, header.partition_leader_epoch)

    def _decode_read(self) -> None:
        """Everything was decoded as it was read."""

    def finish_loading(self) -> bool:
        """Return whether the shard is loaded, and no producer is left of before the cluster's metadata was restored."""
        return super().finish_loading() and not self._outdated

    def _take_over(self) -> None:
        read, self._read = self._read, {}
        now_ms = self._context.wall_ms()
        restored_epoch = self._restored_epoch()
        # In the order in which they were used last.
        for transactional_id, (metadata, leader_epoch) in sorted(
            read.items(), key=lambda row: row[1].metadata.update_ms
        ):
            if leader_epoch < restored_epoch:
                self._outdated[transactional_id] = metadata
            else:
                self.ids[transactional_id] = Transaction(self._context.config, metadata)
                self._deadlines.note(transactional_id, metadata)
        self._leave_the_future(now_ms)
        if read:
            _logger.info("transactional ids loaded partition=%d ids=%d", self._number, len(read))
        for transactional_id, transaction in list(self.ids.items()):
            self.carry_out(transactional_id, transaction, transaction.resume(now_ms))
        if self._outdated:
            message = "metadata was restored: transactional ids get other producers partition=%d ids=%d"
            _logger.warning(message, self._number, len(self._outdated))
            self._context.tasks.spawn(self._replace_producers())

    def _restored_epoch(self) -> int:
        """Return from which leader epoch on records were written after the metadata was restored; -1 if it never was.

        A restoration raises leader epochs by more than elections do in the time after which an unused id expires.
        """
        partition = self._partitions.get(TOPIC, self._number)
        assert partition is not None
        assert partition.log is not None
        epochs = [epoch for epoch, _ in partition.log.epochs.entries()]
        return restored_epoch([*epochs, partition.leader_epoch])

    async def _replace_producers(self) -> None:
        """Give ids that may have been given to later producers than the log knows to nobody; see `Transaction`."""
        for count in itertools.count(1):
            if self._is_killed or not self._outdated:
                return
            producer_id = self._context.new_producer_id()
            if producer_id is None:
                try:
                    await self._context.fill_ids()
                except ApiError as error:
                    _logger.warning("producers not replaced yet partition=%d reason=%s", self._number, error)
                    await asyncio.sleep(FILL_RETRY_S)
                continue
            transactional_id, metadata = self._outdated.popitem()
            transaction = Transaction(self._context.config, metadata)
            actions = transaction.replace_producer(producer_id, self._context.wall_ms())
            self.carry_out(transactional_id, transaction, actions)
            if transaction.metadata is metadata and transaction.pending is None:
                self._forget(transactional_id, transaction)  # the write was refused
                self._outdated[transactional_id] = metadata
                await asyncio.sleep(RETRY_S)
            elif count % AT_A_TIME == 0:
                await asyncio.sleep(0)

    # -- ids -------------------------------------------------------------------------------------------------------

    def transaction(self, transactional_id: str) -> Transaction:
        """Return the state of an id; of one that is not known, a new one, which is kept once something is written."""
        return self.ids.get(transactional_id) or Transaction(self._context.config)

    def carry_out(self, transactional_id: str, transaction: Transaction, actions: Iterable[Action]) -> None:
        """Do what an id decided, and what follows from that."""
        todo = deque(actions)
        while todo and not self._is_killed:
            action = todo.popleft()
            if isinstance(action, Answer):
                _answer(action.token, action)
            elif isinstance(action, Write):
                self.ids[transactional_id] = transaction
                todo.extend(self._write(transactional_id, transaction, action))
            elif isinstance(action, SendMarkers):
                self.ids[transactional_id] = transaction
                self._context.markers.send(self, transactional_id, action)
            else:
                assert isinstance(action, Forget)
                self._forget(transactional_id, transaction)

    def _write(self, transactional_id: str, transaction: Transaction, write: Write) -> list[Action]:
        record = encode_transaction(transactional_id, write.metadata, self._context.wall_ms())
        appended = self._log.append([record])
        if isinstance(appended, Appended):
            self._context.tasks.spawn(self._written_later(transactional_id, transaction, appended))
            return []
        if appended is ErrorCode.NONE:
            return self._written(transactional_id, transaction)
        if transaction.metadata is not None and transaction.metadata.state.is_ending:
            # The end of a transaction is written again; at once, that would spin.
            self._context.tasks.spawn(self._write_again(transactional_id, transaction, appended))
            return []
        actions = transaction.refused(appended)
        self._forget_unused(transactional_id, transaction)
        return actions

    async def _write_again(self, transactional_id: str, transaction: Transaction, code: ErrorCode) -> None:
        await asyncio.sleep(RETRY_S)
        if not self._is_killed:
            self.carry_out(transactional_id, transaction, transaction.refused(code))

    async def _written_later(self, transactional_id: str, transaction: Transaction, appended: Appended) -> None:
        """Go on with an id once every in-sync replica has what it wrote."""
        code = await self._log.wait_replicated(appended)
        if code is not ErrorCode.NONE and transaction.pending is not None:
            # It is in the log, and nobody knows whether it lasts: what else is asked waits for that.
            token = transaction.pending.token
            _answer(token, Answer(token, code))
        while appended.result() is not ErrorCode.NONE:
            if self._is_killed:
                return
            await asyncio.sleep(RETRY_S)
        if not self._is_killed:
            self.carry_out(transactional_id, transaction, self._written(transactional_id, transaction))

    def _written(self, transactional_id: str, transaction: Transaction) -> list[Action]:
        actions = transaction.written()
        self._begin_by(self._context.wall_ms(), transactional_id, transaction)
        if transaction.metadata is not None:
            self._deadlines.note(transactional_id, transaction.metadata)
        return actions

    def _forget(self, transactional_id: str, transaction: Transaction) -> None:
        if self.ids.get(transactional_id) is transaction:
            del self.ids[transactional_id]
            self._deadlines.forget(transactional_id)

    def _forget_unused(self, transactional_id: str, transaction: Transaction) -> None:
        if transaction.metadata is None and transaction.pending is None:
            self._forget(transactional_id, transaction)

    def marked(self, transactional_id: str, partition: Key) -> None:
        """Take note that every in-sync replica of *partition* has the marker, or that its topic is gone."""
        transaction = self.ids.get(transactional_id)
        if transaction is not None:
            now_ms = self._context.wall_ms()
            self.carry_out(transactional_id, transaction, transaction.marked(partition, now_ms))

    def expire(self, now_ms: int) -> None:
        """Abort transactions that are open for too long, and delete ids that nobody uses."""
        if not self.finish_loading():
            return
        if now_ms < self._looked_ms:
            self._leave_the_future(now_ms)
        self._looked_ms = now_ms
        for transactional_id in self._deadlines.due(now_ms):
            transaction = self.ids[transactional_id]
            actions = transaction.expire(now_ms, self._context.new_producer_id)
            if actions:
                before = transaction.metadata
                assert before is not None
                _logger.info(
                    "time is up transactional_id=%s state=%s producer=%d epoch=%d",
                    *(transactional_id, before.state.name, before.producer_id, before.producer_epoch),
                )
                self.carry_out(transactional_id, transaction, actions)

    def follow_jump(self, ahead_ms: int, now_ms: int) -> None:
        """Let all that began or was used before the clock was set ahead by *ahead_ms* be no older for that."""
        for transactional_id in self._deadlines.by_use():
            transaction = self.ids[transactional_id]
            transaction.follow_jump(ahead_ms, now_ms)
            if transaction.metadata is not None:
                self._deadlines.note(transactional_id, transaction.metadata)

    def _leave_the_future(self, now_ms: int) -> None:
        for transactional_id, transaction in self.ids.items():
            self._begin_by(now_ms, transactional_id, transaction)

    def _begin_by(self, now_ms: int, transactional_id: str, transaction: Transaction) -> None:
        """Let a transaction begin at *now_ms* that began under a clock that was ahead: its time would not come."""
        metadata = transaction.metadata
        if metadata is not None and metadata.start_ms > now_ms:
            transaction.metadata = replace(metadata, start_ms=now_ms)
            self._deadlines.note(transactional_id, transaction.metadata)

    def kill(self) -> None:
        """Answer all that waits: this broker does not coordinate these ids any more."""
        self._is_killed = True
        self._context.markers.drop(self)
        for transaction in self.ids.values():
            if transaction.pending is not None:
                token = transaction.pending.token
                _answer(token, Answer(token, ErrorCode.NOT_COORDINATOR))


def restored_epoch(leader_epochs: Sequence[int]) -> int:
    """Return the first of growing *leader_epochs* that came after the last restoration of metadata; -1 without one."""
    pairs = itertools.pairwise(leader_epochs)
    return max((after for before, after in pairs if after - before >= EPOCH_MARGIN), default=-1)


def _answer(token: Any, answer: Answer) -> None:  # noqa: ANN401  # a Token
    if token is not None and not token.done():
        token.set_result(answer)
