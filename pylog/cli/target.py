"""Where a group is moved to: the words of `pylog group reset-offsets`.

target   => "earliest" | "latest" | offset | "@" milliseconds since 1970 | ISO 8601 date or time (UTC unless it says)
duration => (number unit)+      with unit => "d" | "h" | "m" | "s" | "ms"
"""

import re
from datetime import UTC, datetime

from pylog import faults
from pylog.cli.failure import Failure
from pylog.cli.start import Start, StartKind

_UNIT_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_PART = re.compile(r"(\d+)(ms|[dhms])", re.ASCII)
_MAX_DIGITS = 18  # what fits into the protocol's 64 bits


def parse_target(text: str) -> Start:
    """Return what *text* means.

    Raises:
        Failure: with exit code 2, if it means nothing.
    """
    if text in ("earliest", "latest"):
        return Start(StartKind.BEGINNING if text == "earliest" else StartKind.END)
    kind = StartKind.TIME if text.startswith("@") else StartKind.OFFSET
    digits = text.removeprefix("@")
    if digits.isascii() and digits.isdecimal() and len(digits) <= _MAX_DIGITS:
        return Start(kind, int(digits))
    try:
        when = datetime.fromisoformat(text)
        number = int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        number = -1
    if number < 0 or "-" not in text:  # a date without hyphens would be read from a mistyped number
        raise Failure(
            faults.OPTION_WRONG,
            where="--to",
            found=text,
            wanted="earliest, latest, an offset, @MILLISECONDS, or a time as 2030-01-31T12:00",
        )
    return Start(StartKind.TIME, number)


def parse_time_ms(text: str, option: str) -> int:
    """Return the milliseconds since 1970 of *text*: ``@MILLISECONDS``, or a time in ISO 8601, of UTC unless it says.

    Raises:
        Failure: with exit code 2, if it is no time.
    """
    try:
        found = parse_target(text)
        if found.kind is StartKind.TIME:
            return found.number
    except Failure:
        pass
    wanted = "a time as 2030-01-31T12:00, or @MILLISECONDS"
    raise Failure(faults.OPTION_WRONG, where=option, found=text, wanted=wanted)


def parse_duration_ms(text: str) -> int:
    """Return how many milliseconds *text* says.

    Raises:
        Failure: with exit code 2, if it says none.
    """
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text or len(text) > _MAX_DIGITS:
        raise Failure(faults.OPTION_WRONG, where="--by", found=text, wanted="a duration, as 90s, 30m, 2h, 1d12h")
    return sum(int(number) * _UNIT_MS[unit] for number, unit in parts)
