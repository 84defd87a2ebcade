"""Records on a page: hits, budgets, and bytes that become text."""

import json
from collections.abc import Iterator, Sequence

import pytest

from pylog.client.avro import SchemaError
from pylog.client.consumer import ConsumedRecord
from pylog.client.rows import Row
from pylog.console.records import BINARY_BYTES, MAX_HEADERS, SHOWN_BYTES, Budget, collect, decoded, records_data

BUDGET = Budget(records=3, bytes=1_000, seconds=10)


def record(
    offset: int, value: bytes | None = b"v", key: bytes | None = None, headers: Sequence[tuple[str, bytes | None]] = ()
) -> ConsumedRecord:
    return ConsumedRecord("t", 0, offset, 1_000, key, value, list(headers))


def clock() -> float:
    return 0.0


def test_reading_ends_at_the_end_that_the_partition_had() -> None:
    found = collect([[record(0), record(1)], [record(2)]], 0, 2, b"", BUDGET, clock)
    assert ([one.offset for one in found.records], found.next_offset, found.ended_by) == ([0, 1], 2, "end")


def test_a_page_that_is_full_says_where_it_goes_on() -> None:
    found = collect([[record(n) for n in range(9)]], 0, 9, b"", BUDGET, clock)
    assert (len(found.records), found.next_offset, found.ended_by) == (3, 3, "records")


def test_a_search_counts_hits_and_not_what_it_read() -> None:
    records = [record(n, b"needle" if n == 7 else b"hay") for n in range(9)]
    found = collect([records], 0, 9, b"needle", BUDGET, clock)
    assert ([one.offset for one in found.records], found.scanned, found.ended_by) == ([7], 9, "end")


def test_a_search_looks_into_keys_headers_and_their_names() -> None:
    records = [
        record(0, b"x", key=b"a needle"),
        record(1, None, headers=[("needles", None)]),
        record(2, b"x", headers=[("h", b"needle")]),
        record(3, None),
    ]
    found = collect([records], 0, 4, b"needle", Budget(records=9, bytes=1_000, seconds=1), clock)
    assert [one.offset for one in found.records] == [0, 1, 2]


def test_bytes_are_limited_and_a_record_above_the_limit_is_shown_alone() -> None:
    found = collect([[record(0, b"x" * 5_000), record(1)]], 0, 2, b"", BUDGET, clock)
    assert (len(found.records), found.next_offset, found.ended_by) == (1, 1, "bytes")


def test_time_is_limited_also_while_nothing_comes() -> None:
    times = iter([0.0, 1.0, 10.0])

    def silence() -> Iterator[list[ConsumedRecord]]:
        while True:
            yield []

    found = collect(silence(), 4, 9, b"", BUDGET, lambda: next(times))
    assert (found.records, found.next_offset, found.ended_by) == ([], 4, "time")


def test_a_search_that_stops_says_how_far_it_came() -> None:
    found = collect([[record(n, b"x" * 400) for n in range(9)]], 0, 9, b"needle", BUDGET, clock)
    data = records_data(found, 0, (0, 9), "needle", None)
    assert data["sentence"] == (
        "Searched 3 of 9 offsets: 0 records found. It stopped because it had read as many bytes as one page may."
    )
    assert data["next_offset"] == 3


def kind_and_text(row: Row) -> tuple[str, str]:
    return row["kind"], row["text"]


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (None, ("null", "")),
        (b"", ("text", "")),
        (b"plain \xc3\xa9", ("text", "plain é")),
        (b'{"b": [1]}', ("json", '{\n  "b": [\n    1\n  ]\n}')),
        (b"{broken", ("text", "{broken")),
        (b"[" * 100_000, ("text", "[" * SHOWN_BYTES)),
        (b"\xff\x00", ("binary", "ff 00")),
    ],
)
def test_bytes_become_text(payload: bytes | None, expected: tuple[str, str]) -> None:
    assert kind_and_text(decoded(payload, None)) == expected


def test_a_number_of_thousands_of_digits_is_shown_as_it_is() -> None:
    payload = b"[" + b"9" * 10_000 + b"]"
    assert kind_and_text(decoded(payload, None)) == ("text", payload.decode())


def test_what_is_large_is_cut_and_says_its_size() -> None:
    large = decoded(b'{"a": "' + b"x" * (100 << 20), None)
    assert (large["kind"], len(large["text"]), large["is_cut"]) == ("text", SHOWN_BYTES, True)
    assert large["size_bytes"] == 7 + (100 << 20)
    binary = decoded(b"\xff" * 1_000, None)
    assert (binary["text"], binary["is_cut"]) == (("ff " * BINARY_BYTES), True)


def test_controls_and_marks_that_turn_the_direction_of_text_are_visible() -> None:
    assert decoded("a\x00b\u202ec\nd\te".encode(), None)["text"] == "a\\u0000b\\u202ec\nd\te"


def test_avro_is_decoded_and_what_is_none_says_why() -> None:
    def deserialize(payload: bytes) -> object:
        if payload[5:] == b"good":
            return {"page": "/", "raw": b"\x01"}
        raise SchemaError("schema 7 is not registered")

    good = decoded(b"\x00\x00\x00\x00\x07good", deserialize)
    assert good["kind"] == "avro"
    assert json.loads(good["text"]) == {"page": "/", "raw": "b'\\x01'"}
    bad = decoded(b"\x00\x00\x00\x00\x07bad", deserialize)
    assert (bad["kind"], bad["note"]) == ("text", "not shown as Avro: schema 7 is not registered")


def test_headers_are_bounded() -> None:
    many = record(0, headers=[("h", b"x")] * (MAX_HEADERS + 5))
    found = collect([[many]], 0, 1, b"", Budget(records=1, bytes=1 << 20, seconds=1), clock)
    [row] = records_data(found, 0, (0, 1), "", None)["records"]
    assert (len(row["headers"]), row["header_count"]) == (MAX_HEADERS, MAX_HEADERS + 5)
