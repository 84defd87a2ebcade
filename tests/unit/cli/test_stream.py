"""`pylog stream rebase | reset | forget`, which need no Spark and only a query that does not run."""

import json
from pathlib import Path

import pytest

from pylog.cli.app import run
from pylog.cli.failure import Exit
from pylog.ingest.stream.checkpoint import StreamCheckpoint

POSITION = {"version": 1, "topics": {"words": {"id": "i", "partitions": {"0": 7}}}}


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "stream-q.yml"
    body = {
        "version": 1, "name": "q", "bootstrap": "localhost:1", "sql": "SELECT value FROM words", "output": "out",
        "inputs": {"words": {"topic": "words"}}, "checkpoint": str(tmp_path / "q"), "group": "none",
        "metrics_file": str(tmp_path / "q.prom"),
    }  # fmt: skip
    path.write_text(json.dumps(body))
    (tmp_path / "q.prom").write_text("# metrics\n")
    return str(path)


@pytest.fixture
def owner(tmp_path: Path) -> Path:
    """A checkpoint that was rebased once, in which nothing ran since."""
    path = tmp_path / "q" / "stream.json"
    path.parent.mkdir()
    body = {"kind": "pylog stream checkpoint", "version": 1, "name": "q", "cluster": "c", "generation": 2}
    path.write_text(json.dumps({**body, "query": "f", "starts": POSITION}))
    return path


def test_without_execute_nothing_changes(config: str, owner: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = owner.read_text()
    assert run(["stream", "rebase", "--config", config]) == Exit.DONE
    assert run(["stream", "reset", "--config", config]) == Exit.DONE
    assert run(["stream", "forget", "--config", config]) == Exit.DONE
    told = capsys.readouterr().err
    assert "query q would go on without its state: words-0 at 7" in told
    assert "query q would begin anew" in told
    assert "query q would be forgotten" in told
    assert owner.read_text() == before
    assert (owner.parent.parent / "q.prom").exists()


def test_a_rebase_and_a_reset_begin_a_generation(config: str, owner: Path) -> None:
    assert run(["stream", "rebase", "--config", config, "--execute"]) == Exit.DONE
    body = json.loads(owner.read_text())
    assert (body["generation"], body["query"], body["starts"]) == (3, None, POSITION)
    assert run(["stream", "reset", "--config", config, "--execute"]) == Exit.DONE
    body = json.loads(owner.read_text())
    assert (body["generation"], body["query"], body["starts"]) == (4, None, None)
    assert run(["stream", "rebase", "--config", config]) == Exit.FAILED  # no position any more


def test_a_forgotten_query_leaves_no_metrics(config: str, owner: Path) -> None:
    assert run(["stream", "forget", "--config", config, "--execute"]) == Exit.DONE
    assert not (owner.parent.parent / "q.prom").exists()
    assert owner.exists()


def test_a_query_that_runs_or_never_ran_or_has_another_name_is_left_alone(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    assert run(["stream", "reset", "--config", config, "--execute"]) == Exit.FAILED
    assert "no query ran there yet" in capsys.readouterr().err
    owner = request.getfixturevalue("owner")
    with StreamCheckpoint(tmp_path / "q").held():
        assert run(["stream", "reset", "--config", config, "--execute"]) == Exit.FAILED
    assert "another process runs the query" in capsys.readouterr().err
    owner.write_text(owner.read_text().replace('"q"', '"other"'))
    assert run(["stream", "rebase", "--config", config, "--execute"]) == Exit.FAILED
    assert "belongs to query other" in capsys.readouterr().err
