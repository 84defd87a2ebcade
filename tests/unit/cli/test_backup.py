"""Backups of the metadata in a directory: the newest stay, and nothing that is not whole has a backup's name."""

from pathlib import Path

import pytest

from pylog.cli.backup import name_of, outdated, rotate, write_metrics
from pylog.cli.failure import Failure

NOW_MS = 1_764_000_000_000
DAY_MS = 86_400_000


def test_the_newest_backups_stay_and_other_files_too(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("kept")
    (tmp_path / "metadata-before-the-upgrade.json").write_text("kept")
    made = [rotate(tmp_path, f"{day}\n", NOW_MS + day * DAY_MS, keep=3) for day in range(5)]
    there = {path.name for path in tmp_path.iterdir()}
    assert there == {"notes.txt", "metadata-before-the-upgrade.json", *(path.name for path in made[2:])}
    assert [path.stat().st_mode & 0o777 for path in made[2:]] == [0o600] * 3


def test_a_backup_that_cannot_be_written_costs_no_older_one(tmp_path: Path) -> None:
    first = rotate(tmp_path, "whole\n", NOW_MS, keep=1)
    blocked = tmp_path / f"{name_of(NOW_MS + DAY_MS).removesuffix('.json')}.part"
    blocked.mkdir()
    (blocked / "in the way").touch()
    with pytest.raises((Failure, OSError)):
        rotate(tmp_path, "cut short", NOW_MS + DAY_MS, keep=1)
    assert first.read_text().strip() == "whole"
    assert outdated((path.name for path in tmp_path.iterdir()), 1) == []


def test_a_file_that_was_left_half_written_is_replaced(tmp_path: Path) -> None:
    (tmp_path / name_of(NOW_MS)).with_suffix(".part").write_text("half of i")
    assert rotate(tmp_path, "all of it", NOW_MS, keep=1).read_text().strip() == "all of it"


def test_the_time_of_the_last_success_is_told_to_the_exporter(tmp_path: Path) -> None:
    write_metrics(tmp_path / "backup.prom", NOW_MS)
    assert "pylog_backup_last_success_timestamp_seconds 1764000000\n" in (tmp_path / "backup.prom").read_text()
