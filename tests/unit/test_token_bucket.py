"""The token bucket, with the time passed in."""

import math

from hypothesis import given
from hypothesis import strategies as st

from pylog.token_bucket import SECOND_MS, TokenBucket


def test_a_burst_is_free_and_the_rest_is_waited_for() -> None:
    bucket = TokenBucket(1000, now_ms=0)
    assert bucket.take(1000, now_ms=0) == 0
    assert bucket.take(500, now_ms=0) == 500
    assert bucket.take(0, now_ms=499) == 1
    assert bucket.take(0, now_ms=500) == 0


def test_idle_time_is_saved_up_only_for_one_burst() -> None:
    assert TokenBucket(1000, now_ms=0).take(1500, now_ms=3_600_000) == 500
    assert TokenBucket(1000, now_ms=0, burst_ms=3000).take(3500, now_ms=3_600_000) == 500


def test_the_level_is_never_more_than_a_burst() -> None:
    bucket = TokenBucket(1000, now_ms=0)
    assert bucket.left(0) == 1000
    bucket.take(1500, now_ms=0)
    assert [bucket.left(at_ms) for at_ms in (0, 250, 750, 60_000)] == [-500, -250, 250, 1000]


def test_a_clock_that_goes_back_gives_nothing_and_takes_nothing() -> None:
    bucket = TokenBucket(1000, now_ms=10_000)
    assert bucket.take(1000, now_ms=0) == 0
    assert bucket.take(100, now_ms=0) == 100


def test_a_rate_of_zero_is_waited_for_without_end() -> None:
    assert TokenBucket(0, now_ms=0).take(1, now_ms=1_000_000) == math.inf


def test_another_rate_does_not_keep_the_old_debt() -> None:
    bucket = TokenBucket(10, now_ms=0)
    bucket.take(1_000_000, now_ms=0)
    bucket.set_rate(1_000)
    assert bucket.left(1_001) > 0


@given(st.lists(st.integers(0, 5_000), min_size=1, max_size=60), st.integers(1_000, 100_000))
def test_a_user_that_waits_as_told_stays_within_the_rate(sizes: list[int], rate: int) -> None:
    bucket, now_ms, used = TokenBucket(rate, now_ms=0), 0, 0
    for size in sizes:
        used += size
        now_ms += math.ceil(bucket.take(size, now_ms))
        assert used <= rate * (now_ms + SECOND_MS) / 1000 + 1
