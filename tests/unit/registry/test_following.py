"""A registry that follows another one: the same ids for the same schemas, and no id given twice."""

import dataclasses
import io
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TypeVar

import pytest

from pylog.client.avro import RegistryClient, RegistryUnreachable, SchemaError
from pylog.daemon.notices import Notices
from pylog.daemon.web import WebServer
from pylog.metrics import Metrics
from pylog.model import Offset
from pylog.registry import changes
from pylog.registry.api import new_app
from pylog.registry.following import Follower, FollowFailed, Source
from pylog.registry.news import Snapshot, news
from pylog.registry.records import Key, Kind, Schema, Version
from pylog.registry.state import Registry
from tests.unit.registry.test_api import InMemory
from tests.unit.registry.test_changes import OTHER, RECORD, WIDER, Subjects

_T = TypeVar("_T")


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


class There(InMemory):
    """Its offset grows with its ids."""

    def read_at(self, ask: Callable[[Registry], _T]) -> tuple[_T, Offset]:
        return self.read(ask), self.subjects.registry.max_id


class Here(InMemory):
    """Takes over at once, without a log."""

    def take_over(self, source: Snapshot) -> list[Version]:
        found = news(self.subjects.registry, source)
        self.subjects.do(changes.Change(None, found.writes))
        return found.conflicts


@pytest.fixture
def following() -> Iterator[tuple[There, ExitStack, RegistryClient]]:
    there, here = There(), Here()
    with ExitStack() as sources, WebServer("127.0.0.1", 0, new_app(here, Metrics())) as server:
        source = sources.enter_context(WebServer("127.0.0.1", 0, new_app(there, Metrics())))
        follower = Follower(here, Source([f"http://127.0.0.1:{source.port}"]), Notices(io.StringIO()))
        here.follow(follower.catch_up)
        follower.start()
        yield there, sources, RegistryClient(f"http://127.0.0.1:{server.port}")
        follower.close()


def test_an_id_that_is_not_here_yet_is_looked_for_at_the_source_before_it_is_unknown(
    following: tuple[There, ExitStack, RegistryClient],
) -> None:
    """A record may come through the mirror before the schema that it names."""
    there, _, client = following
    for text in (RECORD, WIDER):
        there.subjects.register(text)
        assert client.texts(there.subjects.registry.max_id) == (text,)
    for unknown in (7, 1 << 30):
        with pytest.raises(SchemaError, match="not found") as refused:
            client.texts(unknown)
        assert refused.value.code == 40403


def test_while_the_source_is_away_nobody_says_that_an_id_is_unknown(
    following: tuple[There, ExitStack, RegistryClient],
) -> None:
    there, sources, client = following
    there.subjects.register(RECORD)
    assert client.texts(1) == (RECORD,)
    sources.close()
    with pytest.raises(RegistryUnreachable, match="does not say that it has none"):
        client.texts(2)
    with pytest.raises(SchemaError, match="Schema 1048576 not found"):
        client.texts(1 << 20)
