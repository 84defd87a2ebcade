"""Reads and writes `_audit`."""

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from pylog.audit.counting import AUDIT_TOPIC
from pylog.audit.kept import Kept, KeptFile, Place
from pylog.audit.ledger import Ledger, TierCounts
from pylog.audit.reports import IDLE_REPORT_MS, MAX_REPORT_BYTES, Progress, Report, Round, Tier, decode
from pylog.client.admin.cluster import Admin
from pylog.client.admin.configs import ConfigAdmin, Holder
from pylog.client.connection import Connection
from pylog.client.consumer import ConsumedRecord, Consumer
from pylog.client.producer import Producer
from pylog.client.raw import topic_ids
from pylog.errors import ApiError, ErrorCode, StorageError
from pylog.model import Offset, OnProgress, TopicPartition, nobody

RETENTION_MS = 14 * 86_400_000
"""How long counts are kept; a report over a longer time cannot be made."""


_MAX_MESSAGE_BYTES = 16 << 20

_SETTINGS = {"message.timestamp.type": "LogAppendTime", "max.message.bytes": str(_MAX_MESSAGE_BYTES)}
# A report's time is when it was written, by the broker's clock: a producer's may be years off.

_SPANS_MS = (2 * IDLE_REPORT_MS, 24 * IDLE_REPORT_MS, RETENTION_MS)
"""How far back a reader looks for its last reports, one after the other."""

_SLACK_MS = IDLE_REPORT_MS // 4


def ensure_topic(cluster: Connection, replication_factor: int) -> None:
    """Make `_audit` unless it is there, and have the broker write the time of each record, and take long ones."""
    admin = Admin(cluster)
    if AUDIT_TOPIC in admin.cluster().topics:
        found = admin.topic_config(AUDIT_TOPIC)
        if any(str(found[name].value) != value for name, value in _SETTINGS.items()):
            ConfigAdmin(cluster).alter(Holder.TOPIC, AUDIT_TOPIC, _SETTINGS)
        return
    try:
        admin.create_topic(
            AUDIT_TOPIC,
            partitions=1,
            replication_factor=replication_factor,
            config={"retention.ms": str(RETENTION_MS), **_SETTINGS},
        )
    except ApiError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


def is_kept(cluster: Connection) -> bool:
    """Say whether *cluster* has an `_audit`."""
    return AUDIT_TOPIC in Admin(cluster).cluster().topics


def load(
    clusters: Iterable[Connection],
    from_ms: int,
    warn: Callable[[str], None],
    keep: Path | None = None,
    on_progress: OnProgress = nobody,
) -> Ledger:
    """Return what all clusters' reports add up to.

    Args:
        clusters: each with its own `_audit`.
        from_ms: windows that begin earlier are passed over.
        warn: told of records that are no reports, and of a file that cannot be written.
        keep: file with what the last call read, so that only what came since is read; written anew.  A file that is
            missing, damaged, or of other clusters or a later time is not used.
        on_progress: told how many records of one cluster were read, and how many it has to read.
    """
    clusters = list(clusters)
    if keep is None:
        return _loaded(clusters, Kept(Ledger(from_ms), [None] * len(clusters)), warn, on_progress).ledger
    file = KeptFile(keep)
    ids = [topic_ids(one.bootstrap, [AUDIT_TOPIC], one.timeout_s, one.security())[AUDIT_TOPIC] for one in clusters]
    kept = file.read(ids, from_ms, heard_since_ms(from_ms)) or Kept(Ledger(from_ms), [None] * len(clusters))
    try:
        found = _loaded(clusters, kept, warn, on_progress)
    except PlaceLost:
        found = _loaded(clusters, Kept(Ledger(from_ms), [None] * len(clusters)), warn, on_progress)
    try:
        file.write(found, ids)
    except StorageError as error:
        warn(str(error))  # what was read is right all the same
    return found.ledger


def _loaded(clusters: Iterable[Connection], kept: Kept, warn: Callable[[str], None], on_progress: OnProgress) -> Kept:
    """Return *kept* with what came since."""
    readers = [
        LedgerReader(cluster, kept.ledger, warn, place)
        for cluster, place in zip(clusters, kept.places, strict=True)
    ]  # fmt: skip
    for reader in readers:
        reader.read_on(lambda: False, on_progress)
    return Kept(kept.ledger, [reader.place for reader in readers])


def heard_since_ms(from_ms: int) -> int:
    """Return since when there is a report of each topic that has windows from *from_ms* on."""
    # Of a topic of which nothing comes there is a report at least so often.
    return from_ms - IDLE_REPORT_MS - _SLACK_MS


class PlaceLost(Exception):
    """The report that was read last is not in the log any more: a counter may have gone on from an earlier one."""


class LedgerReader:
    """Adds one cluster's reports to a ledger, and goes on later where it stopped.

    Args:
        cluster: has its own `_audit`.
        ledger: gets the reports; may be shared by the readers of several clusters.
        warn: told of records that are no reports.
        place: the last report of this cluster that *ledger* has; None if it has none.

    Attributes:
        read_count: records read so far.
        left_count: offsets that were left when the last reading stopped.
        tiers: whose readers report to this cluster: the live cluster's or the mirror's.
        place: the last report that was read.
    """

    def __init__(
        self, cluster: Connection, ledger: Ledger, warn: Callable[[str], None], place: Place | None = None
    ) -> None:
        self.cluster = cluster
        self.read_count = 0
        self.left_count = 0
        self.tiers: set[Tier] = set()
        self.place = place
        self._ledger = ledger
        self._warn = warn
        self._next: Offset | None = None

    def read_on(self, is_enough: Callable[[], bool], on_progress: OnProgress = nobody) -> None:
        """Read to the end that `_audit` has now, or until *is_enough*.

        Args:
            is_enough: asked after each record.
            on_progress: told how many records were read, and how many there were to read.

        Raises:
            ApiError: UNKNOWN_TOPIC_OR_PARTITION: the cluster has no `_audit`; OFFSET_OUT_OF_RANGE: it was made again,
                and this ledger is of the old one; or the cluster refuses.
            PlaceLost: the place that the reader was given is not in the log, so that the ledger must be read anew.
            Unreachable: no broker answers.
        """
        admin = Admin(self.cluster)
        place = self.place if self._next is None else None
        if self._next is None:
            if AUDIT_TOPIC not in admin.cluster().topics:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {AUDIT_TOPIC} does not exist")
            if place is None:
                from_ms = heard_since_ms(self._ledger.from_ms)
                self._next = admin.offsets_at([_PARTITION], max(0, from_ms))[_PARTITION]
            else:
                self._next = place.offset
        held = admin.offsets([_PARTITION])[_PARTITION]
        end = held.end
        if place is not None and not held.start <= place.offset < end:
            raise PlaceLost
        if self._next > end:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{AUDIT_TOPIC} was made again and ends at offset {end}")
        for record in _records(self.cluster, self._next, on_progress):
            if place is not None:
                if Place.of(record) != place:
                    raise PlaceLost
                place = None
                continue
            if (report := _decoded(record, self._warn)) is not None:
                self._ledger.add(report, record.timestamp_ms)
                if isinstance(report, Report) and report.tier in (Tier.LIVE, Tier.MIRROR):
                    self.tiers.add(report.tier)
            self.read_count += 1
            self._next = record.offset + 1
            self.place = Place.of(record)
            if is_enough():
                break
        else:
            self._next = max(self._next, end)
        if place is not None:
            raise PlaceLost
        self.left_count = max(0, end - self._next)


_PARTITION = TopicPartition(AUDIT_TOPIC, 0)


def _records(cluster: Connection, start: Offset, on_progress: OnProgress = nobody) -> Iterator[ConsumedRecord]:
    with Consumer(cluster) as consumer:
        consumer.assign({_PARTITION: start})
        yield from consumer.records_to_end(on_progress)


def _decoded(record: ConsumedRecord, warn: Callable[[str], None]) -> Report | Progress | Round | None:
    try:
        return decode(record.value)
    except ValueError as error:
        warn(f"{AUDIT_TOPIC} offset {record.offset}: {error}")
        return None


def _read(
    cluster: Connection, from_ms: int, warn: Callable[[str], None]
) -> Iterator[tuple[Report | Progress | Round, int]]:
    """Yield the reports in one cluster's `_audit` since a time, each with when it was written."""
    start = Admin(cluster).offsets_at([_PARTITION], max(0, from_ms))[_PARTITION]
    for record in _records(cluster, start):
        if (report := _decoded(record, warn)) is not None:
            yield report, record.timestamp_ms


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


def reporter(cluster: Connection) -> Producer:
    """Return a producer that takes reports of up to `MAX_REPORT_BYTES`."""
    return Producer(cluster, compression="lz4", message__max__bytes=_MAX_MESSAGE_BYTES)


def send(producer: Producer, report: Report, warn: Callable[[str], None]) -> bool:
    """Send a report; return False for one that is too long, of which *warn* is told."""
    value = report.encode()
    if len(value) > MAX_REPORT_BYTES:
        warn(
            f"topic {report.topic!r}: the report of {len(report.windows)} windows has {len(value)} bytes; at most "
            f"{MAX_REPORT_BYTES} are sent, so that this topic is not accounted for"
        )
        return False
    producer.send(AUDIT_TOPIC, value, report.key(), partition=0)
    return True


def write(cluster: Connection, reports: Iterable[Report], warn: Callable[[str], None]) -> None:
    """Write reports and wait until they are acknowledged; one that is too long is left out and told."""
    with reporter(cluster) as producer:
        for report in reports:
            send(producer, report, warn)
