"""Reads a tier's topics for ever and reports what passes.

A report says where the next one goes on, so the reports are the reader's own checkpoint: after a crash it reads its
last ones back and counts every record once.  Of several counters of a tier the one that has the lease counts.
"""

import re
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

from pylog.audit import load
from pylog.audit.counting import AUDIT_TOPIC
from pylog.audit.lease import Lease
from pylog.audit.reader import EndWatch, TopicCounter
from pylog.audit.reports import Report, Round, Tier
from pylog.client.admin.cluster import Admin
from pylog.client.connection import Connection
from pylog.client.consumer import Consumer
from pylog.client.producer import Producer
from pylog.client.raw import topic_ids
from pylog.daemon.notices import Notices
from pylog.daemon.stop import Stop
from pylog.errors import ApiError, OffsetOutOfRange, Unreachable
from pylog.metrics import Metrics
from pylog.model import OWN_TOPICS, Offset, TopicPartition

if TYPE_CHECKING:
    from pylog.security.server_tls import TlsConfig

_READ_S = 0.2
_ASK_S = 1.0
_RETRY_S = 2.0
_TELL_S = 30.0


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
        metrics_tls: encryption of that address, and whose clients may read it; None for plain HTTP to everybody.
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
    metrics_tls: "TlsConfig | None" = None


def run(config: CounterConfig, stop: Stop, notices: Notices, metrics: Metrics) -> None:
    """Count until *stop*, through every failure of the cluster."""
    while not stop.is_wanted:
        try:
            load.ensure_topic(config.cluster, config.replication_factor)
            with Lease(config.cluster, _lease_of(config)) as lease:
                _wait_for(lease, stop, notices)
                if not stop.is_wanted:
                    _Session(config, notices, metrics, lease).run(stop)
        except (ApiError, Unreachable) as error:
            notices.tell(time.monotonic(), "warning", "session_ended", reason=error)
            stop.wait(_RETRY_S)


def _lease_of(config: CounterConfig) -> str:
    """Return the group of the counters that count the same: others of this tier may count other topics."""
    chosen = "\n".join([*config.topics, "", *config.exclude])
    return f"pylog-audit-{config.tier}-{crc32(chosen.encode()):08x}"


def _wait_for(lease: Lease, stop: Stop, notices: Notices) -> None:
    """Wait until this counter is the one that counts."""
    asked_s = time.monotonic()
    while not stop.is_wanted and not lease.look(_READ_S):
        if time.monotonic() - asked_s >= _TELL_S:
            notices.tell(time.monotonic(), "info", "another_counts")


class _Session:
    """From the last reports on, until something fails, or another has the lease."""

    def __init__(self, config: CounterConfig, notices: Notices, metrics: Metrics, lease: Lease) -> None:
        self._config, self._notices, self._lease = config, notices, lease
        self._by = uuid.uuid4().hex[:16]
        self._counters: dict[str, TopicCounter] = {}
        self._watches: dict[str, EndWatch] = {}
        self._partitions: set[TopicPartition] = set()
        self._ids: dict[str, str] = {}
        self._last = load.last_reports(config.cluster, config.tier, config.tier, self._warn)
        self._counted = metrics.counter("pylog_audit_records_total", "Records counted.", tier=config.tier)
        self._reports = metrics.counter("pylog_audit_reports_total", "Reports written.", tier=config.tier)

    def run(self, stop: Stop) -> None:
        refreshed_s = reported_s = asked_s = -self._config.refresh_s
        with Consumer(self._config.cluster) as consumer, load.reporter(self._config.cluster) as producer:
            while not stop.is_wanted:
                if not self._lease.look():
                    self._notices.tell(time.monotonic(), "warning", "another_counts")
                    return
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
        partitions = {TopicPartition(name, one.partition): one for name in names for one in views[name].partitions}
        # One that nobody leads is taken up when somebody does: asked where it begins, all others would wait for it.
        found = {one for one, view in partitions.items() if view.has_leader or one in self._partitions}
        cluster = self._config.cluster
        ids = topic_ids(cluster.bootstrap, names, cluster.timeout_s, cluster.security()) if names else {}
        if found == self._partitions and ids.items() <= self._ids.items():
            return
        settings = Admin(self._config.cluster).topic_configs(names)
        for name in names:
            if self._ids.get(name, ids.get(name)) != ids.get(name):
                self._notices.tell(time.monotonic(), "warning", "topic_made_again", about=name, topic=name)
                self._watches.pop(name)
            self._watches.setdefault(name, EndWatch())
            if name not in self._counters:
                self._counters[name] = TopicCounter(
                    self._config.tier,
                    name,
                    self._config.tier,
                    self._config.window_ms,
                    self._last.get(name),
                    by=self._by,
                )
            # If it was made again while nobody counted, what was read is of the one before.
            self._counters[name].take_up(ids.get(name))
            self._counters[name].is_compacted = "compact" in str(settings[name]["cleanup.policy"].value)
        self._partitions, self._ids = found, self._ids | ids
        held = Admin(self._config.cluster).offsets(sorted(found))
        starts: dict[TopicPartition, Offset] = {}
        for partition in found:
            wanted = self._counters[partition.topic].offsets.get(partition.partition, 0)
            start = starts[partition] = min(max(wanted, held[partition].start), held[partition].end)
            if wanted and start != wanted:
                # Either it was cut, and what is counted twice is told as doubled, or retention was faster.
                self._notices.tell(
                    time.monotonic(),
                    "error",
                    "source_went_back" if start < wanted else "source_forgot",
                    about=str(partition),
                    partition=partition,
                    wanted=wanted,
                    start=held[partition].start,
                    end=held[partition].end,
                )
            self._counters[partition.topic].begin(partition.partition, start)
        consumer.assign(starts)

    def _ask(self) -> None:
        asked_ms = _now_ms()
        admin = Admin(self._config.cluster)
        # A partition that nobody leads may hold what was not counted, so its topic is not known to be complete.
        asked = {
            name
            for name, view in admin.cluster().topics.items()
            if all(
                one.has_leader and TopicPartition(name, one.partition) in self._partitions for one in view.partitions
            )
        }
        waiting = [one for one in self._partitions if one.topic in asked and not self._watches[one.topic].is_waiting]
        ends: dict[str, dict[int, Offset]] = {}
        for partition, end in admin.ends(waiting).items():
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
            if watch.is_waiting:
                at_end = {one.partition: end for one, end in consumer.at_end.items() if one.topic == topic}
                watch.reach(self._counters[topic].offsets, at_end)

    def _report(self, producer: Producer) -> None:
        now_ms = _now_ms()
        for topic, counter in self._counters.items():
            if counter.is_due(now_ms):
                report: Report = counter.report(now_ms, self._watches[topic].complete_ms)
                # Without this one none of the topic's next counts, until another session begins behind its last.
                if load.send(producer, report, self._tell_too_long):
                    self._reports.add()
        if self._watches:
            complete_ms = {topic: watch.complete_ms for topic, watch in self._watches.items()}
            # A second or two behind the others is the usual; only who hangs back is named.
            usual_ms = max(complete_ms.values()) - int(self._config.report_s * 1000)
            behind = {topic: found_ms for topic, found_ms in complete_ms.items() if found_ms < usual_ms}
            heard = Round(
                tier=self._config.tier, who=self._config.tier, by=self._by, at_ms=now_ms, complete_ms=usual_ms,
                behind=behind,
            )  # fmt: skip
            producer.send(AUDIT_TOPIC, heard.encode(), heard.key(), partition=0)
        producer.flush()
        if producer.first_error is not None:
            raise producer.first_error  # the next session reads back what is there and goes on behind it

    def _tell_too_long(self, text: str) -> None:
        self._notices.tell(time.monotonic(), "error", "report_too_long", reason=text)

    def _warn(self, text: str) -> None:
        self._notices.tell(time.monotonic(), "warning", "unreadable_report", reason=text)


def _is_chosen(name: str, config: CounterConfig) -> bool:
    return (
        any(re.fullmatch(pattern, name) for pattern in config.topics)
        and not any(re.fullmatch(pattern, name) for pattern in config.exclude)
        and not OWN_TOPICS.fullmatch(name)
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
