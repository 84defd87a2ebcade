"""How journalctl is called, and what happens when it ends."""

import os
from pathlib import Path

import pytest

from pylog.daemon.stop import Stop
from pylog.ship.follower import Follower, JournalEnded, journalctl_command

ALWAYS = ["journalctl", "--output=json", "--all", "--follow", "--no-tail", "--no-pager", "--quiet"]


def test_a_cursor_decides_where_to_go_on() -> None:
    assert journalctl_command("s=1", since_boot=True) == [*ALWAYS, "--after-cursor=s=1"]


def test_without_a_cursor_the_option_decides() -> None:
    assert journalctl_command(None, since_boot=False) == ALWAYS
    assert journalctl_command(None, since_boot=True, directory=Path("/j")) == [*ALWAYS, "--directory=/j", "--boot"]


def test_what_came_before_the_end_is_delivered_first() -> None:
    script = """echo '{"__CURSOR":"a"}'; echo '{"__CURSOR":"b"}'; printf '{"__CURSOR":"cut'; exit 3"""
    cursors: list[str | None] = []

    def read_to_the_end() -> None:
        while True:
            cursors.extend(line.cursor for line in follower.read(10, Stop().fd))

    with Follower(["sh", "-c", script]) as follower, pytest.raises(JournalEnded, match="ended with status 3"):
        read_to_the_end()
    assert cursors == ["a", "b"]


def test_a_missing_program_is_an_end() -> None:
    with pytest.raises(JournalEnded, match="cannot be started"):
        Follower(["/does/not/exist"])


def test_a_wanted_stop_ends_the_wait_and_closing_ends_the_program() -> None:
    stop = Stop()
    with Follower(["sleep", "1000"]) as follower:
        pid = follower._process.pid
        stop.want()
        assert follower.read(1000, stop.fd) == []
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
