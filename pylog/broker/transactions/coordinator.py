"""The transaction coordinator: the transactional ids whose partition of `__transaction_state` this broker leads."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from pylog.broker.data.acks import Acknowledgements
from pylog.broker.data.partitions import Partition, Partitions
from pylog.broker.shards.topic import StateTopic
from pylog.broker.tasks import Tasks
from pylog.broker.transactions.shard import SendsMarkers, TransactionContext, TransactionShard
from pylog.cluster.formats import TRANSACTION_LEVEL
from pylog.errors import ApiError, ErrorCode
from pylog.log.log import Log
from pylog.metrics import Metrics
from pylog.model import Key
from pylog.transaction.records import TOPIC
from pylog.transaction.state import (
    Action,
    Answer,
    NewProducerId,
    Transaction,
    TransactionConfig,
    TransactionMetadata,
    Write,
)
from pylog.wire.internal import Verification

PARKED_S = 0.1
"""How long what a leader adds waits for the end of the transaction before, whose client went on already."""

PARKED_STEP_S = 0.005
"""How often it looks."""

SWEEP_S = 0.5
JUMP_MS = 1000
"""How far the wall clock may get ahead of the time that passes between two looks at it before somebody has set it."""
"""How often ids are looked for that have waited too long; idle ones cost nothing."""

MAX_ID_CHARACTERS = 8_191
"""Four bytes each still fit into the length of a string in the topic's records."""

TRANSACTIONS_TOPIC_CONFIGS = {
    "cleanup.policy": "compact",
    "compression.type": "uncompressed",
    "segment.bytes": str(100 << 20),
    "unclean.leader.election.enable": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """The settings of transactions; see `pylog.broker.settings`."""

    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    offsets_topic_replication_factor: int
    transaction_max_timeout_ms: int
    transactional_id_expiration_ms: int


class KnownId(NamedTuple):
    """One transactional id, as its coordinator knows it."""

    transactional_id: str
    metadata: TransactionMetadata


class TransactionCoordinator:
    """See the module.

    Attributes:
        topic: the topic that keeps transactional ids.
    """

    def __init__(
        self,
        partitions: Partitions,
        settings: TransactionSettings,
        metrics: Metrics,
        *,
        wall_ms: Callable[[], int],
        steady_ms: Callable[[], int],
        acknowledgements: Acknowledgements,
        fill_ids: Callable[[], Coroutine[None, None, None]],
        new_producer_id: NewProducerId,
        markers: SendsMarkers,
    ) -> None:
        """Make it.

        Args:
            partitions: hosted here.
            settings: bounds of transactions, and of the topic that keeps them.
            metrics: where ids are counted.
            wall_ms: the clock for records and time-outs, as somebody may set it.
            steady_ms: a time that only goes on.
            acknowledgements: wait for in-sync replicas.
            fill_ids: makes sure that there is an id to draw; raises ApiError where no controller gives any.
            new_producer_id: draws an id.
            markers: sends the ends of transactions to partitions.
        """
        self._partitions = partitions
        self._wall_ms, self._steady_ms = wall_ms, steady_ms
        self._looked_ms = wall_ms(), steady_ms()
        self._fill_ids = fill_ids
        self._new_producer_id = new_producer_id
        self._tasks = Tasks()
        factor = settings.transaction_state_log_replication_factor
        self.topic = StateTopic(
            partitions,
            TOPIC,
            "transactional id",
            TRANSACTIONS_TOPIC_CONFIGS,
            settings.transaction_state_log_num_partitions,
            settings.offsets_topic_replication_factor if factor < 0 else factor,
            self._tasks,
        )
        config = TransactionConfig(
            max_timeout_ms=settings.transaction_max_timeout_ms,
            expiration_ms=settings.transactional_id_expiration_ms,
        )
        self._context = TransactionContext(
            partitions, acknowledgements, wall_ms, config, self._tasks, new_producer_id, fill_ids, markers
        )
        self._shards: dict[int, TransactionShard] = {}
        metrics.gauge(
            "pylog_transactional_ids",
            "Transactional ids coordinated here.",
            read=lambda: sum(len(shard.ids) for shard in self._shards.values()),
        )

    def start(self) -> None:
        """Begin to watch the clock."""
        self._tasks.spawn(self._watch_clock())

    async def stop(self) -> None:
        """Stop; producers learn from their closed connections."""
        await self._tasks.stop()

    async def _watch_clock(self) -> None:
        while True:
            self.expire(self._wall_ms())
            await asyncio.sleep(SWEEP_S)

    def expire(self, now_ms: int) -> None:
        """End what has waited too long at *now_ms*; that the wall clock was set ahead makes nothing older."""
        before_ms, before_steady_ms = self._looked_ms
        _, steady_ms = self._looked_ms = now_ms, self._steady_ms()
        ahead_ms = now_ms - before_ms - (steady_ms - before_steady_ms)
        for shard in list(self._shards.values()):
            if ahead_ms > JUMP_MS:
                shard.follow_jump(ahead_ms, now_ms)
            shard.expire(now_ms)

    @property
    def is_on(self) -> bool:
        """Whether the cluster's formats allow transactions: a release that knows none would serve them wrongly."""
        return self._partitions.image.level >= TRANSACTION_LEVEL

    # -- images ----------------------------------------------------------------------------------------------------

    def image_applied(self, changed: Iterable[Partition]) -> None:
        """Load what this broker leads from now on, and drop what it does not lead."""
        for partition in changed:
            if partition.key.topic != TOPIC:
                continue
            number = partition.key.partition
            old = self._shards.get(number)
            if old is not None and (not partition.is_leader or old.leading_since != partition.leading_since):
                del self._shards[number]
                old.kill()
            if partition.is_leader and partition.log is not None and number not in self._shards:
                shard = self._shards[number] = TransactionShard(number, partition.leading_since, self._context)
                self._tasks.spawn(self._load(number, shard, partition.log))

    async def _load(self, number: int, shard: TransactionShard, log: Log) -> None:
        await shard.load(log)
        if self._shards.get(number) is shard:
            shard.finish_loading()

    def _shard_of(self, transactional_id: str) -> TransactionShard:
        if not transactional_id or len(transactional_id) > MAX_ID_CHARACTERS:
            message = f"transactional id has {len(transactional_id)} characters; 1 to {MAX_ID_CHARACTERS} are allowed"
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        number = self.topic.partition_of(transactional_id)
        shard, partition = self._shards.get(number), self._partitions.get(TOPIC, number)
        if shard is None or partition is None or not partition.is_leader:
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"{transactional_id} is coordinated by another broker")
        if not shard.finish_loading():
            if shard.is_unreadable:
                message = f"the log of transactional id {transactional_id} does not decode"
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{transactional_id} is being loaded")
        return shard

    # -- requests --------------------------------------------------------------------------------------------------

    async def initialize(self, transactional_id: str, producer_id: int, producer_epoch: int, timeout_ms: int) -> Answer:
        """Give a producer its id and its next epoch, and end what an earlier one left open; see `Transaction`.

        Raises:
            ApiError: this broker does not coordinate the id, or another one may by now, or no producer ids can be had.
        """
        self._shard_of(transactional_id)  # before an id is asked for
        await self._fill_ids()
        return await self._ask(
            transactional_id,
            lambda transaction, token: transaction.initialize(
                token, producer_id, producer_epoch, timeout_ms, self._wall_ms(), self._new_producer_id
            ),
        )

    async def add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        topic_ids: Mapping[str, UUID],
        partitions: Iterable[Key],
    ) -> Answer:
        """Add partitions to a transaction, which begins with the first; see `Transaction.add`.

        Raises:
            ApiError: this broker does not coordinate the id, or another one may by now.
        """
        wanted = frozenset(partitions)
        return await self._ask(
            transactional_id,
            lambda transaction, token: transaction.add(
                token, producer_id, producer_epoch, topic_ids, wanted, self._wall_ms()
            ),
        )

    async def add_for_leader(self, asked: Verification) -> ErrorCode:
        """Add the partitions that their leader got first batches for, by the protocol of KIP-890.

        A client of that protocol may begin its next transaction as soon as the one before is decided.  That is complete
        a moment later, as a rule, and so it is waited for.

        A partition that this broker has not heard of is refused, and its leader has the client try again: at the end of
        the transaction it would count as one that was deleted since, and would never hear of the end.

        Raises:
            ApiError: this broker does not coordinate the id, or another one may by now.
        """
        image = self._partitions.image
        for _, number, topic_id in asked.partitions:
            topic = image.topic_by_id(topic_id)
            if topic is None or number not in topic.partitions:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        producer = asked.producer_id, asked.producer_epoch
        topic_ids = {topic: topic_id for topic, _, topic_id in asked.partitions}
        wanted = frozenset((topic, number) for topic, number, _ in asked.partitions)

        def ask(transaction: Transaction, token: object) -> list[Action]:
            return transaction.add(token, *producer, topic_ids, wanted, self._wall_ms(), is_per_epoch=True)

        answer = await self._ask(asked.transactional_id, ask)
        for _ in range(round(PARKED_S / PARKED_STEP_S)):
            if answer.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                break
            await asyncio.sleep(PARKED_STEP_S)
            answer = await self._ask(asked.transactional_id, ask)
        return answer.code

    async def end_epoch(
        self, transactional_id: str, producer_id: int, producer_epoch: int, *, is_commit: bool
    ) -> Answer:
        """Decide a transaction that has an epoch of its own; see `Transaction.end_epoch`.

        Raises:
            ApiError: this broker does not coordinate the id, or another one may by now, or no producer ids can be had.
        """
        metadata = self._shard_of(transactional_id).transaction(transactional_id).metadata
        if metadata is not None and metadata.is_exhausted:
            await self._fill_ids()
        return await self._ask(
            transactional_id,
            lambda transaction, token: transaction.end_epoch(
                token, producer_id, producer_epoch, self._wall_ms(), self._new_producer_id, is_commit=is_commit
            ),
        )

    async def end(self, transactional_id: str, producer_id: int, producer_epoch: int, *, is_commit: bool) -> Answer:
        """Decide a transaction; see `Transaction.end`.

        Raises:
            ApiError: this broker does not coordinate the id, or another one may by now.
        """
        return await self._ask(
            transactional_id,
            lambda transaction, token: transaction.end(
                token, producer_id, producer_epoch, self._wall_ms(), is_commit=is_commit
            ),
        )

    async def _ask(self, transactional_id: str, ask: Callable[[Transaction, object], list[Action]]) -> Answer:
        shard = self._shard_of(transactional_id)
        token: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        transaction = shard.transaction(transactional_id)
        actions = ask(transaction, token)
        if not any(isinstance(action, Write) for action in actions):
            # What is written is answered once every replica in sync has it; this comes from memory alone.
            self._check_in_touch(shard, transactional_id)
        shard.carry_out(transactional_id, transaction, actions)
        return await token

    def _check_in_touch(self, shard: TransactionShard, transactional_id: str) -> None:
        """Refuse to answer from memory while another broker may coordinate the id, and know better.

        Raises:
            ApiError: NOT_COORDINATOR; the client looks for the coordinator and asks again.
        """
        led = self._partitions.get(TOPIC, shard.number)
        if led is None or not self._partitions.is_in_touch(led):
            message = f"{transactional_id} may have another coordinator, since the replicas in sync are silent"
            raise ApiError(ErrorCode.NOT_COORDINATOR, message)

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partition: Key, topic_id: UUID
    ) -> ErrorCode:
        """Return whether *partition*, of the topic with this id, belongs to the open transaction of a producer.

        Raises:
            ApiError: this broker does not coordinate the id, or another one may by now.
        """
        shard = self._shard_of(transactional_id)
        self._check_in_touch(shard, transactional_id)
        transaction = shard.transaction(transactional_id)
        code = transaction.verify(producer_id, producer_epoch, partition)
        known = None if transaction.metadata is None else transaction.metadata.topic_ids.get(partition[0])
        if code is ErrorCode.NONE and known is not None and known != topic_id:
            return ErrorCode.TRANSACTION_ABORTABLE  # another topic of that name
        return code

    # -- what operators see ----------------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> TransactionMetadata | None:
        """Return what is in force of an id; None for one that is not known, or is about to be deleted.

        Raises:
            ApiError: this broker does not coordinate the id.
        """
        transaction = self._shard_of(transactional_id).ids.get(transactional_id)
        return None if transaction is None else _shown(transaction)

    def known_ids(self) -> list[KnownId]:
        """Return every transactional id coordinated here.

        Raises:
            ApiError: COORDINATOR_LOAD_IN_PROGRESS while some are not known yet.
        """
        topic, here = self._partitions.image.topics.get(TOPIC), self._partitions.broker_id
        led = {number for number, one in topic.partitions.items() if one.leader == here} if topic else set()
        # A log that could not be opened, for want of a descriptor, is opened later: until then it has no shard.
        if not led <= self._shards.keys() or not all(shard.finish_loading() for shard in self._shards.values()):
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "transactional ids are being loaded")
        found = []
        for shard in self._shards.values():
            for transactional_id, transaction in shard.ids.items():
                metadata = _shown(transaction)
                if metadata is not None:
                    found.append(KnownId(transactional_id, metadata))
        return found


def _shown(transaction: Transaction) -> TransactionMetadata | None:
    is_going = transaction.pending is not None and transaction.pending.metadata is None
    return None if is_going else transaction.metadata
