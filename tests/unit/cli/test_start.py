"""Where reading starts."""

import pytest

from pylog.cli.failure import Failure
from pylog.cli.start import Start, StartKind, parse_start, positions
from pylog.client.admin.cluster import OffsetRange
from pylog.model import TopicPartition

P = TopicPartition("t", 0)
HELD = {P: OffsetRange(100, 200)}


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("beginning", 100),
        ("earliest", 100),
        ("end", 200),
        ("latest", 200),
        ("150", 150),
        ("0", 100),
        ("999", 200),
        ("-10", 190),
        ("-1000", 100),
        ("-0", 200),
    ],
)
def test_each_word_gives_an_offset_inside_what_is_held(text: str, offset: int) -> None:
    assert positions(parse_start(text), HELD) == {P: offset}


def test_a_time_is_left_to_the_brokers() -> None:
    assert parse_start("@1700000000000") == Start(StartKind.TIME, 1700000000000)


@pytest.mark.parametrize("text", ["", "-", "@", "1.5", "+1", "--1", "begin", "²", "time", "offset"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(Failure):
        parse_start(text)
