"""Reads what coordinators write down and samples the logs' ends, and shows the judgement.

One consumer of `__consumer_offsets` tells of all groups at once, commits that repeat an offset included; asking each
group would cost a request for each, and would not tell when it committed.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pylog.client.admin.cluster import Admin
from pylog.client.commits import OFFSETS_TOPIC
from pylog.client.connection import Connection
from pylog.client.consumer import ConsumedRecord, Consumer
from pylog.daemon.notices import Notices
from pylog.daemon.stop import Stop
from pylog.errors import ApiError, ErrorCode, ProtocolError, PylogError
from pylog.group.records import OffsetKey, decode_group, decode_key, decode_offset
from pylog.group.state import GroupConfig
from pylog.metrics import Metrics, bounded_label
from pylog.model import IsolationLevel, TopicPartition
from pylog.probe.lag import GroupLags, LagReport, MemberNote, Stuck

JUDGED = (
    "pylog_group_lag_judged_timestamp_seconds",
    "When the lag of all groups was judged last, since the Unix epoch; 0: not yet.",
)
"""Name and help of what says that the report is fresh."""

_READ_S = 0.2
_RETRY_S = 10.0


def take_in(lags: GroupLags, record: ConsumedRecord) -> None:
    """Tell *lags* what a record of `__consumer_offsets` says; other programs' kinds of records are passed over.

    Raises:
        ProtocolError: the record contradicts itself.
    """
    key = decode_key(record.key or b"")
    if isinstance(key, OffsetKey):
        partition = TopicPartition(key.topic, key.partition)
        if record.value is None:
            lags.forget_commit(key.group_id, partition)
        else:
            commit = decode_offset(record.value)
            lags.note_commit(key.group_id, partition, commit.commit_timestamp, commit.offset)
    elif key is not None:
        if record.value is None:
            lags.note_members(key, None)
            return
        members = decode_group(key, record.value, GroupConfig()).members.values()
        notes = [MemberNote(one.member_id, one.client_host.removeprefix("/"), one.assignment) for one in members]
        lags.note_members(key, len(notes), notes)


@dataclass(frozen=True, slots=True)
class Latest:
    """What a reader found last.

    Attributes:
        report: the last judgement.
        judged_ms: when that was, since the Unix epoch; None: not yet.
        failure: why nothing is being read at the moment; empty if it is.
        failed_ms: when the failure began; None without one.
    """

    report: LagReport = field(default_factory=LagReport)
    judged_ms: int | None = None
    failure: str = ""
    failed_ms: int | None = None


class LagReader(threading.Thread):
    """Keeps a report of all groups.

    Args:
        cluster: whose groups.
        interval_s: between two samples of ends.
        metrics: where the report shows.
        stop: the end.
        notices: told of failures.

    Attributes:
        latest: what it found last.
    """

    def __init__(self, cluster: Connection, interval_s: float, metrics: Metrics, stop: Stop, notices: Notices) -> None:
        super().__init__(name="lag", daemon=True)
        self._cluster = cluster
        self._interval_s = interval_s
        self._stop_asked = stop
        self._notices = notices
        self.latest = Latest()
        show_report(metrics, lambda: self.latest.report)
        metrics.gauge(*JUDGED, read=lambda: (self.latest.judged_ms or 0) / 1000)

    def run(self) -> None:
        """Read until the end, and from the start of the topic again after a failure."""
        while not self._stop_asked.is_wanted:
            try:
                self._follow()
            except (PylogError, ProtocolError) as error:
                is_missing = isinstance(error, ApiError) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if is_missing:  # nobody ever committed
                    self.latest = Latest(judged_ms=_now_ms())
                else:
                    failed_ms = self.latest.failed_ms or _now_ms()
                    self.latest = replace(self.latest, failure=str(error), failed_ms=failed_ms)
                    self._notices.tell(time.monotonic(), "warning", "groups_unknown", reason=error)
                self._stop_asked.wait(_RETRY_S)

    def _follow(self) -> None:
        lags, admin = GroupLags(), Admin(self._cluster)
        next_s = 0.0
        # An open transaction of one group must not hide the commits of others; see `pylog.client.commits`.
        with Consumer(self._cluster, isolation__level=IsolationLevel.READ_UNCOMMITTED.value) as consumer:
            consumer.assign_topic(OFFSETS_TOPIC)
            count = len(admin.topic(OFFSETS_TOPIC).partitions)
            was_read = False
            while not self._stop_asked.is_wanted:
                for record in consumer.read(_READ_S):
                    take_in(lags, record)
                # Half of the topic would show groups as far behind that are not.
                was_read = was_read or len(consumer.at_end) == count
                if was_read and time.monotonic() >= next_s:
                    next_s = time.monotonic() + self._interval_s
                    self._sample(lags, admin)

    def _sample(self, lags: GroupLags, admin: Admin) -> None:
        ends = admin.ends(admin.led(lags.partitions()))
        now_ms = _now_ms()
        lags.note_ends(now_ms, ends)
        self.latest = Latest(lags.report(now_ms), now_ms)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def show_report(metrics: Metrics, report: Callable[[], LagReport]) -> None:
    """Show the latest *report* in *metrics*."""
    columns = ("group", "topic")

    def labelled(rows: Mapping[Any, float]) -> dict[tuple[str, ...], float]:
        return {(bounded_label(row[0]), *row[1:]): value for row, value in rows.items()}

    metrics.table(
        "pylog_group_lag_records",
        "gauge",
        "Records that a group has not read.",
        columns,
        lambda: labelled(report().records),
    )
    metrics.table(
        "pylog_group_lag_seconds",
        "gauge",
        "How long the oldest record that a group has not read has been there; 0 where it has read everything. What "
        "was there before this probe first looked counts from then, and may be older.",
        columns,
        lambda: labelled(report().seconds),
    )
    metrics.table(
        "pylog_group_status",
        "gauge",
        "Whether a group keeps up, of its worst partition: 0 OK, 1 WARN (the lag does not become smaller), 2 STALL "
        "(commits the same offset), 3 STOP (commits no longer).",
        columns,
        lambda: labelled(report().status),
    )
    metrics.table(
        "pylog_group_stuck_offset",
        "gauge",
        "Offset at which a group stands still in a partition (STALL or STOP of pylog_group_status), with the member "
        "that reads the partition and its address, empty where no member has it; of the 200 that are furthest behind.",
        Stuck._fields,
        lambda: {tuple(map(bounded_label, row)): offset for row, offset in report().stuck.items()},
    )
    help = "Members of a group."
    metrics.table("pylog_group_members", "gauge", help, ("group",), lambda: labelled(report().members))
    metrics.gauge(
        "pylog_group_lag_ignored_commits",
        "Commits that were not looked at because there are too many pairs of group and partition.",
        read=lambda: report().passed_over,
    )
    metrics.gauge(
        "pylog_group_lag_unknown_partitions",
        "Partitions with a committed offset whose end is not known: they have no leader, or are gone.",
        read=lambda: report().unknown,
    )
    metrics.gauge(
        "pylog_group_lag_left_out",
        "Pairs of group and topic that are not shown because there are too many; those furthest behind are.",
        read=lambda: report().left_out,
    )
