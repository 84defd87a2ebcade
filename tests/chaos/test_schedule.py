"""The schedule is decided by its seed, and every kind happens often enough in an hour."""

from collections import Counter

import pytest

from tests.chaos.schedule import QUIET_S, WARM_UP_S, Kind, World, plan

HOUR_S = 3600.0


def test_the_same_seed_gives_the_same_faults_and_another_one_others() -> None:
    assert plan(7, HOUR_S, World()) == plan(7, HOUR_S, World())
    assert plan(7, HOUR_S, World()) != plan(8, HOUR_S, World())


@pytest.mark.parametrize("seed", range(20))
def test_an_hour_has_twenty_faults_of_each_kind(seed: int) -> None:
    counts = Counter(fault.kind for fault in plan(seed, HOUR_S, World()))
    assert counts.pop(Kind.SWAP) >= World().brokers
    assert min(counts[Kind.RECREATE], counts[Kind.TRIM]) >= 30
    assert {kind: count for kind, count in counts.items() if count < 20} == {}


@pytest.mark.parametrize("minutes", [1, 2, 10])
@pytest.mark.parametrize("brokers", [3, 4, 5])
def test_every_fault_ends_before_the_run_and_hits_something_that_is_there(minutes: int, brokers: int) -> None:
    world = World(brokers=brokers)
    for seed in range(20):
        for fault in plan(seed, 60.0 * minutes, world):
            assert WARM_UP_S <= fault.at_s <= fault.ends_s <= 60.0 * minutes - QUIET_S + 1
            targets = {Kind.ZOOKEEPER: world.servers, Kind.MOVE: world.partitions - 1}
            assert fault.target in range(targets.get(fault.kind, brokers) + 1)
            assert fault.kind is not Kind.CUT or fault.value != fault.target


def test_two_minutes_have_every_kind() -> None:
    for seed in range(20):
        assert {fault.kind for fault in plan(seed, 120.0, World())} == set(Kind)


def test_topics_are_made_again_only_when_all_brokers_have_one_release() -> None:
    faults = plan(3, HOUR_S, World())
    last_swap_s = max(fault.ends_s for fault in faults if fault.kind is Kind.SWAP)
    changing = (Kind.RECREATE, Kind.TRIM, Kind.MOVE)
    assert all(fault.at_s >= last_swap_s for fault in faults if fault.kind in changing)


@pytest.mark.parametrize("brokers", [3, 4, 5])
def test_some_brokers_go_back_to_the_previous_release_and_every_one_ends_with_this_one(brokers: int) -> None:
    swaps = [fault for fault in plan(3, HOUR_S, World(brokers=brokers)) if fault.kind is Kind.SWAP]
    runs_this = dict.fromkeys(range(1, brokers + 1), False)
    for swap in swaps:
        assert runs_this[swap.target] is not bool(swap.value)
        runs_this[swap.target] = bool(swap.value)
    assert all(runs_this.values())
    assert sum(not swap.value for swap in swaps) == 2


def test_without_swaps_topics_are_made_again_from_the_start() -> None:
    faults = plan(3, 120.0, World(has_swaps=False))
    assert {fault.kind for fault in faults} == set(Kind) - {Kind.SWAP}
    assert min(fault.at_s for fault in faults if fault.kind is Kind.RECREATE) < 40.0


def test_a_run_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 60 s, got 10"):
        plan(1, 10.0, World())
