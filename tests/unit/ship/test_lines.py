"""A byte stream becomes entries."""

import json

from hypothesis import given
from hypothesis import strategies as st

from pylog.ship.lines import HEAD_BYTES, Line, LineCutter

CURSOR = "s=718a8eaaf604450a927aea4a4077f9eb;i=1;b=0123456789abcdef;m=0;t=60a24181e4000;x=813d4496bcf75d50"
MIB = 1 << 20


def entry(message: str, cursor: str = CURSOR) -> bytes:
    return json.dumps({"MESSAGE": message, "__CURSOR": cursor, "_PID": "1"}, separators=(",", ":")).encode()


def feed(cutter: LineCutter, stream: bytes, sizes: list[int]) -> list[Line]:
    lines: list[Line] = []
    for size in sizes:
        lines += cutter.feed(stream[:size])
        stream = stream[size:]
    return lines + list(cutter.feed(stream))


@given(st.lists(st.text(max_size=30), max_size=8), st.lists(st.integers(0, 40), max_size=30))
def test_however_the_stream_is_cut_the_entries_are_the_same(messages: list[str], sizes: list[int]) -> None:
    lines = [entry(message, str(i)) for i, message in enumerate(messages)]
    stream = b"".join(line + b"\n" for line in lines)
    found = feed(LineCutter(MIB), stream, sizes)
    assert found == [Line(line, str(i), len(line)) for i, line in enumerate(lines)]


@given(st.text(alphabet='{}",:\\ _CURSO', max_size=60))
def test_a_message_cannot_pretend_to_be_a_cursor(noise: str) -> None:
    for message in (noise, f'{{"__CURSOR":"{noise}"}}', f',"__CURSOR":"fake"{noise}'):
        (line,) = LineCutter(MIB).feed(entry(message) + b"\n")
        assert line.cursor == CURSOR


@given(st.integers(HEAD_BYTES, 3 * HEAD_BYTES), st.lists(st.integers(0, 900), max_size=20), st.booleans())
def test_a_line_beyond_the_limit_keeps_its_cursor_its_head_and_its_size(
    length: int, sizes: list[int], is_cursor_first: bool
) -> None:
    fields = {"__CURSOR": CURSOR, "MESSAGE": "x" * length}
    names = ["__CURSOR", "MESSAGE"] if is_cursor_first else ["MESSAGE", "__CURSOR"]
    long = json.dumps({name: fields[name] for name in names}, separators=(",", ":")).encode()
    found = feed(LineCutter(HEAD_BYTES), long + b"\n" + entry("next", "n") + b"\n", sizes)
    assert found == [Line(long[:HEAD_BYTES], CURSOR, len(long)), Line(entry("next", "n"), "n", len(entry("next", "n")))]
    assert not found[0].is_whole


def test_memory_stays_bounded_while_a_line_is_skipped() -> None:
    cutter = LineCutter(MIB)
    for _ in range(64):
        assert list(cutter.feed(b"x" * MIB)) == []
    assert len(cutter._buffer) <= MIB
    (line,) = cutter.feed(b"\n")
    assert (line.size_bytes, len(line.content), line.cursor) == (64 * MIB, HEAD_BYTES, None)


def test_what_is_no_entry_has_no_cursor() -> None:
    assert [line.cursor for line in LineCutter(MIB).feed(b"-- No entries --\n\n")] == [None]
