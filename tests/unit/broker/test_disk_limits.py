"""What a broker says of its data disk: it refuses writes by its own limit, and says that it does."""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pylog.broker.data.partitions import Partitions
from pylog.broker.maintenance import Maintenance
from pylog.broker.settings import parse_broker_settings
from pylog.log.directory import LogDirectory
from pylog.metrics import Metrics
from tests.unit.broker.test_failed_compaction import CONFIG


def test_the_metric_follows_the_limit_of_this_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, metrics = LogDirectory.open(tmp_path, broker_id=1), Metrics()
    produce: Any = SimpleNamespace(is_disk_full=False)
    maintenance = Maintenance(
        directory, Partitions(directory, 1, parse_broker_settings({})), produce,
        replace(CONFIG, log_disk_alarm_percent=50, log_disk_high_watermark_percent=70), metrics,
        compact_interval_s=lambda: 1.0, now_ms=lambda: 0, is_retention_ours=False,
    )  # fmt: skip

    def look(free: int) -> tuple[bool, list[str]]:
        found: Any = SimpleNamespace(f_blocks=100, f_bfree=free, f_bavail=free, f_frsize=4096)
        with monkeypatch.context() as patch:
            patch.setattr(os, "statvfs", lambda _: found)
            maintenance._look_at_disk()
        lines = metrics.render().splitlines()
        names = ("pylog_disk_alarm ", "pylog_disk_full ")
        return produce.is_disk_full, [line for line in lines if line.startswith(names)]

    assert look(60) == (False, ["pylog_disk_alarm 0", "pylog_disk_full 0"])
    assert look(31) == (False, ["pylog_disk_alarm 1", "pylog_disk_full 0"])
    assert look(30) == (True, ["pylog_disk_alarm 1", "pylog_disk_full 1"])
    assert look(40) == (False, ["pylog_disk_alarm 1", "pylog_disk_full 0"])
