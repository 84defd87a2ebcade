import asyncio
from collections.abc import Iterator

import pytest

from pylog.metrics import OTHER, Histogram, Metrics, keep_largest, observe_all, render


def _lines(metrics: Metrics) -> list[str]:
    return [line for line in metrics.render().splitlines() if not line.startswith("#")]


def test_a_histogram_counts_up_to_each_bound_and_shows_seconds() -> None:
    metrics = Metrics()
    histogram = metrics.histogram("pylog_example_seconds", "Example.", api="produce")
    for duration_ns in (1, 2**16 - 1, 2**16, 3_000_000, 2**40):
        histogram.observe_ns(duration_ns)
    shown = dict(line.rsplit(" ", 1) for line in _lines(metrics))
    assert shown['pylog_example_seconds_bucket{api="produce",le="6.5536e-05"}'] == "2"
    assert shown['pylog_example_seconds_bucket{api="produce",le="0.000131072"}'] == "3"
    assert shown['pylog_example_seconds_bucket{api="produce",le="0.002097152"}'] == "3"
    assert shown['pylog_example_seconds_bucket{api="produce",le="0.004194304"}'] == "4"
    assert shown['pylog_example_seconds_bucket{api="produce",le="8.58993459"}'] == "4"
    assert shown['pylog_example_seconds_bucket{api="produce",le="+Inf"}'] == "5"
    assert shown['pylog_example_seconds_count{api="produce"}'] == "5"
    assert float(shown['pylog_example_seconds_sum{api="produce"}']) == pytest.approx(2**40 / 1e9 + 0.003131072)


def test_a_clock_that_went_back_counts_as_no_time() -> None:
    metrics = Metrics()
    histogram = metrics.histogram("pylog_example_seconds", "Example.")
    histogram.observe_ns(-5)
    assert "pylog_example_seconds_sum 0" in _lines(metrics)
    assert "pylog_example_seconds_count 1" in _lines(metrics)


def test_many_at_once_are_counted_as_one_by_one() -> None:
    a, b, c = Histogram(), Histogram(), Histogram()
    observe_all([a, a, b, a], 5_000)
    observe_all([b, b], 70)
    for _ in range(3):
        c.observe_ns(5_000)
    assert (a.counts, a.sum_ns) == (c.counts, 15_000)
    assert (sum(b.counts), b.sum_ns) == (3, 5_140)


def test_a_table_is_asked_at_every_scrape_and_its_rows_come_and_go() -> None:
    metrics = Metrics()
    rows = {("a",): 1.0, ('odd "name"\n',): 2.0}
    metrics.table("pylog_example", "gauge", "Example.", ("topic",), lambda: rows)
    assert _lines(metrics) == ['pylog_example{topic="a"} 1', 'pylog_example{topic="odd \\"name\\"\\n"} 2']
    del rows["a",]
    assert len(_lines(metrics)) == 1


def test_tables_that_share_a_pass_are_counted_once_a_sample() -> None:
    metrics = Metrics()
    passes: list[int] = []

    def count() -> Iterator[None]:
        yield
        passes.append(1)

    metrics.before_sample(count)
    metrics.table("pylog_one", "gauge", "One.", (), lambda: {(): len(passes)})
    metrics.table("pylog_two", "gauge", "Two.", (), lambda: {(): len(passes)})
    assert _lines(metrics) == ["pylog_one 1", "pylog_two 1"]


def test_others_run_between_the_steps_of_a_long_pass() -> None:
    metrics = Metrics()
    order: list[str] = []

    def count() -> Iterator[None]:
        for step in ("one", "two"):
            order.append(step)
            yield

    async def scrape() -> None:
        sampling = asyncio.create_task(metrics.sample_in_steps())
        await asyncio.sleep(0)
        order.append("other")
        assert render(await sampling) == metrics.render()

    metrics.before_sample(count)
    metrics.counter("pylog_a_total", "A.")
    asyncio.run(scrape())
    assert order == ["one", "other", "two", "one", "two"]


def test_what_was_sampled_does_not_change_before_it_is_rendered() -> None:
    metrics = Metrics()
    counter, histogram = metrics.counter("pylog_a_total", "A."), metrics.histogram("pylog_b_seconds", "B.")
    samples = metrics.sample()
    counter.add()
    histogram.observe_ns(1)
    text = render(samples)
    assert "pylog_a_total 0" in text
    assert "pylog_b_seconds_count 0" in text


def test_only_the_largest_rows_are_told_apart() -> None:
    table = {(f"client-{number}", "1"): float(number) for number in range(1000)}
    kept = keep_largest(table, 3)
    assert kept == {
        ("client-999", "1"): 999,
        ("client-998", "1"): 998,
        ("client-997", "1"): 997,
        (OTHER, OTHER): sum(range(997)),
    }
    assert keep_largest({("x", "1"): 5.0}, 3) == {("x", "1"): 5.0}


def test_a_client_that_calls_itself_other_is_counted_with_the_rest() -> None:
    table = {(OTHER, OTHER): 9.0, ("a", "1"): 2.0, ("b", "1"): 1.0}
    assert keep_largest(table, 2) == {(OTHER, OTHER): 10.0, ("a", "1"): 2.0}
