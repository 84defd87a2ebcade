"""The metrics of a query, from what Spark tells of each micro-batch.  Pure."""

import datetime as dt
from collections.abc import Mapping
from typing import Any

from pylog.metrics import Metrics

_WATERMARK_UNSET = "1970-01-01T00:00:00.000Z"


class Progress:
    """Adds up what micro-batches told.

    Args:
        query: its name, the label of every metric.
    """

    def __init__(self, query: str) -> None:
        self._query = query
        self._batch = -1
        self._last: Mapping[str, Any] = {}
        self._read = 0
        self._late = 0
        self._busy_ms = 0

    def add(self, body: Mapping[str, Any]) -> None:
        """Take in one micro-batch's progress, as Spark's JSON has it; one that was taken in before counts once."""
        if body["batchId"] <= self._batch or "addBatch" not in (body.get("durationMs") or {}):
            return  # no micro-batch ran, or it is known
        self._batch = body["batchId"]
        self._last = body
        self._read += max(0, body["numInputRows"])
        self._busy_ms += body["durationMs"]["triggerExecution"]
        self._late += sum(one["numRowsDroppedByWatermark"] for one in body.get("stateOperators") or ())

    def metrics(self, batch: int, now_ms: int) -> str:
        """Return the page in Prometheus's text format.

        Args:
            batch: number of the last micro-batch that ended, by the checkpoint.
            now_ms: when the query was seen running.
        """
        page, last, name = Metrics(), self._last, self._query
        operators = last.get("stateOperators") or ()
        seen = page.gauge("pylog_stream_seen_timestamp_seconds", "When a query was last seen running.", query=name)
        seen.value = now_ms / 1000
        ended = page.gauge(
            "pylog_stream_batch", "Number of the last micro-batch of a query that ended; -1 before one.", query=name
        )
        ended.value = batch
        read = page.counter(
            "pylog_stream_read_records_total", "Records that a query read since it started.", query=name
        )
        read.value = self._read
        late = page.counter(
            "pylog_stream_late_rows_total",
            "Rows that a query dropped since it started, because they came after the watermark.",
            query=name,
        )
        late.value = self._late
        busy = page.counter(
            "pylog_stream_busy_seconds_total", "Time that a query spent in micro-batches since it started.", query=name
        )
        busy.value = self._busy_ms / 1000
        rows = page.gauge("pylog_stream_state_rows", "Rows that a query keeps for later ones.", query=name)
        rows.value = sum(one["numRowsTotal"] for one in operators)
        size = page.gauge("pylog_stream_state_bytes", "Memory that the rows take that a query keeps.", query=name)
        size.value = sum(one["memoryUsedBytes"] for one in operators)
        watermark = (last.get("eventTime") or {}).get("watermark", _WATERMARK_UNSET)
        if watermark != _WATERMARK_UNSET:
            page.gauge(
                "pylog_stream_watermark_timestamp_seconds", "Time before which a query takes no more rows.", query=name
            ).value = dt.datetime.fromisoformat(watermark).timestamp()
        return page.render()
