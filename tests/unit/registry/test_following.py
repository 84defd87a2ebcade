"""A registry that follows another one: the same ids for the same schemas, and no id given twice."""

import dataclasses
from collections.abc import Iterator

import pytest

from pylog.daemon.web import WebServer
from pylog.metrics import Metrics
from pylog.registry import changes
from pylog.registry.api import new_app
from pylog.registry.following import FollowFailed, Source
from pylog.registry.news import Snapshot, news
from pylog.registry.records import Key, Kind, Schema, Version
from tests.unit.registry.test_api import InMemory
from tests.unit.registry.test_changes import OTHER, RECORD, WIDER, Subjects


@pytest.fixture
def live() -> InMemory:
    return InMemory()


@pytest.fixture
def source(live: InMemory) -> Iterator[Source]:
    with WebServer("127.0.0.1", 0, new_app(live, Metrics())) as server:
        yield Source(["http://127.0.0.1:1", f"http://127.0.0.1:{server.port}"])


def follow(here: Subjects, source: Source) -> list[Version]:
    found = news(here.registry, source.snapshot())
    here.do(changes.Change(None, found.writes))
    return found.conflicts


def facts(subjects: Subjects) -> object:
    registry = subjects.registry
    return registry.versions, registry.max_id, [registry.own_level(one) for one in ("s", "t")]


def test_everything_comes_over_and_then_nothing_is_news(live: InMemory, source: Source) -> None:
    there, here = live.subjects, Subjects()
    there.register(RECORD)
    there.register(WIDER)
    there.register(RECORD, "a/b")
    there.register('{"type":"fixed","name":"x.Q","size":4}', "q")
    there.do(changes.set_level("full", "s"))
    there.do(changes.delete_version(there.registry, "s", 1, permanent=False))
    there.register(OTHER, "gone")
    there.do(changes.delete_subject(there.registry, "gone", permanent=False))
    there.do(changes.delete_subject(there.registry, "gone", permanent=True))
    assert follow(here, source) == []
    assert facts(here) == facts(there)
    assert here.registry.level(None) == there.registry.level(None)
    assert changes.register(here.registry, "new", changes.Wanted(OTHER)).answer == {"id": 5}, "4 is gone for good"
    assert news(here.registry, source.snapshot()).writes == []


def test_other_kinds_and_contracts_come_too(live: InMemory, source: Source) -> None:
    schema = Schema("syntax = 'proto3';", (), "PROTOBUF", {"metadata": {"properties": {"owner": "team"}}})
    live.subjects.registry.apply(Key(Kind.SCHEMA, "p", 1), Version("p", 1, 9, schema), None)
    here = Subjects()
    assert follow(here, source) == []
    found = here.registry.by_id(9)[0].schema
    assert (found, found.contract) == (schema, schema.contract)


def test_what_is_deleted_there_is_deleted_here_and_comes_back(live: InMemory, source: Source) -> None:
    there, here = live.subjects, Subjects()
    there.register(RECORD)
    follow(here, source)
    there.do(changes.delete_subject(there.registry, "s", permanent=False))
    follow(here, source)
    assert here.registry.subjects() == []
    there.do(changes.delete_subject(there.registry, "s", permanent=True))
    follow(here, source)
    assert here.registry.by_id(1)[0].schema.text == RECORD, "records here may hold the id"


def test_an_id_that_stands_for_another_schema_here_is_told_and_left_out(live: InMemory, source: Source) -> None:
    there, here = live.subjects, Subjects()
    here.register(OTHER, "own")
    there.register(RECORD)
    there.register(WIDER)
    conflicts = follow(here, source)
    assert [(one.subject, one.version, one.schema_id) for one in conflicts] == [("s", 1, 1)]
    assert here.registry.by_id(1)[0].schema.text == OTHER
    assert here.registry.by_id(2)[0].schema.text == WIDER


def test_an_empty_registry_takes_nothing_away(live: InMemory, source: Source) -> None:
    here = Subjects()
    here.register(RECORD)
    follow(here, source)
    assert here.registry.subjects() == ["s"]


def test_a_version_that_became_another_is_a_conflict() -> None:
    here = Subjects()
    here.register(RECORD)
    [one] = here.registry.live("s")
    other = dataclasses.replace(one, schema_id=7, schema=Schema(WIDER))
    assert news(here.registry, Snapshot([other])).conflicts == [other]


def test_a_source_that_answers_nothing_or_nonsense_is_named(live: InMemory) -> None:
    with pytest.raises(FollowFailed, match=r"127\.0\.0\.1:1: .*refused"):
        Source(["http://127.0.0.1:1"]).snapshot()


def test_the_offset_says_whether_something_changed(source: Source) -> None:
    assert source.offset() == "7"
