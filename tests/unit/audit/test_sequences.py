"""Sets of numbers as ranges, compared with sets of numbers."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.audit.counting import Stamp, read_stamp
from pylog.audit.sequences import Sequences

NUMBERS = st.lists(st.integers(0, 60), max_size=80)


def members(found: Sequences) -> set[int]:
    return {number for first, last in found.ranges() for number in range(first, last + 1)}


@given(NUMBERS, NUMBERS)
def test_as_a_set(one: list[int], other: list[int]) -> None:
    a, b = Sequences(), Sequences()
    for number in one:
        a.add(number)
    for number in other:
        b.add(number)
    assert members(a) == set(one)
    assert len(a) == len(set(one))
    assert all((number in a) == (number in set(one)) for number in range(62))
    assert members(a.without(b)) == set(one) - set(other)
    assert a.without(b) == Sequences(a.without(b).ranges())
    assert a == Sequences.of(one)
    assert a.last == max(one, default=-1)
    assert members(a.joined(b)) == set(one) | set(other)
    assert a.update(b) == len(set(one) & set(other))
    assert members(a) == set(one) | set(other)
    ranges = list(a.ranges())
    assert all(x[1] + 1 < y[0] for x, y in pairwise(ranges))


def test_adding_says_what_is_new() -> None:
    found = Sequences()
    assert [found.add(number) for number in (3, 4, 4, 1, 2, 3, 5)] == [True, True, False, True, True, False, True]
    assert list(found.ranges()) == [(1, 5)]


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ValueError, match="ends before"):
        Sequences([(3, 2)])


def test_a_stamp_comes_back() -> None:
    stamp = Stamp("p", 3, 5, "a host")
    assert read_stamp(stamp.encode()) == stamp


@pytest.mark.parametrize("value", [None, b"", b"p 1 2", b"p x 2 h", b"p -1 2 h", b"\xff"])
def test_what_is_no_stamp_is_none(value: bytes | None) -> None:
    assert read_stamp(value) is None
