"""Transactions in a log: through append, roll, restart, truncation, retention and copies by followers."""

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pylog.errors import ApiError, ErrorCode, StorageError
from pylog.log.batch_file import OutOfDescriptors
from pylog.log.log import Log
from pylog.log.producers import MAX_PRODUCER_COUNT, Producers
from pylog.log.transactions import AbortedTransaction
from pylog.wire.markers import Marker, encode_marker
from pylog.wire.records import TRANSACTIONAL, check_stored_batch, parse_header

from .batches import OPENED, PARTITION, SMALL, batch, crash, no_descriptors, open_log, segment_files

ABORT, COMMIT = Marker(False, 3), Marker(True, 3)


def send(log: Log, producer_id: int, sequence: int = 0, *, epoch: int = 0, count: int = 1, is_open: bool = True) -> int:
    """Append a batch of a transaction, or with *is_open* false one outside of any; return its base offset."""
    attributes = TRANSACTIONAL if is_open else 0
    fields: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
    view = batch(count, attributes=attributes, **fields)
    return log.append_as_leader(view, check_stored_batch(view), 0, 0).base_offset


def end(log: Log, producer_id: int, marker: Marker, *, epoch: int = 0) -> int:
    """Append a marker; return its offset."""
    view = memoryview(bytearray(encode_marker(producer_id, epoch, marker, 1_000)))
    return log.append_as_leader(view, parse_header(view), 0, 0, marker).base_offset


def rows(log: Log) -> list[AbortedTransaction]:
    return [row for segment in log.segments if segment.aborted is not None for row in segment.aborted.entries()]


def reopen(log: Log, *, is_clean: bool = True, recovery_point: int = 0, high_watermark: int | None = None) -> Log:
    """Stop and start; a crash leaves what is in the files."""
    if high_watermark is None:
        high_watermark = log.high_watermark
    (log.close if is_clean else lambda: crash(log))()
    again = Log.open(
        log.directory,
        PARTITION,
        log.config,
        now_ms=0,
        clean=is_clean,
        recovery_point=recovery_point,
        log_start_offset=log.log_start_offset,
        high_watermark=high_watermark,
    )
    OPENED.append(again)
    return again


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return open_log(tmp_path, replace(SMALL, segment_bytes=1 << 20))


def test_an_open_transaction_holds_readers_back_until_its_marker_is_on_all_replicas(log: Log) -> None:
    assert log.last_stable_offset == 0
    send(log, 9, count=2)
    log.high_watermark = 2
    assert log.last_stable_offset == 0
    assert end(log, 9, COMMIT) == 2
    assert log.last_stable_offset == 0, "the next leader may lack the marker"
    log.high_watermark = 3
    assert log.last_stable_offset == 3
    assert not segment_files(log.directory, ".txnindex"), "nothing was aborted"


def test_an_abort_is_written_to_the_index(log: Log) -> None:
    send(log, 9)
    send(log, 10)
    end(log, 9, ABORT)
    assert rows(log) == [AbortedTransaction(9, 0, 2, 1)]
    [file] = segment_files(log.directory, ".txnindex")
    assert file.read_bytes() == bytes.fromhex("0000" + "".join(f"{number:016x}" for number in (9, 0, 2, 1)))


def test_a_log_without_transactions_keeps_nothing_of_them(log: Log) -> None:
    send(log, 9, is_open=False)
    log.high_watermark = 1
    assert log.producers.transactions is None
    assert log.last_stable_offset == 1


def test_a_batch_outside_the_open_transaction_of_its_producer_is_refused(log: Log) -> None:
    send(log, 9)
    with pytest.raises(ApiError, match="open since offset 0") as found:
        send(log, 9, 1, is_open=False)
    assert found.value.code is ErrorCode.INVALID_TXN_STATE
    assert log.log_end_offset == 1
    assert send(log, 10, is_open=False) == 1, "another producer may"


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_producer_of_transactions_writes_nothing_outside_of_them(log: Log, is_restarted: bool) -> None:
    send(log, 9)
    end(log, 9, COMMIT)
    if is_restarted:
        log = reopen(log)
    for epoch in (0, 32_767):
        with pytest.raises(ApiError, match="had a transaction") as found:
            send(log, 9, 1 if epoch == 0 else 0, epoch=epoch, is_open=False)
        assert found.value.code is ErrorCode.INVALID_TXN_STATE
    assert send(log, 9, 1) == 2, "its own next transaction goes on"


@pytest.mark.parametrize("epoch", [0, 32_767])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_batches_that_guess_the_id_of_a_transactional_producer_take_nothing_from_it(
    log: Log, is_restarted: bool, epoch: int
) -> None:
    guessed = send(log, 9, epoch=epoch, is_open=False)
    if is_restarted:
        log = reopen(log)
    assert send(log, 9) != guessed, "the same sequence number is no repetition"
    assert send(log, 9, 1) == 2
    assert send(log, 9) == 1, "its own batch sent again is one"
    end(log, 9, COMMIT)
    facts = log.producers.facts()[0]
    assert (facts.epoch, facts.last_sequence) == (0, 1)
    assert rows(log) == []


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_marker_after_a_guessed_batch_refuses_what_comes_after_the_end(log: Log, is_restarted: bool) -> None:
    """The batch was looked for before its transaction ended; appended now, nobody would end it."""
    send(log, 9, epoch=5, is_open=False)
    looked_for = log.producers.progress(9)
    end(log, 9, ABORT, epoch=1)
    assert log.producers.progress(9) != looked_for
    if is_restarted:
        log = reopen(log)
    with pytest.raises(ApiError) as found:
        send(log, 9, epoch=0)
    assert found.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_marker_is_taken_whatever_size_the_topic_allows(tmp_path: Path) -> None:
    log = open_log(tmp_path, replace(SMALL, segment_bytes=1 << 20))
    send(log, 9)
    log.configure(replace(log.config, max_message_bytes=1))
    with pytest.raises(ApiError) as found:
        send(log, 9, 1)
    assert found.value.code is ErrorCode.MESSAGE_TOO_LARGE
    end(log, 9, COMMIT)
    log.high_watermark = 2
    assert log.last_stable_offset == 2


@pytest.mark.parametrize("is_restarted", [False, True])
def test_markers_of_replaced_coordinators_and_producers_are_refused(log: Log, is_restarted: bool) -> None:
    send(log, 9, epoch=4)
    end(log, 9, Marker(True, 7), epoch=4)
    if is_restarted:
        log = reopen(log)
    with pytest.raises(ApiError, match="coordinator epoch 6 after 7") as found:
        end(log, 9, Marker(True, 6), epoch=4)
    assert found.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    with pytest.raises(ApiError, match="epoch 3 after 4") as found:
        end(log, 9, Marker(True, 8), epoch=3)
    assert found.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.log_end_offset == 2
    end(log, 9, Marker(True, 7), epoch=4)


def test_a_marker_fences_the_producer(log: Log) -> None:
    send(log, 9)
    end(log, 9, ABORT, epoch=1)
    with pytest.raises(ApiError) as found:
        send(log, 9, 1)
    assert found.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(log, 9, 0, epoch=1) == 2


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_restart_knows_what_is_open_and_what_was_aborted(log: Log, is_clean: bool) -> None:
    send(log, 9)
    send(log, 10)
    end(log, 9, ABORT)
    log.high_watermark = 3
    again = reopen(log, is_clean=is_clean)
    assert again.last_stable_offset == 1
    assert rows(again) == [AbortedTransaction(9, 0, 2, 1)]
    end(again, 10, ABORT)
    assert rows(again)[1:] == [AbortedTransaction(10, 1, 3, 4)]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_restart_knows_which_decisions_are_not_replicated(log: Log, is_clean: bool) -> None:
    send(log, 9)
    log.high_watermark = 1
    end(log, 9, COMMIT)
    again = reopen(log, is_clean=is_clean)
    assert again.last_stable_offset == 0
    again.high_watermark = 2
    assert again.last_stable_offset == 2


def test_a_truncation_opens_a_transaction_again(log: Log) -> None:
    send(log, 9)
    log.high_watermark = 1
    end(log, 9, ABORT)
    send(log, 9, 1)
    log.truncate_to(1)
    assert rows(log) == []
    assert log.last_stable_offset == 0
    end(log, 9, ABORT)
    assert rows(log) == [AbortedTransaction(9, 0, 1, 2)]


def test_a_producer_whose_transaction_a_cut_may_open_again_is_not_forgotten(log: Log) -> None:
    send(log, 9)
    log.high_watermark = 1
    end(log, 9, ABORT)
    send(log, 10, is_open=False)
    log.producers.expire(2_000_000_000, 1)
    assert [one.producer_id for one in log.producers.facts()] == [9], "its marker may not be on every replica"
    log.truncate_to(1)
    log = reopen(log)
    end(log, 9, ABORT)
    assert rows(log) == [AbortedTransaction(9, 0, 1, 2)]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_an_unclean_truncation_opens_a_transaction_again_that_was_decided(log: Log, is_restarted: bool) -> None:
    send(log, 9)
    send(log, 10)
    end(log, 10, COMMIT)
    end(log, 9, ABORT)
    log.high_watermark = 4
    assert log.last_stable_offset == 4
    if is_restarted:
        log = reopen(log)
    log.truncate_to(3)
    assert log.last_stable_offset == 0
    log.truncate_to(2)
    end(log, 9, ABORT)
    assert rows(log) == [AbortedTransaction(9, 0, 2, 1)]


def test_an_unclean_truncation_without_descriptors_is_refused_whole(log: Log) -> None:
    send(log, 9)
    end(log, 9, ABORT)
    log.high_watermark = 2
    assert log.last_stable_offset == 2
    log = reopen(log)
    log.high_watermark = 2
    log.roll()
    with pytest.raises(OutOfDescriptors), no_descriptors():
        log.truncate_to(1)
    assert (log.log_end_offset, log.offline, log.last_stable_offset) == (2, None, 2)
    log.truncate_to(1)
    assert log.last_stable_offset == 0


def test_a_follower_learns_from_the_batches(log: Log, tmp_path: Path) -> None:
    send(log, 9)
    end(log, 9, ABORT)
    send(log, 9, 1)
    follower = open_log(tmp_path / "follower", log.config)
    follower.append_as_follower(memoryview(segment_files(log.directory)[0].read_bytes()))
    assert rows(follower) == rows(log) == [AbortedTransaction(9, 0, 1, 2)]
    follower.high_watermark = 3
    assert follower.last_stable_offset == 2
    assert follower.producers.facts()[0].coordinator_epoch == 3


def test_a_marker_of_an_older_coordinator_is_a_fact_in_a_copy(log: Log, tmp_path: Path) -> None:
    follower = open_log(tmp_path / "follower", log.config)
    for offset, epoch in enumerate((5, 4)):
        marker = encode_marker(9, 0, Marker(True, epoch), 1_000, base_offset=offset, leader_epoch=0)
        follower.append_as_follower(memoryview(marker))
    assert follower.log_end_offset == 2


def test_a_replica_that_begins_anew_takes_over_what_is_open(log: Log, tmp_path: Path) -> None:
    send(log, 9)  # open all the time
    send(log, 10)  # open at offset 2, and decided later
    send(log, 11)
    end(log, 10, ABORT)
    log.high_watermark = 3
    follower = open_log(tmp_path / "follower", log.config)
    follower.truncate_fully_and_start_at(2, log.producers.encode(2))
    assert follower.producers.transactions is not None
    assert dict(follower.producers.transactions.first_offsets()) == {9: 0, 10: 1}
    follower.append_as_follower(memoryview(segment_files(log.directory)[0].read_bytes())[2 * len(batch()) :])
    assert rows(follower) == rows(log)
    follower.high_watermark = 3
    assert follower.last_stable_offset == 2, "the log start is the floor"


def test_producers_with_an_open_transaction_are_not_forgotten(tmp_path: Path) -> None:
    producers = Producers(tmp_path)

    def note(producer_id: int, attributes: int = 0) -> None:
        fields: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
        producers.note(parse_header(batch(attributes=attributes, **fields)), producer_id, 0)

    note(0, TRANSACTIONAL)
    for producer_id in range(1, MAX_PRODUCER_COUNT + 1):
        note(producer_id)
    assert len(producers) == MAX_PRODUCER_COUNT // 2 + 1
    producers.expire(10, 10)
    assert [facts.producer_id for facts in producers.facts()] == [0]
    assert producers.facts()[0].transaction_start == 0


def test_rows_that_found_no_descriptor_hold_the_recovery_point_back(log: Log) -> None:
    send(log, 9)
    with no_descriptors():
        end(log, 9, ABORT)
        assert rows(log) == [AbortedTransaction(9, 0, 1, 2)]
        with pytest.raises(OutOfDescriptors):
            log.begin_sync()
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 2
    assert len(segment_files(log.directory, ".txnindex")) == 1


def test_a_start_on_a_full_disk_keeps_the_rows_in_memory(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    send(log, 9)
    end(log, 9, ABORT)
    expected = rows(log)
    [file] = segment_files(log.directory, ".txnindex")
    crash(log)
    file.unlink()

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(os, "pwrite", refuse)
        again = reopen(log, is_clean=False)
        assert rows(again) == expected
    again.flush()
    assert len(file.read_bytes()) > 0, "written before the recovery point moves"


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_damaged_index_is_made_again(log: Log, is_clean: bool) -> None:
    send(log, 9)
    log.roll()
    end(log, 9, ABORT)
    send(log, 9, 1)
    end(log, 9, ABORT)
    log.roll()
    expected = rows(log)
    log.flush()
    end_offset = log.log_end_offset
    (log.close if is_clean else lambda: crash(log))()
    [file] = segment_files(log.directory, ".txnindex")
    file.write_bytes(b"\xff" * len(file.read_bytes()))
    again = (
        reopen(log, is_clean=is_clean, recovery_point=end_offset)
        if not is_clean
        else open_log(log.directory, log.config, clean=True)
    )
    assert rows(again) == expected


def test_a_torn_index_is_made_again_from_the_recovery_point_on(log: Log) -> None:
    send(log, 9)
    end(log, 9, ABORT)
    log.flush()
    send(log, 9, 1)
    end(log, 9, ABORT)
    expected = rows(log)
    [file] = segment_files(log.directory, ".txnindex")
    crash(log)
    file.write_bytes(file.read_bytes()[:50] + b"garbage")
    assert rows(reopen(log, is_clean=False, recovery_point=2)) == expected


def test_an_index_that_names_markers_which_a_crash_took_is_cut(log: Log) -> None:
    send(log, 9)
    log.flush()
    end(log, 9, ABORT)
    crash(log)
    [file] = segment_files(log.directory)
    file.write_bytes(file.read_bytes()[: len(batch())])
    again = reopen(log, is_clean=False, recovery_point=1)
    assert rows(again) == []
    end(again, 9, ABORT)
    assert rows(again) == [AbortedTransaction(9, 0, 1, 2)]


def test_a_disk_that_fails_under_the_index_takes_the_partition_offline(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(log, 9)

    def fail(*_: object) -> None:
        raise StorageError("Input/output error")

    monkeypatch.setattr("pylog.log.aborted.TransactionIndex._write", fail)
    with pytest.raises(StorageError):
        end(log, 9, ABORT)
    assert log.offline is not None


def test_retention_takes_the_index_with_its_segment(log: Log) -> None:
    send(log, 9)
    end(log, 9, ABORT)
    log.roll()
    send(log, 9, 1)
    log.high_watermark = 3
    log.delete_records_before(2)
    while log.jobs:
        job = log.jobs.popleft()
        job.run()
        job.finish()
    assert not list(log.directory.glob("*.txnindex*"))


class History:
    """What a log should know, by a plain scan of everything that was appended to it."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, str]] = []  # producer id, epoch or sequence, kind

    def open_at(self, end_offset: int) -> dict[int, int]:
        first: dict[int, int] = {}
        for offset, (producer_id, _, kind) in enumerate(self.batches[:end_offset]):
            if kind == "data":
                first.setdefault(producer_id, offset)
            elif kind != "plain":
                first.pop(producer_id, None)
        return first

    def rows(self, log_start_offset: int) -> list[AbortedTransaction]:
        found = []
        for offset, (producer_id, _, kind) in enumerate(self.batches):
            before = self.open_at(offset)
            if kind == "abort" and producer_id in before and offset >= log_start_offset:
                first = before.pop(producer_id)
                found.append(AbortedTransaction(producer_id, first, offset, min(before.values(), default=offset + 1)))
        return found

    def stable(self, log: Log) -> int:
        first = min(self.open_at(log.high_watermark).values(), default=log.high_watermark)
        return min(max(first, log.log_start_offset), log.high_watermark)


@pytest.mark.parametrize("seed", range(12))
def test_any_history_beside_a_plain_scan(tmp_path: Path, seed: int) -> None:
    """Index, open transactions and last stable offset are what the batches say, whatever happened to the log."""
    random, history = Random(seed), History()
    log = open_log(tmp_path / "leader", SMALL)
    kinds = ["data"] * 6 + ["plain", "commit", "abort", "abort", "replicate", "replicate", "sync"]
    kinds += ["restart", "crash", "cut", "unclean cut", "delete", "follow"]
    sequences = dict.fromkeys(range(5), 0)
    for _ in range(300):
        producer_id, kind = random.randrange(5), random.choice(kinds)
        end_offset = log.log_end_offset
        if kind in ("data", "plain"):
            is_open = kind == "data"
            writer = producer_id if is_open else 7
            sequences.setdefault(writer, 0)
            view = batch(
                producer_id=writer,
                producer_epoch=0,
                base_sequence=sequences[writer],
                attributes=TRANSACTIONAL if is_open else 0,
                base_offset=end_offset,
                leader_epoch=0,
            )
            sequences[writer] += 1
            log.append_as_follower(view)
            history.batches.append((writer, 0, kind))
        elif kind in ("commit", "abort"):
            marker = encode_marker(
                producer_id, 0, Marker(kind == "commit", 0), 1, base_offset=end_offset, leader_epoch=0
            )
            log.append_as_follower(memoryview(marker))
            history.batches.append((producer_id, 0, kind))
        elif kind == "replicate":
            log.high_watermark = random.randint(log.high_watermark, end_offset)
        elif kind == "sync":
            log.flush()
        elif kind in ("restart", "crash"):
            log = reopen(log, is_clean=kind == "restart", recovery_point=log.recovery_point)
        elif kind in ("cut", "unclean cut"):
            low = log.log_start_offset if kind == "unclean cut" else log.high_watermark
            log.truncate_to(random.randint(low, end_offset))
            del history.batches[log.log_end_offset :]
        elif kind == "delete" and random.random() < 0.2:
            log.delete_records_before(random.randint(log.log_start_offset, log.high_watermark))
        while log.jobs:
            job = log.jobs.popleft()
            job.run()
            job.finish()
        assert log.log_end_offset == len(history.batches)
        transactions = log.producers.transactions
        assert dict(transactions.first_offsets() if transactions else {}) == history.open_at(log.log_end_offset)
        assert log.last_stable_offset == history.stable(log)
        first = log.segments[0].base_offset
        assert [row for row in rows(log) if row.last_offset >= first] == history.rows(first)


def commit_offsets(log: Log, producer_id: int, *, epoch: int = 0) -> int:
    """Append what a group coordinator writes in the name of a producer; return its offset."""
    fields: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": 0}
    view = batch(1, attributes=TRANSACTIONAL, **fields)
    return log.append_as_leader(view, check_stored_batch(view), 0, 0, is_coordinators=True).base_offset


def test_what_a_group_coordinator_writes_for_a_producer_is_never_a_repetition(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert [commit_offsets(log, 7), commit_offsets(log, 7), commit_offsets(log, 7)] == [0, 1, 2]
    assert log.last_stable_offset == 0
    end(log, 7, COMMIT, epoch=1)
    with pytest.raises(ApiError) as refused:
        commit_offsets(log, 7)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.log_end_offset == 4


def test_the_progress_of_a_producer_is_another_one_after_each_batch_and_each_marker(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    seen = [log.producers.progress(7)]
    steps: list[Callable[[], int]] = [
        lambda: end(log, 7, ABORT),
        lambda: send(log, 7),
        lambda: end(log, 7, ABORT),
        lambda: send(log, 7, 1),
    ]
    for step in steps:
        step()
        seen.append(log.producers.progress(7))
    assert len(set(seen)) == len(seen)
    assert [one.is_open for one in seen] == [False, False, True, False, True]
