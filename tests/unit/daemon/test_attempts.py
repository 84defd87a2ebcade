"""How often somebody may try to log in; time is passed in."""

from pylog.daemon.attempts import MAX_KEYS, WINDOW_S, Attempts


def test_attempts_are_counted_within_a_window() -> None:
    attempts = Attempts()
    assert [attempts.take("a", 2, now_s) for now_s in (0, 1, 2)] == [True, True, False]
    assert attempts.take("b", 2, 2)
    assert not attempts.take("a", 2, WINDOW_S - 1)
    assert attempts.take("a", 2, WINDOW_S)
    assert not attempts.take("a", 2, WINDOW_S)


def test_attempts_of_many_keys_take_bounded_room() -> None:
    attempts = Attempts()
    for number in range(MAX_KEYS + 10):
        attempts.take(str(number), 1, 0)
    assert attempts.take("0", 1, 0), "forgotten, because it was quiet longest"
    assert not attempts.take(str(MAX_KEYS + 9), 1, 0)


def test_to_ask_whether_a_key_is_over_counts_nothing() -> None:
    attempts = Attempts()
    assert not attempts.is_over("a", 1, 0)
    assert attempts.take("a", 1, 0)
    assert attempts.is_over("a", 1, WINDOW_S - 1)
    assert not attempts.is_over("a", 1, WINDOW_S)
