"""Compaction of a log with transactions: what was aborted, and how long markers stay."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from pylog.log.compaction import CompactionJob, plan
from pylog.log.config import LogConfig
from pylog.log.log import Log
from pylog.log.transactions import AbortedTransaction
from pylog.wire.markers import Marker, encode_marker
from pylog.wire.records import (
    DELETE_HORIZON,
    TRANSACTIONAL,
    BatchHeader,
    Record,
    check_stored_batch,
    decode_records,
    encode_batch,
    iter_batches,
    parse_header,
)

from .batches import OPENED, PARTITION, crash, open_log, read_all

COMPACT = LogConfig(segment_bytes=1 << 20, cleanup_policy="compact", delete_retention_ms=1_000)


def put(log: Log, producer_id: int, key: bytes, value: bytes | None, sequence: int = 0) -> int:
    """Append a record, of an open transaction unless the producer is -1; return its offset."""
    fields: dict[str, Any] = {}
    if producer_id >= 0:
        fields = {
            "producer_id": producer_id,
            "producer_epoch": 0,
            "base_sequence": sequence,
            "attributes": TRANSACTIONAL,
        }
    view = memoryview(bytearray(encode_batch([Record(0, 1_000, key, value)], **fields)))
    offset = log.append_as_leader(view, check_stored_batch(view), 0, 0).base_offset
    log.high_watermark = log.log_end_offset
    return offset


def end(log: Log, producer_id: int, *, is_commit: bool, epoch: int = 0) -> int:
    marker = Marker(is_commit, 0)
    view = memoryview(bytearray(encode_marker(producer_id, epoch, marker, 1_000)))
    offset = log.append_as_leader(view, parse_header(view), 0, 0, marker).base_offset
    log.high_watermark = log.log_end_offset
    return offset


def close_segment(log: Log) -> None:
    log.roll()
    while log.jobs:
        job = log.jobs.popleft()
        job.run()
        job.finish()


def compact(log: Log, now_ms: int = 5_000, *, copied_offset: int | None = None) -> None:
    """Do one pass over everything but the active segment."""
    log.compacted_offset = 0
    found = plan(log, now_ms)
    assert found is not None
    job = CompactionJob(log, found, now_ms, breathe=lambda: None, copied_offset=copied_offset)
    job.run()
    job.finish()
    assert job.error is None
    close_segment(log)


def headers(log: Log) -> list[BatchHeader]:
    return [header for segment in log.segments for _, header in segment.batches()]


def markers(log: Log) -> list[int]:
    return [header.base_offset for header in headers(log) if header.is_control]


def rows(log: Log) -> list[AbortedTransaction]:
    return [row for segment in log.segments if segment.aborted is not None for row in segment.aborted.entries()]


def committed(log: Log) -> dict[bytes, bytes]:
    """Return what a read_committed reader that keeps the last value of each key ends with."""
    data, held, aborted = read_all(log), {}, rows(log)
    for position, header in iter_batches(data):
        is_aborted = any(
            row.producer_id == header.producer_id and row.first_offset <= header.base_offset <= row.last_offset
            for row in aborted
        )
        if header.is_control or is_aborted:
            continue
        for record in decode_records(data, header, position):
            assert record.key is not None
            held[record.key] = record.value
    return {key: value for key, value in held.items() if value is not None}


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return open_log(tmp_path, COMPACT)


def test_an_aborted_record_replaces_nothing_and_goes_at_once(log: Log) -> None:
    put(log, -1, b"k", b"first")
    put(log, 9, b"k", b"aborted")
    end(log, 9, is_commit=False)
    put(log, 9, b"other", b"committed", 1)
    end(log, 9, is_commit=True)
    close_segment(log)
    compact(log)
    assert committed(log) == {b"k": b"first", b"other": b"committed"}
    assert [header.base_offset for header in headers(log) if header.record_count] == [0, 2, 3, 4]


def test_an_aborted_transaction_whose_marker_is_in_a_later_segment(log: Log) -> None:
    put(log, -1, b"k", b"first")
    put(log, 9, b"k", b"aborted")
    close_segment(log)
    end(log, 9, is_commit=False)
    compact(log)
    assert committed(log) == {b"k": b"first"}


def test_nothing_above_the_last_stable_offset_is_compacted(log: Log) -> None:
    put(log, 9, b"k", b"open")
    close_segment(log)
    assert plan(log, 5_000) is None
    end(log, 9, is_commit=True)
    log.high_watermark = 1
    assert plan(log, 5_000) is None, "the next leader may lack the marker"
    log.high_watermark = 2
    assert plan(log, 5_000) is not None


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_stays_until_a_while_after_its_records_are_gone(log: Log, is_commit: bool) -> None:
    put(log, 9, b"k", b"outdated")
    marker = end(log, 9, is_commit=is_commit)
    put(log, 9, b"k", b"later", 1)  # the producer lives on, and its last batch is another one
    last = end(log, 9, is_commit=True)
    put(log, -1, b"end", b"")
    close_segment(log)
    compact(log, now_ms=5_000)
    assert markers(log) == [marker, last], "a reader may have the batch that is gone now"
    compact(log, now_ms=6_000)
    assert markers(log) == [marker, last]
    horizon = next(header for header in headers(log) if header.base_offset == marker)
    assert horizon.attributes & DELETE_HORIZON
    assert horizon.base_timestamp == 7_000
    assert rows(log) == []
    compact(log, now_ms=7_000, copied_offset=None)
    assert markers(log) == [marker, last]
    compact(log, now_ms=7_001, copied_offset=marker)
    assert markers(log) == [marker, last], "a replica is being copied that has not come so far"
    assert log.tombstones.offset == -1
    compact(log, now_ms=7_001)
    assert markers(log) == [last]
    assert log.tombstones.offset == marker, "whoever lacks it begins anew"


def test_a_marker_with_its_horizon_still_says_what_it_said(log: Log, tmp_path: Path) -> None:
    put(log, 9, b"k", b"outdated")
    marker = end(log, 9, is_commit=False)
    put(log, 9, b"k", b"later", 1)
    end(log, 9, is_commit=True)
    put(log, -1, b"end", b"")
    close_segment(log)
    compact(log)
    compact(log)
    follower = open_log(tmp_path / "follower", COMPACT)
    follower.append_as_follower(memoryview(read_all(log)))
    assert follower.producers.transactions is not None
    assert not follower.producers.transactions.first_offsets()
    record = next(
        r
        for p, h in iter_batches(read_all(log))
        if h.base_offset == marker
        for r in decode_records(read_all(log), h, p)
    )
    assert (record.timestamp, record.key) == (1_000, bytes(4))


def test_a_marker_that_is_all_that_is_known_of_a_producer_stays(log: Log) -> None:
    put(log, 9, b"k", b"outdated")
    fence = end(log, 9, is_commit=False, epoch=1)
    put(log, -1, b"k", b"later")
    put(log, -1, b"end", b"")
    close_segment(log)
    for now_ms in (5_000, 6_000, 9_000, 99_000):
        compact(log, now_ms)
    assert markers(log) == [fence]


def test_the_last_batch_of_a_live_producer_keeps_its_marker(log: Log) -> None:
    put(log, 9, b"k", b"aborted")
    marker = end(log, 9, is_commit=False)
    put(log, -1, b"k", b"later")
    close_segment(log)
    for now_ms in (5_000, 6_000, 9_000, 99_000):
        compact(log, now_ms)
    assert [header.record_count for header in headers(log)] == [0, 1, 1]
    assert markers(log) == [marker]
    assert rows(log) == [AbortedTransaction(9, 0, 1, 2)]
    end_offset = log.log_end_offset
    crash(log)
    again = open_log(log.directory, COMPACT, recovery_point=end_offset)
    assert again.producers.transactions is not None
    assert not again.producers.transactions.first_offsets(), "what is left of it opens nothing"


@pytest.mark.parametrize("step", range(14))
def test_a_crash_in_the_swap_leaves_the_index_of_what_is_there(
    log: Log, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    for number in range(2):
        put(log, 9, b"k", b"aborted", number)
        end(log, 9, is_commit=False)
        close_segment(log)
    put(log, -1, b"k", b"committed")
    expected, end_offset = rows(log), log.log_end_offset
    calls = 0
    rename = Path.rename

    class PowerCut(BaseException):
        pass

    def cut(self: Path, target: Path) -> Path:
        nonlocal calls
        calls += 1
        if calls > step:
            raise PowerCut
        return rename(self, target)

    log.compacted_offset = 0
    found = plan(log, 5_000)
    assert found is not None
    job = CompactionJob(log, found, 5_000, breathe=lambda: None)
    job.run()
    with monkeypatch.context() as disk:
        disk.setattr(Path, "rename", cut)
        with pytest.raises(PowerCut):
            job.finish()
    crash(log)
    again = open_log(log.directory, COMPACT, recovery_point=end_offset)
    assert rows(again) == expected
    assert not list(log.directory.glob("*.swap"))
    assert committed(again) == {b"k": b"committed"}


@pytest.mark.parametrize("seed", range(10))
def test_a_reader_of_committed_records_sees_the_same_whatever_was_compacted(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    log = open_log(tmp_path, COMPACT)
    sequences = dict.fromkeys(range(3), 0)
    pending: dict[int, list[tuple[int, bytes, bytes | None]]] = {}
    history: list[tuple[int, bytes, bytes | None]] = []
    now_ms = 5_000
    for number in range(250):
        producer_id = random.randrange(3)
        kind = random.choice(["put"] * 5 + ["plain", "commit", "abort", "roll", "compact", "restart"])
        key, value = b"k%d" % random.randrange(6), random.choice([b"%d" % number, b"%d" % number, None])
        if kind == "put":
            offset = put(log, producer_id, key, value, sequences[producer_id])
            sequences[producer_id] += 1
            pending.setdefault(producer_id, []).append((offset, key, value))
        elif kind == "plain":
            history.append((put(log, -1, key, value), key, value))
        elif kind in ("commit", "abort"):
            end(log, producer_id, is_commit=kind == "commit")
            done = pending.pop(producer_id, [])
            history += done if kind == "commit" else []
        elif kind == "roll":
            close_segment(log)
        elif kind == "compact":
            now_ms += random.choice([10, 600, 2_000])
            log.compacted_offset = 0
            if plan(log, now_ms) is not None:
                compact(log, now_ms)
        else:
            high_watermark = log.high_watermark
            log.close()
            log = Log.open(tmp_path, PARTITION, COMPACT, now_ms=0, clean=True, high_watermark=high_watermark)
            OPENED.append(log)
    for producer_id in range(3):
        end(log, producer_id, is_commit=False)
    expected = {key: value for _, key, value in sorted(history, key=lambda row: row[0])}
    assert committed(log) == {key: value for key, value in expected.items() if value is not None}
