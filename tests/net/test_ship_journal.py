"""Shipping a real journal to a real broker: nothing is lost, whatever is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pylog.client.admin.cluster import Admin
from pylog.client.consumer import ConsumedRecord, Consumer
from pylog.ship.entry import MARKER
from pylog.ship.journal import CURSOR_HEADER
from pylog.testing import BrokerProcess

TOPIC = "host.journal"
WAIT_S = 60.0

# Debian's systemd-journal-remote writes journal files from the export format, and appends to them.
JOURNAL_WRITER = "/lib/systemd/systemd-journal-remote"


class Journal:
    """Journal files in a directory, written by systemd's own code."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._count = 0

    def write(self, *messages: bytes) -> None:
        """Append entries."""
        export = bytearray()
        for message in messages:
            self._count += 1
            export += b"__REALTIME_TIMESTAMP=%d\n" % (1_700_000_000_000_000 + self._count * 1000)
            export += b"__MONOTONIC_TIMESTAMP=%d\n" % (self._count * 1000)
            export += b"_BOOT_ID=0123456789abcdef0123456789abcdef\n_HOSTNAME=h1\n"
            export += b"MESSAGE\n" + len(message).to_bytes(8, "little") + message + b"\n\n"
        subprocess.run(
            [JOURNAL_WRITER, f"--output={self.directory}/remote.journal", "-"],
            input=bytes(export),
            capture_output=True,
            check=True,
        )

    def cursors(self) -> list[str]:
        """Return every entry's cursor, as journalctl tells them."""
        ended = subprocess.run(
            [
                "journalctl",
                f"--directory={self.directory}",
                "--output=json",
                "--output-fields=_PID",
                "--no-pager",
                "--quiet",
            ],
            capture_output=True,
            check=True,
        )
        return [json.loads(line)["__CURSOR"] for line in ended.stdout.splitlines()]


class Shipper:
    """A running `pylog ship journal`."""

    def __init__(self, journal: Journal, bootstrap: str, state: Path) -> None:
        self.state = state
        self._command = [
            sys.executable,
            "-m",
            "pylog",
            "ship",
            "journal",
            "--bootstrap",
            bootstrap,
            "--topic",
            TOPIC,
            "--state",
            str(state),
            "--key",
            "h1",
            "--directory",
            str(journal.directory),
            "--timeout",
            "2",
            "--metrics-file",
            str(state.with_suffix(".prom")),
        ]
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        # A session of its own: a test that fails must not leave a journalctl behind.
        return subprocess.Popen(self._command, stderr=subprocess.PIPE, start_new_session=True)

    def restart(self) -> None:
        self.process = self._start()

    def kill(self) -> None:
        """End it and its journalctl as kill -9 does."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def stop(self) -> str:
        """End it as systemd does, and return what it said."""
        self.process.terminate()
        _, notes = self.process.communicate(timeout=WAIT_S)
        assert self.process.returncode == 0, notes
        return notes.decode()

    @property
    def metrics(self) -> dict[str, float]:
        """What its file says."""
        path = self.state.with_suffix(".prom")
        lines = path.read_text().splitlines() if path.exists() else []
        return {name: float(value) for name, value in (line.split() for line in lines if not line.startswith("#"))}

    def wait_metric(self, name: str, value: float) -> None:
        deadline_s = time.monotonic() + WAIT_S
        while self.metrics.get(name) != value:
            assert time.monotonic() < deadline_s, self.metrics
            time.sleep(0.05)

    def wait_stored(self, cursor: str) -> None:
        deadline_s = time.monotonic() + WAIT_S
        while not self.state.exists() or json.loads(self.state.read_text())["cursor"] != cursor:
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline_s, "the cursor was not stored in time"
            time.sleep(0.05)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    (tmp_path / "journal").mkdir()
    return Journal(tmp_path / "journal")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "broker") as running:
        yield running


@pytest.fixture
def shipper(journal: Journal, broker: BrokerProcess, tmp_path: Path) -> Iterator[Shipper]:
    journal.write(b"first")
    running = Shipper(journal, broker.bootstrap, tmp_path / "state")
    yield running
    if running.process.poll() is None:
        running.kill()


def shipped(broker: BrokerProcess) -> list[ConsumedRecord]:
    with Consumer(broker.bootstrap) as consumer:
        consumer.assign_topic(TOPIC)
        return list(consumer.records_to_end())


def cursor_of(record: ConsumedRecord) -> str:
    return (dict(record.headers)[CURSOR_HEADER] or b"").decode()


def test_entries_arrive_as_journalctl_writes_them(journal: Journal, shipper: Shipper, broker: BrokerProcess) -> None:
    journal.write(b'quote " comma , {"__CURSOR":"fake"}', b"binary \x00\xff\n", "größer".encode())
    shipper.wait_stored(journal.cursors()[-1])
    records = sorted(shipped(broker), key=lambda record: record.offset)
    entries = [json.loads(record.value or b"") for record in records]
    assert [entry["__CURSOR"] for entry in entries] == [cursor_of(record) for record in records] == journal.cursors()
    assert [entry["MESSAGE"] for entry in entries] == [
        "first",
        'quote " comma , {"__CURSOR":"fake"}',
        list(b"binary \x00\xff\n"),
        "größer",
    ]
    assert {record.key for record in records} == {b"h1"}
    assert len({record.partition for record in records}) == 1


def test_a_restart_goes_on_where_it_stopped(journal: Journal, shipper: Shipper, broker: BrokerProcess) -> None:
    shipper.wait_stored(journal.cursors()[-1])
    assert "shipped=1 truncated=0 unreadable=0" in shipper.stop()
    journal.write(b"while away", b"and another")
    shipper.restart()
    shipper.wait_stored(journal.cursors()[-1])
    assert [cursor_of(record) for record in shipped(broker)] == journal.cursors()


def test_kill_9_loses_nothing(journal: Journal, shipper: Shipper, broker: BrokerProcess) -> None:
    for round_number in range(4):
        journal.write(*(b"round %d entry %d" % (round_number, i) for i in range(2000)))
        # Each round dies at another moment: before the start is over, amid sending, amid storing.
        time.sleep(0.4 * (round_number + 1))
        shipper.kill()
        shipper.restart()
    cursors = journal.cursors()
    shipper.wait_stored(cursors[-1])
    counts = Counter(cursor_of(record) for record in shipped(broker))
    assert len(cursors) == 8001
    assert counts.keys() == set(cursors)


def test_brokers_that_are_away_are_waited_for(journal: Journal, shipper: Shipper, broker: BrokerProcess) -> None:
    shipper.wait_stored(journal.cursors()[-1])
    broker.kill()
    journal.write(*(b"unsent %d" % i for i in range(300)))
    broker.start()
    shipper.wait_stored(journal.cursors()[-1])
    assert {cursor_of(record) for record in shipped(broker)} == set(journal.cursors())
    # It says little about it, above all not a line an entry: its own lines are in the journal it ships.
    assert len(shipper.stop().splitlines()) <= 4


def test_entries_that_wait_are_shown_with_when_it_last_went_on(
    journal: Journal, shipper: Shipper, broker: BrokerProcess
) -> None:
    shipper.wait_metric("pylog_ship_entries_total", 1)
    broker.kill()
    journal.write(b"unsent", b"nor this")
    shipper.wait_metric("pylog_ship_waiting_entries", 2)
    went_on_s = shipper.metrics["pylog_ship_last_progress_timestamp_seconds"]
    broker.start()
    shipper.wait_metric("pylog_ship_waiting_entries", 0)
    assert shipper.metrics["pylog_ship_entries_total"] == 3
    assert shipper.metrics["pylog_ship_last_progress_timestamp_seconds"] > went_on_s


def test_the_state_moves_only_behind_acknowledgements(
    journal: Journal, shipper: Shipper, broker: BrokerProcess
) -> None:
    first = journal.cursors()[-1]
    shipper.wait_stored(first)
    broker.kill()
    journal.write(b"nobody hears this")
    notes = shipper.stop()
    assert json.loads(shipper.state.read_text())["cursor"] == first
    assert "shipped=1 " in notes


def test_an_entry_larger_than_a_record_may_be_is_cut_and_counted(
    journal: Journal, broker: BrokerProcess, tmp_path: Path
) -> None:
    Admin(broker.bootstrap).create_topic(TOPIC, partitions=1, config={"max.message.bytes": "20000"})
    journal.write(b"x" * 100_000, b"small", bytes(range(256)) * 200)
    shipper = Shipper(journal, broker.bootstrap, tmp_path / "state")
    try:
        shipper.wait_stored(journal.cursors()[-1])
        assert "truncated=2" in shipper.stop()
    finally:
        if shipper.process.poll() is None:
            shipper.kill()
    large, small, binary = (json.loads(record.value or b"") for record in shipped(broker))
    assert large[MARKER] == {"MESSAGE": 100_002}
    assert 15_000 < len(large["MESSAGE"]) < 20_000
    assert (small["MESSAGE"], MARKER in small) == ("small", False)
    assert binary["MESSAGE"] == (list(range(256)) * 200)[: len(binary["MESSAGE"])]
    assert len(binary["MESSAGE"]) > 1000
