"""Data directories that a test opened are let go of after it."""

from collections.abc import Iterator
from typing import Any

import pytest

from pylog.log.directory import LogDirectory


@pytest.fixture(autouse=True)
def close_logs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let go of every file: one test opens the logs of hundreds of partitions, and all run in one process."""
    opened: list[LogDirectory] = []
    open_directory = LogDirectory.open

    def recording(*arguments: Any, **options: Any) -> LogDirectory:
        opened.append(open_directory(*arguments, **options))
        return opened[-1]

    monkeypatch.setattr(LogDirectory, "open", recording)
    yield
    for directory in opened:
        for log in list(directory.logs.values()):
            log.abandon()
