"""A start that makes progress is given more time by systemd (F11)."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from pylog.broker.watchdog import STALL_LIMIT_S, StartProgress

MORE = f"EXTEND_TIMEOUT_USEC={STALL_LIMIT_S}000000"


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The socket on which systemd hears from a unit."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(tmp_path / "notify"))
        heard.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield heard


def said(systemd: socket.socket) -> list[str]:
    found = []
    while True:
        try:
            found.append(systemd.recv(4096).decode())
        except BlockingIOError:
            return found


def test_f11_each_step_of_a_recovery_asks_for_more_time(systemd: socket.socket) -> None:
    done = [0]
    progress = StartProgress(lambda: done[0], lambda: False)
    for count in (0, 1, 2):
        done[0] = count
        progress.poll()
        assert said(systemd) == [MORE]


def test_f11_a_start_that_hangs_gets_no_more_time(systemd: socket.socket) -> None:
    progress = StartProgress(lambda: 7, lambda: False)
    progress.poll()
    said(systemd)
    progress.poll()
    assert said(systemd) == []


def test_f11_a_start_that_waits_for_zookeeper_goes_on_waiting(systemd: socket.socket) -> None:
    progress = StartProgress(lambda: 7, lambda: True)
    progress.poll()
    progress.poll()
    assert said(systemd) == [MORE, MORE]
