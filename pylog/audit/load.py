"""Reads and writes `_audit`."""

from collections.abc import Callable, Iterable, Iterator

from pylog.audit.counting import AUDIT_TOPIC
from pylog.audit.ledger import Ledger
from pylog.audit.reports import Progress, Report, Tier, decode
from pylog.client.admin.cluster import Admin
from pylog.client.connection import Connection
from pylog.client.consumer import Consumer
from pylog.client.producer import Producer
from pylog.errors import ApiError, ErrorCode
from pylog.model import TopicPartition

RETENTION_MS = 14 * 86_400_000
"""How long counts are kept; a report over a longer time cannot be made."""


def ensure_topic(cluster: Connection, replication_factor: int) -> None:
    """Make `_audit` unless it is there."""
    admin = Admin(cluster)
    if AUDIT_TOPIC in admin.cluster().topics:
        return
    try:
        admin.create_topic(
            AUDIT_TOPIC, partitions=1, replication_factor=replication_factor, config={"retention.ms": str(RETENTION_MS)}
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
        for report, at_ms in read(cluster, from_ms, warn):
            ledger.add(report, at_ms)
    return ledger


def read(cluster: Connection, from_ms: int, warn: Callable[[str], None]) -> Iterator[tuple[Report | Progress, int]]:
    """Yield the reports in one cluster's `_audit` since a time, each with when it was written."""
    partition = TopicPartition(AUDIT_TOPIC, 0)
    start = Admin(cluster).offsets_at([partition], from_ms)[partition]
    with Consumer(cluster) as consumer:
        consumer.assign({partition: start})
        for record in consumer.records_to_end():
            try:
                yield decode(record.value), record.timestamp_ms
            except ValueError as error:
                warn(f"{AUDIT_TOPIC} offset {record.offset}: {error}")


def last_reports(cluster: Connection, tier: Tier, who: str, warn: Callable[[str], None]) -> dict[str, Report]:
    """Return a reader's last report of each topic."""
    found: dict[str, Report] = {}
    for report, _ in read(cluster, 0, warn):
        if isinstance(report, Report) and (report.tier, report.who) == (tier, who):
            found[report.topic] = report
    return found


def write(cluster: Connection, reports: Iterable[Report]) -> None:
    """Write reports and wait until they are acknowledged."""
    with Producer(cluster) as producer:
        for report in reports:
            producer.send(AUDIT_TOPIC, report.encode(), report.key(), partition=0)
