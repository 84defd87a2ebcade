"""Marks of parked records."""

import pytest

from pylog.mirror.parking import parked_mark, parked_place
from pylog.model import TopicPartition


def test_a_mark_says_where_a_record_belongs() -> None:
    place = TopicPartition("clicks", 3), 17, "too long"
    assert parked_place(parked_mark(*place)) == place


@pytest.mark.parametrize("mark", [None, b"", b"{}", b"[]", b"17", b'{"topic": "a", "partition": "b"}'])
def test_what_is_no_mark_is_named(mark: bytes | None) -> None:
    with pytest.raises(ValueError, match=r"header pylog\.parked: found"):
        parked_place(mark)
