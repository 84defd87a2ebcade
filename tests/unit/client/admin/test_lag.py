"""Burrow's rules, as a table."""

import pytest

from pylog.client.admin.lag import PATIENCE_MS, WINDOW_COMMITS, Commit, Status, evaluate, worst

NOW_MS = 1_000_000


def every_second(*pairs: tuple[int, int], until_ms: int = NOW_MS) -> list[Commit]:
    """Commits of (offset, end), one a second, the last at *until_ms*."""
    return [Commit(until_ms - 1000 * (len(pairs) - 1 - place), *pair) for place, pair in enumerate(pairs)]


def judge(commits: list[Commit], end: int, *, recent_end: int | None = None, now_ms: int = NOW_MS) -> Status:
    return evaluate(commits, commits[-1].offset, end, end if recent_end is None else recent_end, now_ms)


@pytest.mark.parametrize(
    ("pairs", "end", "status"),
    [
        # Whoever has read everything is well, whatever was.
        ([(10, 10)], 10, Status.OK),
        ([(5, 9), (5, 10), (12, 12)], 12, Status.OK),
        # One commit without lag among them is enough.
        ([(1, 5), (5, 5), (6, 20), (7, 30)], 40, Status.OK),
        # Reading, and the lag falls somewhere.
        ([(1, 100), (20, 100), (40, 100)], 100, Status.OK),
        ([(1, 5), (2, 10), (9, 12), (10, 20)], 30, Status.OK),
        # Reading, and the lag never falls: as it is, or growing.
        ([(1, 11), (2, 12), (3, 13)], 13, Status.WARN),
        ([(1, 11), (2, 20), (3, 40)], 50, Status.WARN),
        # Commits without any progress.
        ([(5, 9), (5, 9), (5, 9)], 9, Status.STALL),
        ([(5, 9), (5, 12), (5, 20)], 30, Status.STALL),
        # Two commits are no trend.
        ([(5, 9), (5, 12)], 12, Status.OK),
        ([(1, 11), (2, 20)], 20, Status.OK),
        # What was before a rewind says nothing about the way since.
        ([(1, 11), (2, 12), (90, 99), (3, 99), (40, 99), (60, 99)], 99, Status.OK),
        ([(60, 99), (3, 99), (4, 101), (5, 105)], 105, Status.WARN),
    ],
)
def test_a_consumer_that_commits_every_second(pairs: list[tuple[int, int]], end: int, status: Status) -> None:
    assert judge(every_second(*pairs), end) is status


@pytest.mark.parametrize(
    ("silent_ms", "status"),
    [
        (0, Status.OK),
        (PATIENCE_MS, Status.OK),
        (PATIENCE_MS + 1, Status.STOP),
        (10 * PATIENCE_MS, Status.STOP),
    ],
)
def test_silence_after_a_few_commits_is_a_stop(silent_ms: int, status: Status) -> None:
    commits = every_second((1, 10), (5, 10), (9, 10), until_ms=NOW_MS - silent_ms)
    assert judge(commits, 20) is status


def test_who_commits_rarely_may_be_silent_for_as_long_as_the_window() -> None:
    rare = [Commit(NOW_MS - minutes * 60_000, 100 - minutes, 200) for minutes in (14, 8, 5)]
    assert judge(rare, 200) is Status.OK
    assert judge(rare, 200, now_ms=NOW_MS + 4 * 60_000) is Status.OK
    assert judge(rare, 200, now_ms=NOW_MS + 5 * 60_000) is Status.STOP


def test_who_had_read_all_a_moment_ago_has_not_stopped() -> None:
    commits = every_second((8, 8), (9, 9), (10, 10), until_ms=NOW_MS - 2 * PATIENCE_MS)
    assert judge(commits, 11, recent_end=10) is Status.OK
    assert judge(commits, 11, recent_end=11) is Status.STOP


def test_a_past_without_lag_does_not_hide_a_stop() -> None:
    commits = every_second((1, 1), (2, 2), (3, 3), until_ms=NOW_MS - 2 * PATIENCE_MS)
    assert judge(commits, 50) is Status.STOP


def test_a_commit_too_old_to_be_seen_is_a_stop() -> None:
    assert evaluate([], committed=5, end=9, recent_end=9, now_ms=NOW_MS) is Status.STOP
    assert evaluate([], committed=9, end=9, recent_end=9, now_ms=NOW_MS) is Status.OK


def test_only_the_latest_commits_count() -> None:
    pairs = [(1, 1), *((1 + place, 20 + 2 * place) for place in range(WINDOW_COMMITS))]
    assert judge(every_second(*pairs), 99) is Status.WARN
    assert judge(every_second(*pairs[:WINDOW_COMMITS]), 99) is Status.OK


def test_a_group_is_as_its_worst_partition() -> None:
    assert worst([Status.OK, Status.STALL, Status.WARN]) is Status.STALL
    assert worst([Status.STOP, Status.STALL]) is Status.STOP
    assert worst([]) is None
