import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pylog.errors import StorageError
from pylog.log.config import LogConfig
from pylog.log.epochs import LeaderEpochs
from pylog.log.log import Log
from pylog.wire.records import iter_batches

from .batches import SMALL, append, batch, crash, fill, open_log, read_all, segment_files

ONE_SEGMENT = replace(SMALL, segment_bytes=1 << 20)


def entries(log: Log) -> list[tuple[list[tuple[int, int]], list[tuple[int, int]]]]:
    return [(list(segment.index.entries()), list(segment.time_index.entries())) for segment in log.segments]


def test_a_clean_stop_brings_everything_back(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    stored = b"".join(fill(log, 40, count=2))
    log.close()
    names = {file.suffix for file in tmp_path.iterdir()}
    assert names == {".log", ".index", ".timeindex", ".snapshot", ""}
    again = open_log(tmp_path, clean=True)
    assert read_all(again) == stored
    assert again.log_end_offset == again.recovery_point == 80
    assert append(again).base_offset == 80


def test_a_crash_loses_nothing_that_was_written(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    stored = b"".join(fill(log, 40, count=2))
    crash(log)
    again = open_log(tmp_path)
    assert read_all(again) == stored
    assert again.recovery_point == 0, "checked is not synced"
    assert again.epochs.entries() == [(0, 0)]


def test_a_torn_tail_is_cut_at_every_byte_length(tmp_path: Path) -> None:
    log = open_log(tmp_path / "whole", ONE_SEGMENT)
    stored = fill(log, 3, count=2)
    crash(log)
    whole = segment_files(tmp_path / "whole")[0]
    for length in range(sum(map(len, stored[:2])), sum(map(len, stored)) + 1):
        torn = tmp_path / f"torn-{length}"
        shutil.copytree(whole.parent, torn)
        os.truncate(torn / whole.name, length)
        log = open_log(torn, ONE_SEGMENT)
        is_whole = length == sum(map(len, stored))
        assert log.log_end_offset == (6 if is_whole else 4)
        assert read_all(log) == b"".join(stored if is_whole else stored[:2])
        assert append(log).base_offset == log.log_end_offset - 1
        crash(log)
        assert (torn / whole.name).stat().st_size == log.size_bytes


@pytest.mark.parametrize("tail", [b"\0" * 5_000, b"\xff" * 61, os.urandom(300), b"\x7f" * 8 + b"\x7f\xff\xff\xff" * 20])
def test_garbage_after_the_last_batch_is_cut(tmp_path: Path, tail: bytes) -> None:
    log = open_log(tmp_path, ONE_SEGMENT)
    stored = fill(log, 3)
    crash(log)
    with segment_files(tmp_path)[0].open("ab") as file:
        file.write(tail)
    assert read_all(open_log(tmp_path, ONE_SEGMENT)) == b"".join(stored)


def test_an_offset_that_no_index_could_name_is_cut_though_no_crc_covers_it(tmp_path: Path) -> None:
    log = open_log(tmp_path, ONE_SEGMENT)
    stored = fill(log, 3)
    crash(log)
    with segment_files(tmp_path)[0].open("r+b") as file:
        file.seek(len(stored[0]) + len(stored[1]))
        file.write((2**32 + 2).to_bytes(8, "big"))
    again = open_log(tmp_path, ONE_SEGMENT)
    assert (again.log_end_offset, read_all(again)) == (2, b"".join(stored[:2]))
    append(again)
    again.roll(again.log_end_offset)


def test_a_bad_batch_above_the_recovery_point_is_cut_with_all_that_follows(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    stored = fill(log, 40)
    crash(log)
    second = segment_files(tmp_path)[1]
    base_offset, data = int(second.stem), bytearray(second.read_bytes())
    data[len(stored[0]) + 70] ^= 1  # in its second batch
    second.write_bytes(data)
    log = open_log(tmp_path, recovery_point=base_offset)
    assert log.log_end_offset == base_offset + 1
    assert read_all(log) == b"".join(stored[: base_offset + 1])
    assert segment_files(tmp_path)[1:] == [second]
    assert {file.stem for file in segment_files(tmp_path, ".index")} <= {file.stem for file in segment_files(tmp_path)}


def test_a_hole_between_two_unsynced_segments_is_cut(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 40)
    crash(log)
    first = segment_files(tmp_path)[0]
    *_, (position, last) = iter_batches(first.read_bytes())
    os.truncate(first, position)
    assert open_log(tmp_path).log_end_offset == last.base_offset


def test_a_hole_between_two_unsynced_segments_of_a_compacted_log_is_cut_too(tmp_path: Path) -> None:
    config = replace(SMALL, cleanup_policy="compact")
    log = open_log(tmp_path, config)
    append(log)
    log.roll()
    append(log)
    crash(log)
    os.truncate(segment_files(tmp_path)[0], 0)
    # Whoever took the gap for compaction's would claim offset 0, and as a follower in sync never fetch it again.
    assert open_log(tmp_path, config).log_end_offset == 0


@pytest.mark.parametrize("where", ["length", "magic", "crc", "records"])
def test_damage_below_the_recovery_point_names_file_and_position(tmp_path: Path, where: str) -> None:
    log = open_log(tmp_path, ONE_SEGMENT)
    stored = fill(log, 10)
    crash(log)
    file = segment_files(tmp_path)[0]
    position = sum(map(len, stored[:5]))
    data = bytearray(file.read_bytes())
    data[position + {"length": 8, "magic": 16, "crc": 17, "records": 80}[where]] ^= 0x7F
    file.write_bytes(data)
    with pytest.raises(StorageError, match=rf"{file.name}: damaged at {position}, below the recovery point"):
        open_log(tmp_path, ONE_SEGMENT, recovery_point=8)
    assert file.read_bytes() == data, "nothing was touched"


def test_a_torn_closed_segment_below_the_recovery_point_names_file_and_position(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 40)
    crash(log)
    first = segment_files(tmp_path)[0]
    os.truncate(first, first.stat().st_size - 5)
    with pytest.raises(StorageError, match=rf"{first.name}: .* at \d+"):
        open_log(tmp_path, recovery_point=int(segment_files(tmp_path)[-1].stem))


def test_only_what_is_above_the_recovery_point_is_checked(tmp_path: Path) -> None:
    log = open_log(tmp_path, ONE_SEGMENT)
    stored = fill(log, 100)
    job = log.begin_sync()
    assert job is not None
    job.run()
    job.finish()
    assert log.recovery_point == 100
    stored += fill(log, 10)
    crash(log)
    file = segment_files(tmp_path)[0]
    data = bytearray(file.read_bytes())
    data[80] ^= 1  # rot in the first batch, far below the recovery point: found when it is read, not at the start
    file.write_bytes(data)
    log = open_log(tmp_path, ONE_SEGMENT, recovery_point=100)
    assert log.log_end_offset == 110
    assert log.size_bytes == sum(map(len, stored))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("harm", ["missing", "odd", "empty", "zeros", "garbage"])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_damaged_indexes_are_made_again(tmp_path: Path, suffix: str, harm: str, clean: bool) -> None:
    log = open_log(tmp_path)
    for number in range(40):
        append(log, timestamp=1_000 + number)
    log.close()
    wanted = entries(open_log(tmp_path, clean=True))
    for file in segment_files(tmp_path, suffix):
        if harm == "missing":
            file.unlink()
        else:
            size = file.stat().st_size
            tail = {"odd": b"\1", "empty": b"", "zeros": b"\0" * size, "garbage": b"\xee" * size}[harm]
            file.write_bytes((b"" if harm != "odd" else file.read_bytes()) + tail)
    log = open_log(tmp_path, clean=clean)
    for offset in range(40):
        assert log.offset_for_timestamp(1_000 + offset) == (1_000 + offset, offset)
        assert log.read(offset, 1, upper_bound_offset=40, min_one_batch=True) is not None
    if not clean or harm in ("missing", "odd"):
        assert entries(log)[:-1] == wanted[:-1]


def test_a_lost_epoch_file_is_made_from_the_batches(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for epoch in (1, 1, 4, 4, 9):
        append(log, epoch=epoch)
    wanted = log.epochs.entries()
    log.close()
    for content in (None, b"", b"0\n7\n1 0\n"):
        path = tmp_path / "leader-epoch-checkpoint"
        path.unlink() if content is None else path.write_bytes(content)
        log = open_log(tmp_path, clean=True)
        assert log.epochs.entries() == wanted
        log.close()


def test_epochs_of_a_cut_tail_are_forgotten(tmp_path: Path) -> None:
    log = open_log(tmp_path, ONE_SEGMENT)
    append(log, epoch=1)
    append(log, epoch=2)
    crash(log)
    file = segment_files(tmp_path)[0]
    os.truncate(file, file.stat().st_size - 1)
    assert open_log(tmp_path, ONE_SEGMENT).epochs.entries() == [(1, 0)]


def test_leftovers_of_a_crash_are_removed(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log)
    crash(log)
    leftovers = ["00000000000000000009.log.deleted", "00000000000000000009.index", "x.cleaned", "epochs.tmp"]
    for name in leftovers:
        (tmp_path / name).write_bytes(b"x")
    open_log(tmp_path)
    assert not any((tmp_path / name).exists() for name in leftovers)


def test_rule_8_the_recovery_point_moves_only_after_the_sync(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    while not log.jobs:
        append(log)
    job = log.jobs.popleft()
    rolled_at = log.segments[-1].base_offset
    assert log.recovery_point == 0
    job.run()
    assert log.recovery_point == 0
    append(log)
    job.finish()
    assert log.recovery_point == rolled_at


def test_rule_8_a_sync_that_overlaps_a_truncation_moves_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path, ONE_SEGMENT)
    fill(log, 10)
    job = log.begin_sync()
    assert job is not None
    job.run()
    log.truncate_to(5)
    fill(log, 10)
    job.finish()
    assert log.recovery_point == 0


def test_a_truncation_to_the_end_forgets_the_epoch_in_which_nothing_was_written(tmp_path: Path) -> None:
    log = open_log(tmp_path, ONE_SEGMENT)
    log.begin_leader_epoch(0)
    fill(log, 10)
    log.begin_leader_epoch(1)
    end = log.log_end_offset
    assert log.epochs.entries() == [(0, 0), (1, end)]
    # What the leader of epoch 2 answers to a follower that says its last epoch was 1.
    log.truncate_to(end)
    assert (log.log_end_offset, log.epochs.entries(), log.epochs.latest) == (end, [(0, 0)], 0)
    log.begin_leader_epoch(1)
    assert log.epochs.latest == 1, "it may lead in that epoch after all"


def test_rule_8_flush_settings_ask_for_a_sync_and_hold_back_the_end(tmp_path: Path) -> None:
    log = open_log(tmp_path, replace(SMALL, flush_messages=3, flush_ms=500))
    append(log)
    assert (log.is_flushing, log.countable_end_offset) == (True, 0)
    assert not log.is_sync_due(1_000)  # time counts from here
    assert not log.is_sync_due(1_499)
    assert log.is_sync_due(1_500)
    append(log, count=2)
    assert log.is_sync_due(1_001)
    log.flush()
    assert log.countable_end_offset == log.log_end_offset == 3
    assert not log.is_sync_due(9_999)


def test_a_lowered_recovery_point_is_told_before_the_file_is_cut(tmp_path: Path) -> None:
    log = open_log(tmp_path, ONE_SEGMENT)
    fill(log, 10)
    log.flush()
    told = []
    size_bytes = log.size_bytes
    log.write_checkpoints = lambda: told.append(
        (log.recovery_point, segment_files(tmp_path)[0].stat().st_size == size_bytes)
    )
    log.truncate_to(4)
    assert told == [(3, True)]


def test_a_recovery_point_that_was_lowered_for_many_logs_is_not_told_again(tmp_path: Path) -> None:
    log = open_log(tmp_path, ONE_SEGMENT)
    fill(log, 10)
    log.flush()
    told: list[int] = []
    log.write_checkpoints = lambda: told.append(log.recovery_point)
    count = log.lower_recovery_point(4)
    assert count is not None
    log.note_checkpoint(count)
    log.truncate_to(4)
    assert (told, log.lower_recovery_point(4), log.log_end_offset) == ([], None, 4)


def test_a_recovery_point_that_the_disk_did_not_take_is_told_before_the_cut(tmp_path: Path) -> None:
    log = open_log(tmp_path, ONE_SEGMENT)
    fill(log, 10)
    log.flush()
    told: list[int] = []
    log.write_checkpoints = lambda: told.append(log.recovery_point)
    first, second = log.lower_recovery_point(6), log.lower_recovery_point(4)
    assert first is not None
    assert second is not None
    log.note_checkpoint(first)  # the checkpoint that was written then is not low enough
    log.truncate_to(4)
    assert told == [3]


def test_rule_8_a_cut_inside_a_batch_lowers_the_recovery_point_to_the_last_record_that_is_left(tmp_path: Path) -> None:
    log = open_log(tmp_path, ONE_SEGMENT)
    fill(log, 3, count=4)
    log.flush()
    told: list[int] = []
    log.write_checkpoints = lambda: told.append(log.recovery_point)
    log.truncate_to(10)
    assert (told, log.recovery_point, log.log_end_offset) == ([7], 7, 8)


def test_a_cut_in_a_gap_that_compaction_left_is_behind_the_last_batch_below(tmp_path: Path) -> None:
    log = open_log(tmp_path, ONE_SEGMENT)
    for base_offset in (0, 4, 9):
        log.append_as_follower(batch(2, base_offset=base_offset))
    assert [log._segments.cut_offset(offset) for offset in (0, 2, 4, 5, 7, 9, 10)] == [0, 2, 2, 2, 6, 6, 6]
    log.truncate_to(7)
    assert log.log_end_offset == 6


def test_rule_8_a_sync_that_overlaps_a_lowering_moves_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path, ONE_SEGMENT)
    fill(log, 5)
    log.flush()
    fill(log, 5)
    job = log.begin_sync()
    assert job is not None
    log.lower_recovery_point(4)
    job.run()
    job.finish()
    assert log.recovery_point == 3
    log.flush()
    assert log.recovery_point == 10, "a later one does, and the cut lowers it again"
    told: list[int] = []
    log.write_checkpoints = lambda: told.append(log.recovery_point)
    log.truncate_to(4)
    assert told == [3]


@pytest.mark.parametrize("is_synced", [False, True])
def test_rule_8_a_cut_that_ends_a_segment_is_synced_before_what_follows_counts(
    tmp_path: Path, is_synced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut may undo it until then; what was cut must not stay in front of the next segment."""
    log = open_log(tmp_path, ONE_SEGMENT)
    kept = fill(log, 4)
    fill(log, 2, value=b"cut")
    log.flush()
    whole = segment_files(tmp_path)[0].read_bytes()
    log.truncate_to(4)
    log.roll()
    later = fill(log, 3)
    synced: set[int] = set()
    monkeypatch.setattr(os, "fdatasync", lambda fd: synced.add(os.fstat(fd).st_ino))
    if is_synced:
        log.flush()
    recovery_point, (first, _) = log.recovery_point, segment_files(tmp_path)
    crash(log)
    if first.stat().st_ino not in synced:
        first.write_bytes(whole)
    again = open_log(tmp_path, ONE_SEGMENT, recovery_point=recovery_point)
    assert (again.log_end_offset, read_all(again)) == ((7, b"".join([*kept, *later])) if is_synced else (6, whole))


def test_a_log_start_above_everything_begins_anew(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 5)
    crash(log)
    log = open_log(tmp_path, log_start_offset=100)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (100, 100, 0)
    assert append(log).base_offset == 100


def test_a_batch_larger_than_the_scan_buffer_is_checked_whole(tmp_path: Path) -> None:
    log = open_log(tmp_path, replace(SMALL, segment_bytes=1 << 30, max_message_bytes=1 << 30))
    stored = bytes(large := batch(value=os.urandom(5 << 20)))
    append(log, large)
    append(log)
    crash(log)
    log = open_log(tmp_path)
    assert log.log_end_offset == 2
    assert read_all(log)[61 : len(stored)] == stored[61:]


def test_a_log_that_cannot_be_opened_leaves_no_file_open(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 40)
    crash(log)
    first = segment_files(tmp_path)[0]
    os.truncate(first, first.stat().st_size - 5)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(StorageError):
        open_log(tmp_path, recovery_point=30)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_rule_3_epochs_newer_than_the_log_are_taken_from_its_batches(tmp_path: Path) -> None:
    log = open_log(tmp_path, ONE_SEGMENT)
    fill(log, 3)
    for _ in range(3):
        append(log, epoch=1)
    crash(log)
    with_old_tail = segment_files(tmp_path)[0].read_bytes()
    log = open_log(tmp_path, ONE_SEGMENT)
    log.truncate_to(3)
    append(log, epoch=2)
    crash(log)
    # The power cut undoes the truncation, which was not synced, but not the file of epochs, which says 2 from 3 on.
    segment_files(tmp_path)[0].write_bytes(with_old_tail)
    log = open_log(tmp_path, ONE_SEGMENT)
    assert (log.log_end_offset, log.epochs.entries()) == (6, [(0, 0), (1, 3)])
    assert log.epochs.latest == 1, "so that the leader of epoch 2 sends it back to 3"


def test_rule_3_a_batch_of_an_earlier_epoch_than_before_it_is_cut(tmp_path: Path) -> None:
    log = open_log(tmp_path, ONE_SEGMENT)
    for epoch in (0, 1, 1):
        append(log, epoch=epoch)
    crash(log)
    with_old_tail = segment_files(tmp_path)[0].read_bytes()
    log = open_log(tmp_path, ONE_SEGMENT)
    log.truncate_to(1)
    append(log, epoch=2)
    crash(log)
    # One block of the file is new and the next old, as a power cut may leave them.
    kept = segment_files(tmp_path)[0].read_bytes()
    assert len(with_old_tail) > len(kept)
    segment_files(tmp_path)[0].write_bytes(kept + with_old_tail[len(kept) :])
    log = open_log(tmp_path, ONE_SEGMENT)
    assert (log.log_end_offset, log.epochs.entries()) == (2, [(0, 0), (2, 1)])


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_emptied_by_retention_keeps_its_last_epoch_over_a_restart(tmp_path: Path, clean: bool) -> None:
    log = open_log(tmp_path, LogConfig(segment_bytes=1024, retention_ms=1))
    for epoch in (3, 3, 5):
        append(log, epoch=epoch, timestamp=1)
    assert log.delete_expired(1_000_000)
    assert (log.log_start_offset, log.log_end_offset, log.epochs.entries()) == (3, 3, [(5, 3)])
    log.close()
    again = open_log(tmp_path, clean=clean, recovery_point=3, log_start_offset=3)
    assert (again.log_end_offset, again.epochs.entries()) == (3, [(5, 3)])


def test_no_file_of_epochs_lacks_the_one_that_an_emptied_log_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path, LogConfig(segment_bytes=1024, retention_ms=1))
    for epoch in (3, 3, 5):
        append(log, epoch=epoch, timestamp=1)
    assert log.delete_expired(1_000_000)
    log.close()
    written: list[list[tuple[int, int]]] = []
    save = LeaderEpochs.save

    def look(epochs: LeaderEpochs, *, durable: bool = False) -> None:
        written.append(list(epochs.entries()))
        save(epochs, durable=durable)

    monkeypatch.setattr(LeaderEpochs, "save", look)
    open_log(tmp_path, recovery_point=3, log_start_offset=3)
    assert all(one == [(5, 3)] for one in written)


def test_a_log_whose_deleted_records_a_power_cut_took_keeps_its_last_epoch(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig())
    for epoch in (3, 5, 5):
        append(log, epoch=epoch)
    log.delete_records_before(3)
    log.close()
    for path in tmp_path.glob("*.log"):
        path.write_bytes(b"")
    again = open_log(tmp_path, log_start_offset=3)
    assert (again.log_start_offset, again.log_end_offset, again.epochs.entries()) == (3, 3, [(5, 3)])


def test_epochs_of_records_that_were_lost_are_not_kept(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig())
    for epoch in (3, 5):
        append(log, epoch=epoch)
    log.close()
    for path in tmp_path.glob("*.log"):
        path.write_bytes(b"")
    again = open_log(tmp_path)
    assert (again.log_end_offset, again.epochs.entries()) == (0, [(3, 0)]), "5 began above what is left"
