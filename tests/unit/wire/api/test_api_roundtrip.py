"""Every message in every version against kio, which was written by others from Kafka's own definitions."""

import dataclasses
import datetime
import enum
import io
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from pylog.wire.api.message import Message, Request
from tests.unit.wire.api.catalogue import BRIEF, case_id, cases, fields_of, is_served, messages

_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)
_ONE_MS = datetime.timedelta(milliseconds=1)


def kio_class(cls: type[Message], version: int) -> Any:
    load = load_request_schema if issubclass(cls, Request) else load_response_schema
    return load(int(cls.api_key), version)


def kio_encode(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def plain(value: object) -> object:
    """Turn kio's values into numbers, strings, lists and dictionaries."""
    if isinstance(value, datetime.timedelta):
        return value // _ONE_MS
    if isinstance(value, datetime.datetime):
        return (value - _EPOCH) // _ONE_MS
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, tuple):
        return [plain(element) for element in value]
    if dataclasses.is_dataclass(value):
        return {
            _name(field.name): UUID(int=0)
            if "UUID" in str(field.type) and getattr(value, field.name) is None  # kio's word for no id
            else plain(getattr(value, field.name))
            for field in dataclasses.fields(value)
        }
    return value


def _name(field: str) -> str:
    """Return a field's name without what kio leaves out, and without the mark of the older of two layouts."""
    return field.removesuffix("_ms").removeprefix("v3_and_below_").removesuffix("_v3_and_below")


def plain_message(value: Any, version: int) -> object:
    """Do the same for ours, with the fields that travel in *version*."""
    if isinstance(value, list):
        return [plain_message(element, version) for element in value]
    if dataclasses.is_dataclass(value):
        return {
            _name(field.name): plain_message(getattr(value, field.name), version)
            for field in fields_of(type(value), version)
        }
    return value


@pytest.mark.parametrize(("cls", "version"), cases(), ids=case_id)
def test_kio_reads_what_pylog_writes_and_back(cls: type[Message], version: int) -> None:
    read, theirs_cls = entity_reader(kio_class(cls, version)), kio_class(cls, version)

    @settings(BRIEF, max_examples=12 if is_served(cls) else 4)
    @given(message=messages(cls, version))
    def check(message: Message) -> None:
        body = message.encode(version)
        theirs, size = read(body, 0)
        assert isinstance(theirs, theirs_cls)
        assert size == len(body)
        assert plain(theirs) == plain_message(message._spread(version), version)
        assert cls.decode(version, memoryview(kio_encode(theirs))) == message

    check()
