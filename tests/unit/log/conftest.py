"""Logs that a test opened are closed after it."""

from collections.abc import Iterator

import pytest

from .batches import OPENED


@pytest.fixture(autouse=True)
def close_logs() -> Iterator[None]:
    """Let go of every file; what a test does with its log is its own matter."""
    yield
    while OPENED:
        OPENED.pop().abandon()
