"""What requests lead to, and the error numbers clients know."""

from collections.abc import Callable
from typing import Any

import pytest

from pylog.registry import changes
from pylog.registry.changes import Change, Wanted
from pylog.registry.faults import RegistryError
from pylog.registry.records import (
    CLAIM,
    MAX_ID,
    Claim,
    Key,
    Kind,
    Reference,
    Version,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from pylog.registry.state import Registry

RECORD = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
WIDER = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int","default":0}]}'
OTHER = '{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}'


class Subjects:
    """A registry to which every change is applied as it comes back from the log."""

    def __init__(self) -> None:
        self.registry = Registry()

    def do(self, change: Change) -> Any:
        for key, value in change.writes:
            decoded = decode_key(encode_key(key))
            assert decoded == key
            self.registry.apply(decoded, decode_value(decoded, encode_value(key, value)), None)
        return change.answer

    def register(self, text: str, subject: str = "s", **more: Any) -> int:
        return int(self.do(changes.register(self.registry, subject, Wanted(text, **more)))["id"])


@pytest.fixture
def subjects() -> Subjects:
    return Subjects()


def refusal(act: Callable[[], object]) -> int:
    with pytest.raises(RegistryError) as caught:
        act()
    return caught.value.code


def test_the_same_schema_has_one_id_under_all_subjects(subjects: Subjects) -> None:
    assert [subjects.register(RECORD), subjects.register(WIDER), subjects.register(RECORD, "t")] == [1, 2, 1]
    assert [one.version for one in subjects.registry.live("s")] == [1, 2]
    assert subjects.register(f" {RECORD} ") == 1
    assert len(subjects.registry.live("s")) == 2


def test_a_schema_that_does_not_fit_is_409_with_the_reason(subjects: Subjects) -> None:
    subjects.register(RECORD)
    with pytest.raises(RegistryError, match=r"incompatible.*version 1: the new schema cannot read.*type_mismatch"):
        subjects.register(OTHER)
    subjects.do(changes.set_level("none", "s"))
    assert subjects.register(OTHER) == 2


def test_a_transitive_level_looks_at_all_versions(subjects: Subjects) -> None:
    narrow = '{"type":"record","name":"R","fields":[]}'
    subjects.register(RECORD)
    subjects.register(narrow)
    wrong = '{"type":"record","name":"R","fields":[{"name":"a","type":"string","default":""}]}'
    subjects.do(changes.set_level("BACKWARD_TRANSITIVE", "s"))
    assert refusal(lambda: subjects.register(wrong)) == 409
    subjects.do(changes.set_level("BACKWARD", "s"))
    assert subjects.register(wrong) == 3


def test_deleting_is_soft_first_and_for_good_then(subjects: Subjects) -> None:
    registry = subjects.registry
    subjects.register(RECORD)
    subjects.register(WIDER)
    assert refusal(lambda: changes.delete_subject(registry, "q", permanent=False)) == 40401
    assert refusal(lambda: changes.delete_subject(registry, "s", permanent=True)) == 40405
    assert refusal(lambda: changes.delete_version(registry, "s", 1, permanent=True)) == 40407
    assert refusal(lambda: changes.delete_version(registry, "s", 3, permanent=False)) == 40402
    assert subjects.do(changes.delete_version(registry, "s", 1, permanent=False)) == 1
    assert refusal(lambda: changes.delete_version(registry, "s", 1, permanent=False)) == 40406
    assert subjects.do(changes.delete_subject(registry, "s", permanent=False)) == [2]
    assert refusal(lambda: registry.subject("s")) == 40401
    assert registry.by_id(2)[0].schema.text == WIDER
    assert refusal(lambda: changes.delete_subject(registry, "s", permanent=False)) == 40404
    assert subjects.do(changes.delete_subject(registry, "s", permanent=True)) == [1, 2]
    assert refusal(lambda: registry.by_id(2)) == 40403
    assert subjects.register(OTHER) == 3


def test_a_softly_deleted_schema_comes_back_with_its_id_and_a_new_version(subjects: Subjects) -> None:
    subjects.register(RECORD)
    subjects.do(changes.delete_subject(subjects.registry, "s", permanent=False))
    assert subjects.register(RECORD) == 1
    assert [one.version for one in subjects.registry.live("s")] == [2]


def test_references_resolve_and_keep_what_they_need(subjects: Subjects) -> None:
    subjects.register('{"type":"fixed","name":"x.Q","size":4}', "q")
    uses = '{"type":"record","name":"R","fields":[{"name":"a","type":"x.Q"}]}'
    assert refusal(lambda: subjects.register(uses)) == 42201
    assert refusal(lambda: subjects.register(uses, references=(Reference("x.Q", "q", 2),))) == 42201
    assert subjects.register(uses, references=(Reference("x.Q", "q", 1),)) == 2
    assert refusal(lambda: changes.delete_subject(subjects.registry, "q", permanent=False)) == 42206
    assert refusal(lambda: changes.delete_version(subjects.registry, "q", 1, permanent=False)) == 42206
    assert [one.subject for one in subjects.registry.referrers("q", 1)] == ["s"]


def test_modes(subjects: Subjects) -> None:
    registry = subjects.registry
    assert refusal(lambda: subjects.register(RECORD, schema_id=7)) == 42205
    subjects.do(changes.set_mode(registry, "import", "s", force=False))
    assert subjects.register(RECORD, schema_id=70, version=5) == 70
    assert refusal(lambda: subjects.register(OTHER, schema_id=70)) == 42205
    assert refusal(lambda: subjects.register(WIDER, schema_id=71, version=5)) == 42205, "70 would stand for nothing"
    assert subjects.register(RECORD, schema_id=70, version=5) == 70
    assert registry.live("s")[0].version == 5
    assert refusal(lambda: changes.set_mode(registry, "IMPORT", None, force=False)) == 42205
    subjects.do(changes.set_mode(registry, "READONLY", "s", force=False))
    assert refusal(lambda: subjects.register(WIDER)) == 42205
    assert refusal(lambda: changes.delete_subject(registry, "s", permanent=False)) == 42205
    subjects.do(changes.unset_mode(registry, "s"))
    assert subjects.register(WIDER) == 71
    assert refusal(lambda: changes.unset_mode(registry, "s")) == 40409
    assert refusal(lambda: changes.set_mode(registry, "nope", "s", force=False)) == 42204


def test_an_imported_id_takes_few_ids_from_the_others(subjects: Subjects) -> None:
    registry = subjects.registry
    subjects.do(changes.set_mode(registry, "IMPORT", "s", force=False))
    assert refusal(lambda: subjects.register(RECORD, schema_id=MAX_ID)) == 422
    assert refusal(lambda: subjects.register(RECORD, schema_id=changes.MAX_ID_STEP + 1)) == 422
    assert subjects.register(RECORD, schema_id=changes.MAX_ID_STEP) == changes.MAX_ID_STEP
    assert subjects.register(WIDER, schema_id=changes.MAX_ID_STEP + 7) == changes.MAX_ID_STEP + 7
    assert subjects.register(OTHER, "q") == changes.MAX_ID_STEP + 8


def test_no_id_above_the_highest_is_given(subjects: Subjects) -> None:
    subjects.register(RECORD)
    subjects.do(Change(None, [(CLAIM, Claim(MAX_ID))]))
    assert refusal(lambda: subjects.register(WIDER)) == 42205
    assert subjects.register(RECORD, "q") == 1, "an id that it has already"
    subjects.do(changes.set_mode(subjects.registry, "IMPORT", "q", force=True))
    assert refusal(lambda: subjects.register(WIDER, "q")) == 42205


def test_no_version_above_the_highest_is_given(subjects: Subjects) -> None:
    subjects.do(changes.set_mode(subjects.registry, "IMPORT", "s", force=False))
    assert refusal(lambda: subjects.register(RECORD, version=MAX_ID + 1)) == 422
    assert subjects.register(RECORD, version=MAX_ID) == 1
    assert refusal(lambda: subjects.register(WIDER)) == 42205
    subjects.do(changes.unset_mode(subjects.registry, "s"))
    assert refusal(lambda: subjects.register(WIDER)) == 42205


def test_levels(subjects: Subjects) -> None:
    registry = subjects.registry
    assert registry.level("s") == "BACKWARD"
    subjects.do(changes.set_level("full", None))
    subjects.do(changes.set_level("forward", "s"))
    assert (registry.level(None), registry.level("s"), registry.level("t")) == ("FULL", "FORWARD", "FULL")
    assert subjects.do(changes.unset_level(registry, "s")) == {"compatibilityLevel": "FORWARD"}
    assert registry.level("s") == "FULL"
    assert refusal(lambda: changes.unset_level(registry, "s")) == 40408
    assert refusal(lambda: changes.set_level("sideways", None)) == 42203


@pytest.mark.parametrize(
    "key", [None, b"", b"[]", b"{}", b'{"keytype":"X"}', b'{"keytype":"MODE","subject":3}', b"\xff"]
)
def test_a_key_of_something_else_is_a_value_error(key: bytes | None) -> None:
    with pytest.raises(ValueError):
        decode_key(key)


def test_a_record_of_another_registry_counts() -> None:
    registry = Registry()
    key = decode_key(b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}')
    value = decode_value(key, b'{"subject":"s","version":1,"id":9,"schema":"\\"int\\"","deleted":false}')
    assert registry.apply(key, value, None)
    assert isinstance(value, Version)
    assert registry.by_id(9) == [value]
    assert registry.apply(decode_key(b'{"keytype":"NOOP","magic":0}'), None, None)
    assert registry.current(Key(Kind.NOOP)) is not None
