"""Where a group is moved to."""

import pytest

from pylog.cli.failure import Failure
from pylog.cli.start import Start, StartKind
from pylog.cli.target import parse_duration_ms, parse_target


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("earliest", Start(StartKind.BEGINNING)),
        ("latest", Start(StartKind.END)),
        ("0", Start(StartKind.OFFSET, 0)),
        ("12345", Start(StartKind.OFFSET, 12345)),
        ("@1700000000000", Start(StartKind.TIME, 1_700_000_000_000)),
        ("2023-11-14T22:13:20", Start(StartKind.TIME, 1_700_000_000_000)),
        ("2023-11-14T22:13:20.5Z", Start(StartKind.TIME, 1_700_000_000_500)),
        ("2023-11-15T00:13:20+02:00", Start(StartKind.TIME, 1_700_000_000_000)),
        ("2023-11-14", Start(StartKind.TIME, 1_699_920_000_000)),
    ],
)
def test_targets(text: str, target: Start) -> None:
    assert parse_target(text) == target


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-5",
        "@",
        "@-1",
        "1.5",
        "soon",
        "beginning",
        "²",
        "9" * 19,
        "1969-12-31",
        "2023-13-01",
        "20231114T22",
        "0001-01-01",
    ],
)
def test_a_target_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(Failure, match="an option is wrong"):
        parse_target(text)


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("90s", 90_000),
        ("30m", 1_800_000),
        ("2h", 7_200_000),
        ("1d12h", 129_600_000),
        ("250ms", 250),
        ("0s", 0),
    ],
)
def test_durations(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text) == duration_ms


@pytest.mark.parametrize("text", ["", "5", "h", "-1h", "1.5h", "1h ", "1x", "1hh", "²h", "9" * 18 + "d"])
def test_a_duration_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(Failure, match="an option is wrong"):
        parse_duration_ms(text)
