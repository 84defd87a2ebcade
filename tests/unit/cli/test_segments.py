"""Damage in segment files is found where it is."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pylog.cli.app import run
from pylog.cli.segments import find_segments, verify_partition, verify_segment
from pylog.wire.records import Record, encode_batch


def batch(base_offset: int, count: int = 3, compression: str = "none") -> bytes:
    records = [Record(base_offset + i, 1700000000000 + i, b"k%d" % i, b"v" * 20) for i in range(count)]
    return encode_batch(records, base_offset=base_offset, compression_type=compression)


def write_segment(directory: Path, base_offset: int, *batches: bytes) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{base_offset:020d}.log"
    path.write_bytes(b"".join(batches))
    return path


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    directory = tmp_path / "clicks-0"
    write_segment(directory, 0, batch(0), batch(3, 4, "lz4"))
    write_segment(directory, 7, batch(7), batch(10))
    return directory


def damages(directory: Path, *, check_records: bool = False) -> list[tuple[str, int]]:
    reports = verify_partition(find_segments(directory)[directory], check_records=check_records)
    return [(damage.file.name[-6:], damage.position) for report in reports for damage in report.damages]


def test_good_files_have_no_damage(partition: Path) -> None:
    first, second = verify_partition(find_segments(partition)[partition], check_records=True)
    assert (first.batch_count, first.record_count, first.first_offset, first.next_offset) == (2, 7, 0, 7)
    assert (second.batch_count, second.record_count, second.next_offset, second.tail_bytes) == (2, 6, 13, 0)
    assert damages(partition) == []


@given(position=st.integers(21, len(batch(0)) - 1), bit=st.integers(0, 7))
@settings(max_examples=50)
def test_any_flipped_bit_under_the_crc_is_found(
    tmp_path_factory: pytest.TempPathFactory, position: int, bit: int
) -> None:
    content = bytearray(batch(0))
    content[position] ^= 1 << bit
    path = write_segment(tmp_path_factory.mktemp("flip"), 0, bytes(content), batch(3))
    report = verify_segment(path, is_newest=True)
    assert [damage.position for damage in report.damages] == [0]
    assert report.record_count == 3  # the batch behind it still counts


def test_a_partial_batch_is_a_tail_in_the_newest_segment_and_damage_in_a_closed_one(partition: Path) -> None:
    closed, newest = find_segments(partition)[partition]
    newest.write_bytes(newest.read_bytes()[:-5])
    assert damages(partition) == []
    assert verify_segment(newest, is_newest=True).tail_bytes == len(batch(10)) - 5
    closed.write_bytes(closed.read_bytes()[:-5])
    assert damages(partition) == [("00.log", len(batch(0)))]


def test_offsets_that_go_back_are_damage_inside_and_between_segments(tmp_path: Path) -> None:
    inside = write_segment(tmp_path / "a-0", 0, batch(5), batch(2))
    assert damages(inside.parent) == [("00.log", len(batch(5)))]
    write_segment(tmp_path / "b-0", 0, batch(0, 9))
    write_segment(tmp_path / "b-0", 5, batch(5))
    assert damages(tmp_path / "b-0") == [("05.log", 0)]


def test_a_missing_segment_shows_as_a_gap(partition: Path) -> None:
    write_segment(partition, 13, batch(13))
    find_segments(partition)[partition][1].unlink()
    reports = list(verify_partition(find_segments(partition)[partition]))
    assert [report.gap_count for report in reports] == [0, 6]
    assert damages(partition) == []


def test_a_size_that_cannot_be_ends_the_file(tmp_path: Path) -> None:
    bad = bytearray(batch(3))
    bad[8:12] = b"\xff\xff\xff\xff"
    path = write_segment(tmp_path / "a-0", 0, batch(0), bytes(bad))
    assert damages(path.parent) == [("00.log", len(batch(0)))]


def test_records_that_do_not_decode_are_found_when_asked(tmp_path: Path) -> None:
    from crc32c import crc32c

    bad = bytearray(batch(0))
    bad[-1] ^= 0x7F  # the header count of the last record
    bad[17:21] = crc32c(bytes(bad[21:])).to_bytes(4, "big")
    path = write_segment(tmp_path / "a-0", 0, bytes(bad))
    assert damages(path.parent) == []
    assert damages(path.parent, check_records=True) == [("00.log", 0)]


def test_verify_exits_1_and_names_file_and_position(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "verify", str(partition.parent)]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == [
        "clicks-0",
        "2",
        "4",
        "13",
        str(sum(p.stat().st_size for p in partition.iterdir())),
        "0",
        "13",
        "0",
        "0",
        "0",
    ]
    segment = partition / f"{7:020d}.log"
    content = bytearray(segment.read_bytes())
    content[70] ^= 1
    segment.write_bytes(content)
    assert run(["log", "verify", str(partition.parent)]) == 1
    output = capsys.readouterr()
    assert f"{segment}         0  CORRUPT_MESSAGE: " in output.out
    assert "error: the log is damaged" in output.err


def test_verify_of_nothing_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "verify", str(tmp_path / "nothing")]) == 1
    assert "no such file or directory" in capsys.readouterr().err


def test_a_gap_fails_only_if_asked(partition: Path) -> None:
    write_segment(partition, 20, batch(20))
    assert run(["log", "verify", str(partition)]) == 0
    assert run(["log", "verify", "--no-gaps", str(partition)]) == 1


def test_dump_shows_batches_and_records(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(partition / f"{0:020d}.log")
    assert run(["log", "dump", path]) == 0
    assert "base_offset=3 last_offset=6 record_count=4" in capsys.readouterr().out.splitlines()[1]
    assert run(["log", "dump", "--records", "--count", "1", path]) == 0
    assert "  offset=2 timestamp=1700000000002 key=k2 value=vvvvvvvvvvvvvvvvvvvv headers={}" in capsys.readouterr().out
