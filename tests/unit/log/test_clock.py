"""T16: the broker's clock jumps by a day, and back: offsets do not care, retention neither hurries nor forgets."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from pylog.wire.records import iter_batches

from .batches import SMALL, append, batch, fill, open_log, read_all

DAY = 86_400_000
NOW = 1_000 * DAY
WEEK = replace(SMALL, retention_ms=7 * DAY)


@pytest.mark.parametrize("jump", [DAY, -DAY], ids=["forward", "back"])
def test_t16_clock_jump_forward_back(tmp_path: Path, jump: int) -> None:
    log = open_log(tmp_path, WEEK)
    clock = [NOW, NOW + jump, NOW + 1]
    # The producers' clocks are not the broker's; theirs do not jump.
    offsets = [append(log, batch(timestamp=NOW), now_ms=clock[number // 20]).base_offset for number in range(60)]
    assert offsets == list(range(60))
    stored = [header.base_offset for _, header in iter_batches(read_all(log))]
    assert stored == sorted(stored)
    for now_ms in (NOW + jump, NOW + 1):
        assert log.delete_expired(now_ms) == [], "nothing is older than a week, whichever clock is right"
    assert log.delete_expired(NOW + 8 * DAY), "and nothing is kept for ever"
    assert log.log_end_offset == 60


def test_t16_records_stamped_while_the_clock_was_a_day_ahead_expire_all_the_same(tmp_path: Path) -> None:
    log = open_log(tmp_path, WEEK)
    fill(log, 20, timestamp=NOW + DAY)
    fill(log, 20, timestamp=NOW)
    for path in tmp_path.glob("*.log"):
        os.utime(path, (NOW / 1000, NOW / 1000))
    assert log.delete_expired(NOW + DAY) == []
    assert log.delete_expired(NOW + 9 * DAY)
