"""What the local cluster needs of this machine."""

from pathlib import Path

import pytest

from local.hosts import doctor


def test_a_machine_without_maven_can_still_make_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "ROOT", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = doctor.maven_repository()
    assert found.is_met
    assert found.found.startswith("does not answer: `make test` fails")
