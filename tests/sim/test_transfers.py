"""The judge of transactional clients: it is content with what they know, and with nothing else."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.servers.outcome import Outcome
from tests.servers.transactions import History
from tests.sim.transfers import KEYS, Transfer, judge
from tests.sim.world import Violation

COMMITTED, ABORTED, UNKNOWN = Outcome


def judge_history(directory: Path, *transfers: tuple[Outcome, Sequence[bytes]], is_open: bool = False) -> None:
    """Judge what some client knows by a log in which a and b are committed, and c is aborted."""
    directory.mkdir()
    client: Any = SimpleNamespace(transfers=[Transfer(list(values), outcome) for outcome, values in transfers])
    with History(directory, KEYS[0]) as history:
        history.send(1, b"a", b"b").commit(1).send(2, b"c").abort(2)
        if is_open:
            history.send(3, b"d")
        history._log.high_watermark = history.end
        judge([client], [history._log])


def test_what_clients_know_and_readers_get_is_the_same(tmp_path: Path) -> None:
    judge_history(tmp_path / "known", (COMMITTED, [b"a", b"b"]), (ABORTED, [b"c"]))
    judge_history(tmp_path / "unknown", (UNKNOWN, [b"a", b"b"]), (UNKNOWN, [b"c"]))


@pytest.mark.parametrize(
    ("outcome", "values", "broken"),
    [
        (COMMITTED, [b"c"], "what is committed is read"),
        (COMMITTED, [b"a", b"c"], "what is committed is read"),
        (ABORTED, [b"a", b"b"], "what is aborted is not read"),
        (UNKNOWN, [b"a", b"c"], "transactions are whole"),
    ],
)
def test_what_differs_is_told(tmp_path: Path, outcome: Outcome, values: Sequence[bytes], broken: str) -> None:
    with pytest.raises(Violation) as found:
        judge_history(tmp_path / "log", (outcome, values))
    assert found.value.invariant == broken


def test_an_open_transaction_is_told(tmp_path: Path) -> None:
    with pytest.raises(Violation) as found:
        judge_history(tmp_path / "log", is_open=True)
    assert found.value.invariant == "no transaction stays open"
