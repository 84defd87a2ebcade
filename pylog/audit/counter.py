"""Reads a tier's topics for ever and reports what passes.

A report says where the next one goes on, so the reports are the reader's own checkpoint: after a crash it reads its
last ones back and counts every record once.
"""

import re
import time
from dataclasses import dataclass

from pylog.audit import load
from pylog.audit.reader import EndWatch, TopicCounter
from pylog.audit.reports import Report, Tier
from pylog.client.admin import Admin
from pylog.client.connection import Connection
from pylog.client.consumer import Consumer
from pylog.client.counting import AUDIT_TOPIC
from pylog.client.producer import Producer
from pylog.daemon.notices import Notices
from pylog.daemon.stop import Stop
from pylog.errors import ApiError, OffsetOutOfRange, Unreachable
from pylog.metrics import Metrics
from pylog.model import Offset, TopicPartition

_READ_S = 0.2
_ASK_S = 1.0
_RETRY_S = 2.0
_NEVER = re.compile(r"__.*|_audit|pylog\.offsets\..*")


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterConfig:
    """One reader.

    Attributes:
        tier: live or mirror.
        cluster: read from, and reported to.
        topics: patterns, each matching whole names.
        exclude: patterns that win over those.
        window_ms: the same everywhere.
        report_s: between two reports.
        refresh_s: between two looks for new topics and partitions.
        replication_factor: of `_audit` when it is made.
        metrics_listen: where ``/metrics`` is answered.
    """

    tier: Tier
    cluster: Connection
    topics: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    window_ms: int = 60_000
    report_s: float = 10.0
    refresh_s: float = 30.0
    replication_factor: int = 3
    metrics_listen: tuple[str, int] | None = None


def run(config: CounterConfig, stop: Stop, notices: Notices, metrics: Metrics) -> None:
    """Count until *stop*, through every failure of the cluster."""
    while not stop.is_wanted:
        try:
            load.ensure_topic(config.cluster, config.replication_factor)
            _Session(config, notices, metrics).run(stop)
        except (ApiError, Unreachable) as error:
            notices.tell(time.monotonic(), "warning", "session_ended", reason=error)
            stop.wait(_RETRY_S)


class _Session:
    """From the last reports on, until something fails."""

    def __init__(self, config: CounterConfig, notices: Notices, metrics: Metrics) -> None:
        self._config, self._notices = config, notices
        self._counters: dict[str, TopicCounter] = {}
        self._watches: dict[str, EndWatch] = {}
        self._partitions: set[TopicPartition] = set()
        self._last = load.last_reports(config.cluster, config.tier, config.tier, self._warn)
        self._counted = metrics.counter("pylog_audit_records_total", "Records counted.", tier=config.tier)
        self._reports = metrics.counter("pylog_audit_reports_total", "Reports written.", tier=config.tier)

    def run(self, stop: Stop) -> None:
        refreshed_s = reported_s = asked_s = -self._config.refresh_s
        with Consumer(self._config.cluster) as consumer, Producer(self._config.cluster) as producer:
            while not stop.is_wanted:
                now_s = time.monotonic()
                if now_s - refreshed_s >= self._config.refresh_s:
                    self._refresh(consumer)
                    refreshed_s = now_s
                if now_s - asked_s >= _ASK_S:
                    self._ask()
                    asked_s = now_s
                self._read(consumer)
                if now_s - reported_s >= self._config.report_s:
                    self._report(producer)
                    reported_s = now_s
            self._report(producer)

    def _refresh(self, consumer: Consumer) -> None:
        """Take up topics and partitions that came."""
        views = Admin(self._config.cluster).cluster().topics
        names = [name for name in views if _is_chosen(name, self._config)]
        found = {TopicPartition(name, one.partition) for name in names for one in views[name].partitions}
        if found == self._partitions:
            return
        for name in names:
            last = self._last.get(name)
            self._watches.setdefault(name, EndWatch())
            self._counters.setdefault(
                name,
                TopicCounter(
                    self._config.tier,
                    name,
                    self._config.tier,
                    self._config.window_ms,
                    last.offsets if last else {},
                    last.number + 1 if last else 0,
                ),
            )
        self._partitions = found
        held = Admin(self._config.cluster).offsets(sorted(found))
        starts: dict[TopicPartition, Offset] = {}
        for partition in found:
            wanted = self._counters[partition.topic].offsets.get(partition.partition, 0)
            start = starts[partition] = min(max(wanted, held[partition].start), held[partition].end)
            if start < wanted:
                self._notices.tell(
                    time.monotonic(),
                    "error",
                    "source_went_back",
                    partition=partition,
                    wanted=wanted,
                    found=held[partition].end,
                )
            self._counters[partition.topic].offsets[partition.partition] = start
        consumer.assign(starts)

    def _ask(self) -> None:
        asked_ms = _now_ms()
        waiting = [one for one in self._partitions if not self._watches[one.topic].is_waiting]
        ends: dict[str, dict[int, Offset]] = {}
        for partition, end in Admin(self._config.cluster).ends(waiting).items():
            ends.setdefault(partition.topic, {})[partition.partition] = end
        for topic, found in ends.items():
            self._watches[topic].ask(found, asked_ms)

    def _read(self, consumer: Consumer) -> None:
        try:
            records = consumer.read(_READ_S)
        except OffsetOutOfRange:
            self._partitions = set()  # taken up anew, from what is there
            self._refresh(consumer)
            return
        for record in records:
            self._counters[record.topic].add(record.partition, record.offset, record.headers, record.value)
        self._counted.value += len(records)
        # A partition's last offsets may hold no record: compaction, transaction markers.
        for topic, watch in self._watches.items():
            at_end = [one.partition for one in consumer.at_end if one.topic == topic] if watch.is_waiting else []
            watch.reach(self._counters[topic].offsets, at_end)

    def _report(self, producer: Producer) -> None:
        now_ms = _now_ms()
        for topic, counter in self._counters.items():
            report: Report = counter.report(now_ms, self._watches[topic].complete_ms)
            producer.send(AUDIT_TOPIC, report.encode(), report.key(), partition=0)
            self._reports.add()
        producer.flush()
        if producer.first_error is not None:
            raise producer.first_error  # the next session reads back what is there and goes on behind it

    def _warn(self, text: str) -> None:
        self._notices.tell(time.monotonic(), "warning", "unreadable_report", reason=text)


def _is_chosen(name: str, config: CounterConfig) -> bool:
    return (
        any(re.fullmatch(pattern, name) for pattern in config.topics)
        and not any(re.fullmatch(pattern, name) for pattern in config.exclude)
        and not _NEVER.fullmatch(name)
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
