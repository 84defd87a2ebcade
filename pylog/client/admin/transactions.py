"""Transactions as an operator sees and ends them: those of transactional ids, and those that hang in a partition.

A transaction *hangs* where a partition has it open and the coordinator of its producer does not: nobody will end it,
and readers of committed records wait before it for ever.

Source: KIP-664; Kafka's TransactionsCommand.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import uuid4

from pylog.client.admin.cluster import Admin
from pylog.client.connection import Connection, as_connection
from pylog.client.raw import METADATA_VERSION, CoordinatorAnswer, RawClient, RawConfig, raise_for
from pylog.errors import ApiError, ErrorCode, PylogError
from pylog.model import NO_LEADER, TRANSACTIONS_TOPIC, NodeAddress, Offset, TopicPartition
from pylog.wire.api.coordinator import TRANSACTION
from pylog.wire.api.message import Request
from pylog.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
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
ABORTABLE_STATES = ("Ongoing", "PrepareAbort")
"""States of an id whose transaction is not decided, or will be aborted."""
_ABORTED_STATES = ("PrepareAbort", "CompleteAbort")
_COMMITTED_STATES = ("PrepareCommit", "CompleteCommit")

_INIT_VERSION = 4
_LIST_VERSION = 0
_DESCRIBE_VERSION = 0
_PRODUCERS_VERSION = 0
_MARKERS_VERSION = 1
_FENCING_TIMEOUT_MS = 1
"""Time-out of transactions, told for an id that is only taken from its producer: the broker's limit may be lower by now
than that of its transactions."""


class CoordinatorsUnclear(PylogError):
    """Not every coordinator of transactions was heard: nobody can tell what hangs.  Try again once all are there."""

    fault = 219


class TransactionEnded(PylogError):
    """A transaction could not be aborted, because it had ended, or its producer had decided to commit it."""

    fault = 217


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
        with self._client() as client:
            found = _listed(client, self._brokers(), states, producer_ids)
        return [found[name] for name in sorted(found)]

    def describe(self, transactional_id: str) -> TransactionView:
        """Return one transactional id.

        Raises:
            ApiError: TRANSACTIONAL_ID_NOT_FOUND.
        """
        with self._client() as client:
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            views = client.ask_coordinator(
                transactional_id,
                TRANSACTION,
                request,
                _DESCRIBE_VERSION,
                lambda answer: list(_views(answer.body, answer.broker)),
            )
        for view in views:
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

        Raises:
            CoordinatorsUnclear: a coordinator may know a transaction that none of those heard does.
        """
        old = [one for one in self.open(partitions) if now_ms - one.last_ms >= older_than_ms]
        if not old:
            return []
        views = self._all_views({one.producer_id for one in old})
        # What has ended since, or has begun anew since, its coordinator did end.
        still = {_identity(one) for one in self.open({one.partition for one in old})}
        old = [one for one in old if _identity(one) in still]
        found = []
        for one in old:
            view = views.get(one.producer_id)
            if view is None or view.state not in OPEN_STATES or one.partition not in view.partitions:
                found.append(replace(one, transactional_id=None if view is None else view.transactional_id))
        return found

    def abort(self, transactional_id: str) -> None:
        """Abort the open transaction of an id, and fence its producer, as another producer of this id would.

        Returns once the transaction has ended in all its partitions.

        Raises:
            ApiError: the coordinator refuses.
            TransactionEnded: it is being committed, or has ended before, or nobody could see how it ended.
        """
        name, is_aborted, is_unclear = transactional_id, False, False
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=_FENCING_TIMEOUT_MS)

        def read(answer: CoordinatorAnswer) -> None:
            nonlocal is_aborted, is_unclear
            found = InitProducerIdResponse.decode(_INIT_VERSION, answer.body)
            is_unclear = is_unclear or answer.is_repeated
            if found.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
                # It ends, and the next try comes later; how it ends its producer may have decided before us.
                is_unclear = True
                state = next((view.state for view in _described(client, answer.broker, [name])), "")
                is_unclear = False
                if state in _COMMITTED_STATES:
                    raise TransactionEnded(f"{name!r} is in state {state}: its producer commits")
                is_aborted = is_aborted or state in _ABORTED_STATES
            raise_for(found.error_code, f"transactional id {name!r}")

        with self._client() as client:
            client.ask_coordinator(name, TRANSACTION, request, _INIT_VERSION, read)
        if not is_aborted:
            how = "ended, and nobody could see how" if is_unclear else "had ended before"
            raise TransactionEnded(f"the transaction of {name!r} {how}; its producer is fenced")

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

    def _all_views(self, producer_ids: Collection[int]) -> Mapping[int, TransactionView]:
        """Return what is known of producers, by producer id, once it is certain that every coordinator was heard.

        A coordinator that is not there says nothing, and that sounds as if it knew nothing.

        Raises:
            CoordinatorsUnclear: one was not heard, or the caller may not see what one knows.
        """
        with self._client() as client:
            brokers = self._brokers()
            _require_right(client, brokers[0])
            before = _coordinators(client, brokers)
            found = _listed(client, brokers, (), producer_ids)
            if _coordinators(client, brokers) != before:
                raise CoordinatorsUnclear("coordinators of transactions changed while they were asked")
        return {view.producer_id: view for view in found.values()}

    def _brokers(self) -> Sequence[NodeAddress]:
        return self._admin.cluster().brokers

    def _client(self) -> RawClient:
        timeout_ms = int(self._cluster.timeout_s * 1000)
        limits = RawConfig(request_timeout_ms=timeout_ms, retry_ms=timeout_ms)
        return RawClient(self._cluster.bootstrap, limits, self._cluster.security())


def _identity(one: OpenTransaction) -> tuple[TopicPartition, int, int, Offset]:
    return one.partition, one.producer_id, one.producer_epoch, one.start


def _listed(
    client: RawClient, brokers: Iterable[NodeAddress], states: Collection[str], producer_ids: Collection[int]
) -> dict[str, TransactionView]:
    """Return the transactional ids that *brokers* coordinate, by name."""
    request = ListTransactionsRequest(state_filters=list(states), producer_id_filters=list(producer_ids))
    found: dict[str, TransactionView] = {}
    for broker in brokers:
        answer = ListTransactionsResponse.decode(_LIST_VERSION, client.ask_broker(broker, request, _LIST_VERSION))
        raise_for(answer.error_code, f"transactional ids of broker {broker.node_id}")
        if answer.unknown_state_filters:
            unknown = ", ".join(answer.unknown_state_filters)
            raise ApiError(ErrorCode.INVALID_REQUEST, f"broker {broker.node_id} knows no state {unknown}")
        names = [one.transactional_id for one in answer.transaction_states]
        found |= {view.transactional_id: view for view in _described(client, broker, names)}
    return found


def _coordinators(client: RawClient, brokers: Sequence[NodeAddress]) -> Mapping[int, tuple[int, int]]:
    """Return leader and leader epoch of each partition that keeps transactional ids, as all *brokers* know them.

    A broker is asked for what it knows itself: one that has not learned yet that it leads a partition lists no ids of
    it.  Without the topic there are no coordinators, and nothing is returned.

    Raises:
        CoordinatorsUnclear: a partition has no leader, or one that is not among *brokers*, or brokers do not agree.
    """
    request = MetadataRequest(topics=[MetadataRequestTopic(name=TRANSACTIONS_TOPIC)], allow_auto_topic_creation=False)
    views = []
    for broker in brokers:
        body = client.ask_broker(broker, request, METADATA_VERSION)
        [topic] = MetadataResponse.decode(METADATA_VERSION, body).topics
        if topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise_for(topic.error_code, f"topic {TRANSACTIONS_TOPIC}")
        views.append({one.partition_index: (one.leader_id, one.leader_epoch) for one in topic.partitions})
    if any(view != views[0] for view in views):
        raise CoordinatorsUnclear(f"brokers do not agree yet who leads the partitions of {TRANSACTIONS_TOPIC}")
    known = {broker.node_id for broker in brokers}
    for number, (leader, _) in sorted(views[0].items()):
        if leader not in known:
            state = "has no leader" if leader == NO_LEADER else f"is led by broker {leader}, which is not there"
            raise CoordinatorsUnclear(f"partition {TRANSACTIONS_TOPIC}-{number} {state}")
    return views[0]


def _require_right(client: RawClient, broker: NodeAddress) -> None:
    """Make sure that the caller sees every transactional id: a list leaves out what is not for its eyes.

    Raises:
        CoordinatorsUnclear: it does not.
    """
    anyone = str(uuid4())  # only who may describe all ids may describe this one
    request = DescribeTransactionsRequest(transactional_ids=[anyone])
    body = client.ask_broker(broker, request, _DESCRIBE_VERSION)
    [found] = DescribeTransactionsResponse.decode(_DESCRIBE_VERSION, body).transaction_states
    if found.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        raise CoordinatorsUnclear("this user may not describe every transactional id")


def _described(client: RawClient, broker: NodeAddress, names: Sequence[str]) -> Iterator[TransactionView]:
    """Yield what a coordinator knows of ids; one that has gone meanwhile, or moved away, is left out."""
    if not names:
        return
    request = DescribeTransactionsRequest(transactional_ids=list(names))
    yield from _views(client.ask_broker(broker, request, _DESCRIBE_VERSION), broker)


def _views(body: memoryview, broker: NodeAddress) -> Iterator[TransactionView]:
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
