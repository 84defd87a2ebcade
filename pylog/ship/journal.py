"""Ships the journal: reads, produces, remembers the cursor after the acknowledgement, never gives up.

A session is one journalctl and one producer.  Whatever goes wrong ends the session; the next one starts at the stored
cursor, so entries are sent twice rather than not at all.
"""

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pylog.client.admin.cluster import Admin
from pylog.client.connection import Connection
from pylog.client.producer import Producer
from pylog.daemon.notices import Notices
from pylog.daemon.stop import Stop
from pylog.errors import ApiError, ErrorCode, PylogError, StorageError, Unreachable
from pylog.ship.cursor import CursorWindow
from pylog.ship.entry import fit
from pylog.ship.follower import Follower, JournalEnded, journalctl_command
from pylog.ship.lines import Line
from pylog.ship.report import Report, Totals
from pylog.ship.state import load_cursor, store_cursor

CURSOR_HEADER = "pylog.cursor"
"""Header that names an entry; duplicates are told by it."""

DEFAULT_MAX_MESSAGE_BYTES = 1048588
"""`max.message.bytes` of a topic that does not exist yet: Kafka's default."""

_OVERHEAD_BYTES = 1024
"""What batch header, key, cursor and lengths take beside the entry, generously."""

_LARGEST_ENTRY_BYTES = 8 << 20
_WINDOW_ENTRIES = 10_000
_BUFFERED_BYTES = 32 << 20
_STORE_INTERVAL_S = 1.0
_SILENCE_S = 15.0
_FLUSH_S = 10.0
_FIRST_BACKOFF_S, _LAST_BACKOFF_S = 1.0, 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShipConfig:
    """What to ship where.

    Attributes:
        cluster: where to.
        topic: that all entries go to.
        key: of every record, this host's name.
        state: file that holds the cursor.
        since_boot: whether to start at this boot, not at the journal's start, where there is no state.
        directory: of journal files, instead of this host's own.
        compression: of batches.
        metrics_file: where `Totals` are shown, in Prometheus's text format; None for nowhere.
    """

    cluster: Connection
    topic: str
    key: str
    state: Path
    since_boot: bool = False
    directory: Path | None = None
    compression: str = "lz4"
    metrics_file: Path | None = None


def ship_journal(config: ShipConfig, stop: Stop, notices: Notices) -> Totals:
    """Ship until *stop*, through every failure of brokers and journal.

    Raises:
        ConfigError: the state file is no state file.
        StorageError: the state cannot be stored; going on would ship the same entries after each restart.
    """
    totals = Totals(progress_s=time.time())
    report = Report(config.metrics_file, totals)
    backoff_s = _FIRST_BACKOFF_S
    while not stop.is_wanted:
        shipped = totals.shipped
        cursor = load_cursor(config.state)
        try:
            with _Session(config, cursor, totals, report, notices) as session:
                session.run(stop)
        except (ApiError, JournalEnded, _SessionFailed) as error:
            if totals.shipped > shipped:
                backoff_s = _FIRST_BACKOFF_S
            notices.tell(time.monotonic(), "warning", "session_ended", reason=error, retry_s=backoff_s)
            _show(report, notices)
            stop.wait(backoff_s)
            backoff_s = min(backoff_s * 2, _LAST_BACKOFF_S)
    return totals


def _show(report: Report, notices: Notices) -> None:
    """Write the metrics; a disk that refuses them does not end shipping."""
    try:
        report.write(time.monotonic())
    except StorageError as error:
        notices.tell(time.monotonic(), "warning", "metrics_not_written", reason=error)


class _SessionFailed(PylogError):
    """Entries cannot be delivered as things are; start again from the stored cursor."""


class _Session:
    """One journalctl, one producer, the entries between them."""

    def __init__(
        self, config: ShipConfig, cursor: str | None, totals: Totals, report: Report, notices: Notices
    ) -> None:
        self._config, self._totals, self._report, self._notices = config, totals, report, notices
        self._window = CursorWindow(_WINDOW_ENTRIES)
        self._stored = cursor
        self._began_s = self._stored_s = self._acknowledged_s = time.monotonic()
        self._failure: PylogError | None = None
        limit_bytes = _max_message_bytes(config)
        self._limit_bytes = min(limit_bytes - _OVERHEAD_BYTES, _LARGEST_ENTRY_BYTES)
        self._producer = Producer(
            config.cluster,
            compression=config.compression,
            linger_ms=100,
            delivery_timeout_ms=0,
            buffered_bytes=_BUFFERED_BYTES,
            reports_success=True,
            batch__size=limit_bytes - _OVERHEAD_BYTES // 2,
            message__max__bytes=limit_bytes,
        )
        self._follower = Follower(journalctl_command(cursor, since_boot=config.since_boot, directory=config.directory))

    def __enter__(self) -> "_Session":
        return self

    def __exit__(self, *_: object) -> None:
        self._follower.close()

    def run(self, stop: Stop) -> None:
        """Ship until *stop*, then wait for what is under way and store its cursor.

        Raises:
            _SessionFailed: the brokers refuse an entry.
            JournalEnded: journalctl does.
        """
        try:
            while not stop.is_wanted:
                for line in self._next_lines(stop):
                    self._ship(line, stop)
                self._settle()
        finally:
            self._producer.flush(_FLUSH_S if stop.is_wanted else 0)
            self._store()

    def _next_lines(self, stop: Stop) -> list[Line]:
        """Wait for entries, or for acknowledgements while as many as allowed are under way."""
        if len(self._producer) == 0:
            return self._follower.read(_STORE_INTERVAL_S, stop.fd)
        # Entries are under way: look often, so that their cursor is stored soon.
        return self._follower.read(0.05, stop.fd)

    def _ship(self, line: Line, stop: Stop) -> None:
        if line.cursor is None:
            self._totals.unreadable += 1
            self._notices.tell(time.monotonic(), "warning", "no_entry", line=line.content[:200], bytes=line.size_bytes)
            return
        value, is_truncated = fit(line, self._limit_bytes)
        if is_truncated:
            self._totals.truncated += 1
            self._notices.tell(time.monotonic(), "warning", "truncated", cursor=line.cursor, bytes=line.size_bytes)
        while self._window.is_full and not stop.is_wanted:
            self._producer.poll(0.2)
            self._settle()
        while not stop.is_wanted and not self._send(line.cursor, value):
            self._producer.poll(0.2)
            self._settle()

    def _send(self, cursor: str, value: bytes) -> bool:
        """Hand one entry over, or return False while the producer's buffer is full."""
        number = self._window.next_number
        is_taken = self._producer.send_nowait(
            self._config.topic,
            value,
            self._config.key.encode(),
            headers=[(CURSOR_HEADER, cursor.encode())],
            on_delivery=partial(self._delivered, number),
        )
        if is_taken:
            added = self._window.add(cursor)
            assert added == number, f"entry {added} was announced as {number}"
        return is_taken

    def _delivered(self, number: int, error: PylogError | None) -> None:
        if error is not None:
            self._failure = self._failure or error
            return
        self._window.acknowledge(number)
        self._totals.shipped += 1
        self._totals.progress_s = time.time()
        self._acknowledged_s = time.monotonic()

    def _settle(self) -> None:
        """Take notice of acknowledgements and failures, and store the cursor when it is time."""
        self._producer.poll(0)
        now_s = time.monotonic()
        self._totals.waiting = len(self._window)
        if not len(self._window):
            self._acknowledged_s = now_s
            # A session that begins has nothing under way either: each of those that fail would count as progress.
            if now_s - self._began_s > _SILENCE_S:
                self._totals.progress_s = time.time()
        elif now_s - self._acknowledged_s > _SILENCE_S:
            self._notices.tell(
                now_s,
                "warning",
                "no_acknowledgement",
                brokers=self._config.cluster.bootstrap,
                entries=len(self._window),
                since_s=int(now_s - self._acknowledged_s),
            )
        if now_s - self._stored_s >= _STORE_INTERVAL_S:
            self._store()
        _show(self._report, self._notices)
        if self._failure is not None:
            raise _SessionFailed(f"{self._config.topic}: {self._failure}")

    def _store(self) -> None:
        self._stored_s = time.monotonic()
        if self._window.storable is not None and self._window.storable != self._stored:
            store_cursor(self._config.state, self._window.storable)
            self._stored = self._window.storable


def _max_message_bytes(config: ShipConfig) -> int:
    """Return the topic's limit, or the default for a topic that the first record will create."""
    try:
        found = Admin(config.cluster).topic_config(config.topic).get("max.message.bytes")
    except Unreachable:
        # Waiting for the brokers is the producer's business; a lower limit than this one ends the session later.
        return DEFAULT_MAX_MESSAGE_BYTES
    except ApiError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return DEFAULT_MAX_MESSAGE_BYTES
    return int(found.value) if found is not None and found.value else DEFAULT_MAX_MESSAGE_BYTES
