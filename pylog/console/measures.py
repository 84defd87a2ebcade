"""What Prometheus measured, as pages show it: the canary, partitions short of replicas, latency, queries that run on.

The queries are fixed: a browser names none, and no text of one.  No clock and no socket here.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pylog.client.rows import Row
from pylog.console.readings import Reading
from pylog.console.screens import missing

CANARY_LATE_S = 60.0
"""The canary is late when its last record is older: that is several rounds of it and of Prometheus."""

SILENT_S = 120.0
"""A query that was not seen running for so long has stopped."""

_LAST = "pylog_canary_last_success_timestamp_seconds"
_UNDER, _AT = "pylog_partitions_under_min_isr", "pylog_partitions_at_min_isr"
_STREAM = "pylog_stream_"

QUERIES: Mapping[str, str] = {
    "health": f'{{__name__=~"{_LAST}|{_UNDER}|{_AT}"}}',
    "latency": "histogram_quantile(0.99, sum by (datacenter, broker, api, le) "
    '(rate(pylog_request_seconds_bucket{part="total"}[5m])))',
    "streams": f'{{__name__=~"{_STREAM}.+"}}',
}
"""What is asked, by the name under which the answer is kept: one question for a page."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of Prometheus.

    Attributes:
        labels: with the metric's name as ``__name__``, where the query keeps it.
        value: may be NaN.
        at_s: of Prometheus's evaluation; seconds since the Unix epoch.
    """

    labels: Mapping[str, str]
    value: float
    at_s: float


def of_datacenter(samples: Iterable[Sample], datacenter: str) -> list[Sample]:
    """Return the samples of one datacenter; of all if it has no name, or if they name none."""
    return [one for one in samples if not datacenter or one.labels.get("datacenter", datacenter) == datacenter]


def health(reading: Reading[Sequence[Sample]] | None, brokers: Collection[int]) -> Row:
    """Return what the canary meets at each broker, and how many partitions lack replicas for acks=all.

    Args:
        reading: answer to the query ``health``; None if the console's file names no Prometheus.
        brokers: ids of the cluster's brokers.
    """
    samples = list(reading.value or ()) if reading else []
    ages: dict[int, float] = {}
    for one in samples:
        broker = one.labels.get("broker", "")
        if one.labels.get("__name__") == _LAST and broker.isdecimal() and int(broker) in brokers and one.value > 0:
            age_s = max(0.0, one.at_s - one.value)
            # Of several probes the one that read last.
            ages[int(broker)] = min(age_s, ages.get(int(broker), math.inf))
    under, at = _sum(samples, _UNDER, brokers), _sum(samples, _AT, brokers)
    verdict, sentence = _canary(reading, ages, brokers)
    words = "Which partitions lack replicas for acks=all is not known."
    if under is not None:
        words = f"{_partitions(under)} fewer replicas in sync than min.insync.replicas: acks=all is refused there."
        if at:
            words += f" {_partitions(at)} just as many: one more that fails stops acks=all."
    return {
        "verdict": "unhealthy" if under else verdict,
        "sentence": f"{sentence} {words}",
        "canary": [{"broker": broker, "behind_s": round(age, 1)} for broker, age in sorted(ages.items())],
        "under_min_isr": under,
        "at_min_isr": at,
        "unknown": missing(measurements=reading) if reading else [],
    }


def _canary(
    reading: Reading[Sequence[Sample]] | None, ages: Mapping[int, float], brokers: Collection[int]
) -> tuple[str, str]:
    if reading is None:
        return "unknown", "Nobody measures from outside: the console's file names no Prometheus."
    if reading.error:
        return "unknown", f"Unknown: {reading.error}."
    if not ages:
        return "unknown", "No canary writes through these brokers, so nobody measures from outside."
    late = sorted(broker for broker, age in ages.items() if age > CANARY_LATE_S)
    if late:
        first = f"{ages[late[0]]:,.0f} s"
        others = f", and {len(late) - 1:,} more" if len(late) > 1 else ""
        return "unhealthy", f"The canary has read back no record through broker {late[0]} for {first}{others}."
    silent = len(set(brokers) - ages.keys())
    beside = f" It measures {silent:,} of the brokers not." if silent else ""
    return "healthy", (
        f"The canary wrote and read back a record through {len(ages):,} of {len(brokers):,} brokers within the last "
        f"{max(ages.values()):,.0f} s.{beside}"
    )


def _sum(samples: Iterable[Sample], name: str, brokers: Collection[int]) -> int | None:
    values = [
        one.value
        for one in samples
        if one.labels.get("__name__") == name
        and (broker := one.labels.get("broker", "")).isdecimal()
        and int(broker) in brokers
    ]
    return int(sum(values)) if values else None


def _partitions(count: int) -> str:
    return "1 partition has" if count == 1 else f"{count:,} partitions have"


def latency(reading: Reading[Sequence[Sample]] | None, brokers: Collection[int]) -> Row:
    """Return the 99th percentile of each request at each broker over the last five minutes, in ms.

    Args:
        reading: answer to the query ``latency``; None if the console's file names no Prometheus.
        brokers: ids of the cluster's brokers.
    """
    found: dict[str, dict[int, float]] = {}
    for one in reading.value or () if reading else ():
        broker = one.labels.get("broker", "")
        if broker.isdecimal() and int(broker) in brokers and not math.isnan(one.value):
            found.setdefault(one.labels.get("api", ""), {})[int(broker)] = one.value * 1000
    ids = sorted(brokers)
    return {
        "brokers": ids,
        "apis": [
            {"api": api, "p99_ms": [None if broker not in of else round(of[broker], 1) for broker in ids]}
            for api, of in sorted(found.items())
        ],
        "is_measured": reading is not None,
        "unknown": missing(latency=reading) if reading else [],
    }


def streams(reading: Reading[Sequence[Sample]] | None) -> Row:
    """Return the queries that run on and on, with what each has read, dropped and keeps.

    Args:
        reading: answer to the query ``streams``; None if the console's file names no Prometheus.
    """
    found: dict[str, dict[str, float]] = {}
    at_s = 0.0
    for one in reading.value or () if reading else ():
        name = one.labels.get("__name__", "").removeprefix(_STREAM)
        found.setdefault(one.labels.get("query", ""), {})[name] = one.value
        at_s = max(at_s, one.at_s)
    rows: list[Row] = []
    for query, of in sorted(found.items()):
        seen, watermark = of.get("seen_timestamp_seconds"), of.get("watermark_timestamp_seconds")
        rows.append(
            {
                "query": query,
                "seen_s": None if seen is None else max(0.0, at_s - seen),
                "watermark_s": None if not watermark else max(0.0, at_s - watermark),
                "batch": of.get("batch"),
                "read_records": of.get("read_records_total"),
                "late_rows": of.get("late_rows_total"),
                "state_rows": of.get("state_rows"),
                "state_bytes": None if "state_bytes" not in of else int(of["state_bytes"]),
                "is_silent": seen is None or at_s - seen > SILENT_S,
            }
        )
    silent = [row["query"] for row in rows if row["is_silent"]]
    verdict, sentence = "healthy", f"{len(rows):,} {'query runs' if len(rows) == 1 else 'queries run'}."
    if reading is None or reading.error:
        verdict = "unknown"
        sentence = f"Unknown: {reading.error}." if reading else "Unknown: the console's file names no Prometheus."
    elif not rows:
        verdict, sentence = "unknown", "No query that runs on is measured."
    elif silent:
        verdict, sentence = (
            "warn",
            f"{len(silent):,} of {len(rows):,} queries were not seen running: {silent[0]} first.",
        )
    return {
        "verdict": verdict,
        "sentence": sentence,
        "queries": rows,
        "unknown": missing(queries=reading) if reading else [],
    }
