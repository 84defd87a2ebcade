"""Which cursor may be stored."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.ship.cursor import CursorWindow


@given(st.data())
def test_acknowledgements_in_any_order_never_store_a_cursor_past_an_unacknowledged_entry(data: st.DataObject) -> None:
    window = CursorWindow(limit=8)
    under_way: list[int] = []
    acknowledged: set[int] = set()
    added = 0
    for _ in range(data.draw(st.integers(0, 60))):
        if not window.is_full and data.draw(st.booleans()):
            assert window.add(str(added)) == added
            under_way.append(added)
            added += 1
        elif under_way:
            number = under_way.pop(data.draw(st.integers(0, len(under_way) - 1)))
            window.acknowledge(number)
            acknowledged.add(number)
        missing = next(number for number in range(added + 1) if number not in acknowledged)
        assert window.storable == (str(missing - 1) if missing else None)
        assert len(window) == added - missing


def test_a_full_window_lets_nothing_in_until_the_first_is_acknowledged() -> None:
    window = CursorWindow(limit=2)
    assert [window.add("a"), window.add("b")] == [0, 1]
    window.acknowledge(1)
    assert window.is_full
    assert window.storable is None
    window.acknowledge(0)
    assert window.storable == "b"
    assert window.add("c") == 2


def test_a_second_acknowledgement_changes_nothing() -> None:
    window = CursorWindow(limit=2)
    window.add("a")
    window.acknowledge(0)
    window.acknowledge(0)
    assert (window.storable, len(window)) == ("a", 0)


def test_an_acknowledgement_of_nothing_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="never added"):
        CursorWindow(limit=2).acknowledge(0)
