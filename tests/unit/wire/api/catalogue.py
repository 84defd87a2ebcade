"""Every control message pylog can write, and strategies that make arbitrary ones of a given version."""

import dataclasses
import importlib
import pkgutil
import types
from collections.abc import Mapping
from typing import Annotated, Any, Union, get_args, get_origin
from uuid import UUID

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

import pylog.wire.api
from pylog.errors import ErrorCode
from pylog.wire.api.message import Message, Request
from pylog.wire.api.schema import Versions, Width
from pylog.wire.api.table import KNOWN, SERVED, ApiKey, ApiVersionRange

BRIEF = settings(
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)
"""Hundreds of cases run with these: the same ones every time, without what costs more than the codec."""

HOT_PATH = {ApiKey.PRODUCE, ApiKey.FETCH}
"""These two have codecs of their own, outside pylog.wire.api."""

_INTEGERS = {"b": 8, "h": 16, "i": 32, "q": 64}
_TEXT = st.text(max_size=6)


def message_classes() -> list[type[Message]]:
    """Return all request and response bodies, requests before responses, by key."""
    for module in pkgutil.iter_modules(pylog.wire.api.__path__, "pylog.wire.api."):
        importlib.import_module(module.name)
    found = [cls for base in (Request, Message) for cls in base.__subclasses__() if cls is not Request]
    # A slots dataclass is made twice; the first class stays among the subclasses until it is collected.
    found = [cls for cls in found if getattr(importlib.import_module(cls.__module__), cls.__name__) is cls]
    return sorted(found, key=lambda cls: (cls.api_key, not issubclass(cls, Request)))


def cases(rows: Mapping[ApiKey, ApiVersionRange] | None = None) -> list[tuple[type[Message], int]]:
    """Return (class, version) for every version that is or will be served."""
    table = KNOWN if rows is None else rows
    return [
        (cls, version)
        for cls in message_classes()
        if cls.api_key in table
        for version in range(KNOWN[cls.api_key].min_served, KNOWN[cls.api_key].max_advertised + 1)
    ]


def case_id(case: object) -> str:
    """Name a case in pytest's output."""
    return case.__name__ if isinstance(case, type) else f"v{case}"


def is_served(cls: type[Message]) -> bool:
    """Return whether clients are told about this message."""
    return cls.api_key in SERVED


def fields_of(cls: type, version: int) -> list["dataclasses.Field[Any]"]:
    """Return the fields that travel in *version*."""
    ranges = [(field, _marks(field.type)[1]) for field in dataclasses.fields(cls)]
    return [field for field, versions in ranges if versions.first <= version <= versions.last]


def messages(cls: type, version: int) -> st.SearchStrategy[Any]:
    """Make instances of *cls* whose fields outside *version* have their defaults."""
    parts = {field.name: _values(field.name, field.type, version) for field in fields_of(cls, version)}
    made = st.builds(cls, **parts)
    return made.map(lambda message: _folded(message, version)) if issubclass(cls, Message) else made


def sample(cls: type, version: int) -> Any:
    """Return one instance whose arrays have one element each and whose strings are not empty."""
    message = cls(**{field.name: _sample_value(field.type, version) for field in fields_of(cls, version)})
    return _folded(message, version) if isinstance(message, Message) else message


def _sample_value(annotation: Any, version: int) -> object:
    kind, _, width = _marks(annotation)
    if get_origin(kind) in (Union, types.UnionType):
        return _sample_value(next(kind for kind in get_args(kind) if kind is not types.NoneType), version)
    if width is not None:
        return 1
    if get_origin(kind) is list:
        return [_sample_value(get_args(kind)[0], version)]
    if dataclasses.is_dataclass(kind):
        return sample(kind, version)  # type: ignore[arg-type]
    simple: dict[Any, object] = {str: "name", bytes: b"bytes", bool: True, float: 0.5, UUID: UUID(int=7)}
    return simple[kind]


def _folded(message: Message, version: int) -> Message:
    message._fold(version)  # what decoding leaves, so that equality can be asked for
    return message


def _marks(annotation: Any) -> tuple[Any, Versions, Width | None]:
    """Return the annotation without its marks (but with `| None`), and the marks."""
    versions, width = Versions(), None
    if get_origin(annotation) is Annotated:
        for mark in annotation.__metadata__:
            versions = mark if isinstance(mark, Versions) else versions
            width = mark if isinstance(mark, Width) else width
        annotation = annotation.__origin__
    return annotation, versions, width


def _values(name: str, annotation: Any, version: int) -> st.SearchStrategy[Any]:
    kind, versions, width = _marks(annotation)
    if get_origin(kind) in (Union, types.UnionType):
        (inner,) = (kind for kind in get_args(kind) if kind is not types.NoneType)
        values = _values(name, inner, version)
        return st.none() | values if version >= versions.null_from else values
    if name.endswith("error_code"):
        return st.sampled_from(list(ErrorCode))
    if name == "transaction_start_time_ms":
        return st.integers(0, 1 << 40)  # kio keeps it as a point in time, which Kafka's -1 for none is not
    if name in ("retention_time_ms", "session_lifetime_ms"):
        return st.integers(-1, 1 << 40)  # kio keeps it as a timedelta, in floating point
    if width is not None:
        limit = 1 << _INTEGERS[width.format] - 1
        return st.integers(-limit, limit - 1)
    if get_origin(kind) is list:
        return st.lists(_values("", get_args(kind)[0], version), max_size=3)
    if dataclasses.is_dataclass(kind):
        return messages(kind, version)  # type: ignore[arg-type]
    simple: dict[Any, st.SearchStrategy[Any]] = {
        str: _TEXT,
        bytes: st.binary(max_size=6),
        bool: st.booleans(),
        float: st.floats(allow_nan=False, allow_infinity=False),
        UUID: st.uuids() | st.just(UUID(int=0)),
    }
    return simple[kind]
