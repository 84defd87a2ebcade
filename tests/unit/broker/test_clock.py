"""Which clocks the broker goes by."""

import time

import pytest

from pylog.broker.clock import steady_ms


def test_the_steady_clock_goes_on_while_the_host_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def look(clock: int) -> int:
        asked.append(clock)
        return 1_234_567_890

    monkeypatch.setattr(time, "clock_gettime_ns", look)
    assert steady_ms() == 1_234
    assert asked == [time.CLOCK_BOOTTIME]


def test_the_steady_clock_only_grows() -> None:
    before = steady_ms()
    assert before <= steady_ms() <= before + 60_000
