"""What a task of the load job writes: files by hour, dead letters; fed with batches, no broker."""

import json
import struct
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from crc32c import crc32c

from pylog.client.raw import RawBatches, RawConfig
from pylog.errors import StorageError
from pylog.ingest import landing
from pylog.ingest.decode import whole_batches
from pylog.ingest.fetch import DeadLetter, Fetched, decoded, read_range
from pylog.ingest.landing import HOUR_MS, Landed, Landing, Task, report
from pylog.ingest.plan import Range
from pylog.model import TopicPartition
from pylog.wire import records as wire
from pylog.wire.records import Record, encode_batch

P = TopicPartition("logins", 3)
DAY_MS = 24 * HOUR_MS


def batch(offset: int, *times_ms: int) -> bytes:
    rows = [Record(offset + i, time, b"k%d" % (offset + i), b"v", [("h", b"1")]) for i, time in enumerate(times_ms)]
    return encode_batch(rows, base_offset=offset)


def broken(offset: int, count: int) -> bytes:
    """A batch whose header is right, CRC included, and whose records are not: what a producer may well send."""
    good = bytearray(batch(offset, *[0] * count))
    good[wire.HEADER_BYTES] = 0xFF
    struct.pack_into(">I", good, wire.CRC_START - 4, crc32c(good[wire.CRC_START :]))
    return bytes(good)


def land(directory: Path, *fetches: bytes, start: int = 0, end: int = 1 << 40) -> Landed:
    task = Task(Landing(bootstrap="", directory=directory, prefix="00000001", fail_on_data_loss=True))
    task.begin(Range(P, start, end))
    for view in fetches:
        task.take(Fetched(memoryview(view), whole_batches(view), start))
    return task.end()


def rows(directory: Path, landed: Landed) -> dict[str, list[int]]:
    """Offsets by the directory they are to lie in."""
    return {file.group: pq.read_table(directory / Path(file.path).name)["offset"].to_pylist() for file in landed.files}


def test_records_go_to_the_hour_of_their_own_time(tmp_path: Path) -> None:
    late, now, next_hour = DAY_MS - 1, DAY_MS + 5, DAY_MS + HOUR_MS
    landed = land(tmp_path, batch(0, now, late, now) + batch(3, now), batch(4, next_hour, now))
    assert rows(tmp_path, landed) == {
        "topic=logins/date=1970-01-01/hour=23": [1],
        "topic=logins/date=1970-01-02/hour=00": [0, 2, 3, 5],
        "topic=logins/date=1970-01-02/hour=01": [4],
    }
    assert all(file.rows == len(rows(tmp_path, landed)[file.group]) for file in landed.files)
    assert landed.rows == {Range(P, 0, 1 << 40): 6}


def test_a_time_beyond_all_calendars_has_a_place_too(tmp_path: Path) -> None:
    landed = land(tmp_path, batch(0, 1 << 61, 0))
    assert rows(tmp_path, landed)["topic=logins/date=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__"] == [0]


def test_times_that_are_not_believed_share_one_file(tmp_path: Path) -> None:
    now = 20_000 * DAY_MS
    times = [now, *(now + year * 365 * DAY_MS for year in range(1, 40)), 0, -DAY_MS]
    task = Task(
        Landing(
            bootstrap="",
            directory=tmp_path,
            prefix="1",
            fail_on_data_loss=True,
            believed_ms=(now - 30 * DAY_MS, now + DAY_MS),
        )
    )
    task.begin(Range(P, 0, 1000))
    task.take(Fetched(memoryview(data := batch(0, *times)), whole_batches(data), 0))
    landed = task.end()
    found = rows(tmp_path, landed)
    assert sorted(map(len, found.values())) == [1, 41]
    assert found["topic=logins/date=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__"] == list(range(1, 42))


def test_what_a_commit_says_of_a_task_does_not_grow_with_the_records_times(tmp_path: Path) -> None:
    """Whoever may write a topic chooses the times; loads read the last commits again until a snapshot has them."""
    times = [year * 365 * DAY_MS for year in range(2_000)]
    task = Task(Landing(bootstrap="", directory=tmp_path, prefix="1", fail_on_data_loss=True, believed_ms=(-2, -1)))
    task.begin(Range(P, 0, 2_000))
    task.take(Fetched(memoryview(data := batch(0, *times)), whole_batches(data), 0))
    landed = task.end()
    assert sum(file.rows for file in landed.files) == 2_000
    assert len(json.dumps(report([landed], []))) < 1_000


def test_columns_and_values(tmp_path: Path) -> None:
    landed = land(tmp_path, batch(7, 1_000))
    (row,) = pq.read_table(tmp_path / Path(landed.files[0].path).name).to_pylist()
    assert row["timestamp"].timestamp() == 1
    del row["timestamp"]
    assert row == {"key": b"k7", "value": b"v", "partition": 3, "offset": 7, "headers": [{"key": "h", "value": b"1"}]}


def test_only_the_range_lands(tmp_path: Path) -> None:
    landed = land(tmp_path, batch(0, 0, 0, 0) + batch(3, 0, 0, 0), start=1, end=5)
    assert list(rows(tmp_path, landed).values()) == [[1, 2, 3, 4]]


def test_a_batch_that_does_not_decode_becomes_a_dead_letter_and_the_rest_lands(tmp_path: Path) -> None:
    bad = broken(2, 3)
    landed = land(tmp_path, batch(0, 0, 0) + bad + batch(5, 0), batch(6, 0))
    assert list(rows(tmp_path, landed).values()) == [[0, 1, 5, 6]]
    (file,) = landed.dead_letters
    assert file.path.startswith("_dead_letters/topic=logins/00000001-")
    (letter,) = pq.read_table(tmp_path / Path(file.path).name).to_pylist()
    assert (letter["partition"], letter["first_offset"], letter["last_offset"]) == (3, 2, 4)
    assert letter["reason"].startswith("offsets 2 to 4: ")
    assert letter["batch"] == bad
    assert landed.dead_offsets == {P: 3}
    assert landed.rows == {Range(P, 0, 1 << 40): 4}


def test_a_flipped_bit_becomes_a_dead_letter(tmp_path: Path) -> None:
    bad = bytearray(batch(0, 0, 0))
    bad[-1] ^= 1
    landed = land(tmp_path, bytes(bad) + batch(2, 0))
    (letter,) = pq.read_table(tmp_path / Path(landed.dead_letters[0].path).name).to_pylist()
    assert "CRC" in letter["reason"]
    assert list(rows(tmp_path, landed).values()) == [[2]]


@pytest.mark.parametrize("delta", [0, 40_000, -5])
def test_a_damaged_last_offset_moves_no_other_batch(tmp_path: Path, delta: int) -> None:
    landed = land(tmp_path, batch(0, 0, 0) + ending(delta, batch(2, 0, 0)) + batch(4, 0))
    (letter,) = pq.read_table(tmp_path / Path(landed.dead_letters[0].path).name).to_pylist()
    assert (letter["first_offset"], letter["last_offset"]) == (2, 3)
    assert list(rows(tmp_path, landed).values()) == [[0, 1, 4]]


def ending(delta: int, good: bytes) -> bytes:
    """The batch with another last offset, which its CRC does not know of."""
    bad = bytearray(good)
    struct.pack_into(">i", bad, 23, delta)
    return bytes(bad)


@pytest.mark.parametrize("delta", [0, 40_000, -5])
@pytest.mark.parametrize("at_once", [1, 2])
def test_a_damaged_last_offset_moves_no_fetch(delta: int, at_once: int) -> None:
    stored = [batch(0, 0, 0), ending(delta, batch(2, 0, 0)), batch(4, 0)]

    class Client:
        """Answers like a broker that fits *at_once* batches into an answer, two where the first is damaged."""

        def fetch(self, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, RawBatches]:
            first = next(n for n, end in enumerate((2, 4, 5)) if wanted[P] < end)
            view = memoryview(b"".join(stored[first : first + max(at_once, 1 + (first == 1))]))
            return {P: RawBatches(view, 5, 0)}

    found = [
        one
        for fetched in read_range(Client(), Range(P, 0, 5), RawConfig())  # type: ignore[arg-type]
        for one in decoded(fetched, 5, with_headers=False)
    ]
    dead = [one for one in found if isinstance(one, DeadLetter)]
    alive = [offset for one in found if not isinstance(one, DeadLetter) for offset in one["offset"].to_pylist()]
    assert [(one.first_offset, one.last_offset) for one in dead] == [(2, 3)]
    assert alive == [0, 1, 4]


def test_a_dead_letter_names_only_offsets_of_its_range(tmp_path: Path) -> None:
    # The neighbouring range, which holds the rest of the batch, names the rest.
    landed = land(tmp_path, broken(0, 6), start=2, end=4)
    (letter,) = pq.read_table(tmp_path / Path(landed.dead_letters[0].path).name).to_pylist()
    assert (letter["first_offset"], letter["last_offset"]) == (2, 3)


def test_many_hours_need_few_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landing, "_MAX_OPEN_FILES", 2)
    monkeypatch.setattr(landing, "_BUFFER_BYTES", 0)  # every batch goes to its file at once
    hours = [0, 1, 2, 0, 1, 2, 2]
    landed = land(tmp_path, *[batch(offset, hour * HOUR_MS) for offset, hour in enumerate(hours)])
    found = sorted(
        o for file in landed.files for o in pq.read_table(tmp_path / Path(file.path).name)["offset"].to_pylist()
    )
    assert found == list(range(7))
    assert len(landed.files) == 6  # hour 2 stayed open for its second record


def test_a_lake_that_this_host_does_not_see_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="the lake must lie on a file system that all hosts of Spark share"):
        land(tmp_path / "elsewhere", batch(0, 0))


def test_nothing_makes_no_file(tmp_path: Path) -> None:
    assert land(tmp_path).files == []
    assert list(tmp_path.iterdir()) == []
