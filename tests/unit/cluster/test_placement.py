"""Where the replicas of a new topic go."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.cluster.image import BrokerInfo
from pylog.cluster.placement import place_replicas
from pylog.errors import ApiError, ErrorCode
from pylog.model import NodeAddress


def broker(broker_id: int, rack: str | None = None, host: str | None = None) -> BrokerInfo:
    address = NodeAddress(broker_id, host or f"host{broker_id}", 9092)
    return BrokerInfo(broker_id, 1, rack, address, address)


def test_leaders_go_round_from_the_start_index() -> None:
    brokers = [broker(1), broker(2), broker(3)]
    leaders = [replicas[0] for replicas in place_replicas(brokers, 5, 1, start_index=1).values()]
    assert leaders == [2, 3, 1, 2, 3]


def test_the_same_arguments_give_the_same_answer() -> None:
    brokers = [broker(number, "ab"[number % 2]) for number in range(6)]
    assert place_replicas(brokers, 30, 3, 4) == place_replicas(reversed(brokers), 30, 3, 4)


def test_replicas_spread_over_racks() -> None:
    brokers = [broker(number, "abc"[number % 3]) for number in range(9)]
    racks = {one.broker_id: one.rack for one in brokers}
    for replicas in place_replicas(brokers, 60, 3).values():
        assert {racks[replica] for replica in replicas} == {"a", "b", "c"}


def test_with_fewer_racks_than_replicas_each_rack_has_its_share() -> None:
    brokers = [broker(number, "ab"[number % 2]) for number in range(6)]
    racks = {one.broker_id: one.rack for one in brokers}
    for replicas in place_replicas(brokers, 60, 4).values():
        assert Counter(racks[replica] for replica in replicas) == {"a": 2, "b": 2}


def test_in_one_rack_replicas_spread_over_hosts() -> None:
    brokers = [broker(number, None, f"host{number // 2}") for number in range(6)]
    for replicas in place_replicas(brokers, 60, 3).values():
        assert len({replica // 2 for replica in replicas}) == 3


def test_neighbouring_leaders_stand_in_different_racks() -> None:
    brokers = [broker(number, "a" if number < 3 else "b") for number in range(6)]
    racks = {one.broker_id: one.rack for one in brokers}
    leaders = [racks[replicas[0]] for replicas in place_replicas(brokers, 12, 1).values()]
    assert all(one != other for one, other in pairwise(leaders))


@pytest.mark.parametrize(("factor", "count"), [(0, 3), (-1, 3), (4, 3), (1, 0)])
def test_a_replication_factor_out_of_reach_is_refused(factor: int, count: int) -> None:
    with pytest.raises(ApiError) as refused:
        place_replicas([broker(number) for number in range(count)], 1, factor)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


@given(
    racks=st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=8),
    count=st.integers(1, 40),
    factor=st.integers(1, 8),
    start=st.integers(0, 1000),
)
def test_what_holds_in_every_placement(racks: list[str | None], count: int, factor: int, start: int) -> None:
    brokers = [broker(number, rack) for number, rack in enumerate(racks)]
    factor = min(factor, len(brokers))
    assignment = place_replicas(brokers, count, factor, start)
    assert list(assignment) == list(range(count))
    assert all(len(set(replicas)) == factor for replicas in assignment.values())
    leaders = Counter(replicas[0] for replicas in assignment.values())
    assert max(leaders.values()) <= -(-count // len(brokers)), "no broker leads more than its share"
    distinct = len({rack or "" for rack in racks})
    for replicas in assignment.values():
        assert len({racks[replica] or "" for replica in replicas}) == min(factor, distinct)


def test_followers_are_even_where_racks_are() -> None:
    brokers = [broker(number, "abc"[number % 3]) for number in range(6)]
    held = Counter(replica for replicas in place_replicas(brokers, 60, 3).values() for replica in replicas)
    assert set(held.values()) == {30}
