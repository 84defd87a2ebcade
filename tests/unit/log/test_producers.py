import errno
import os
import random
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from pylog.errors import ApiError, ErrorCode, StorageError
from pylog.log import checkpoint
from pylog.log import producers as producers_of_log
from pylog.log.batch_file import OutOfDescriptors
from pylog.log.compaction import plan
from pylog.log.jobs import DESCRIPTOR_ATTEMPTS
from pylog.log.log import Log
from pylog.log.producers import MAX_PRODUCER_COUNT, SEQUENCE_MASK, UNKNOWN, Producers
from pylog.log.replay import ReplayJob
from pylog.wire.markers import Marker, encode_marker
from pylog.wire.records import TRANSACTIONAL, parse_header

from .batches import SMALL, append, batch, crash, fill, no_descriptors, open_log, read_all, segment_files


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return open_log(tmp_path)


def send(log: Log, sequence: int, count: int = 2, *, epoch: int = 0, producer_id: int = 9) -> tuple[int, bool]:
    """Append a batch of an idempotent producer; return its base offset and whether it had been stored before."""
    view = batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    result = append(log, view)
    assert result.last_offset == result.base_offset + count - 1
    return result.base_offset, result.is_duplicate


def send_far_behind(log: Log, sequence: int, count: int = 2) -> int:
    """Repeat a batch of which the window knows nothing; return the offset at or before which it is said to end."""
    end_offset = log.log_end_offset
    view = batch(count, producer_id=9, producer_epoch=0, base_sequence=sequence)
    result = append(log, view)
    assert (result.base_offset, result.is_duplicate, log.log_end_offset) == (-1, True, end_offset)
    return result.last_offset


def refused(log: Log, code: ErrorCode, sequence: int, *, epoch: int = 0) -> None:
    end_offset = log.log_end_offset
    with pytest.raises(ApiError) as found:
        send(log, sequence, epoch=epoch)
    assert found.value.code is code
    assert log.log_end_offset == end_offset


def test_each_of_the_last_five_batches_is_recognised(log: Log) -> None:
    for number in range(7):
        assert send(log, 2 * number) == (2 * number, False)
    stored = read_all(log)
    for number in range(2, 7):
        assert send(log, 2 * number) == (2 * number, True)
    assert read_all(log) == stored


def test_a_batch_that_left_the_window_was_stored_nobody_knows_where(log: Log) -> None:
    """As Kafka's own producer repeats five that a deposed leader did not answer, after others to the next leader."""
    for number in range(20):
        send(log, 2 * number)
    stored = read_all(log)
    for sequence in (0, 2, 28):
        assert send_far_behind(log, sequence) == 29, "where the window begins, and no later"
    assert send_far_behind(log, 27, count=3) == 29, "batches that were split are in it as well"
    assert read_all(log) == stored
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 29)
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 31)
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 39)
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 42)
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, SEQUENCE_MASK)
    assert send(log, 40) == (40, False)


def test_what_came_before_a_gap_is_not_taken_for_stored(log: Log) -> None:
    """A log that knew nothing of a producer took a later batch first: those before it may be nowhere."""
    for number in range(10, 20):
        send(log, 2 * number)
    assert send_far_behind(log, 20) == 9
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 18)
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 19)
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0)


def test_a_gap_among_batches_that_a_follower_copies_ends_what_is_known(log: Log) -> None:
    """Compaction leaves such gaps."""
    for sequence in (0, 2, 6, 8, 10, 12, 14, 16):
        view = batch(2, base_offset=log.log_end_offset, producer_id=9, producer_epoch=0, base_sequence=sequence)
        log.append_as_follower(view)
    assert send_far_behind(log, 6) == 5
    for sequence in (0, 2, 4, 5):
        refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, sequence)


def test_what_is_known_of_earlier_batches_goes_over_the_end_of_the_sequence(log: Log) -> None:
    begin = SEQUENCE_MASK - 9  # the sixth begins with sequence 0
    for number in range(12):
        send(log, (begin + 2 * number) & SEQUENCE_MASK)
    for sequence in (begin, SEQUENCE_MASK - 1, 0, 2):
        assert send_far_behind(log, sequence) == 13
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, begin - 2)


def test_a_cut_takes_from_what_is_known_of_earlier_batches(log: Log) -> None:
    for number in range(20):
        send(log, 2 * number)
    log.truncate_to(34)
    assert run_jobs(log) == 0
    assert send_far_behind(log, 0) == 29
    assert send(log, 34) == (34, False)
    assert send_far_behind(log, 0) == 29


def test_what_is_read_again_after_a_cut_tells_of_earlier_batches_too(tmp_path: Path) -> None:
    log = open_log(tmp_path, replace(SMALL, segment_bytes=1 << 20))
    for number in range(20):
        send(log, 2 * number)
    log.truncate_to(20)
    for sequence in (20, 22):  # from the next leader, while the reading is still to be done
        view = batch(2, base_offset=sequence, producer_id=9, producer_epoch=0, base_sequence=sequence)
        log.append_as_follower(view)
    assert run_jobs(log) == 1
    assert send_far_behind(log, 0) == 13
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 26)
    assert send(log, 24) == (24, False)


def test_a_cut_back_over_a_gap_leaves_one_batch_known(log: Log) -> None:
    for sequence in (0, 2, 4, 6, 8, 10, 20):
        view = batch(2, base_offset=log.log_end_offset, producer_id=9, producer_epoch=0, base_sequence=sequence)
        log.append_as_follower(view)
    log.truncate_to(12)
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0)
    assert send(log, 12) == (12, False)


def test_earlier_batches_are_known_again_once_they_left_the_window_after_a_start(log: Log, tmp_path: Path) -> None:
    for number in range(8):
        send(log, 2 * number)
    log.close()
    log = open_log(tmp_path, clean=True)
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 4)
    for number in range(8, 13):
        send(log, 2 * number)
    assert send_far_behind(log, 6) == 15
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 4)


def test_a_gap_in_the_sequence_is_refused(log: Log) -> None:
    send(log, 0)
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 4)
    assert send(log, 2) == (2, False)


def test_a_part_of_a_stored_batch_is_no_duplicate(log: Log) -> None:
    send(log, 0, count=4)
    with pytest.raises(ApiError):
        send(log, 0, count=2)


def test_an_unknown_producer_may_begin_anywhere(log: Log) -> None:
    assert send(log, 77) == (0, False)
    assert send(log, 79) == (2, False)


def test_a_new_epoch_begins_at_sequence_0(log: Log) -> None:
    send(log, 0)
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 2, epoch=1)
    assert send(log, 0, epoch=1) == (2, False)
    refused(log, ErrorCode.INVALID_PRODUCER_EPOCH, 2, epoch=0)


def test_the_sequence_wraps_to_0(log: Log) -> None:
    assert send(log, SEQUENCE_MASK - 2, count=2) == (0, False)
    assert send(log, SEQUENCE_MASK, count=3) == (2, False)
    assert send(log, 2) == (5, False)
    assert send(log, SEQUENCE_MASK, count=3) == (2, True)


def test_producers_do_not_disturb_each_other(log: Log) -> None:
    for number in range(3):
        for producer_id in (1, 2):
            assert not send(log, 2 * number, producer_id=producer_id)[1]
    assert send(log, 4, producer_id=1) == (8, True)


@pytest.mark.parametrize("is_clean", [True, False])
def test_the_whole_window_survives_a_restart(log: Log, tmp_path: Path, is_clean: bool) -> None:
    for number in range(30):  # over several segments
        send(log, 2 * number)
    (log.close if is_clean else lambda: crash(log))()
    log = open_log(tmp_path, clean=is_clean)
    for number in range(25, 30):
        assert send(log, 2 * number) == (2 * number, True)
    assert send(log, 60) == (60, False)


def test_a_damaged_snapshot_is_replaced_by_the_batches(log: Log, tmp_path: Path) -> None:
    for number in range(30):
        send(log, 2 * number)
    log.close()
    for file in segment_files(tmp_path, ".snapshot"):
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)
    log = open_log(tmp_path, clean=True)
    assert send(log, 58) == (58, True)


@pytest.mark.parametrize("harm", [b"", b"\0\1", b"\0\1\0\0\0\0\x7f\xff\xff\xff", os.urandom(100)])
def test_a_snapshot_of_any_bytes_is_refused_without_harm(tmp_path: Path, harm: bytes) -> None:
    (tmp_path / "00000000000000000005.snapshot").write_bytes(harm)
    producers = Producers(tmp_path)
    assert producers.load(9) == -1
    assert not producers.snapshot_offsets()


def test_a_snapshot_without_our_extension_is_read(tmp_path: Path) -> None:
    """As Kafka's format ends: version 1, CRC-32C, one entry of a producer, nothing behind it."""
    path = tmp_path / "00000000000000000042.snapshot"
    path.write_bytes(
        bytes.fromhex(
            "0001 fb81fea2 00000001 0000000000000009 0003 00000007 0000000000000029 00000001"
            "0000018bcfe56800 ffffffff ffffffffffffffff"
        )
    )
    producers = Producers(tmp_path)
    assert producers.load(50) == 42
    header = parse_header(batch(2, producer_id=9, producer_epoch=3, base_sequence=6))
    assert producers.check(header) is not None


def run_jobs(log: Log) -> int:
    """Run what waits for a thread, as a broker does; return how many of these jobs read batches again."""
    replays = 0
    while log.jobs:
        job = log.jobs.popleft()
        job.run()
        job.finish()
        replays += isinstance(job, ReplayJob)
    return replays


def test_a_truncated_tail_is_forgotten(log: Log) -> None:
    for number in range(20):
        send(log, 2 * number)
    log.truncate_to(20)
    assert run_jobs(log) == 1
    assert send(log, 20) == (20, False)
    assert send(log, 18) == (18, True)


def test_a_producer_with_a_batch_below_the_cut_needs_no_reading(log: Log) -> None:
    for number in range(20):
        send(log, 2 * number)
    log.truncate_to(34)
    assert run_jobs(log) == 0
    assert send(log, 32) == (32, True), "what it may send again is still recognised"
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 36)
    assert send(log, 34) == (34, False)


def test_a_producer_that_began_above_the_cut_needs_no_reading(log: Log) -> None:
    fill(log, 3)
    send(log, 0)
    log.truncate_to(3)
    assert run_jobs(log) == 0
    assert send(log, 0) == (3, False)


@pytest.mark.parametrize(("epoch", "sequence"), [(1, 0), (0, 8)])
def test_a_producer_that_was_known_before_its_window_is_read_again(log: Log, epoch: int, sequence: int) -> None:
    for number in range(4):
        send(log, 2 * number)
    for number in range(5):
        send(log, sequence + 2 * number, epoch=epoch)
    log.truncate_to(8)
    refused(log, ErrorCode.NOT_LEADER_OR_FOLLOWER, 8)
    assert send(log, 0, producer_id=10) == (8, False), "others go on"
    assert run_jobs(log) == 1
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 10)
    assert send(log, 8) == (10, False)
    assert send(log, 6) == (6, True)


def test_batches_that_arrive_during_the_reading_come_after_what_it_finds(log: Log) -> None:
    for number in range(10):
        send(log, 2 * number)
    log.truncate_to(8)
    again = batch(2, base_offset=8, producer_id=9, producer_epoch=0, base_sequence=8)
    log.append_as_follower(again)
    assert run_jobs(log) == 1
    assert [send(log, sequence) for sequence in (2, 8, 10)] == [(2, True), (8, True), (10, False)]


def test_a_second_truncation_takes_the_reading_over(log: Log) -> None:
    for number in range(20):
        send(log, 2 * number)
    log.truncate_to(20)
    log.append_as_follower(batch(2, base_offset=20, producer_id=9, producer_epoch=0, base_sequence=20))
    log.truncate_to(10)
    assert run_jobs(log) == 2
    assert send(log, 8) == (8, True)
    assert send(log, 10) == (10, False)


@pytest.mark.parametrize("refusal", ["checkpoint", "descriptors"])
def test_a_second_truncation_that_is_refused_leaves_the_reading_to_be_done(log: Log, refusal: str) -> None:
    for number in range(20):
        send(log, 2 * number)
    log.flush()
    log.truncate_to(20)
    log.append_as_follower(batch(2, base_offset=20, producer_id=9, producer_epoch=0, base_sequence=20))
    log.flush()

    def refuse() -> None:
        raise StorageError("recovery-point-offset-checkpoint: No space left on device")

    if refusal == "checkpoint":
        log.write_checkpoints = refuse
        with pytest.raises(StorageError, match="No space left"):
            log.truncate_to(10)
    else:
        with pytest.raises(OutOfDescriptors), no_descriptors():
            log.truncate_to(10)
    assert (log.offline, log.log_end_offset) == (None, 22)
    assert run_jobs(log) == 2
    assert [send(log, sequence) for sequence in (12, 14, 20, 22)] == [(12, True), (14, True), (20, True), (22, False)]


def test_a_cut_of_the_active_segment_is_refused_before_it_when_snapshots_cannot_be_listed(log: Log) -> None:
    for number in range(5):
        send(log, 2 * number)
    assert len(log.segments) == 1
    end_offset = log.log_end_offset
    with pytest.raises(OutOfDescriptors), no_descriptors():
        log.truncate_to(2)
    assert (log.offline, log.log_end_offset) == (None, end_offset)
    log.truncate_to(2)
    assert run_jobs(log) == 0
    assert [send(log, sequence) for sequence in (0, 2)] == [(0, True), (2, False)]


def test_a_reading_without_descriptors_is_tried_again(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("pylog.log.jobs.time.sleep", waits.append)
    for number in range(20):
        send(log, 2 * number)
    log.truncate_to(20)
    assert any(isinstance(job, ReplayJob) for job in log.jobs)
    with no_descriptors():
        for _ in range(len(log.jobs)):
            job = log.jobs.popleft()
            if isinstance(job, ReplayJob):
                job.run()
                job.finish()
    assert (log.offline, len(log.jobs)) == (None, 1)
    assert len(waits) == DESCRIPTOR_ATTEMPTS - 1, "a minute in the thread for each attempt"
    refused(log, ErrorCode.NOT_LEADER_OR_FOLLOWER, 20)
    assert run_jobs(log) == 1
    assert [send(log, sequence) for sequence in (18, 20)] == [(18, True), (20, False)]


@pytest.mark.parametrize("is_dropped", [True, False])
def test_a_reading_does_without_what_retention_has_dropped(log: Log, is_dropped: bool) -> None:
    log.configure(replace(SMALL, segment_bytes=4096))
    for number in range(120):
        send(log, 2 * number)
    log.flush()
    run_jobs(log)
    log.producers.delete_snapshots()  # so that all segments are read
    log.truncate_to(150)
    log.high_watermark = 150
    first = log.segments[0]
    os.close(first.fd)  # as after a compaction: opened when it is first read
    first.fd = -1
    if is_dropped:
        log.delete_records_before(first.next_offset)
    else:
        first.path.unlink()
    run_jobs(log)
    assert (log.offline is None) is is_dropped
    if is_dropped:
        assert [send(log, sequence) for sequence in (148, 150)] == [(148, True), (150, False)]


@pytest.mark.parametrize(("number", "is_kept"), [(errno.EMFILE, True), (errno.EIO, True), (0, False)])
def test_only_a_damaged_snapshot_is_removed(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_kept: bool
) -> None:
    send(log, 0)
    log.close()
    (file,) = segment_files(tmp_path, ".snapshot")

    def read(path: Path) -> bytes:
        if number:
            raise OSError(number, os.strerror(number), path)
        return b"\0"

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", read)
        with pytest.raises(OSError, match="Too many") if number == errno.EMFILE else nullcontext():
            assert Producers(tmp_path).read(2) == -1
    assert file.exists() is is_kept


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_stop_during_the_reading_leaves_it_to_the_next_start(tmp_path: Path, is_clean: bool) -> None:
    log = open_log(tmp_path)
    for number in range(20):
        send(log, 2 * number)
    log.roll()
    log.truncate_to(20)
    log.roll()
    (log.close if is_clean else lambda: crash(log))()
    assert run_jobs(log) == 1, "one that comes too late changes nothing"
    log = open_log(tmp_path, clean=is_clean)
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 22)
    assert send(log, 20) == (20, False)


def test_a_compaction_waits_for_the_reading(tmp_path: Path) -> None:
    log = open_log(tmp_path, replace(SMALL, cleanup_policy="compact"))
    for number in range(30):
        send(log, 2 * number)
    log.truncate_to(40)
    log.roll()
    log.flush()
    log.high_watermark = log.log_end_offset
    assert plan(log, 10**9) is None
    run_jobs(log)
    assert plan(log, 10**9) is not None


@pytest.mark.parametrize("seed", range(30))
def test_after_a_truncation_producers_are_what_a_start_would_find(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    log = open_log(tmp_path)
    state = dict.fromkeys(range(4), (0, 0))
    for _ in range(chance.randrange(10, 60)):
        producer_id = chance.randrange(4)
        epoch, sequence = state[producer_id]
        if chance.random() < 0.1:
            epoch, sequence = epoch + 1, 0
        send(log, sequence, epoch=epoch, producer_id=producer_id)
        state[producer_id] = epoch, sequence + 2
        if chance.random() < 0.05:
            log.roll()
    log.truncate_to(2 * chance.randrange(log.log_end_offset // 2))
    run_jobs(log)
    crash(log)
    started = open_log(tmp_path, recovery_point=log.recovery_point)
    found, wanted = ({one.producer_id: one[1:3] for one in each.producers.facts()} for each in (log, started))
    assert found == wanted


def test_a_silent_producer_expires(log: Log) -> None:
    send(log, 0)
    day_ms = SMALL.producer_id_expiration_ms
    log.delete_expired(day_ms - 1)
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 50)
    log.delete_expired(day_ms)
    assert send(log, 50) == (2, False)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_producer_of_old_records_is_not_taken_for_a_silent_one(tmp_path: Path, is_clean: bool) -> None:
    """Found by the simulator: a follower counted a producer's age by its records' times, which may be years old."""
    log = open_log(tmp_path)
    day_ms = SMALL.producer_id_expiration_ms
    log.append_as_follower(batch(2, producer_id=9, producer_epoch=0, base_sequence=0, timestamp=1))
    (log.close if is_clean else lambda: crash(log))()
    log = open_log(tmp_path, clean=is_clean, now_ms=50 * day_ms)
    assert send(log, 0) == (0, True)
    log.delete_expired(51 * day_ms - 1)
    assert send(log, 0) == (0, True)
    log.delete_expired(51 * day_ms)
    assert send(log, 0) == (2, False)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_start_under_a_clock_that_was_set_ahead_forgets_nobody(tmp_path: Path, is_clean: bool) -> None:
    """Found by the simulator: a leader that came back took a batch again that it had, for its clock was a day ahead."""
    log = open_log(tmp_path)
    send(log, 0)
    log.roll()
    send(log, 2)
    (log.close if is_clean else lambda: crash(log))()
    day_ms = SMALL.producer_id_expiration_ms
    log = open_log(tmp_path, clean=is_clean, now_ms=day_ms)
    assert send(log, 2) == (2, True)
    log.delete_expired(2 * day_ms - 1)
    assert send(log, 2) == (2, True)
    log.delete_expired(2 * day_ms)
    assert send(log, 2) == (4, False)


def test_deleted_segments_take_their_snapshots_along(log: Log, tmp_path: Path) -> None:
    fill(log, 60)
    log.delete_records_before(50)
    offsets = log.producers.snapshot_offsets()
    assert offsets
    assert min(offsets) >= log.segments[0].base_offset


def test_the_number_of_producers_is_bounded(tmp_path: Path) -> None:
    producers = Producers(tmp_path)
    header = parse_header(batch(producer_id=0, producer_epoch=0, base_sequence=0))
    for producer_id in range(MAX_PRODUCER_COUNT + 1):
        header.producer_id = producer_id
        producers.note(header, producer_id, timestamp=producer_id)
    assert len(producers) == MAX_PRODUCER_COUNT // 2 + 1
    assert producers.check(header) is not None, "the newest stay"


@pytest.mark.parametrize(("newer", "is_known"), [(5, True), (6, False)])
def test_a_producer_is_known_behind_half_as_many_as_the_partition_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newer: int, is_known: bool
) -> None:
    monkeypatch.setattr(producers_of_log, "MAX_PRODUCER_COUNT", 10)
    producers = Producers(tmp_path)
    header = parse_header(batch(producer_id=0, producer_epoch=0, base_sequence=0))
    others = list(range(1, 11))
    for offset, producer_id in enumerate([*others[newer:], 0, *others[:newer]]):
        header.producer_id = producer_id
        producers.note(header, offset, timestamp=1_000)
    header.producer_id = 0
    assert (producers.check(header) is not None) == is_known


def test_at_the_limit_those_that_were_silent_longest_go_also_where_no_time_is_known(tmp_path: Path) -> None:
    """A follower knows no time of what it copies; those that write now must not go before those that stopped."""
    producers = Producers(tmp_path)
    header = parse_header(batch(producer_id=0, producer_epoch=0, base_sequence=0))
    for producer_id in range(MAX_PRODUCER_COUNT):
        header.producer_id = producer_id
        producers.note(header, producer_id, timestamp=1_000 if producer_id < MAX_PRODUCER_COUNT // 2 else UNKNOWN)
    header.producer_id = MAX_PRODUCER_COUNT
    producers.note(header, MAX_PRODUCER_COUNT, timestamp=2_000)
    assert min(one.producer_id for one in producers.facts()) == MAX_PRODUCER_COUNT // 2


def note_marker(producers: Producers, producer_id: int, offset: int) -> None:
    marker = Marker(is_commit=False, coordinator_epoch=0)
    header = parse_header(memoryview(encode_marker(producer_id, 3, marker, 1_000)))
    producers.note(header, offset, timestamp=1_000, marker=marker)


def test_one_known_by_its_marker_alone_is_dropped_by_a_cut_below_it_after_a_restart_too(tmp_path: Path) -> None:
    producers = Producers(tmp_path)
    note_marker(producers, 1, 10)
    note_marker(producers, 2, 20)
    producers.snapshot(30)
    again = Producers(tmp_path)
    assert again.load(30) == 30
    assert [again.progress(one).last_offset for one in (1, 2)] == [10, 20]
    assert again.truncate(15) == producers.truncate(15) == {2}
    assert again.marker_epochs() == producers.marker_epochs() == {1: 3}


def test_one_known_by_its_marker_alone_is_not_forgotten_before_those_that_were_silent_longer_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers_of_log, "MAX_PRODUCER_COUNT", 4)
    producers = Producers(tmp_path)
    header = parse_header(batch(producer_id=0, producer_epoch=0, base_sequence=0))
    for producer_id in range(3):
        header.producer_id = producer_id
        producers.note(header, producer_id, timestamp=1_000)
    note_marker(producers, 9, 20)
    producers.snapshot(30)
    again = Producers(tmp_path)
    again.load(30)
    header.producer_id = 5
    again.note(header, 40, timestamp=2_000)
    assert {one.producer_id for one in again.facts()} == {2, 9, 5}


def test_a_snapshot_below_all_batches_of_an_open_transaction_s_producer_knows_where_it_began(tmp_path: Path) -> None:
    producers = Producers(tmp_path)
    header = parse_header(batch(producer_id=1, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL))
    for number in range(10):
        header.base_sequence = number
        producers.note(header, 10 + number, timestamp=1_000)
    again = Producers(tmp_path)
    again.begin_at(12, producers.encode(12))
    assert again.progress(1) == (0, 10, True)


def test_a_follower_notes_when_producers_wrote(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append_as_follower(batch(producer_id=7, producer_epoch=0, base_sequence=0, timestamp=5), 1_234)
    assert [one.timestamp for one in log.producers.facts()] == [1_234]


# -- a log that begins anew --------------------------------------------------------------------------------------------


def copy(source: Log, target: Log) -> None:
    """Copy what a follower would that begins at the source's start."""
    data = bytearray(read_all(source))
    if data:
        target.append_as_follower(memoryview(data))
    target.high_watermark = target.log_end_offset


@pytest.mark.parametrize("is_killed", [False, True], ids=["goes on", "killed"])
@pytest.mark.parametrize("start", [0, 2, 4, 11, 12, 14])
def test_a_copy_knows_what_its_leader_knows_also_below_its_start(tmp_path: Path, start: int, is_killed: bool) -> None:
    leader = open_log(tmp_path / "leader")
    for number in range(3):
        send(leader, 2 * number)
        send(leader, 2 * number, producer_id=8)
    send(leader, 0, epoch=1, producer_id=8)
    leader.delete_records_before(start)
    follower = open_log(tmp_path / "follower")
    fill(follower, 3)
    send(follower, 0, producer_id=7)
    follower.truncate_fully_and_start_at(start, leader.producers.encode(start))
    if is_killed:
        crash(follower)
        follower = open_log(tmp_path / "follower", log_start_offset=start)
    copy(leader, follower)
    if is_killed:
        crash(follower)
        follower = open_log(tmp_path / "follower", log_start_offset=start)
    assert follower.producers.last_offsets() == leader.producers.last_offsets()
    for number in range(3):
        assert send(follower, 2 * number) == (4 * number, True)
    assert send(follower, 0, epoch=1, producer_id=8) == (12, True)
    assert send(follower, 6) == (14, False), "and what comes next is new"


def test_a_log_that_begins_inside_its_first_batch_keeps_what_it_took_over(tmp_path: Path) -> None:
    leader = open_log(tmp_path / "leader")
    send(leader, 0)
    send(leader, 0, 4, producer_id=8)
    leader.delete_records_before(4)
    follower = open_log(tmp_path / "follower")
    follower.truncate_fully_and_start_at(4, leader.producers.encode(4))
    copy(leader, follower)
    assert follower.log_start_offset == 4
    assert send(follower, 0) == (0, True)
    assert send(follower, 0, 4, producer_id=8) == (2, True)
    crash(follower)
    follower = open_log(tmp_path / "follower", log_start_offset=4)
    assert send(follower, 0) == (0, True)


def test_a_log_that_begins_anew_without_anything_forgets_its_own_producers(log: Log, tmp_path: Path) -> None:
    send(log, 0)
    log.snapshot_producers()
    log.truncate_fully_and_start_at(2)
    assert not log.producers.facts()
    assert not segment_files(tmp_path, ".snapshot")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE])
def test_a_disk_that_takes_no_producers_leaves_the_log_as_it_was(
    log: Log, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    send(log, 0)
    stored, known = read_all(log), log.producers.encode(2)

    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuse)
        with pytest.raises(ApiError) as found:
            log.truncate_fully_and_start_at(5, known)
    assert found.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (read_all(log), log.offline) == (stored, None)
    assert send(log, 0) == (0, True)
    log.truncate_fully_and_start_at(5, known)
    assert send(log, 0) == (0, True)


@pytest.mark.parametrize("harm", [b"\0", b"\0\1\0\0\0\0\x7f\xff\xff\xff", os.urandom(100)])
def test_what_is_no_snapshot_is_not_taken_over(log: Log, harm: bytes) -> None:
    send(log, 0)
    with pytest.raises(ApiError) as found:
        log.truncate_fully_and_start_at(5, harm)
    assert found.value.code is ErrorCode.CORRUPT_MESSAGE
    assert (log.offline, log.log_end_offset) == (None, 2)
    assert send(log, 0) == (0, True)


def test_the_snapshot_of_a_roll_is_synced_with_the_segment(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    send(log, 0)
    log.roll()
    synced: list[str] = []
    monkeypatch.setattr("pylog.log.jobs.sync_path", lambda path: synced.append(path.name))
    log.jobs.popleft().run()
    assert "00000000000000000002.snapshot" in synced


def test_a_roll_syncs_its_snapshot_where_all_records_are_synced_already(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(log, 0)
    log.flush()
    log.roll()
    synced: list[str] = []
    monkeypatch.setattr("pylog.log.jobs.sync_path", lambda path: synced.append(path.name))
    job = log.jobs.popleft()
    job.run()
    job.finish()
    assert "00000000000000000002.snapshot" in synced
    assert log.producers.lasting_offset == 2


def _refuse_snapshots(patched: pytest.MonkeyPatch) -> None:
    """Let a full disk have no room for another snapshot."""
    write = checkpoint.write_atomically

    def refuse(path: Path, content: str | bytes, *, durable: bool = True) -> None:
        if path.suffix == ".snapshot":
            raise StorageError(f"{path}: No space left on device")
        write(path, content, durable=durable)

    patched.setattr(checkpoint, "write_atomically", refuse)


def _end_segment(log: Log) -> int:
    """Write until another segment begins, and one batch more; return where it begins."""
    while len(log.segments) == 1:
        fill(log, 1)
    fill(log, 1)
    return log.segments[-1].base_offset


def _finish_jobs(log: Log) -> None:
    while log.jobs:
        job = log.jobs.popleft()
        job.run()
        job.finish()


@pytest.mark.parametrize("by", ["a deletion of records", "retention"])
def test_a_batch_is_known_after_a_power_cut_though_its_segment_is_deleted_at_once(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    send(log, 0)
    first = _end_segment(log)
    synced: set[str] = set()
    fsync = os.fsync

    def note(fd: int) -> None:
        synced.add(str(Path(f"/proc/self/fd/{fd}").readlink()).removesuffix(".tmp"))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", note)
    if by == "retention":
        log.configure(replace(SMALL, retention_bytes=log.segments[-1].size_bytes))
        log.delete_expired(1)
    else:
        log.delete_records_before(first)
    point = log.recovery_point
    crash(log)
    for path in segment_files(tmp_path, ".snapshot"):
        if str(path) not in synced:
            path.write_bytes(b"")  # as a power cut leaves what was not synced
    log = open_log(tmp_path, recovery_point=point, log_start_offset=first)
    assert send(log, 0) == (0, True)


def test_a_roll_on_a_full_disk_loses_no_producer_when_its_segment_is_deleted(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(log, 0)
    with monkeypatch.context() as patched:
        _refuse_snapshots(patched)
        first = _end_segment(log)
        assert not log.producers.snapshot_offsets()
        log.delete_records_before(first)
        _finish_jobs(log)
        # What they say of producers is nowhere else, so the files stay until there is room to write it down.
        assert (log.log_start_offset, len(log.segments), log.offline) == (first, 2, None)
    deleted = log.delete_expired(0)
    assert [segment.base_offset for segment in deleted] == [0]
    point = log.recovery_point
    crash(log)
    log = open_log(tmp_path, recovery_point=point, log_start_offset=first)
    assert send(log, 0) == (0, True)


def test_a_full_disk_lets_go_of_what_is_below_an_earlier_snapshot(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    send(log, 0)
    first = _end_segment(log)
    _finish_jobs(log)
    assert log.producers.lasting_offset == first
    _refuse_snapshots(monkeypatch)
    while len(log.segments) < 4:
        fill(log, 1)
    _finish_jobs(log)
    log.delete_records_before(log.segments[-1].base_offset)
    assert log.segments[0].base_offset == first
    assert log.producers.snapshot_offsets() == [first]


def test_a_snapshot_that_is_cut_off_counts_no_more(log: Log) -> None:
    send(log, 0)
    first = _end_segment(log)
    _finish_jobs(log)
    log.truncate_to(first - 1)
    assert log.producers.lasting_offset == -1


def _refuse_syncs(patched: pytest.MonkeyPatch) -> None:
    def refuse(fd: int) -> None:
        raise AssertionError(f"waits for the disk: {Path(f'/proc/self/fd/{fd}').readlink()}")

    patched.setattr(os, "fsync", refuse)
    patched.setattr(os, "fdatasync", refuse)


def test_retention_waits_for_no_disk_once_its_job_is_done(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.configure(replace(SMALL, retention_ms=1_000))
    send(log, 0)
    append(log, epoch=5)
    with monkeypatch.context() as patched:
        _refuse_syncs(patched)
        job = log.begin_deletion(1_000_000)
    assert job is not None
    job.run()
    job.finish()
    _refuse_syncs(monkeypatch)
    assert log.delete_expired(1_000_000)
    assert (log.size_bytes, log.epochs.latest) == (0, 5)
    assert log.begin_deletion(1_000_000) is None


def test_deleted_records_give_their_room_back_once_their_producers_are_on_disk(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(log, 0)
    first = _end_segment(log)
    log.jobs.clear()  # the roll's own sync is late
    with monkeypatch.context() as patched:
        _refuse_syncs(patched)
        log.delete_records_before(first)
    assert (log.log_start_offset, len(log.segments)) == (first, 2)
    _finish_jobs(log)
    assert (log.producers.lasting_offset, len(log.segments)) == (first, 1)


def test_a_snapshot_that_was_replaced_while_it_was_synced_does_not_count(log: Log) -> None:
    log.configure(replace(SMALL, retention_ms=1_000))
    send(log, 0)
    job = log.begin_deletion(1_000_000)
    assert job is not None
    job.run()
    log.snapshot_producers()
    job.finish()
    assert log.producers.lasting_offset == -1


def test_epochs_that_were_written_while_they_were_synced_do_not_count(log: Log) -> None:
    log.configure(replace(SMALL, retention_ms=1_000))
    append(log, epoch=4)
    job = log.begin_deletion(1_000_000)
    assert job is not None
    job.run()
    append(log, epoch=5)
    job.finish()
    assert not log.epochs.is_synced


def test_a_log_that_was_cut_while_a_deletion_waited_loses_nothing_above_its_start(log: Log) -> None:
    send(log, 0)
    first = _end_segment(log)
    log.jobs.clear()
    log.delete_records_before(first)
    job = log.jobs.popleft()
    job.run()
    log.truncate_fully_and_start_at(0, b"")
    append(log)
    job.finish()
    assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (0, 1, 1)
