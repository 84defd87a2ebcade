"""`pylog topic apply` against a real broker."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pylog.testing import BrokerProcess
from tests.command import Command


@pytest.fixture(scope="module")
def pylog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as running:
        yield Command(running.bootstrap)


def apply(pylog: Command, *arguments: str, exit_code: int = 0, **document: Any) -> Any:
    return pylog(
        "topic", "apply", "-", "--format", "json", *arguments, stdin=json.dumps(document).encode(), exit_code=exit_code
    )


def topic(pylog: Command, name: str) -> tuple[int, dict[str, str]]:
    found = pylog("topic", "describe", name, "--format", "json").json
    return len(found["partitions"]), {one: found["config"][one] for one in found["own_config"]}


def names(pylog: Command) -> set[str]:
    return {row["name"] for row in pylog("topic", "list", "--format", "json").json}


def test_a_document_is_applied_once_and_then_nothing_differs(pylog: Command) -> None:
    rows = [
        {"name": "made", "partitions": 3, "config": {"retention.ms": 60_000, "cleanup.policy": "compact"}},
        {"name": "made-plainly"},
    ]
    dry = apply(pylog, "--dry-run", topics=rows).json
    assert [(one["action"], one["topic"]) for one in dry["changes"]] == [("create", "made"), ("create", "made-plainly")]
    assert not names(pylog) & {"made", "made-plainly"}
    assert apply(pylog, topics=rows).json["changes"] == dry["changes"]
    assert topic(pylog, "made") == (3, {"retention.ms": "60000", "cleanup.policy": "compact"})
    again = apply(pylog, topics=rows)
    assert (again.json["changes"], again.notes) == ([], "every topic is as wanted\n")


def test_a_topic_grows_and_changes_what_is_named(pylog: Command) -> None:
    apply(pylog, topics=[{"name": "grows", "partitions": 1, "config": {"retention.ms": 5000, "segment.ms": 9000}}])
    changed = apply(pylog, topics=[{"name": "grows", "partitions": 2, "config": {"retention.ms": None}}]).json
    assert [row for change in changed["changes"] for row in change["differences"]] == [
        {"topic": "grows", "what": "partitions", "found": "1", "wanted": "2"},
        {"topic": "grows", "what": "retention.ms", "found": "5000", "wanted": None},
    ]
    assert topic(pylog, "grows") == (2, {"segment.ms": "9000"})


def test_one_refusal_keeps_everything_as_it_is(pylog: Command) -> None:
    apply(pylog, topics=[{"name": "kept", "partitions": 3}])
    ended = apply(pylog, topics=[{"name": "kept", "partitions": 2}, {"name": "beside"}], exit_code=1)
    assert "kept: partitions: found 3, wanted 2" in ended.notes
    assert "PYLOG-0220" in ended.notes
    assert "beside" not in names(pylog)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"name": "bad", "config": {"no.such": 1}}, "no.such"),
        ({"name": "bad", "config": {"retention.ms": "soon"}}, "retention.ms"),
        ({"name": "bad", "replication_factor": 7}, "replication_factor 7"),
        ({"name": "../bad"}, "../bad"),
    ],
)
def test_what_the_brokers_refuse_is_known_before_anything_changes(
    pylog: Command, row: dict[str, Any], told: str
) -> None:
    ended = apply(pylog, topics=[{"name": "good"}, row], exit_code=1)
    assert told in ended.notes
    assert "good" not in names(pylog)


def test_only_a_topic_named_as_absent_is_deleted(pylog: Command) -> None:
    apply(pylog, topics=[{"name": "goes"}, {"name": "stays"}])
    assert "goes" in names(pylog)
    apply(pylog, topics=[], absent=["goes", "never-was"])
    assert "goes" not in names(pylog)
    assert "stays" in names(pylog)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("topics: [", "the document is wrong"),
        ("topics: [{name: a, partitions: none}]", "topic a: partitions: found 'none', wanted a number from 1"),
    ],
)
def test_a_wrong_document_is_named_with_its_file(pylog: Command, tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "topics.yml"
    path.write_text(text)
    notes = pylog("topic", "apply", str(path), exit_code=1).notes
    assert told in notes
    assert str(path) in notes


def test_yaml_is_read_too(pylog: Command, tmp_path: Path) -> None:
    path = tmp_path / "topics.yml"
    path.write_text("topics:\n  - name: from-yaml\n    config: {unclean.leader.election.enable: true}\n")
    assert "1 topics changed" in pylog("topic", "apply", str(path)).notes
    assert topic(pylog, "from-yaml")[1] == {"unclean.leader.election.enable": "true"}
