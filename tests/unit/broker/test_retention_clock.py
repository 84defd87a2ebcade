"""Clocks that are set, and what retention makes of it."""

from pathlib import Path

import pytest

from pylog.broker.retention_clock import JUMP_MS, TRUST_AFTER_MS, RetentionClock
from pylog.log.checkpoint import RETENTION_CLOCK
from pylog.log.config import LogConfig
from pylog.log.log import Log
from pylog.model import TopicPartition
from tests.unit.log.batches import append

DAY_MS = 24 * 3_600_000
BEGIN_MS = 1_700_000_000_000


class Machine:
    """A wall clock that may be set, and the time that passes."""

    def __init__(self, directory: Path) -> None:
        self.passed_ms = 0
        self.set_ahead_ms = 0
        self.path = directory / RETENTION_CLOCK
        self.start()

    def start(self) -> None:
        """Start the broker, perhaps again; the host may have been off meanwhile."""
        self.clock = RetentionClock(
            self.path, lambda: BEGIN_MS + self.passed_ms + self.set_ahead_ms, lambda: self.passed_ms
        )

    def checkpoint(self) -> None:
        job = self.clock.checkpoint_job()
        job.run()
        job.finish()

    def after(self, duration_ms: int) -> int:
        self.passed_ms += duration_ms
        return self.clock.now_ms()


def test_time_passes(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert machine.after(0) == BEGIN_MS
    assert machine.after(DAY_MS) == BEGIN_MS + DAY_MS


def test_a_jump_ahead_is_believed_only_after_it_lasted(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.set_ahead_ms = DAY_MS
    assert machine.after(1000) == BEGIN_MS + 1000
    assert machine.clock.jumped_ms == DAY_MS
    assert machine.after(TRUST_AFTER_MS - 1) == BEGIN_MS + 1000 + TRUST_AFTER_MS - 1
    assert machine.after(1) == BEGIN_MS + 1000 + TRUST_AFTER_MS + DAY_MS
    assert machine.clock.jumped_ms == 0


def test_a_second_jump_must_last_for_an_hour_of_its_own(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.set_ahead_ms = JUMP_MS + 1
    machine.after(TRUST_AFTER_MS - 60_000)
    machine.after(0)
    machine.set_ahead_ms = 8 * DAY_MS
    passed_ms = machine.passed_ms
    assert machine.after(120_000) == BEGIN_MS + passed_ms + 120_000
    assert machine.after(TRUST_AFTER_MS - 1) == BEGIN_MS + passed_ms + 120_000 + TRUST_AFTER_MS - 1
    assert machine.after(1) == BEGIN_MS + machine.passed_ms + 8 * DAY_MS


def test_a_jump_that_is_repeated_must_last_for_an_hour_of_its_own(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.set_ahead_ms = DAY_MS
    machine.after(60_000)
    machine.set_ahead_ms = 2 * JUMP_MS
    machine.after(TRUST_AFTER_MS - 120_000)
    machine.set_ahead_ms = DAY_MS
    machine.after(0)
    assert machine.after(TRUST_AFTER_MS - 1) == BEGIN_MS + machine.passed_ms
    assert machine.after(1) == BEGIN_MS + machine.passed_ms + DAY_MS


def test_a_jump_that_is_taken_back_leaves_no_trace(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.set_ahead_ms = DAY_MS
    machine.after(1000)
    machine.set_ahead_ms = 0
    assert machine.after(1000) == BEGIN_MS + 2000
    assert machine.clock.jumped_ms == 0


def test_small_corrections_and_steps_back_are_followed(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.set_ahead_ms = JUMP_MS
    assert machine.after(0) == BEGIN_MS + JUMP_MS
    machine.set_ahead_ms = -DAY_MS
    assert machine.after(0) == BEGIN_MS - DAY_MS


def test_a_clock_that_is_ahead_at_the_start_is_believed_only_after_it_lasted(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.after(60_000)
    machine.checkpoint()
    machine.set_ahead_ms = DAY_MS
    machine.start()
    assert machine.after(1000) == BEGIN_MS + 61_000
    assert machine.clock.jumped_ms == DAY_MS
    assert machine.after(TRUST_AFTER_MS - 1001) == BEGIN_MS + 60_000 + TRUST_AFTER_MS - 1
    assert machine.after(1) == BEGIN_MS + 60_000 + TRUST_AFTER_MS + DAY_MS


def test_starting_again_does_not_make_a_clock_believed(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.checkpoint()
    machine.set_ahead_ms = DAY_MS
    for minute in range(5):
        machine.start()
        assert machine.after(60_000) == BEGIN_MS + 60_000 * (minute + 1)
        machine.checkpoint()


def test_a_host_that_was_off_for_long_is_behind_for_an_hour(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.checkpoint()
    machine.passed_ms += DAY_MS
    machine.start()
    assert machine.after(0) == BEGIN_MS
    assert machine.after(TRUST_AFTER_MS) == BEGIN_MS + DAY_MS + TRUST_AFTER_MS


def test_a_short_restart_and_a_clock_set_back_meanwhile_are_followed(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.checkpoint()
    machine.passed_ms += JUMP_MS
    machine.start()
    assert machine.after(0) == BEGIN_MS + JUMP_MS
    machine.checkpoint()
    machine.set_ahead_ms = -DAY_MS
    machine.start()
    assert machine.after(0) == BEGIN_MS + JUMP_MS - DAY_MS


@pytest.mark.parametrize("content", ["", "0\n1\n17", "0\n1\nnoon\n", "0\n0\n"])
def test_a_damaged_file_leaves_the_wall_clock(tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / RETENTION_CLOCK).write_text(content)
    assert Machine(tmp_path).after(1000) == BEGIN_MS + 1000
    assert "cannot be read" in caplog.text


def test_a_file_that_cannot_be_written_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine(tmp_path / "gone")
    machine.checkpoint()
    assert "not written" in caplog.text


def test_t16_a_clock_that_jumps_deletes_nothing_early_and_keeps_nothing_for_ever(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    config = LogConfig(segment_bytes=1024, retention_ms=DAY_MS // 2)
    log = Log.open(tmp_path, TopicPartition("t", 0), config, now_ms=BEGIN_MS, clean=True)
    for _ in range(30):
        append(log, timestamp=machine.after(1000))
    machine.set_ahead_ms = DAY_MS
    assert log.delete_expired(machine.after(60_000)) == []
    # Records of the time ahead, then the clock is set right: offsets go on, and those records do not stay for ever.
    for _ in range(30):
        append(log, timestamp=machine.after(1000) + DAY_MS)
    machine.set_ahead_ms = 0
    for _ in range(30):
        append(log, timestamp=machine.after(1000))
    assert log.log_end_offset == 90
    assert log.delete_expired(machine.after(60_000)) == []
    later_ms = machine.after(3 * DAY_MS)
    assert len(log.delete_expired(later_ms)) > 5
    assert log.log_end_offset == 90
    log.abandon()
