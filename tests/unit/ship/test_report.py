"""When and what a shipper shows of itself."""

from pathlib import Path

import pytest

from pylog.errors import StorageError
from pylog.ship.report import INTERVAL_S, Report, Totals


def test_the_file_shows_the_totals_and_is_written_once_an_interval(tmp_path: Path) -> None:
    path = tmp_path / "ship.prom"
    totals = Totals(shipped=7, truncated=1, unreadable=2, waiting=3, progress_s=1_764_000_000.5)
    report = Report(path, totals)
    report.write(100.0)
    assert {line for line in path.read_text().splitlines() if not line.startswith("#")} == {
        "pylog_ship_entries_total 7",
        "pylog_ship_truncated_total 1",
        "pylog_ship_unreadable_total 2",
        "pylog_ship_waiting_entries 3",
        "pylog_ship_last_progress_timestamp_seconds 1764000000.5",
    }
    totals.shipped = 8
    report.write(100.0 + INTERVAL_S - 0.1)
    assert "pylog_ship_entries_total 7" in path.read_text()
    report.write(100.0 + INTERVAL_S)
    assert "pylog_ship_entries_total 8" in path.read_text()


def test_a_directory_that_is_gone_is_an_error_of_the_disk(tmp_path: Path) -> None:
    report = Report(tmp_path / "gone" / "ship.prom", Totals())
    with pytest.raises(StorageError, match="gone"):
        report.write(0.0)


def test_without_a_path_nothing_is_written() -> None:
    Report(None, Totals()).write(0.0)
