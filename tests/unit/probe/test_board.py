"""What a canary takes for its own record."""

import pytest

from pylog.metrics import Metrics
from pylog.probe.canary import Board


@pytest.mark.parametrize(
    "value", [None, b"", b"[" * 200_000, b'{"run": "another", "number": 0}', b'{"run": []}', b"\xff", b"7"]
)
def test_records_of_others_are_passed_over(value: bytes | None) -> None:
    board = Board(Metrics(), 1.0)
    board.read_back(value, 1, 1.0)
    board.read_back(board.send(3, now_ns=1), 2, 7.0)
    assert board.metrics.gauge("pylog_canary_last_success_timestamp_seconds", "", broker="3").value == 7.0
