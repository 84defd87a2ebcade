"""A producer whose records can be accounted for."""

import socket
import time
import uuid
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import Self

from pylog.audit.producing import ProducerAccount
from pylog.audit.reports import AUDIT_TOPIC
from pylog.client.connection import Connection
from pylog.client.counting import STAMP_HEADER, Stamp
from pylog.client.producer import Producer
from pylog.errors import PylogError

DEFAULT_WINDOW_MS = 60_000
DEFAULT_REPORT_S = 10.0
_FLUSH_S = 5.0
_SENDS_PER_POLL = 64


class AuditedProducer:
    """Sends records with a stamp, and tells `_audit` what of them was acknowledged.

    It counts as it sends, takes back what was refused, and reports when nothing is under way: for that it flushes, once
    each *report_s*.  Closing it tells that no more come; one that ends without leaves its last windows *unknown*, never
    complete.  Use it from one thread.

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
        self._account = ProducerAccount(self.instance, host or socket.gethostname(), window_ms)
        self._producer = Producer(cluster, **options)  # type: ignore[arg-type]
        self._report_s = report_s
        self._reported_s = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()

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
        stamp = self._account.stamp(topic, value, time.time_ns() // 1_000_000)
        try:
            self._producer.send(
                topic,
                value,
                key,
                partition=partition,
                headers=[*headers, (STAMP_HEADER, stamp.encode())],
                on_delivery=partial(self._settled, topic, stamp, value),
            )
        except PylogError:
            self._account.take_back(topic, stamp, value)
            raise
        # A look at the queue costs as much as half a record.
        if stamp.sequence % _SENDS_PER_POLL == 0:
            self.poll(0)

    def poll(self, timeout_s: float) -> None:
        """Take notice of failures, and report when it is time."""
        self._producer.poll(timeout_s)
        if time.monotonic() - self._reported_s >= self._report_s and self._producer.flush(_FLUSH_S) == 0:
            self._report(is_closed=False)

    def close(self) -> None:
        """Wait for all acknowledgements and tell that no more come; raise the first error if any record failed."""
        self._producer.flush()
        self._report(is_closed=True)
        self._producer.close()

    def _report(self, *, is_closed: bool) -> None:
        self._reported_s = time.monotonic()
        for report in self._account.reports(time.time_ns() // 1_000_000, is_closed=is_closed):
            self._producer.send(AUDIT_TOPIC, report.encode(), report.key(), partition=0)

    def _settled(self, topic: str, stamp: Stamp, value: bytes | None, error: PylogError | None) -> None:
        if error is not None:
            self._account.take_back(topic, stamp, value)
