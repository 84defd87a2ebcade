"""Dead letters that decode now leave the dead and land, once."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from crc32c import crc32c

from pylog.ingest.decode import whole_batches
from pylog.ingest.fetch import Fetched
from pylog.ingest.lake import Kind, Lake
from pylog.ingest.landing import Landing, Task, report
from pylog.ingest.plan import Position, Range
from pylog.ingest.retry import Retried, RetryConfig, retry
from pylog.model import TopicPartition
from pylog.wire import records as wire
from pylog.wire.records import Record, encode_batch

P = TopicPartition("logins", 0)


def batch(offset: int, count: int) -> bytes:
    return encode_batch(
        [Record(offset + n, 1000, b"k", b"v%d" % (offset + n), [("hx", b"1")]) for n in range(count)],
        base_offset=offset,
    )


def with_crc(body: bytearray) -> bytes:
    body[wire.CRC_START - 4 : wire.CRC_START] = crc32c(body[wire.CRC_START :]).to_bytes(4, "big")
    return bytes(body)


def bad_header(offset: int) -> bytes:
    """A batch with a header name that is no text."""
    body = bytearray(batch(offset, 1))
    at = body.index(b"\x04hx")
    body[at + 1 : at + 3] = b"\xff\xfe"
    return with_crc(body)


def flipped(offset: int) -> bytes:
    body = bytearray(batch(offset, 1))
    body[-1] ^= 1
    return bytes(body)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A lake of offsets 0, 1 and 4, with two dead letters between."""
    lake = Lake.create(tmp_path / "lake")
    attempt = lake.begin(Kind.LOAD, lake.finish())
    task = Task(
        Landing(bootstrap="", directory=attempt.directory, prefix="1", window_ms=60_000, fail_on_data_loss=True)
    )
    task.begin(Range(P, 0, 5))
    stored = batch(0, 2) + bad_header(2) + flipped(3) + batch(4, 1)
    task.take(Fetched(memoryview(stored), whole_batches(stored), 0))
    landed = task.end()
    position = Position({P: 5}, {"logins": "id-1"}).to_json()
    lake.commit(
        attempt, landed.files, dead_letters=landed.dead_letters, more={**report([landed], []), "position": position}
    )
    return lake.root


def offsets(root: Path) -> list[int]:
    files = Lake.open(root).visible().files
    return sorted(o for path in files for o in pq.read_table(root / path)["offset"].to_pylist())


def test_what_still_does_not_decode_changes_nothing(root: Path) -> None:
    before = Lake.open(root).state()
    assert retry(RetryConfig(lake=root)) == Retried(0, 2, 2)
    assert Lake.open(root).state() == before
    assert Lake.open(root).staged() == []


def test_a_batch_that_decodes_now_lands_once_and_the_other_stays(root: Path) -> None:
    allowing = RetryConfig(lake=root, topic="logins", header_errors="replace")
    assert retry(allowing) == Retried(1, 2, 1)
    assert offsets(root) == [0, 1, 2, 4]
    state = Lake.open(root).state()
    assert sum(file.rows for file in state.dead_letters.values()) == 1
    assert state.position == Position({P: 5}, {"logins": "id-1"})
    (name,) = {
        header["key"]
        for path in state.files
        for row in pq.read_table(root / path).to_pylist()
        if row["offset"] == 2
        for header in row["headers"]
    }
    assert name == "\ufffd\ufffd"
    assert retry(allowing) == Retried(0, 1, 1)
    assert offsets(root) == [0, 1, 2, 4]
    assert retry(RetryConfig(lake=root, topic="searches")) == Retried(0, 0, 0)


def test_a_good_copy_of_the_brokers_lands(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pylog.ingest import retry as module

    def read_range(_client: object, wanted: Range, *_: object) -> list[Fetched]:
        good = batch(wanted.start, 1)
        return [Fetched(memoryview(good), whole_batches(good), wanted.start)]

    monkeypatch.setattr(module, "read_range", read_range)
    assert retry(RetryConfig(lake=root, bootstrap="127.0.0.1:1")) == Retried(2, 2, 0)
    assert offsets(root) == [0, 1, 2, 3, 4]
    assert Lake.open(root).state().dead_letters == {}
