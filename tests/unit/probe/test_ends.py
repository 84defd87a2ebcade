from pylog.probe.ends import MAX_POINTS, EndHistory


def _history(*points: tuple[int, int]) -> EndHistory:
    history = EndHistory()
    for at_ms, end in points:
        history.note(at_ms, end)
    return history


def test_between_two_samples_records_came_evenly() -> None:
    history = _history((1_000, 100), (2_000, 200))
    assert history.reached_ms(150) == 1_500
    assert history.end_at(1_500) == 150


def test_what_is_not_written_has_no_time() -> None:
    assert _history((1_000, 100)).reached_ms(100) is None
    assert _history((1_000, 100), (2_000, 200)).reached_ms(200) is None


def test_what_was_there_at_the_first_sample_is_at_least_as_old() -> None:
    history = _history((1_000, 100), (2_000, 200))
    assert history.reached_ms(0) == 1_000
    assert history.reached_ms(99) == 1_000


def test_the_first_record_after_a_quiet_time_is_not_as_old_as_the_quiet() -> None:
    history = _history((0, 100), (1_000, 100), (60_000, 100), (61_000, 110))
    assert history.reached_ms(100) == 60_000


def test_a_long_quiet_takes_two_points() -> None:
    history = _history((0, 5), *((at_ms, 100) for at_ms in range(1_000, 1_000_000, 1_000)), (1_000_000, 110))
    assert len(history._points) == 4
    assert history.reached_ms(100) == 999_000


def test_many_samples_take_bounded_memory_and_the_past_is_kept_coarsely() -> None:
    history = _history(*((at_ms, at_ms) for at_ms in range(0, 1_000_000, 1_000)))
    assert len(history._points) <= MAX_POINTS
    assert history.first_ms == 0
    for offset in (10, 500_500, 990_500):
        reached_ms = history.reached_ms(offset)
        assert reached_ms is not None
        assert abs(reached_ms - offset) < 1_000


def test_a_log_that_ends_earlier_is_another_one() -> None:
    history = _history((1_000, 100), (2_000, 5))
    assert history.end == 5
    assert history.first_ms == 2_000


def test_a_clock_that_goes_back_a_little_adds_nothing() -> None:
    history = _history((2_000, 100), (1_000, 150))
    assert history.end == 100


def test_a_clock_that_is_set_right_begins_anew() -> None:
    history = _history((3_600_000, 100), (3_610_000, 200), (20_000, 250), (30_000, 300))
    assert history.end == 300
    assert history.first_ms == 20_000
