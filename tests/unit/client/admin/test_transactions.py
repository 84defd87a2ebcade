"""What hangs, told from what a coordinator that was not heard may still end."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import pytest

from pylog import faults
from pylog.cli.failure import failure_of
from pylog.client.admin.transactions import CoordinatorsUnclear, OpenTransaction, TransactionAdmin, TransactionEnded
from pylog.client.raw import CoordinatorAnswer
from pylog.errors import ApiError, ErrorCode, Unreachable
from pylog.model import NO_LEADER, NodeAddress, TopicPartition
from pylog.wire.api.message import Message, Request
from pylog.wire.api.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pylog.wire.api.producers import InitProducerIdRequest, InitProducerIdResponse
from pylog.wire.api.transactions import (
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

ONE, TWO = (NodeAddress(number, f"h{number}", 9092) for number in (1, 2))
Leaders = Sequence[tuple[int, int]]


class Cluster(TransactionAdmin):
    """Two brokers; number of a partition of transactional ids is its place in *leaders*: (leader, leader epoch).

    Attributes:
        ids: what each broker coordinates: the state of a transaction by the producer id of its id.
        leaders: what each broker knows; None without the topic.
        after_list: what happens once a broker has listed its ids.
    """

    def __init__(self, opened: Iterable[OpenTransaction]) -> None:
        super().__init__("localhost:1")
        self.opened = list(opened)
        self.ids_of: dict[int, dict[int, str]] = {1: {}, 2: {}}
        self.leaders: dict[int, Leaders | None] = {1: [(1, 5), (2, 7)], 2: [(1, 5), (2, 7)]}
        self.sees_all = True
        self.away: set[int] = set()
        self.after_list: Callable[[NodeAddress], None] = lambda broker: None
        self.tries: list[tuple[str, ErrorCode]] = []
        self.is_repeated = False
        self.timeouts_ms: list[int] = []

    def open(self, partitions: Iterable[TopicPartition] | None = None) -> list[OpenTransaction]:
        return list(self.opened)

    def _brokers(self) -> Sequence[NodeAddress]:
        return (ONE, TWO)

    def _client(self) -> Any:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def lead(self, leaders: Leaders | None) -> None:
        self.leaders = dict.fromkeys((1, 2), leaders)

    def ask_broker(self, broker: NodeAddress, request: Request, version: int) -> memoryview:
        if broker.node_id in self.away:
            raise Unreachable(f"broker {broker.node_id}")
        answer = self._answer(broker, request)
        if isinstance(request, ListTransactionsRequest):
            self.after_list(broker)
        return memoryview(answer.encode(version))

    def ask_coordinator(
        self, key: str, key_type: int, request: Request, version: int, read: Callable[[CoordinatorAnswer], Any]
    ) -> Any:
        """Broker 2 is asked until it answers well; each of *tries* is the id's state then, and the answer."""
        assert isinstance(request, InitProducerIdRequest)
        self.timeouts_ms.append(request.transaction_timeout_ms)
        while True:
            self.ids_of[2][4], code = self.tries.pop(0)
            body = InitProducerIdResponse(error_code=code, producer_id=4, producer_epoch=1).encode(version)
            try:
                return read(CoordinatorAnswer(TWO, memoryview(body), self.is_repeated))
            except ApiError as error:
                if not error.retriable:
                    raise

    def _answer(self, broker: NodeAddress, request: Request) -> Message:
        ids = self.ids_of[broker.node_id]
        if isinstance(request, MetadataRequest):
            return MetadataResponse(brokers=[], topics=[_topic(self.leaders[broker.node_id])])
        if isinstance(request, ListTransactionsRequest):
            return ListTransactionsResponse(
                unknown_state_filters=[],
                transaction_states=[
                    ListedTransaction(transactional_id=f"id-{key}", producer_id=key, transaction_state=state)
                    for key, state in ids.items()
                ],
            )
        assert isinstance(request, DescribeTransactionsRequest)
        return DescribeTransactionsResponse(
            transaction_states=[self._described(ids, name) for name in request.transactional_ids]
        )

    def _described(self, ids: Mapping[int, str], name: str) -> DescribedTransaction:
        if not name.startswith("id-"):
            code = ErrorCode.NOT_COORDINATOR if self.sees_all else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return DescribedTransaction(transactional_id=name, error_code=code)
        number = int(name.removeprefix("id-"))
        return DescribedTransaction(
            transactional_id=name,
            producer_id=number,
            transaction_state=ids[number],
            topics=[DescribedTransactionTopic(topic="t", partitions=[0])],
        )


def _topic(leaders: Leaders | None) -> MetadataResponseTopic:
    if leaders is None:
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name="__transaction_state")
    rows = [
        MetadataResponsePartition(partition_index=n, leader_id=one, leader_epoch=epoch, replica_nodes=[], isr_nodes=[])
        for n, (one, epoch) in enumerate(leaders)
    ]
    return MetadataResponseTopic(name="__transaction_state", partitions=rows)


def opened(producer_id: int = 4, start: int = 10) -> OpenTransaction:
    return OpenTransaction(TopicPartition("t", 0), producer_id, 0, -1, start, 1_000)


def hanging(cluster: Cluster) -> list[int]:
    return [one.producer_id for one in cluster.hanging(0, 2_000)]


def test_what_no_coordinator_knows_hangs_once_all_were_heard() -> None:
    cluster = Cluster([opened(4), opened(5)])
    cluster.ids_of[2] = {5: "Ongoing"}
    assert hanging(cluster) == [4]


def test_without_the_topic_of_transactional_ids_nobody_coordinates() -> None:
    cluster = Cluster([opened()])
    cluster.lead(None)
    assert hanging(cluster) == [4]


@pytest.mark.parametrize(
    ("leaders", "message"),
    [
        ([(1, 5), (NO_LEADER, 7)], "__transaction_state-1 has no leader"),
        ([(1, 5), (3, 7)], "__transaction_state-1 is led by broker 3, which is not there"),
    ],
)
def test_a_partition_that_nobody_lists_leaves_open_what_hangs(leaders: Leaders, message: str) -> None:
    cluster = Cluster([opened()])
    cluster.lead(leaders)
    with pytest.raises(CoordinatorsUnclear, match=message) as caught:
        hanging(cluster)
    told = failure_of(caught.value)
    assert (told.fault, told.exit_code) == (faults.COORDINATORS_UNCLEAR, faults.Exit.UNKNOWN)


def test_an_id_that_moves_between_two_lists_does_not_hang() -> None:
    cluster = Cluster([opened()])
    cluster.ids_of[2] = {4: "PrepareCommit"}

    def move(broker: NodeAddress) -> None:
        if broker == ONE:
            cluster.ids_of = {1: {4: "PrepareCommit"}, 2: {}}
            cluster.lead([(1, 5), (1, 8)])

    cluster.after_list = move
    with pytest.raises(CoordinatorsUnclear, match="changed while they were asked"):
        hanging(cluster)


def test_a_leader_that_came_back_meanwhile_has_another_epoch() -> None:
    cluster = Cluster([opened()])
    cluster.after_list = lambda broker: cluster.lead([(1, 5), (2, 9)])
    with pytest.raises(CoordinatorsUnclear, match="changed while they were asked"):
        hanging(cluster)


def test_a_leader_that_does_not_know_yet_that_it_leads_is_not_heard() -> None:
    cluster = Cluster([opened()])
    cluster.leaders[2] = [(1, 5), (1, 6)]
    with pytest.raises(CoordinatorsUnclear, match="do not agree"):
        hanging(cluster)


def test_a_list_that_leaves_out_what_the_user_may_not_see_says_nothing() -> None:
    cluster = Cluster([opened()])
    cluster.sees_all = False
    with pytest.raises(CoordinatorsUnclear, match="may not describe every transactional id"):
        hanging(cluster)


def test_a_broker_that_does_not_answer_is_not_heard() -> None:
    cluster = Cluster([opened()])
    cluster.away = {2}
    with pytest.raises(Unreachable):
        hanging(cluster)


def test_the_next_transaction_of_a_producer_is_not_taken_for_the_one_that_was_looked_for() -> None:
    cluster = Cluster([opened(start=10)])
    cluster.ids_of[1] = {4: "CompleteCommit"}

    def go_on(broker: NodeAddress) -> None:
        cluster.opened = [replace(opened(), start=20)]

    cluster.after_list = go_on
    assert hanging(cluster) == []


ENDING = ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize(
    "tries",
    [
        [("PrepareAbort", ENDING), ("Empty", ErrorCode.NONE)],
        [("Ongoing", ENDING), ("CompleteAbort", ENDING), ("Empty", ErrorCode.NONE)],
    ],
    ids=["ends at once", "something else is written first"],
)
def test_a_transaction_was_aborted_once_its_id_was_seen_to_abort(tries: list[tuple[str, ErrorCode]]) -> None:
    cluster = Cluster([])
    cluster.tries = tries
    cluster.abort("id-4")
    assert not cluster.tries
    assert cluster.timeouts_ms == [1], "whatever the brokers allow, and whatever its transactions had"


@pytest.mark.parametrize("state", ["PrepareCommit", "CompleteCommit"])
def test_a_producer_that_commits_is_not_fenced(state: str) -> None:
    cluster = Cluster([])
    cluster.tries = [("Ongoing", ENDING), (state, ENDING)]
    with pytest.raises(TransactionEnded, match=f"'id-4' is in state {state}"):
        cluster.abort("id-4")


def test_a_transaction_that_had_ended_is_not_said_to_be_aborted() -> None:
    cluster = Cluster([])
    cluster.tries = [("Empty", ErrorCode.NONE)]
    with pytest.raises(TransactionEnded, match="ended before") as caught:
        cluster.abort("id-4")
    assert failure_of(caught.value).fault is faults.TRANSACTION_NOT_OPEN


def test_an_abort_whose_answer_was_lost_is_not_said_to_have_come_too_late() -> None:
    cluster = Cluster([])
    cluster.tries, cluster.is_repeated = [("Empty", ErrorCode.NONE)], True
    with pytest.raises(TransactionEnded, match="nobody could see how"):
        cluster.abort("id-4")
