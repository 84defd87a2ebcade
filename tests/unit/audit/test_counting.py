"""Counts that two independent readers can be compared by."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.audit.counting import Count, Counter, WindowCount, checksum, key_hash, read_report, write_report

KEYS = st.lists(st.none() | st.binary(max_size=8))


def counted(keys: list[bytes | None]) -> Count:
    counter = Counter()
    counter.update(keys)
    return counter.result()


def test_the_hash_never_changes_between_releases() -> None:
    # Reports outlive the process that wrote them: another function here would make every one of them differ.
    assert f"{key_hash(b'pageviews-1'):016x}" == "a90b941c383b8499"


@given(KEYS, st.randoms())
def test_order_does_not_matter(keys: list[bytes | None], random) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    shuffled = list(keys)
    random.shuffle(shuffled)
    assert counted(shuffled) == counted(keys)


@given(KEYS, KEYS)
def test_sums_of_parts_add_up(first: list[bytes | None], second: list[bytes | None]) -> None:
    whole = counted(first + second)
    parts = counted(first) + counted(second)
    assert (parts.count, parts.key_hash) == (whole.count, whole.key_hash)


@given(KEYS)
def test_duplicates_are_copies_beyond_the_first(keys: list[bytes | None]) -> None:
    assert counted(keys).duplicates == len(keys) - len(set(keys))


def test_one_loss_beside_one_duplicate_changes_the_hash() -> None:
    sent, seen = counted([b"a", b"b", b"c"]), counted([b"a", b"b", b"b"])
    assert sent.count == seen.count
    assert sent.key_hash != seen.key_hash


@pytest.mark.parametrize("lost", [None, b""])
def test_a_lost_null_or_empty_key_changes_the_hash(lost: bytes | None) -> None:
    assert counted([b"a", lost]).key_hash != counted([b"a"]).key_hash
    assert key_hash(None) != key_hash(b"")


def test_counting_one_by_one_equals_counting_at_once() -> None:
    counter = Counter()
    for key in (b"a", None, b"a"):
        counter.add(key)
    assert counter.result() == counted([b"a", None, b"a"])


def test_a_report_comes_back_as_written(tmp_path: Path) -> None:
    counts = {"logins": Count(3, (1 << 64) - 1), "pageviews": Count()}
    write_report(tmp_path / "report.json", counts)
    assert read_report(tmp_path / "report.json") == counts
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


@pytest.mark.parametrize(
    "body", ["", "[]", '{"logins": 3}', '{"logins": {"count": 3}}', '{"logins": {"count": 3, "key_hash": "x"}}']
)
def test_a_file_that_is_no_report_is_named(tmp_path: Path, body: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(body)
    with pytest.raises(ValueError, match=r"report\.json is not a report"):
        read_report(path)


@given(KEYS)
def test_distinct_counts_each_key_once(keys: list[bytes | None]) -> None:
    counter = Counter()
    counter.update(keys)
    once, distinct = counted(list(set(keys))), counter.distinct()
    assert (distinct.count, distinct.key_hash) == (once.count, once.key_hash)
    assert distinct.duplicates == len(keys) - len(set(keys))


NUMBERED = st.lists(st.tuples(st.integers(0, 40) | st.integers((1 << 32) - 3, (1 << 32) + 3), st.binary(max_size=3)))


@given(NUMBERED, NUMBERED)
def test_counting_many_at_once_equals_counting_one_by_one_copies_included(
    first: list[tuple[int, bytes]], second: list[tuple[int, bytes]]
) -> None:
    alone, together = WindowCount("h"), WindowCount("h")
    for batch in (first, second):
        together.add_many([number for number, _ in batch], [value for _, value in batch])
        for number, value in batch:
            alone.add(number, checksum(number, value))
    assert together == alone
