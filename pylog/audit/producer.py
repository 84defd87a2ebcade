"""A producer whose records can be accounted for."""

import socket
import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError
from confluent_kafka import Message as _Record

from pylog.audit.counting import AUDIT_TOPIC, STAMP_HEADER, read_stamp
from pylog.audit.producing import ProducerAccount, Stretch
from pylog.audit.reports import Report
from pylog.client.connection import Connection
from pylog.client.producer import Producer
from pylog.errors import PylogError

DEFAULT_WINDOW_MS = 60_000
DEFAULT_REPORT_S = 10.0
_FLUSH_S = 5.0
_FULL_QUEUE_WAIT_S = 0.1
_TURN_S = 0.001
# Stamps have milliseconds, so what is sent within one has the same time.  Once a turn the clock is read, refusals are
# noticed and reports are thought of: each costs as much as half a record.


class AuditedProducer:
    """Sends records with a stamp, and tells `_audit` what of them was acknowledged.

    It counts as it sends, takes back what was refused, and reports when nothing is under way: for that it flushes, once
    each *report_s*, from a thread of its own while nobody sends.  Closing it tells that no more come; one that ends
    without leaves its last windows *unknown*, never complete.

    Args:
        cluster: a `Connection`, or just ``host:port``.
        window_ms: how long a window is; the same everywhere.
        report_s: between two reports.
        host: the server's name.
        options: of `Producer`.
    """

    def __init__(
        self,
        cluster: Connection | str,
        *,
        window_ms: int = DEFAULT_WINDOW_MS,
        report_s: float = DEFAULT_REPORT_S,
        host: str | None = None,
        **options: object,
    ) -> None:
        self.instance = uuid.uuid4().hex[:16]

        class OwnStamp(bytes):
            """A stamp that is also its record's callback.

            Each object that a record has beside it while it is under way is made, and looked at by Python's garbage
            collector, which together cost as much as sending the record: so there is one.
            """

            __slots__ = ()

            def __call__(stamp, error: KafkaError | None, record: _Record) -> None:  # noqa: N805  self is the producer
                if error is not None:
                    self._refused(stamp, error, record)

        self._stamped = OwnStamp
        self._account = ProducerAccount(self.instance, host or socket.gethostname(), window_ms)
        self._producer = Producer(cluster, **options)  # type: ignore[arg-type]
        self._report_s = report_s
        self._report_due_s = monotonic() + report_s
        self._report_error: KafkaError | None = None
        self._stretches: dict[str, Stretch] = {}
        self._turn_ends_s = 0.0
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        threading.Thread(target=self._report_while_idle, name="audit", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        self._is_over.set()

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int = -1,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        """Hand over one record, as `Producer.send`."""
        with self._lock:
            if monotonic() >= self._turn_ends_s:
                self._poll(0)
            stretch = self._stretches.get(topic)
            if stretch is None:
                stretch = self._stretches[topic] = self._account.stretch(topic, time.time_ns() // 1_000_000)
            stamp = self._stamped(stretch.stamp())
            stamped = [*headers, (STAMP_HEADER, stamp)]
            while not self._producer.hand_over(topic, value, key, partition, stamped, stamp):
                self._producer.poll(_FULL_QUEUE_WAIT_S)
            stretch.add(value)

    def poll(self, timeout_s: float) -> None:
        """Take notice of failures, and report when it is time."""
        with self._lock:
            self._poll(timeout_s)

    def _poll(self, timeout_s: float) -> None:
        self._producer.poll(timeout_s)
        if monotonic() >= self._report_due_s:
            try:
                if self._producer.flush(_FLUSH_S) == 0:
                    self._report(is_closed=False)
            finally:
                # Also when it did not: a cluster that is away must not make every record wait.
                self._report_due_s = monotonic() + self._report_s
        self._stretches.clear()
        self._turn_ends_s = monotonic() + _TURN_S

    def close(self) -> None:
        """Wait for all acknowledgements and tell that no more come; raise the first error if any record failed."""
        self._is_over.set()
        with self._lock:
            self._producer.flush()
            # One that was lost before is told first, and the last one after it.
            while self._report(is_closed=True):
                self._producer.flush()
                if self._report_error is not None:
                    self._producer.note_failure(self._report_error)
                    break
            self._producer.close()

    def _report_while_idle(self) -> None:
        """Say what was sent last though nobody sends or polls: a program that pauses is not one that died."""
        while not self._is_over.wait(self._report_s):
            with self._lock:
                if not self._is_over.is_set() and monotonic() >= self._report_due_s:
                    # What cannot be told now is told the next time, or raised where the program sends.
                    with suppress(PylogError):
                        self._poll(0)

    def _report(self, *, is_closed: bool) -> int:
        """Send what is to be told; return how many reports that are.  What cannot be sent is told the next time."""
        self._stretches.clear()
        self._report_error = None
        reports = self._account.reports(time.time_ns() // 1_000_000, is_closed=is_closed)
        failure = None
        for report in reports:
            try:
                told = partial(self._reported, report)
                while not self._producer.hand_over(
                    AUDIT_TOPIC, report.encode(), report.key(), 0, [], told
                ):  # fmt: skip
                    self._producer.poll(_FULL_QUEUE_WAIT_S)
            except PylogError as error:
                self._account.lose(report)
                failure = failure or error
        if failure is not None:
            raise failure
        return len(reports)

    def _reported(self, report: Report, error: KafkaError | None, _record: _Record) -> None:
        if error is not None:
            self._account.lose(report)
            self._report_error = error

    def _refused(self, stamp: bytes, error: KafkaError, record: _Record) -> None:
        self._producer.note_failure(error)
        found = read_stamp(stamp)
        assert found is not None, stamp
        self._account.take_back(str(record.topic()), found, record.value())
