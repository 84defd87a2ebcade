"""How long a schedule of cron may be silent: what is later than that is late.

schedule = minute hour day-of-month month day-of-week
         | @hourly | @daily | @midnight | @weekly | @monthly | @yearly | @annually

Source: crontab(5) of Debian's cron.
"""

import datetime as dt
import itertools
from collections.abc import Iterator

_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_MONTHS = {
    **{"jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6},
    **{"jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11, "dec": 12},
}
_DAYS = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}
_FIRST_DAY = dt.date(2024, 1, 1)
"""The days that are looked at begin with a leap year, so that 29 February is among them."""
_YEARS_OF_DAYS = 366 + 3 * 365 + 366
_DAY_S = 86_400


def longest_gap_s(schedule: str) -> int:
    """Return the longest time in seconds between two runs of *schedule*.

    Raises:
        ValueError: it is no schedule, or it never comes.
    """
    fields = _NICKNAMES.get(schedule.strip().lower(), schedule).split()
    if len(fields) != len(_BOUNDS):
        raise ValueError(f"{schedule!r} is no schedule of cron: it has {len(fields)} fields, 5 are wanted")
    minutes, hours, days, months, weekdays = (
        _field(schedule, text, *bounds) for text, bounds in zip(fields, _BOUNDS, strict=True)
    )
    times = sorted(3600 * hour + 60 * minute for hour in hours for minute in minutes)
    # Of both days, one is enough, unless the other says nothing: crontab(5).
    is_either = not fields[2].startswith("*") and not fields[4].startswith("*")
    runs = []
    for number in range(_YEARS_OF_DAYS):
        day = _FIRST_DAY + dt.timedelta(number)
        weekday = day.isoweekday() % 7
        fits = (day.day in days, weekday in weekdays or (weekday == 0 and 7 in weekdays))
        if day.month in months and (any(fits) if is_either else all(fits)):
            runs.append(number)
    if len(runs) < 2:
        raise ValueError(f"{schedule!r} never comes")
    between_days = max(later - earlier for earlier, later in itertools.pairwise(runs))
    overnight_s = between_days * _DAY_S - times[-1] + times[0]
    return max([overnight_s, *(later - earlier for earlier, later in itertools.pairwise(times))])


def _field(schedule: str, text: str, least: int, most: int) -> set[int]:
    try:
        found = {one for part in text.split(",") for one in _part(part, least, most)}
    except (ValueError, KeyError):
        found = set()
    if not found or min(found) < least or max(found) > most:
        raise ValueError(f"{schedule!r} is no schedule of cron: {text!r} is wrong")
    return found


def _part(part: str, least: int, most: int) -> Iterator[int]:
    span, slash, step = part.partition("/")
    first, dash, last = span.partition("-")
    if first == "*":
        low, high = least, most
    else:
        low = _number(first, most)
        high = _number(last, most) if dash else low
    if slash and not dash and first != "*":
        raise ValueError("a step without a range")
    yield from range(low, high + 1, int(step) if slash else 1)


def _number(text: str, most: int) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    return {12: _MONTHS, 7: _DAYS}[most][text.lower()]
