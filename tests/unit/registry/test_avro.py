"""Validity, sameness and resolution of Avro schemas."""

import json
from typing import Any

import pytest

from pylog.registry import avro
from pylog.registry.avro import Level
from pylog.registry.faults import RegistryError


def record(*fields: dict[str, Any], name: str = "R") -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields)})


A = {"name": "a", "type": "int"}
B = {"name": "b", "type": "string"}
B_DEFAULT = {"name": "b", "type": "string", "default": ""}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "nonsense",
        '"nonsense"',
        '{"type":"record"}',
        '{"type":"record","name":"R","fields":[{"name":"a"}]}',
        '{"type":"fixed","name":"F","size":"x"}',
        "[]" * 3,
        "17",
        "null",
        '{"type":"array"}',
        '["int","int"]',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"Q"}]}',
        "[" * 5000 + "]" * 5000,
        '{"type":' * 300 + '"int"' + "}" * 300,
    ],
)
def test_what_is_no_schema_is_42201(text: str) -> None:
    with pytest.raises(RegistryError) as caught:
        avro.check_valid(avro.canonical(text), ())
    assert (caught.value.code, caught.value.status) == (42201, 422)


def test_blanks_do_not_count() -> None:
    assert avro.canonical(' { "type" : "int" } ') == '{"type":"int"}'


def test_a_normal_form_has_full_names_and_one_order() -> None:
    one = '{"type":"record","namespace":"x","name":"R","fields":[{"type":{"type":"int"},"name":"a","doc":"d"}]}'
    other = '{"name":"x.R","type":"record","fields":[{"doc":"d","name":"a","type":"int"}]}'
    assert avro.normalised(one) == avro.normalised(other)
    assert avro.canonical(one) != avro.canonical(other)


def test_a_normal_form_keeps_defaults() -> None:
    assert avro.normalised(record(B)) != avro.normalised(record(B_DEFAULT))


@pytest.mark.parametrize(
    ("new", "old", "fits"),
    [
        (record(A, B_DEFAULT), record(A), {"BACKWARD", "FORWARD", "FULL"}),
        (record(A, B), record(A), {"FORWARD"}),
        (record(A), record(A, B), {"BACKWARD"}),
        (record(A), record({"name": "a", "type": "long"}), {"FORWARD"}),
        (record({"name": "a", "type": ["null", "int"]}), record(A), {"BACKWARD"}),
        (record(A), record(A, name="Q"), set()),
        (record({"name": "a", "type": "string"}), record(A), set()),
        ('{"type":"enum","name":"E","symbols":["A","B"]}', '{"type":"enum","name":"E","symbols":["A"]}', {"BACKWARD"}),
    ],
)
def test_each_level_asks_for_its_direction(new: str, old: str, fits: set[str]) -> None:
    for level in (Level.BACKWARD, Level.FORWARD, Level.FULL):
        reasons = avro.misfits((new, ()), (old, ()), level)
        assert (not reasons) == (level in fits), (level, reasons)


def test_a_reason_names_direction_and_place() -> None:
    [reason] = avro.misfits((record(A, B), ()), (record(A), ()), Level.BACKWARD)
    assert reason == (
        "the new schema cannot read what the old one wrote: reader_field_missing_default_value at /fields/1: b"
    )


def test_names_come_from_dependencies() -> None:
    text = record({"name": "a", "type": "x.Q"})
    with pytest.raises(RegistryError):
        avro.check_valid(text, ())
    avro.check_valid(text, ('{"type":"fixed","name":"x.Q","size":4}',))
