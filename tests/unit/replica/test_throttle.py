"""The rate at which replicas catch up, and which of them it holds for."""

from pylog.replica.throttle import Throttle, throttled_partitions


def test_what_is_taken_beyond_the_rate_is_waited_for() -> None:
    throttle = Throttle(1000, now_ms=0)
    assert not throttle.is_exceeded(0)
    throttle.take(3500)
    assert [throttle.is_exceeded(at_ms) for at_ms in (0, 1000, 2000, 2499, 2501)] == [True, True, True, True, False]


def test_nothing_is_saved_up_beyond_a_second() -> None:
    throttle = Throttle(1000, now_ms=0)
    assert not throttle.is_exceeded(60_000)
    throttle.take(1001)
    assert throttle.is_exceeded(60_000)


def test_what_is_left_is_never_more_than_a_second_of_it() -> None:
    throttle = Throttle(1000, now_ms=0)
    assert throttle.left(0) == 1000
    throttle.take(1500)
    assert [throttle.left(at_ms) for at_ms in (0, 250, 750, 60_000)] == [-500, -250, 250, 1000]


def test_another_rate_does_not_keep_the_old_debt() -> None:
    throttle = Throttle(10, now_ms=0)
    throttle.take(1_000_000)
    throttle.set_rate(1_000)
    assert not throttle.is_exceeded(1_001)


def test_a_clock_that_goes_back_gives_nothing() -> None:
    throttle = Throttle(1000, now_ms=5_000)
    throttle.take(1500)
    assert throttle.is_exceeded(4_000)
    assert not throttle.is_exceeded(4_501)


def test_a_second_is_granted_at_once_and_nothing_while_it_is_owed() -> None:
    throttle = Throttle(1000, now_ms=0)
    granted = []
    for at_ms in range(0, 4000, 100):
        granted.append(throttle.grant(at_ms))
        throttle.take(granted[-1])
    assert set(granted) == {0, 1000}, "not the hundred bytes that each tenth of a second brings"
    assert sum(granted) == 5000


def test_a_list_names_replicas_of_brokers() -> None:
    assert throttled_partitions("0:1,1:2,7:1", 1) == {0, 7}
    assert throttled_partitions("", 1) == frozenset()
    assert throttled_partitions("*", 1) is None
