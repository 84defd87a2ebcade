"""Reads and writes `_audit`."""

import time
from collections.abc import Callable, Iterable, Iterator

from pylog.audit.counting import AUDIT_TOPIC
from pylog.audit.ledger import Ledger, TierCounts
from pylog.audit.reports import IDLE_REPORT_MS, Progress, Report, Round, Tier, decode
from pylog.client.admin.cluster import Admin
from pylog.client.admin.configs import ConfigAdmin, Holder
from pylog.client.connection import Connection
from pylog.client.consumer import Consumer
from pylog.client.producer import Producer
from pylog.errors import ApiError, ErrorCode
from pylog.model import TopicPartition

RETENTION_MS = 14 * 86_400_000
"""How long counts are kept; a report over a longer time cannot be made."""


_TIMES = {"message.timestamp.type": "LogAppendTime"}
# A report's time is when it was written, by the broker's clock: a producer's may be years off.

_SPANS_MS = (2 * IDLE_REPORT_MS, 24 * IDLE_REPORT_MS, RETENTION_MS)
"""How far back a reader looks for its last reports, one after the other."""

_SLACK_MS = IDLE_REPORT_MS // 4


def ensure_topic(cluster: Connection, replication_factor: int) -> None:
    """Make `_audit` unless it is there, and have the broker write the time of each record."""
    admin = Admin(cluster)
    if AUDIT_TOPIC in admin.cluster().topics:
        found = admin.topic_config(AUDIT_TOPIC)
        if any(found[name].value != value for name, value in _TIMES.items()):
            ConfigAdmin(cluster).alter(Holder.TOPIC, AUDIT_TOPIC, _TIMES)
        return
    try:
        admin.create_topic(
            AUDIT_TOPIC,
            partitions=1,
            replication_factor=replication_factor,
            config={"retention.ms": str(RETENTION_MS), **_TIMES},
        )
    except ApiError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


def is_kept(cluster: Connection) -> bool:
    """Say whether *cluster* has an `_audit`."""
    return AUDIT_TOPIC in Admin(cluster).cluster().topics


def load(clusters: Iterable[Connection], from_ms: int, warn: Callable[[str], None]) -> Ledger:
    """Return what all clusters' reports add up to.

    Args:
        clusters: each with its own `_audit`.
        from_ms: windows that begin earlier are passed over.
        warn: told of records that are no reports.
    """
    ledger = Ledger(from_ms)
    for cluster in clusters:
        # Of a topic of which nothing comes there is a report at least so often.
        for report, at_ms in _read(cluster, from_ms - IDLE_REPORT_MS - _SLACK_MS, warn):
            ledger.add(report, at_ms)
    return ledger


def _read(
    cluster: Connection, from_ms: int, warn: Callable[[str], None]
) -> Iterator[tuple[Report | Progress | Round, int]]:
    """Yield the reports in one cluster's `_audit` since a time, each with when it was written."""
    partition = TopicPartition(AUDIT_TOPIC, 0)
    start = Admin(cluster).offsets_at([partition], max(0, from_ms))[partition]
    with Consumer(cluster) as consumer:
        consumer.assign({partition: start})
        for record in consumer.records_to_end():
            try:
                yield decode(record.value), record.timestamp_ms
            except ValueError as error:
                warn(f"{AUDIT_TOPIC} offset {record.offset}: {error}")


def last_reports(cluster: Connection, tier: Tier, who: str, warn: Callable[[str], None]) -> dict[str, Report]:
    """Return a reader's last report of each topic that counts.

    Nobody reads two weeks of reports for that: each topic has one in the last hour that the reader ran.
    """
    now_ms = time.time_ns() // 1_000_000
    found: dict[str, Report] = {}
    for span_ms in _SPANS_MS:
        found, last_ms = {}, 0
        chains: dict[str, TierCounts] = {}
        for report, at_ms in _read(cluster, now_ms - span_ms, warn):
            if isinstance(report, Progress) or (report.tier, report.who) != (tier, who):
                continue
            last_ms = max(last_ms, at_ms)
            if isinstance(report, Report):
                chain = chains.setdefault(report.topic, TierCounts())
                if chain.continues(report):
                    chain.offsets, chain.number[who] = report.offsets, report.number
                    found[report.topic] = report
        if last_ms - IDLE_REPORT_MS - _SLACK_MS >= now_ms - span_ms:
            break
    return found


def write(cluster: Connection, reports: Iterable[Report]) -> None:
    """Write reports and wait until they are acknowledged."""
    with Producer(cluster) as producer:
        for report in reports:
            producer.send(AUDIT_TOPIC, report.encode(), report.key(), partition=0)
