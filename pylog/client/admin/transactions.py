"""Transactions as an operator sees and ends them: those of transactional ids, and those that hang in a partition.

A transaction *hangs* where a partition has it open and the coordinator of its producer does not: nobody will end it,
and readers of committed records wait before it for ever.

Source: KIP-664; Kafka's TransactionsCommand.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pylog.client.admin.cluster import Admin
from pylog.client.connection import Connection, as_connection
from pylog.client.raw import RawClient, RawConfig, raise_for
from pylog.errors import ApiError, ErrorCode
from pylog.model import NodeAddress, Offset, TopicPartition
from pylog.wire.api.coordinator import TRANSACTION, FindCoordinatorRequest, FindCoordinatorResponse
from pylog.wire.api.message import Request
from pylog.wire.api.producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopic,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProducerState,
)
from pylog.wire.api.transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    MarkerTopic,
    TransactionMarker,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
"""States of an id whose transaction is open in some partition."""

_FIND_VERSION = 3
_INIT_VERSION = 4
_LIST_VERSION = 0
_DESCRIBE_VERSION = 0
_PRODUCERS_VERSION = 0
_MARKERS_VERSION = 1


@dataclass(frozen=True, slots=True)
class TransactionView:
    """One transactional id.

    Attributes:
        coordinator: the broker that keeps it.
        state: in Kafka's words: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort.
        timeout_ms: after which an open transaction is aborted.
        start_ms: when the open transaction began; None without one.
        partitions: of the open transaction.
    """

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """What one partition says of a transaction that is open there.

    Attributes:
        coordinator_epoch: of the producer's last marker in this partition; -1 if it had none.
        start: first offset of the transaction.
        last_ms: when the producer wrote last.
        transactional_id: whose transaction it is, as far as a coordinator knows the producer; None if none does.
    """

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start: Offset
    last_ms: int
    transactional_id: str | None = None


class TransactionAdmin:
    """Asks brokers about transactions and ends them; raises as `RawClient` does.

    Args:
        cluster: a `Connection`, or just ``host:port``.
    """

    def __init__(self, cluster: Connection | str) -> None:
        self._cluster = as_connection(cluster)
        self._admin = Admin(self._cluster)

    def ids(self, states: Collection[str] = (), producer_ids: Collection[int] = ()) -> list[TransactionView]:
        """Return the transactional ids of all brokers, by name.

        Args:
            states: only ids in one of these; all if empty.
            producer_ids: only ids of these producers; all if empty.
        """
        request = ListTransactionsRequest(state_filters=list(states), producer_id_filters=list(producer_ids))
        found: dict[str, TransactionView] = {}
        with self._client() as client:
            for broker in self._admin.cluster().brokers:
                body = client.ask_broker(broker, request, _LIST_VERSION)
                answer = ListTransactionsResponse.decode(_LIST_VERSION, body)
                raise_for(answer.error_code, f"transactional ids of broker {broker.node_id}")
                if answer.unknown_state_filters:
                    unknown = ", ".join(answer.unknown_state_filters)
                    raise ApiError(ErrorCode.INVALID_REQUEST, f"broker {broker.node_id} knows no state {unknown}")
                names = [one.transactional_id for one in answer.transaction_states]
                found |= {view.transactional_id: view for view in _described(client, broker, names)}
        return [found[name] for name in sorted(found)]

    def describe(self, transactional_id: str) -> TransactionView:
        """Return one transactional id.

        Raises:
            ApiError: TRANSACTIONAL_ID_NOT_FOUND.
        """
        with self._client() as client:
            broker = _coordinator(client, transactional_id)
            for view in _described(client, broker, [transactional_id]):
                return view
        raise ApiError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"transactional id {transactional_id!r} is not known")

    def open(self, partitions: Iterable[TopicPartition] | None = None) -> list[OpenTransaction]:
        """Return what is open in *partitions*, or in all that have a leader, the oldest first."""
        if partitions is None:
            topics = self._admin.cluster().topics.values()
            partitions = [TopicPartition(t.name, p.partition) for t in topics for p in t.partitions if p.has_leader]
        with self._client() as client:
            found = client.ask_leaders(partitions, _producers_request, _PRODUCERS_VERSION, _producers)
        rows = [
            OpenTransaction(
                partition,
                one.producer_id,
                one.producer_epoch,
                one.coordinator_epoch,
                one.current_txn_start_offset,
                one.last_timestamp,
            )
            for partition, producers in found.items()
            for one in producers
            if one.current_txn_start_offset >= 0
        ]
        return sorted(rows, key=lambda one: (one.last_ms, one.partition, one.start))

    def hanging(
        self, older_than_ms: int, now_ms: int, partitions: Iterable[TopicPartition] | None = None
    ) -> list[OpenTransaction]:
        """Return what is open in a partition and that no coordinator will end there, the oldest first.

        Args:
            older_than_ms: only transactions whose producer has not written to the partition for so long.  One that is
                being added to, or ended, looks like a hanging one for a moment.
            now_ms: the time.
            partitions: where to look; None for all.
        """
        old = [one for one in self.open(partitions) if now_ms - one.last_ms >= older_than_ms]
        if not old:
            return []
        views = {view.producer_id: view for view in self.ids(producer_ids={one.producer_id for one in old})}
        found = []
        for one in old:
            view = views.get(one.producer_id)
            if view is None or view.state not in OPEN_STATES or one.partition not in view.partitions:
                found.append(replace(one, transactional_id=None if view is None else view.transactional_id))
        return found

    def abort(self, view: TransactionView) -> None:
        """Abort the open transaction of an id, and fence its producer, as another producer of this id would.

        Returns once the transaction has ended in all its partitions.

        Raises:
            ApiError: the coordinator refuses.
        """
        with self._client() as client:
            # The first answer says that the transaction is being aborted; the retry comes when it is.
            client.retrying(lambda: _fence(client, view))

    def abort_in_partition(self, transaction: OpenTransaction) -> None:
        """Write the marker that aborts a hanging transaction where it hangs.

        Raises:
            ApiError: the leader refuses, since the producer has another epoch, or a coordinator wrote since.
        """
        marker = TransactionMarker(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            transaction_result=False,
            topics=[MarkerTopic(name=transaction.partition.topic, partition_indexes=[transaction.partition.partition])],
            coordinator_epoch=max(transaction.coordinator_epoch, 0),
        )
        with self._client() as client:
            client.ask_leaders(
                [transaction.partition],
                lambda _: WriteTxnMarkersRequest(markers=[marker]),
                _MARKERS_VERSION,
                _written,
            )

    def _client(self) -> RawClient:
        timeout_ms = int(self._cluster.timeout_s * 1000)
        limits = RawConfig(request_timeout_ms=timeout_ms, retry_ms=timeout_ms)
        return RawClient(self._cluster.bootstrap, limits, self._cluster.security())


def _coordinator(client: RawClient, transactional_id: str) -> NodeAddress:
    request = FindCoordinatorRequest(key=transactional_id, key_type=TRANSACTION, coordinator_keys=[transactional_id])

    def ask() -> NodeAddress:
        [found] = FindCoordinatorResponse.decode(_FIND_VERSION, client.ask(request, _FIND_VERSION)).coordinators
        raise_for(found.error_code, f"coordinator of transactional id {transactional_id!r}")
        return NodeAddress(found.node_id, found.host, found.port)

    return client.retrying(ask)


def _described(client: RawClient, broker: NodeAddress, names: Sequence[str]) -> Iterator[TransactionView]:
    """Yield what a coordinator knows of ids; one that has gone meanwhile, or moved away, is left out."""
    if not names:
        return
    request = DescribeTransactionsRequest(transactional_ids=list(names))
    body = client.ask_broker(broker, request, _DESCRIBE_VERSION)
    for one in DescribeTransactionsResponse.decode(_DESCRIBE_VERSION, body).transaction_states:
        if one.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            continue
        raise_for(one.error_code, f"transactional id {one.transactional_id!r}")
        yield _view(one, broker.node_id)


def _view(found: DescribedTransaction, coordinator: int) -> TransactionView:
    return TransactionView(
        found.transactional_id,
        coordinator,
        found.producer_id,
        found.producer_epoch,
        found.transaction_state,
        found.transaction_timeout_ms,
        found.transaction_start_time_ms if found.transaction_start_time_ms >= 0 else None,
        tuple(sorted(TopicPartition(topic.topic, number) for topic in found.topics for number in topic.partitions)),
    )


def _fence(client: RawClient, view: TransactionView) -> None:
    broker = _coordinator(client, view.transactional_id)
    request = InitProducerIdRequest(transactional_id=view.transactional_id, transaction_timeout_ms=view.timeout_ms)
    answer = InitProducerIdResponse.decode(_INIT_VERSION, client.ask_broker(broker, request, _INIT_VERSION))
    raise_for(answer.error_code, f"transactional id {view.transactional_id!r}")


def _producers_request(partitions: Mapping[str, Sequence[int]]) -> Request:
    return DescribeProducersRequest(
        topics=[
            DescribeProducersTopic(name=topic, partition_indexes=list(numbers)) for topic, numbers in partitions.items()
        ]
    )


def _producers(body: memoryview) -> Iterator[tuple[TopicPartition, int, Sequence[ProducerState]]]:
    for topic in DescribeProducersResponse.decode(_PRODUCERS_VERSION, body).topics:
        for one in topic.partitions:
            yield TopicPartition(topic.name, one.partition_index), one.error_code, one.active_producers


def _written(body: memoryview) -> Iterator[tuple[TopicPartition, int, None]]:
    for marker in WriteTxnMarkersResponse.decode(_MARKERS_VERSION, body).markers:
        for topic in marker.topics:
            for one in topic.partitions:
                yield TopicPartition(topic.name, one.partition_index), one.error_code, None
