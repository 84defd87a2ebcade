"""The lag is never negative, never frozen, and zero only when everything is there."""

import math

from hypothesis import given
from hypothesis import strategies as st

from pylog.mirror.lag import MAX_SIGHTINGS, STALE_MS, Lag


def test_t27_the_lag_grows_while_the_source_cannot_be_asked_and_falls_when_it_can() -> None:
    lag = Lag(0)
    lag.arrive(100)
    lag.see_end(100, 1_000)
    assert (lag.seconds(1_000), lag.records(1_000), lag.complete_ms) == (0, 0, 1_000)
    assert lag.seconds(3_601_000) == 3_600
    assert math.isnan(lag.records(3_601_000))
    lag.see_end(5_100, 3_601_000)
    assert (lag.seconds(3_601_000), lag.records(3_601_000)) == (3_600, 5_000)
    lag.arrive(5_100)
    assert (lag.seconds(3_602_000), lag.records(3_602_000)) == (1, 0)


def test_a_restart_does_not_make_the_target_newer() -> None:
    lag = Lag(3_601_000, complete_ms=1_000)
    lag.reset(100)
    assert lag.seconds(3_601_000) == 3_600
    lag.see_end(5_100, 3_602_000)
    assert (lag.seconds(3_602_000), lag.complete_ms) == (3_601, 1_000)
    lag.arrive(5_100)
    assert lag.seconds(3_603_000) == 1


def test_a_restart_where_nothing_came_is_soon_told_so() -> None:
    lag = Lag(3_601_000, complete_ms=1_000)
    lag.reset(100)
    lag.see_end(100, 3_602_000)
    assert lag.seconds(3_602_000) == 0


def test_a_moment_noted_by_a_clock_ahead_is_not_believed() -> None:
    assert Lag(5_000, complete_ms=9_000).seconds(6_000) == 1


def test_what_arrived_in_part_counts_in_part() -> None:
    lag = Lag(0)
    for second in range(10):
        lag.see_end(second * 10, second * 1_000)
    lag.arrive(45)
    assert lag.seconds(9_000) == 5


@given(st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 50), st.integers(-10, 60)), max_size=400))
def test_the_lag_is_never_negative_and_never_better_than_the_truth(steps: list[tuple[int, int, int]]) -> None:
    lag, now_ms, end, arrived = Lag(0), 0, 0, 0
    history = [(0, 0)]
    for elapsed, produced, moved in steps:
        now_ms, end = now_ms + elapsed, end + produced
        history.append((now_ms, end))
        lag.see_end(end, now_ms)
        arrived = min(end, max(arrived, arrived + moved))
        lag.arrive(arrived)
        truth = max(moment for moment, ended in history if ended <= arrived)
        assert round(lag.seconds(now_ms) * 1000) >= now_ms - truth
        assert 0 <= lag.records(now_ms) == end - arrived
    assert len(lag._sightings) <= MAX_SIGHTINGS


def test_a_clock_that_goes_back_makes_nothing_negative() -> None:
    lag = Lag(10_000)
    lag.see_end(5, 9_000)
    assert lag.seconds(8_000) == 0
    assert lag.records(9_000 - STALE_MS) == 5
