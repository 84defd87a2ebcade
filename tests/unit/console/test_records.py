"""Records on a page: hits, budgets, and bytes that become text."""

import json
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from pylog.client.avro import SchemaError
from pylog.client.consumer import ConsumedRecord
from pylog.client.rows import Row
from pylog.console.records import (
    BINARY_BYTES,
    MAX_HEADERS,
    SEARCH,
    SHOWN_BYTES,
    Budget,
    collect,
    decoded,
    parse_places,
    records_data,
    search_data,
)
from pylog.errors import ConfigError

BUDGET = Budget(records=3, bytes=1_000, seconds=10)


def record(
    offset: int, value: bytes | None = b"v", key: bytes | None = None, headers: Sequence[tuple[str, bytes | None]] = ()
) -> ConsumedRecord:
    return ConsumedRecord("t", 0, offset, 1_000, key, value, list(headers))


def clock() -> float:
    return 0.0


def test_reading_ends_at_the_end_that_the_partition_had() -> None:
    found = collect([[record(0), record(1)], [record(2)]], {0: (0, 2)}, b"", BUDGET, clock)
    assert ([one.offset for one in found.records], found.next_offsets[0], found.ended_by) == ([0, 1], 2, "end")


def test_a_page_that_is_full_says_where_it_goes_on() -> None:
    found = collect([[record(n) for n in range(9)]], {0: (0, 9)}, b"", BUDGET, clock)
    assert (len(found.records), found.next_offsets[0], found.ended_by) == (3, 3, "records")


def test_a_search_counts_hits_and_not_what_it_read() -> None:
    records = [record(n, b"needle" if n == 7 else b"hay") for n in range(9)]
    found = collect([records], {0: (0, 9)}, b"needle", BUDGET, clock)
    assert ([one.offset for one in found.records], found.scanned, found.ended_by) == ([7], 9, "end")


def test_a_search_looks_into_keys_headers_and_their_names() -> None:
    records = [
        record(0, b"x", key=b"a needle"),
        record(1, None, headers=[("needles", None)]),
        record(2, b"x", headers=[("h", b"needle")]),
        record(3, None),
    ]
    found = collect([records], {0: (0, 4)}, b"needle", Budget(records=9, bytes=1_000, seconds=1), clock)
    assert [one.offset for one in found.records] == [0, 1, 2]


def test_bytes_are_limited_and_a_record_above_the_limit_is_shown_alone() -> None:
    found = collect([[record(0, b"x" * 5_000), record(1)]], {0: (0, 2)}, b"", BUDGET, clock)
    assert (len(found.records), found.next_offsets[0], found.ended_by) == (1, 1, "bytes")


def test_time_is_limited_also_while_nothing_comes() -> None:
    times = iter([0.0, 1.0, 10.0])

    def silence() -> Iterator[list[ConsumedRecord]]:
        while True:
            yield []

    found = collect(silence(), {0: (4, 9)}, b"", BUDGET, lambda: next(times))
    assert (found.records, found.next_offsets[0], found.ended_by) == ([], 4, "time")


def test_a_search_that_stops_says_how_far_it_came() -> None:
    found = collect([[record(n, b"x" * 400) for n in range(9)]], {0: (0, 9)}, b"needle", BUDGET, clock)
    data = records_data(found, 0, (0, 9), "needle", None)
    assert data["sentence"] == (
        "Searched 3 of 9 offsets: 0 records found. It stopped because it had read as many bytes as one page may."
    )
    assert data["next_offset"] == 3


def short(one: ConsumedRecord) -> ConsumedRecord:
    return replace(one, value=b"***")


def test_bytes_are_limited_by_what_was_read_and_a_page_does_not_tell_how_long_a_masked_field_is() -> None:
    found = collect([[record(n, b"x" * 600) for n in range(9)]], {0: (0, 9)}, b"", BUDGET, clock, hide=short)
    assert (len(found.records), found.ended_by, found.scanned_bytes) == (2, "bytes", 6)


def test_time_is_limited_within_a_batch_whose_records_are_parsed_to_hide_something() -> None:
    now_s = 0.0

    def slow(one: ConsumedRecord) -> ConsumedRecord:
        nonlocal now_s
        now_s += 4.0
        return short(one)

    found = collect([[record(n) for n in range(9)]], {0: (0, 9)}, b"x", BUDGET, lambda: now_s, hide=slow)
    assert (found.scanned, found.next_offsets[0], found.ended_by) == (3, 3, "time")


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


@pytest.mark.parametrize(
    "payload",
    [
        b"[" * 200 + b"1," * 20_000 + b"1" + b"]" * 200,
        b'{"a":' * 180 + b"[" + b"1," * 100_000 + b"1]" + b"}" * 180,
        b"[" + b"[]," * 80_000 + b"[]]",
        b"[" * 900 + b"]" * 900,
    ],
)
def test_indentation_does_not_multiply_what_a_record_takes(payload: bytes) -> None:
    tracemalloc.start()
    try:
        as_json, as_avro = decoded(payload, None), decoded(b"\x00\x00\x00\x00\x07x", lambda _: json.loads(payload))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 16 << 20
    assert max(len(as_json["text"]), len(as_avro["text"])) <= SHOWN_BYTES
    assert as_json["text"].startswith(("[", "{"))


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
    found = collect([[many]], {0: (0, 1)}, b"", Budget(records=1, bytes=1 << 20, seconds=1), clock)
    [row] = records_data(found, 0, (0, 1), "", None)["records"]
    assert (len(row["headers"]), row["header_count"]) == (MAX_HEADERS, MAX_HEADERS + 5)


def at(partition: int, offset: int, value: bytes = b"x") -> ConsumedRecord:
    return ConsumedRecord("t", partition, offset, 0, None, value, [])


SPANS = {0: (0, 10), 3: (5, 7)}


def test_a_search_through_a_topic_reads_every_partition() -> None:
    batches = [[at(0, 0), at(3, 5, b"hit")], [], [at(0, 9, b"a hit"), at(3, 6)]]
    found = collect(batches, SPANS, b"hit", SEARCH, lambda: 0.0)
    assert [(one.partition, one.offset) for one in found.records] == [(3, 5), (0, 9)]
    assert (found.ended_by, found.scanned, found.next_offsets) == ("end", 4, {0: 10, 3: 7})
    page = search_data(found, SPANS, "hit", None)
    assert page["sentence"] == "Searched 12 of 12 offsets in 2 partitions: 2 records found. That is all of them."
    assert page["next"] is None
    assert [row["partition"] for row in page["records"]] == [3, 0]


def test_a_search_that_is_out_of_time_says_where_to_go_on() -> None:
    clock = iter([0.0, 1.0, 11.0])
    found = collect([[at(0, 0)], [at(0, 1), at(3, 5)], [at(0, 2)]], SPANS, b"hit", SEARCH, lambda: next(clock))
    assert (found.ended_by, found.next_offsets) == ("time", {0: 2, 3: 6})
    page = search_data(found, SPANS, "hit", None)
    assert page["sentence"].startswith("Searched 3 of 12 offsets in 2 partitions: 0 records found.")
    assert parse_places(page["next"]) == {0: 2, 3: 6}


@pytest.mark.parametrize(
    ("budget", "reason"),
    [(Budget(records=2, bytes=1 << 20, seconds=9), "records"), (Budget(records=9, bytes=3, seconds=9), "bytes")],
)
def test_a_search_through_a_topic_ends_with_its_budget(budget: Budget, reason: str) -> None:
    found = collect([[at(0, n, b"xy") for n in range(10)]], SPANS, b"x", budget, lambda: 0.0)
    assert (found.ended_by, len(found.records), found.next_offsets) == (reason, 2, {0: 2, 3: 5})


def test_records_that_came_after_the_search_began_are_not_its() -> None:
    found = collect([[at(0, 10, b"hit"), at(3, 7, b"hit")]], SPANS, b"hit", SEARCH, lambda: 0.0)
    assert (found.records, found.scanned) == ([], 0)


@pytest.mark.parametrize("text", ["", "0", "0:x", "-1:0", "0:1,", "0:1 ,1:2", "0:" + "1" * 19])
def test_places_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="go_on must be like"):
        parse_places(text)
