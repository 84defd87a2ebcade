"""Counting the lake's files, column by column, as a reader would count the records one by one."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.audit import lake
from pylog.audit.counting import STAMP_HEADER, Stamp
from pylog.audit.held import Memory
from pylog.audit.reader import TopicCounter
from pylog.audit.reports import Report, Tier
from pylog.ingest.landing import COLUMNS

WINDOW_MS = 1000
HOUR_MS = 3_600_000

Headers = list[tuple[str, bytes | None]]
Row = tuple[Headers | None, bytes | None]


def stamp(sequence: int, timestamp_ms: int = 5 * HOUR_MS, producer: str = "p") -> tuple[str, bytes]:
    return STAMP_HEADER, Stamp(producer, sequence, timestamp_ms, "web 1").encode()


def write(path: Path, rows: list[Row], **options: object) -> Path:
    columns = {
        "key": [b"k"] * len(rows), "value": [value for _, value in rows], "partition": [0] * len(rows),
        "offset": list(range(len(rows))), "timestamp": [0] * len(rows),
        "headers": [None if given is None else [{"key": k, "value": v} for k, v in given] for given, _ in rows],
    }  # fmt: skip
    pq.write_table(pa.Table.from_pydict(columns, schema=COLUMNS), path, **options)
    return path


LOADED, UNKNOWN = lake.Loaded("id", {0: 100}), lake.Loaded()


def counted(*paths: Path, from_ms: int = 0, warnings: list[str] | None = None, loaded: lake.Loaded = UNKNOWN) -> Report:
    warned: list[str] = []
    found = lake.count("clicks", paths, WINDOW_MS, loaded, from_ms=from_ms, now_ms=9, complete_ms=7, warn=warned.append)
    assert warned == [] or warnings is not None
    if warnings is not None:
        warnings += warned
    return found


def one_by_one(rows: list[Row]) -> Report:
    counter = TopicCounter(Tier.LAKE, "clicks", Tier.LAKE, WINDOW_MS, number=9)
    for offset, (headers, value) in enumerate(rows):
        counter.add(0, offset, headers or [], value)
    found = counter.report(9, 7)
    found.is_whole, found.offsets, found.after = True, {}, None
    return found


HEADER = st.one_of(
    st.tuples(st.sampled_from(["pylog.origin", "a", "z"]), st.none() | st.binary(max_size=3)),
    st.builds(stamp, st.integers(0, 6), st.sampled_from([0, 999, 1000, 5 * HOUR_MS]), st.sampled_from(["p", "q"])),
    st.tuples(st.just(STAMP_HEADER), st.sampled_from([None, b"", b"p x 1 h", b"p -1 1 h", b"p 1", b"\xff" * 30])),
)
ROWS = st.lists(
    st.tuples(st.none() | st.lists(HEADER, max_size=3), st.none() | st.sampled_from([b"", b"one", b"two"])), max_size=40
)


@given(rows=ROWS, group=st.integers(1, 40))
def test_a_file_counts_as_its_records_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], group: int
) -> None:
    path = write(tmp_path_factory.mktemp("lake") / "file.parquet", rows, row_group_size=group)
    assert counted(path) == one_by_one(rows)


@given(files=st.lists(ROWS, max_size=4), changed=st.integers(0, 3), group=st.integers(1, 40))
def test_what_is_remembered_of_files_is_what_they_hold(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[Row]], changed: int, group: int
) -> None:
    directory = tmp_path_factory.mktemp("lake")
    paths = [write(directory / f"{one}.parquet", rows, row_group_size=group) for one, rows in enumerate(files)]
    first = Memory(WINDOW_MS)
    assert remembered(first, paths) == counted(*paths, loaded=LOADED)
    if changed < len(paths):
        write(paths[changed], [([stamp(99)], b"another"), *files[changed]])
    then = Memory.decode(first.encode(), WINDOW_MS)
    assert remembered(then, paths) == counted(*paths, loaded=LOADED)
    assert then.asked.keys() == {str(path) for path in paths}


def remembered(memory: Memory, paths: list[Path]) -> Report:
    return lake.count(
        "clicks", paths, WINDOW_MS, LOADED, from_ms=0, now_ms=9, complete_ms=7, warn=pytest.fail, memory=memory
    )


def test_a_file_that_is_known_is_not_read_again(tmp_path: Path) -> None:
    paths = [write(tmp_path / "a.parquet", [([stamp(0)], b"a")]), write(tmp_path / "b.parquet", [([stamp(1)], b"b")])]
    memory = Memory(WINDOW_MS)
    before = remembered(memory, paths)
    read: list[Path] = []
    then = Memory.decode(memory.encode(), WINDOW_MS)
    for path in paths:
        then.held(path, LOADED.topic_id, lambda one: read.append(one) or memory.asked[str(one)][1])  # type: ignore[func-returns-value]
    assert read == []
    assert remembered(Memory.decode(memory.encode(), WINDOW_MS), paths) == before
    for other in (Memory.decode(memory.encode(), 2 * WINDOW_MS), Memory.decode("torn", WINDOW_MS)):
        assert other.known == {}


@pytest.mark.parametrize(
    "headers",
    [[], None, [("pylog.origin", b"live")], [("pylog.cursor", b"s=1"), ("pylog.origin", b"live")], [("a", b"")]],
)
def test_of_rows_that_nobody_stamped_only_the_files_end_is_read(tmp_path: Path, headers: Headers | None) -> None:
    path = write(tmp_path / "journal.parquet", [(headers, b"x" * 100)] * 50)
    data = bytearray(path.read_bytes())
    pages = slice(4, len(data) - 8 - int.from_bytes(data[-8:-4], "little"))
    data[pages] = bytes(len(data[pages]))
    path.write_bytes(data)
    with pytest.raises((OSError, pa.ArrowException)):
        pq.read_table(path)
    found = counted(path)
    assert (found.unstamped, found.windows) == (50, {})


def test_a_file_without_statistics_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", [([stamp(0)], b"a"), ([], b"b")], write_statistics=False)
    found = counted(path)
    assert (found.unstamped, [one.count for one in found.windows.values()]) == (1, [1])


def test_a_damaged_file_holds_nothing_and_is_told(tmp_path: Path) -> None:
    good, bad = write(tmp_path / "good.parquet", [([stamp(0)], b"a")]), tmp_path / "bad.parquet"
    bad.write_bytes(b"PAR1" + bytes(20))
    warnings: list[str] = []
    found = counted(bad, good, tmp_path / "gone.parquet", warnings=warnings)
    assert [one.count for one in found.windows.values()] == [1]
    assert [text.split(":")[0] for text in warnings] == [str(bad), str(tmp_path / "gone.parquet")]


def test_windows_of_before_are_left_as_they_are(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", [([stamp(0, 4 * HOUR_MS)], b""), ([stamp(1, 5 * HOUR_MS)], b"")])
    assert set(counted(path, from_ms=5 * HOUR_MS).windows) == {("p", 5 * HOUR_MS)}


def test_the_stamp_that_was_put_on_last_counts(tmp_path: Path) -> None:
    rows: list[Row] = [([stamp(3, producer="sent on"), stamp(0), ("pylog.origin", b"live")], b"a")]
    assert {key[0] for key in counted(write(tmp_path / "a.parquet", rows)).windows} == {"p"}
