import struct
from pathlib import Path

import pytest

from pylog.log.index import BLOCK_ENTRY_COUNT, OffsetIndex, TimeIndex


@pytest.mark.parametrize("count", [0, 1, BLOCK_ENTRY_COUNT - 1, BLOCK_ENTRY_COUNT, 3 * BLOCK_ENTRY_COUNT + 7])
def test_floor_is_the_greatest_entry_not_above_the_key(tmp_path: Path, count: int) -> None:
    index = OffsetIndex(tmp_path / "0.index")
    for number in range(count):
        index.append(10 * number + 5, 100 * number)
    assert len(index) == count
    assert index.floor(4) is None
    for number in range(count):
        entry = (10 * number + 5, 100 * number)
        assert index.floor(10 * number + 5) == index.floor(10 * number + 14) == entry


def test_floor_follows_entries_flushed_at_odd_counts(tmp_path: Path) -> None:
    index = OffsetIndex(tmp_path / "0.index")
    for number in range(1, 2 * BLOCK_ENTRY_COUNT):
        index.append(number, number)
        if number % 100 == 0:
            assert index.flush()
        assert index.floor(number) == (number, number)
        assert index.floor(max(1, number // 2)) == (max(1, number // 2),) * 2


def test_entries_survive_in_kafka_s_format(tmp_path: Path) -> None:
    index, times = OffsetIndex(tmp_path / "0.index"), TimeIndex(tmp_path / "0.timeindex")
    index.append(7, 4100)
    times.append(1_700_000_000_000, 7)
    assert index.flush()
    assert times.flush()
    assert (tmp_path / "0.index").read_bytes() == struct.pack(">ii", 7, 4100)
    assert (tmp_path / "0.timeindex").read_bytes() == struct.pack(">qi", 1_700_000_000_000, 7)
    again = OffsetIndex(tmp_path / "0.index", OffsetIndex.count_on_disk(tmp_path / "0.index"))
    assert again.last() == (7, 4100)
    assert list(again.entries()) == [(7, 4100)]


def test_a_file_that_is_no_whole_number_of_entries_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "0.index"
    assert OffsetIndex.count_on_disk(path) == -1
    path.write_bytes(b"\0" * 9)
    assert OffsetIndex.count_on_disk(path) == -1


def test_a_refused_write_keeps_the_entries_for_the_next_flush(tmp_path: Path) -> None:
    directory = tmp_path / "gone"
    index = OffsetIndex(directory / "0.index")
    index.append(1, 2)
    assert not index.flush()
    assert index.floor(1) == (1, 2)
    directory.mkdir()
    assert index.flush()
    assert index.floor(1) == (1, 2)


def test_a_lost_file_only_makes_the_search_longer(tmp_path: Path) -> None:
    index = OffsetIndex(tmp_path / "0.index")
    index.append(1, 2)
    index.flush()
    index.path.unlink()
    index.append(9, 10)
    assert index.floor(5) is None
    assert index.floor(9) == (9, 10)


def test_truncation_drops_entries_at_and_above_the_offset(tmp_path: Path) -> None:
    index, times = OffsetIndex(tmp_path / "0.index"), TimeIndex(tmp_path / "0.timeindex")
    for number in range(10):
        index.append(number, number * 100)
        times.append(1_000 + number, number)
    index.flush()
    index.truncate(4)
    times.truncate(4)
    assert index.last() == (3, 300)
    assert times.last() == (1_003, 3)
    index.flush()
    assert index.path.stat().st_size == 4 * 8


def test_what_a_former_life_left_behind_is_cut_at_the_first_flush(tmp_path: Path) -> None:
    path = tmp_path / "0.index"
    path.write_bytes(b"\xff" * 80)
    index = OffsetIndex(path)
    index.append(1, 2)
    index.flush()
    assert path.read_bytes() == struct.pack(">ii", 1, 2)


@pytest.mark.parametrize("flushed", [0, 5, BLOCK_ENTRY_COUNT, 2 * BLOCK_ENTRY_COUNT + 3])
@pytest.mark.parametrize("left", [0, 1, 4, 5, 6, BLOCK_ENTRY_COUNT + 1, 2 * BLOCK_ENTRY_COUNT + 8])
def test_truncation_keeps_exactly_the_entries_below(tmp_path: Path, flushed: int, left: int) -> None:
    index, times = OffsetIndex(tmp_path / "0.index"), TimeIndex(tmp_path / "0.timeindex")
    for number in range(flushed + 10):
        index.append(10 * number + 5, 100 * number)
        times.append(1_000 + number, 10 * number + 5)
        if number + 1 == flushed:
            assert index.flush()
            assert times.flush()
    left = min(left, len(index))
    index.truncate(10 * left + 5)
    times.truncate(10 * left + 5)
    for _ in ("from memory", "from the file"):
        assert list(index.entries()) == [(10 * number + 5, 100 * number) for number in range(left)]
        assert list(times.entries()) == [(1_000 + number, 10 * number + 5) for number in range(left)]
        assert index.last() == ((10 * left - 5, 100 * left - 100) if left else None)
        assert times.floor(10_000) == times.last()
        assert index.flush()
        assert times.flush()
        assert (len(index), len(times)) == (left, left)
        assert OffsetIndex.count_on_disk(tmp_path / "0.index") == left, "the rest is gone from the file too"
        index, times = OffsetIndex(tmp_path / "0.index", left), TimeIndex(tmp_path / "0.timeindex", left)


def test_an_index_grows_again_after_a_truncation(tmp_path: Path) -> None:
    index = OffsetIndex(tmp_path / "0.index")
    for number in range(3 * BLOCK_ENTRY_COUNT):
        index.append(number, number)
    index.truncate(BLOCK_ENTRY_COUNT + 2)
    for number in range(BLOCK_ENTRY_COUNT + 2, 3 * BLOCK_ENTRY_COUNT):
        index.append(number, 7 * number)
        assert index.floor(number) == (number, 7 * number)
    assert index.floor(BLOCK_ENTRY_COUNT) == (BLOCK_ENTRY_COUNT, BLOCK_ENTRY_COUNT)


def test_a_truncation_that_cannot_read_the_file_changes_nothing(tmp_path: Path) -> None:
    index = OffsetIndex(tmp_path / "0.index")
    for number in range(BLOCK_ENTRY_COUNT):
        index.append(number, number)
    hidden = (tmp_path / "0.index").rename(tmp_path / "hidden")
    with pytest.raises(OSError, match="No such file"):
        index.truncate(3)
    hidden.rename(tmp_path / "0.index")
    assert index.last() == (BLOCK_ENTRY_COUNT - 1, BLOCK_ENTRY_COUNT - 1)
