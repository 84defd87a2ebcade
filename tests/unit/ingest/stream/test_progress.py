"""What a query's metrics say of Spark's progress."""

from typing import Any

from pylog.ingest.stream.progress import Progress


def body(batch: int, **more: Any) -> dict[str, Any]:
    """Return a micro-batch's progress as Spark's JSON has it."""
    return {
        "batchId": batch, "numInputRows": 10, "durationMs": {"addBatch": 300, "triggerExecution": 500},
        "eventTime": {"watermark": "2023-11-14T22:14:00.000Z"},
        "stateOperators": [
            {"numRowsTotal": 4, "memoryUsedBytes": 1000, "numRowsDroppedByWatermark": 1},
            {"numRowsTotal": 1, "memoryUsedBytes": 500, "numRowsDroppedByWatermark": 0},
        ],
        **more,
    }  # fmt: skip


def test_each_micro_batch_counts_once() -> None:
    progress = Progress("q")
    for one in (body(0), body(1), body(0), body(1), body(2, durationMs={"triggerExecution": 3})):
        progress.add(one)
    page = progress.metrics(1, 1_700_000_000_500)
    for line in (
        'pylog_stream_seen_timestamp_seconds{query="q"} 1700000000.5',
        'pylog_stream_batch{query="q"} 1',
        'pylog_stream_read_records_total{query="q"} 20',
        'pylog_stream_late_rows_total{query="q"} 2',
        'pylog_stream_busy_seconds_total{query="q"} 1',
        'pylog_stream_state_rows{query="q"} 5',
        'pylog_stream_state_bytes{query="q"} 1500',
        'pylog_stream_watermark_timestamp_seconds{query="q"} 1700000040',
    ):
        assert line in page.splitlines()


def test_a_query_without_state_and_watermark_has_a_page_before_its_first_micro_batch() -> None:
    progress = Progress("q")
    assert 'pylog_stream_batch{query="q"} -1' in progress.metrics(-1, 0)
    progress.add(body(0, eventTime={"watermark": "1970-01-01T00:00:00.000Z"}, stateOperators=[]))
    page = progress.metrics(0, 0)
    assert 'pylog_stream_state_rows{query="q"} 0' in page
    assert "pylog_stream_watermark_timestamp_seconds" not in page
