"""What counts as healthy."""

import pytest

from pylog.client.admin.cluster import ClusterView, PartitionView, TopicView
from pylog.client.admin.health import Wanted, judge, outages
from pylog.model import NO_LEADER, NodeAddress, TopicPartition

BROKERS = (NodeAddress(1, "a", 9092), NodeAddress(2, "b", 9092), NodeAddress(3, "c", 9092))


def cluster(*partitions: PartitionView, controller_id: int = 1) -> ClusterView:
    return ClusterView("c", controller_id, BROKERS, {"t": TopicView("t", partitions)})


ANYTHING = Wanted()


def kinds(
    view: ClusterView,
    wanted: Wanted = ANYTHING,
    answering: frozenset[int] = frozenset({1, 2, 3}),
    not_ready: str | None = None,
) -> list[str]:
    return [problem.kind for problem in judge(view, answering, wanted, not_ready)]


GOOD = PartitionView(0, 1, (1, 2, 3), (1, 2, 3))


def test_all_there_and_in_sync_is_healthy() -> None:
    assert kinds(cluster(GOOD)) == []


def test_isr_order_does_not_matter() -> None:
    assert kinds(cluster(PartitionView(0, 1, (1, 2, 3), (3, 1, 2)))) == []


def test_an_unknown_controller_is_a_problem() -> None:
    assert kinds(cluster(GOOD, controller_id=-1)) == ["no_controller"]


def test_a_broker_that_is_registered_but_silent_is_a_problem() -> None:
    assert kinds(cluster(GOOD), answering=frozenset({1, 3})) == ["broker_silent"]


def test_fewer_brokers_than_wanted_is_a_problem() -> None:
    assert kinds(cluster(GOOD), Wanted(broker_count=4)) == ["broker_missing"]


def test_the_wanted_broker_must_be_registered() -> None:
    assert kinds(cluster(GOOD), Wanted(broker=4)) == ["broker_missing"]


def test_no_leader_is_reported_once() -> None:
    assert kinds(cluster(PartitionView(0, NO_LEADER, (1,), ()))) == ["no_leader"]


def test_a_short_isr_is_a_problem() -> None:
    assert kinds(cluster(PartitionView(0, 1, (1, 2, 3), (1, 3)))) == ["not_in_sync"]


def test_the_wanted_broker_must_lead_what_prefers_it_if_asked() -> None:
    elsewhere = PartitionView(0, 1, (2, 1, 3), (1, 2, 3))
    assert kinds(cluster(elsewhere), Wanted(broker=2)) == []
    assert kinds(cluster(elsewhere), Wanted(broker=2, is_leading=True)) == ["not_leading"]
    assert kinds(cluster(elsewhere), Wanted(broker=3, is_leading=True)) == []


def test_a_broker_that_says_it_is_not_ready_is_believed() -> None:
    assert kinds(cluster(GOOD), Wanted(broker=2), not_ready="recovering 3 of 9 logs") == ["not_ready"]


def test_a_broker_that_may_be_lost_need_neither_answer_nor_be_in_sync() -> None:
    behind = PartitionView(0, 1, (1, 2, 3), (1, 3))
    assert kinds(cluster(behind), Wanted(away=frozenset({2})), frozenset({1, 3})) == []
    assert kinds(cluster(behind), Wanted(away=frozenset({3}))) == ["not_in_sync"]


def test_a_replica_on_its_way_need_not_be_in_sync() -> None:
    view = cluster(PartitionView(0, 1, (1, 2, 3), (1, 2)))
    assert judge(view, {1, 2, 3}, ANYTHING, arriving={TopicPartition("t", 0): (3,)}) == []
    [found] = judge(view, {1, 2, 3}, ANYTHING, arriving={TopicPartition("t", 1): (3,)})
    assert found.kind == "not_in_sync"


def test_what_only_brokers_have_that_may_be_lost_is_a_problem() -> None:
    alone = PartitionView(0, 2, (1, 2, 3), (2,))
    assert kinds(cluster(alone), Wanted(away=frozenset({2}))) == ["nowhere_else"]
    assert kinds(cluster(PartitionView(0, 1, (1, 2, 3), (2, 1))), Wanted(away=frozenset({1, 2}))) == ["nowhere_else"]
    assert kinds(cluster(PartitionView(0, NO_LEADER, (2,), ())), Wanted(away=frozenset({2}))) == ["no_leader"]


@pytest.mark.parametrize(
    ("partition", "min_isr", "lost"),
    [
        (GOOD, 2, []),
        (GOOD, 3, [(1, "read-only"), (2, "read-only"), (3, "read-only")]),
        (PartitionView(0, 1, (1,), (1,)), 1, [(1, "offline")]),
        (PartitionView(0, 1, (1,), (1,)), 2, [(1, "offline")]),
        (PartitionView(0, 1, (1, 2), (1, 2)), 2, [(1, "read-only"), (2, "read-only")]),
        (PartitionView(0, 1, (1, 2), (1, 2)), 1, []),
        (PartitionView(0, 1, (1, 2, 3), (1, 2)), 2, [(1, "read-only"), (2, "read-only")]),
        (PartitionView(0, 3, (1, 2, 3), (3,)), 1, [(3, "offline")]),
        (PartitionView(0, NO_LEADER, (1,), ()), 1, []),
    ],
)
def test_f13_what_each_stop_takes_from_clients(
    partition: PartitionView, min_isr: int, lost: list[tuple[int, str]]
) -> None:
    found = outages(cluster(partition), [1, 2, 3], {"t": min_isr})
    assert [(one.broker, one.effect) for one in found] == lost
