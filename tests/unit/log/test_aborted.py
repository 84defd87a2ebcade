"""The transaction index: what a consumer has to leave out."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from pylog.errors import ApiError, StorageError
from pylog.log.aborted import ENTRY_BYTES, TransactionIndex
from pylog.log.transactions import AbortedTransaction

KAFKA_FILE = bytes.fromhex("0000" + "00" * 8 + "00" * 8 + "0000000000000001" + "0000000000000002")
ONE = AbortedTransaction(7, 10, 40, 20)
TWO = AbortedTransaction(8, 20, 50, 51)


@pytest.fixture
def index(tmp_path: Path) -> TransactionIndex:
    return TransactionIndex(tmp_path / "00000000000000000000.txnindex")


def test_an_entry_is_what_kafka_writes(index: TransactionIndex) -> None:
    index.append(AbortedTransaction(0, 0, 1, 2))
    assert index.path.read_bytes() == KAFKA_FILE


def test_a_file_of_kafka_is_read(index: TransactionIndex) -> None:
    index.path.write_bytes(KAFKA_FILE)
    assert index.entries() == [AbortedTransaction(0, 0, 1, 2)]


def test_without_aborts_there_is_no_file(index: TransactionIndex) -> None:
    assert index.entries() == []
    index.truncate(0)
    index.flush()
    assert not index.path.exists()


def test_a_torn_entry_does_not_shift_the_next_one(index: TransactionIndex) -> None:
    index.append(ONE)
    with index.path.open("ab") as file:
        file.write(b"\x00" * (ENTRY_BYTES - 1))
    again = TransactionIndex(index.path)
    again.append(TWO)
    assert TransactionIndex(index.path).entries() == [ONE, TWO]


def test_truncation_drops_markers_that_are_gone(index: TransactionIndex) -> None:
    index.append(ONE)
    index.append(TWO)
    index.truncate(50)
    assert index.entries() == TransactionIndex(index.path).entries() == [ONE]
    index.append(TWO)
    assert TransactionIndex(index.path).entries() == [ONE, TWO]


@pytest.mark.parametrize(
    ("fetch_offset", "end_offset", "expected", "is_complete"),
    [
        (0, 10, [], True),  # ends before the first one begins; nothing was open below 20
        (0, 11, [ONE], True),
        (0, 20, [ONE], True),
        (0, 21, [ONE, TWO], True),
        (41, 45, [TWO], True),
        (41, 60, [TWO], False),
        (51, 60, [], False),
    ],
)
def test_what_a_fetch_leaves_out(
    index: TransactionIndex,
    fetch_offset: int,
    end_offset: int,
    expected: list[AbortedTransaction],
    is_complete: bool,
) -> None:
    index.append(ONE)
    index.append(TWO)
    assert index.overlapping(fetch_offset, end_offset) == (expected, is_complete)


def test_entries_out_of_order_are_refused(index: TransactionIndex) -> None:
    index.append(TWO)
    data = index.path.read_bytes()
    index.path.write_bytes(data + data)
    with pytest.raises(StorageError, match="contradicts"):
        TransactionIndex(index.path).entries()


def test_an_entry_of_another_version_is_refused(index: TransactionIndex) -> None:
    index.path.write_bytes(b"\x00\x01" + bytes(ENTRY_BYTES - 2))
    with pytest.raises(StorageError, match="version 1"):
        index.entries()


def refuse(code: int) -> Callable[..., int]:
    def fail(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    return fail


def test_a_disk_that_fails(index: TransactionIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwrite", refuse(errno.EIO))
    with pytest.raises(StorageError, match="Input/output error"):
        index.append(ONE)


@pytest.mark.parametrize(("call", "code"), [("pwrite", errno.ENOSPC), ("open", errno.EMFILE)])
def test_want_of_room_or_descriptors_passes(tmp_path: Path, call: str, code: int) -> None:
    index = TransactionIndex(tmp_path / "0.txnindex", is_new=True)
    with pytest.MonkeyPatch.context() as disk:
        disk.setattr(os, call, refuse(code))
        index.append(ONE)
        index.append(TWO)
        with pytest.raises(ApiError):
            index.flush()
        index.forget()
        assert index.entries() == [ONE, TWO], "it is in memory only"
    index.flush()
    assert TransactionIndex(index.path).entries() == [ONE, TWO]


def test_a_truncation_before_what_is_in_memory_only(tmp_path: Path) -> None:
    index = TransactionIndex(tmp_path / "0.txnindex", is_new=True)
    index.append(ONE)
    with pytest.MonkeyPatch.context() as disk:
        disk.setattr(os, "pwrite", refuse(errno.ENOSPC))
        index.append(TWO)
    index.truncate(50)
    index.flush()
    assert index.entries() == TransactionIndex(index.path).entries() == [ONE]


def test_it_begins_anew(index: TransactionIndex) -> None:
    index.append(ONE)
    index.clear()
    assert index.entries() == []
    index.append(TWO)
    assert TransactionIndex(index.path).entries() == [TWO]


@pytest.mark.parametrize("seed", range(10))
def test_no_aborted_transaction_between_two_offsets_is_left_out(index: TransactionIndex, seed: int) -> None:
    random = Random(seed)
    entries = []
    marker = 0
    for producer_id in range(40):
        marker += random.randint(1, 10)
        entries.append((producer_id, max(0, marker - random.randint(1, 30)), marker))
    for number, (producer_id, first, last) in enumerate(entries):
        later = [one[1] for one in entries[number + 1 :] if one[1] <= last]
        index.append(AbortedTransaction(producer_id, first, last, min(later, default=last + 1)))
    for _ in range(200):
        start = random.randint(0, marker)
        end = random.randint(start + 1, marker + 5)
        found, _ = index.overlapping(start, end)
        assert {one.producer_id for one in found} == {
            producer_id for producer_id, first, last in entries if last >= start and first < end
        }
