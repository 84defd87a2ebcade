"""Which spans of time are kept when people look at many."""

from pylog.client.connection import Connection
from pylog.console.counts import LATEST_MS, MAX_SPANS, Counts


def test_looks_at_other_times_keep_the_latest_span_in_memory() -> None:
    now_ms = 100 * LATEST_MS
    counts = Counts((Connection(bootstrap="127.0.0.1:1", timeout_s=1),), 60_000, lambda: now_ms, lambda: 0.0)
    counts.look(None, None)
    latest = next(iter(counts._spans))
    for number in range(MAX_SPANS + 1):
        counts.look(number * LATEST_MS, (number + 1) * LATEST_MS)
        assert latest in counts._spans
        assert len(counts._spans) <= MAX_SPANS


def test_the_latest_span_of_an_hour_ago_gives_way() -> None:
    times = iter(range(100 * LATEST_MS, 1_000 * LATEST_MS, 3_600_000))
    counts = Counts((Connection(bootstrap="127.0.0.1:1", timeout_s=1),), 60_000, lambda: next(times), lambda: 0.0)
    for _ in range(MAX_SPANS + 2):
        counts.look(None, None)
    assert len(counts._spans) == MAX_SPANS
