"""What the simulator says of what retention deleted."""

from pathlib import Path

import pytest

from pylog.log.config import LogConfig
from pylog.log.log import Log
from tests.sim import retention
from tests.sim.world import Violation
from tests.unit.log.batches import append, open_log

WRITTEN_MS = 1_600_000_000_000
RETENTION_MS = 3_600_000
DAY_MS = 86_400_000


@pytest.mark.parametrize(("true_ms", "now_ms", "is_too_early"), [
    (WRITTEN_MS + RETENTION_MS + 1, WRITTEN_MS + RETENTION_MS + 1, False),
    (WRITTEN_MS + RETENTION_MS - 100, WRITTEN_MS + RETENTION_MS + 300, False),
    (WRITTEN_MS + 1_000, WRITTEN_MS + DAY_MS, True),
])  # fmt: skip
def test_a_record_is_old_by_the_true_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, true_ms: int, now_ms: int, *, is_too_early: bool
) -> None:
    monkeypatch.setattr(Log, "delete_expired", Log.delete_expired)  # as it is again after the test
    retention.watch(lambda: true_ms)
    log = open_log(tmp_path, LogConfig(retention_ms=RETENTION_MS))
    append(log, timestamp=WRITTEN_MS, now_ms=WRITTEN_MS)
    if is_too_early:
        with pytest.raises(Violation, match="retention deletes what its settings allow"):
            log.delete_expired(now_ms)
    else:
        assert log.delete_expired(now_ms)
