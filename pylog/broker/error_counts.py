"""Which errors clients are answered with: by API and by the error's name.

An answer about many partitions carries an error for each, and counts as many.
"""

import dataclasses
from collections.abc import Iterator
from functools import cache
from typing import Any, get_args, get_type_hints

from pylog.errors import ErrorCode
from pylog.metrics import Counter, Metrics
from pylog.wire.api import ApiKey

_NAME = "pylog_errors_total"
_HELP = "Errors in answers to clients, by API and name; one for each partition, topic or group that an answer refuses."
_NONE = int(ErrorCode.NONE)
_CODES = ("error_code", "partition_error_code")
"""Names of error codes in answers; the second is that of AddPartitionsToTxn."""


class ErrorCounts:
    """The errors of one broker's answers."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        metrics.declare(_NAME, "counter", _HELP)
        self._counters: dict[tuple[int, int], Counter] = {}

    def note(self, api_key: int, code: int, count: int = 1) -> None:
        """Count *count* answers with *code*, which is not NONE."""
        counter = self._counters.get((api_key, code))
        if counter is None:
            api, error = ApiKey(api_key).name.lower(), ErrorCode(code).name
            counter = self._metrics.counter(_NAME, _HELP, api=api, error=error)
            self._counters[api_key, code] = counter
        counter.value += count

    def note_all(self, api_key: int, answer: object) -> None:
        """Count every error in *answer*, a response of the control APIs."""
        for code in error_codes(answer):
            self.note(api_key, code)


def error_codes(struct: Any) -> Iterator[int]:  # noqa: ANN401  # any message or part of one
    """Yield every code but NONE in a response or a part of one."""
    name_of_code, parts = _plan(type(struct))  # type: ignore[arg-type]  # a class is hashable
    if name_of_code and (code := getattr(struct, name_of_code)) != _NONE:
        yield code
    for name in parts:
        for part in getattr(struct, name) or ():
            yield from error_codes(part)


@cache
def _plan(kind: type) -> tuple[str, tuple[str, ...]]:
    """Return the name of the error code of *kind*, "" without one, and its arrays of structs that lead to one."""
    if not dataclasses.is_dataclass(kind):
        return "", ()
    hints = get_type_hints(kind)
    parts = tuple(field.name for field in dataclasses.fields(kind) if _leads_to_code(hints[field.name]))
    return next((name for name in _CODES if name in hints), ""), parts


def _leads_to_code(hint: Any) -> bool:  # noqa: ANN401  # as get_type_hints returns them
    for member in (hint, *get_args(hint)):
        element = get_args(member)[:1] if getattr(member, "__origin__", None) is list else ()
        if element and isinstance(element[0], type) and any(_plan(element[0])):
            return True
    return False
