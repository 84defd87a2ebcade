"""The matrix of faults may run in parts: its page has the last run of each cell, in the matrix' order."""

from pathlib import Path

import pytest

from tests.rolls import cluster
from tests.rolls.roll_faults import test_matrix


def test_a_cell_that_is_run_again_takes_the_place_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "RESULTS", tmp_path)
    rows = [("disk full", "gate after", 1), ("SSH cut", "gate after", 2), ("disk full", "gate after", 3)]
    for fault, phase, first_run_s in rows:
        test_matrix.keep({"fault": fault, "phase": phase, "first_run_s": first_run_s})
    cells = cluster.kept("roll_faults")["cells"]
    assert [(cell["fault"], cell["first_run_s"]) for cell in cells] == [("SSH cut", 2), ("disk full", 3)]
