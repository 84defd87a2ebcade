"""An entry fits into a record."""

import json

from hypothesis import given
from hypothesis import strategies as st

from pylog.ship.entry import MARKER, fit
from pylog.ship.lines import HEAD_BYTES, Line

LIMIT = 4096


def line_of(fields: dict[str, object]) -> Line:
    content = json.dumps(fields, separators=(",", ":")).encode()
    return Line(content, str(fields["__CURSOR"]), len(content))


def test_an_entry_that_fits_is_passed_on_as_it_is() -> None:
    line = Line(b'{ "__CURSOR" : "c" }', "c", 20)
    assert fit(line, LIMIT) == (line.content, False)


def test_the_largest_field_is_cut_and_named_with_its_size() -> None:
    line = line_of({"__CURSOR": "c", "MESSAGE": "m" * 10_000, "_PID": "1"})
    value, is_truncated = fit(line, LIMIT)
    fields = json.loads(value)
    assert is_truncated
    assert len(value) <= LIMIT
    assert fields[MARKER] == {"MESSAGE": 10_002}
    assert set(fields["MESSAGE"]) == {"m"}
    assert len(fields["MESSAGE"]) > LIMIT * 0.9
    assert (fields["__CURSOR"], fields["_PID"]) == ("c", "1")


def test_binary_fields_are_cut_too() -> None:
    value, _ = fit(line_of({"__CURSOR": "c", "COREDUMP": list(range(256)) * 40, "MESSAGE": "dumped"}), LIMIT)
    fields = json.loads(value)
    assert fields["COREDUMP"] == (list(range(256)) * 40)[: len(fields["COREDUMP"])]
    assert fields["MESSAGE"] == "dumped"


def test_a_line_that_was_too_long_to_read_leaves_a_stub() -> None:
    value, is_truncated = fit(Line(b'{"MESSAGE":"\x00' + b"x" * (HEAD_BYTES - 13), "c", 1 << 30), LIMIT)
    assert is_truncated
    assert json.loads(value)["__CURSOR"] == "c"
    assert json.loads(value)[MARKER] == {"*": 1 << 30}


@given(
    st.dictionaries(
        st.from_regex(r"_?[A-Z][A-Z0-9_]{0,20}", fullmatch=True),
        st.one_of(
            st.text(max_size=3000),
            st.lists(st.integers(0, 255), max_size=2000),
            st.none(),
            st.lists(st.text(max_size=500), max_size=5),
        ),
        max_size=60,
    )
)
def test_whatever_the_fields_are_the_result_fits_and_keeps_the_cursor(fields: dict[str, object]) -> None:
    line = line_of(fields | {"__CURSOR": "c"})
    value, is_truncated = fit(line, LIMIT)
    assert len(value) <= LIMIT
    assert json.loads(value)["__CURSOR"] == "c"
    assert is_truncated == (line.size_bytes > LIMIT) == (MARKER in json.loads(value))


def test_more_small_fields_than_can_be_cut_leave_a_stub() -> None:
    fields: dict[str, object] = {f"F{i}": "x" * 100 for i in range(100)}
    value, _ = fit(line_of(fields | {"__CURSOR": "c"}), LIMIT)
    assert len(value) <= LIMIT
    assert "*" in json.loads(value)[MARKER]
