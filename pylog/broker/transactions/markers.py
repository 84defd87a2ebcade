"""Having the ends of transactions written to their partitions, by whichever brokers lead those.

A marker is sent until its partition's leader says that every in-sync replica has it.  A partition counts as deleted
only where the controller's image has no topic with its id.  Each broker gets one request at a time, with all that is
due there; what has failed goes behind what has not.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from pylog.broker.data.partitions import Partitions
from pylog.broker.data.peer_keys import PeerKeys
from pylog.broker.data.peers import PeerClient
from pylog.broker.tasks import Tasks
from pylog.broker.transactions.ends import TransactionEnds
from pylog.broker.transactions.shard import TransactionShard
from pylog.errors import ApiError, ErrorCode, ProtocolError
from pylog.metrics import Metrics
from pylog.model import NO_LEADER, Key
from pylog.transaction.records import TOPIC
from pylog.transaction.state import SendMarkers
from pylog.wire import internal
from pylog.wire.internal import InternalKey, MarkerWish

_logger = logging.getLogger(__name__)

RETRY_S = 0.1
"""How long a broker is left alone that could not write all markers, and a partition without leader."""

TIMEOUT_S = 10.0
"""How long a broker may take to answer: it waits for its followers first."""

MAX_MARKERS = 1_000
"""Markers of one request."""

MAX_AGAIN = 100
"""Of them, how many that have failed before while fresh ones wait: partitions that are stuck hold up no others."""

_GIVEN_UP = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""Another coordinator has taken the transaction over, and ends it."""


@dataclass(slots=True, eq=False)
class _Due:
    shard: TransactionShard
    transactional_id: str
    key: Key
    topic_id: UUID | None
    decided_ms: int
    markers: SendMarkers
    has_own_epoch: bool
    has_failed: bool = False


class MarkerSender:
    """See the module."""

    def __init__(
        self,
        broker_id: int,
        keys: PeerKeys,
        partitions: Partitions,
        ends: TransactionEnds,
        metrics: Metrics,
    ) -> None:
        """Make it; *ends* writes to the partitions that this broker leads itself."""
        self._broker_id = broker_id
        self._keys = keys
        self._partitions = partitions
        self._ends = ends
        self._tasks = Tasks()
        self._due: dict[tuple[str, Key], _Due] = {}
        self._clients: dict[int, PeerClient] = {}
        self._busy: set[int] = set()
        self._is_looking_later = False
        metrics.gauge(
            "pylog_transaction_markers_due",
            "Ends of transactions that this coordinator has decided and that their partitions do not all have yet.",
            read=lambda: len(self._due),
        )

    async def stop(self) -> None:
        """Stop sending."""
        await self._tasks.stop()
        for client in self._clients.values():
            client.close()

    def send(self, shard: TransactionShard, transactional_id: str, markers: SendMarkers) -> None:
        """See `SendsMarkers`."""
        known = shard.ids[transactional_id].metadata
        assert known is not None, "an id without decision has no markers"
        has_own_epoch = known.has_own_marker_epoch and not markers.is_restored
        for key in markers.partitions:
            self._due[transactional_id, key] = _Due(
                *(shard, transactional_id, key, known.topic_ids.get(key[0]), known.update_ms, markers, has_own_epoch)
            )
        self._tasks.spawn(self._look_soon())

    def drop(self, shard: TransactionShard) -> None:
        """See `SendsMarkers`."""
        self._due = {place: due for place, due in self._due.items() if due.shard is not shard}

    async def _look_soon(self) -> None:
        self._look()

    def _look(self) -> None:
        """Send what is due to the leaders that are not busy."""
        by_leader: dict[int, list[tuple[_Due, MarkerWish]]] = {}
        gone: list[_Due] = []
        has_homeless = False
        for due in self._due.values():
            wish = self._wish(due)
            if wish is None:
                gone.append(due)
            elif wish[0] == NO_LEADER:
                has_homeless = True
            elif wish[0] not in self._busy:
                by_leader.setdefault(wish[0], []).append((due, wish[1]))
        for broker_id, rows in by_leader.items():
            self._busy.add(broker_id)
            self._tasks.spawn(self._deliver(broker_id, _next(rows)))
        if has_homeless and not self._is_looking_later:
            self._is_looking_later = True
            self._tasks.spawn(self._look_later())
        for due in gone:
            _logger.info(
                "topic of a transaction is gone transactional_id=%s topic=%s", due.transactional_id, due.key[0]
            )
            self._strike_off(due)

    async def _look_later(self) -> None:
        await asyncio.sleep(RETRY_S)
        self._is_looking_later = False
        self._look()

    def _wish(self, due: _Due) -> tuple[int, MarkerWish] | None:
        """Return the leader of a partition and what it is asked for; None if the topic is gone."""
        image = self._partitions.image
        name, number = due.key
        topic = image.topics.get(name) if due.topic_id is None else image.topic_by_id(due.topic_id)
        state = None if topic is None else topic.partitions.get(number)
        if topic is None or state is None:
            return None
        led = self._partitions.get(TOPIC, due.shard.number)
        epoch = -1 if led is None else led.leader_epoch
        leader = state.leader if state.leader in image.brokers else NO_LEADER
        markers = due.markers
        return leader, MarkerWish(
            topic.topic_id,
            number,
            state.leader_epoch,
            markers.producer_id,
            markers.producer_epoch,
            epoch,
            markers.is_commit,
            due.decided_ms,
            markers.is_restored,
            due.has_own_epoch,
        )

    async def _deliver(self, broker_id: int, rows: Sequence[tuple[_Due, MarkerWish]]) -> None:
        try:
            codes = await self._ask(broker_id, [wish for _, wish in rows])
        except (ApiError, ProtocolError) as error:
            _logger.warning("markers not sent broker=%d markers=%d reason=%s", broker_id, len(rows), error)
            codes = [ErrorCode.NETWORK_EXCEPTION] * len(rows)
        is_all = True
        for (due, wish), code in zip(rows, codes, strict=True):
            if code is ErrorCode.NONE:
                self._strike_off(due)
            elif code in _GIVEN_UP:
                message = "marker refused for good transactional_id=%s partition=%s-%d coordinator_epoch=%d error=%s"
                _logger.error(message, due.transactional_id, *due.key, wish.coordinator_epoch, code.name)
                self._forget(due)
            else:
                is_all = False
                self._put_back(due)
        if not is_all:
            await asyncio.sleep(RETRY_S)
        self._busy.discard(broker_id)
        self._look()

    async def _ask(self, broker_id: int, wishes: Sequence[MarkerWish]) -> Sequence[ErrorCode]:
        if broker_id == self._broker_id:
            return await self._ends.write(wishes)
        broker = self._partitions.image.brokers.get(broker_id)
        if broker is None:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not registered")
        client = self._clients.get(broker_id)
        if client is None:
            client = self._clients[broker_id] = PeerClient(self._broker_id, self._keys, self._partitions.format_version)
        body = internal.encode_marker_wishes(wishes)
        answer = await client.call(broker.internal, InternalKey.WRITE_MARKERS, body, TIMEOUT_S)
        return internal.parse_codes(answer, len(wishes))

    def _forget(self, due: _Due) -> bool:
        """Forget what was due; return whether it was."""
        place = (due.transactional_id, due.key)
        if self._due.get(place) is not due:
            return False  # the shard was dropped, and perhaps loaded again
        del self._due[place]
        return True

    def _put_back(self, due: _Due) -> None:
        """Let all that is due come before this."""
        if self._forget(due):
            due.has_failed = True
            self._due[due.transactional_id, due.key] = due

    def _strike_off(self, due: _Due) -> None:
        if self._forget(due):
            due.shard.marked(due.transactional_id, due.key)


def _next(rows: Sequence[tuple[_Due, MarkerWish]]) -> Sequence[tuple[_Due, MarkerWish]]:
    """Return what to send next of *rows*, which are in the order in which they became due or failed."""
    fresh = [row for row in rows if not row[0].has_failed]
    failed = [row for row in rows if row[0].has_failed]
    chosen = fresh[: MAX_MARKERS - min(len(failed), MAX_AGAIN)]
    return chosen + failed[: MAX_MARKERS - len(chosen)]
