"""Plans place every replica, evenly, and move as little as they may."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.client.admin.moves import PlanError, plan_moves
from pylog.model import TopicPartition

Placed = dict[TopicPartition, tuple[int, ...]]


@st.composite
def placements(draw: st.DrawFn) -> tuple[Placed, list[int]]:
    """Partitions on brokers 1 to 6, and the brokers that may hold them, at least three."""
    count = draw(st.integers(0, 30))
    current = {
        TopicPartition("t", number): tuple(draw(st.permutations(range(1, 7)))[: draw(st.integers(1, 3))])
        for number in range(count)
    }
    return current, draw(st.lists(st.integers(1, 8), min_size=3, max_size=8, unique=True))


def loads(placed: Placed, brokers: list[int]) -> list[int]:
    held = Counter(broker for replicas in placed.values() for broker in replicas)
    return [held[broker] for broker in brokers]


@given(placements())
def test_a_plan_is_whole_even_and_its_own_end(drawn: tuple[Placed, list[int]]) -> None:
    current, brokers = drawn
    after = current | plan_moves(current, brokers)
    for one, replicas in after.items():
        assert len(replicas) == len(set(replicas)) == len(current[one])
        assert set(replicas) <= set(brokers)
    assert max(loads(after, brokers)) - min(loads(after, brokers)) <= 1
    assert plan_moves(after, brokers) == {}


@given(placements(), st.integers(1, 3))
def test_replicas_become_as_many_as_wanted(drawn: tuple[Placed, list[int]], factor: int) -> None:
    current, brokers = drawn
    after = current | plan_moves(current, brokers, replication_factor=factor)
    assert {len(set(replicas)) for replicas in after.values()} <= {factor}


@given(placements())
def test_without_balance_only_what_must_move_does(drawn: tuple[Placed, list[int]]) -> None:
    current, brokers = drawn
    moved = plan_moves(current, brokers, is_balanced=False)
    assert moved.keys() == {one for one, replicas in current.items() if not set(replicas) <= set(brokers)}
    for one, replicas in moved.items():
        stayed = [broker for broker in current[one] if broker in brokers]
        assert list(replicas[: len(stayed)]) == stayed


def test_a_new_broker_gets_its_share_and_followers_move_first() -> None:
    current = {TopicPartition("t", number): (1 + number % 2, 2 - number % 2) for number in range(6)}
    moved = plan_moves(current, [1, 2, 3])
    assert len(moved) == 4
    assert sum(3 in replicas for replicas in moved.values()) == 4
    leaders = Counter(replicas[0] for replicas in (current | moved).values())
    assert set(leaders.values()) == {2}


def test_too_few_brokers_are_refused() -> None:
    with pytest.raises(PlanError, match="2 replicas on 1 brokers"):
        plan_moves({TopicPartition("t", 0): (1, 2)}, [3])


RACKS = {1: ("a", "h1"), 2: ("a", "h1"), 3: ("b", "h2"), 4: ("b", "h3"), 5: ("c", "h4"), 6: ("c", "h5"), 7: ("c", "h5")}


def shared(placed: Placed, level: int) -> int:
    """Return how many replicas stand in the rack (0), or on the host (1), of another replica."""
    return sum(len(replicas) - len({RACKS[b][: level + 1] for b in replicas}) for replicas in placed.values())


@given(st.lists(st.permutations(range(1, 8)).map(lambda brokers: tuple(brokers[:3])), max_size=20))
def test_replicas_are_spread_over_racks_before_brokers_are_even(drawn: list[tuple[int, ...]]) -> None:
    current = {TopicPartition("t", number): replicas for number, replicas in enumerate(drawn)}
    after = current | plan_moves(current, RACKS, places=RACKS)
    assert shared(after, 0) == 0
    by_rack = Counter(RACKS[broker][0] for replicas in after.values() for broker in replicas)
    assert len(set(by_rack.values())) <= 1
    for rack in "abc":
        held = loads(after, [broker for broker in RACKS if RACKS[broker][0] == rack])
        assert max(held) - min(held) <= 1
    assert plan_moves(after, RACKS, places=RACKS) == {}


def test_where_racks_do_not_suffice_hosts_differ() -> None:
    brokers = {1: ("a", "h1"), 2: ("a", "h1"), 3: ("a", "h2"), 4: ("a", "h2")}
    current = {TopicPartition("t", number): (1, 2) for number in range(4)}
    after = current | plan_moves(current, brokers, places=brokers)
    assert all({brokers[b][1] for b in replicas} == {"h1", "h2"} for replicas in after.values())


def test_a_replica_that_must_move_goes_to_another_rack() -> None:
    current = {TopicPartition("t", 0): (1, 4)}
    assert plan_moves(current, {2, 3, 4, 5}, is_balanced=False, places=RACKS) == {TopicPartition("t", 0): (4, 2)}
    current = {TopicPartition("t", 0): (4, 1)}
    assert plan_moves(current, {3, 4, 5}, is_balanced=False, places=RACKS) == {TopicPartition("t", 0): (4, 5)}
