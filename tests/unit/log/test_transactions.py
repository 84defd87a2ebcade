"""Which transactions of a partition are open, and how far read_committed consumers may read."""

from random import Random

import pytest

from pylog.log.transactions import AbortedTransaction, Transactions


def test_without_transactions_consumers_read_to_the_high_watermark() -> None:
    transactions = Transactions()
    assert transactions.first_unstable_offset() is None
    assert transactions.last_stable_offset(0, 50) == 50


def test_the_oldest_open_transaction_holds_consumers_back() -> None:
    transactions = Transactions()
    transactions.begin(1, 10)
    transactions.begin(2, 20)
    transactions.begin(1, 30)
    assert transactions.first_offset(1) == 10
    assert transactions.last_stable_offset(0, 50) == 10

    transactions.end(1, 40, is_commit=True)
    transactions.replicated(50)
    assert transactions.last_stable_offset(0, 50) == 20


def test_a_decision_counts_once_every_in_sync_replica_has_it() -> None:
    transactions = Transactions()
    transactions.begin(1, 10)
    transactions.end(1, 40, is_commit=True)
    transactions.replicated(40)
    assert transactions.last_stable_offset(0, 40) == 10, "the marker is not below the high watermark"
    transactions.replicated(41)
    assert transactions.last_stable_offset(0, 41) == 41


def test_a_decision_that_is_not_replicated_is_older_than_an_open_transaction() -> None:
    transactions = Transactions()
    transactions.begin(1, 10)
    transactions.begin(2, 20)
    transactions.end(1, 40, is_commit=False)
    assert transactions.first_unstable_offset() == 10


def test_an_open_transaction_is_older_than_a_decision_that_is_not_replicated() -> None:
    transactions = Transactions()
    transactions.begin(1, 10)
    transactions.begin(2, 20)
    transactions.end(2, 40, is_commit=False)
    assert transactions.first_unstable_offset() == 10


def test_an_abort_is_a_row_of_the_index() -> None:
    transactions = Transactions({2: 20, 1: 10})
    assert transactions.end(1, 40, is_commit=False) == AbortedTransaction(1, 10, 40, 20)
    assert transactions.end(2, 41, is_commit=False) == AbortedTransaction(2, 20, 41, 42)


def test_a_marker_of_a_transaction_without_records_changes_nothing() -> None:
    transactions = Transactions()
    assert transactions.end(1, 40, is_commit=False) is None
    assert transactions.first_unstable_offset() is None


def test_the_log_start_is_the_floor() -> None:
    transactions = Transactions({1: 10})
    assert transactions.last_stable_offset(25, 50) == 25


@pytest.mark.parametrize("seed", range(10))
def test_any_history_beside_a_plain_scan(seed: int) -> None:
    random = Random(seed)
    transactions = Transactions()
    log: list[tuple[int, str]] = []
    high_watermark = 0
    for _ in range(400):
        producer_id = random.randrange(5)
        kind = random.choice(["data", "data", "commit", "abort", "replicate"])
        offset = len(log)
        if kind == "data":
            log.append((producer_id, kind))
            transactions.begin(producer_id, offset)
        elif kind == "replicate":
            high_watermark = random.randint(high_watermark, len(log))
            transactions.replicated(high_watermark)
        else:
            log.append((producer_id, kind))
            entry = transactions.end(producer_id, offset, is_commit=kind == "commit")
            assert entry == _entry_by_scan(log)
        assert transactions.last_stable_offset(0, high_watermark) == _stable_by_scan(log, high_watermark)


def _open_by_scan(log: list[tuple[int, str]]) -> dict[int, int]:
    first: dict[int, int] = {}
    for offset, (producer_id, kind) in enumerate(log):
        if kind == "data":
            first.setdefault(producer_id, offset)
        else:
            first.pop(producer_id, None)
    return first


def _entry_by_scan(log: list[tuple[int, str]]) -> AbortedTransaction | None:
    producer_id, kind = log[-1]
    first = _open_by_scan(log[:-1])
    if kind == "commit" or producer_id not in first:
        return None
    others = [offset for key, offset in first.items() if key != producer_id]
    return AbortedTransaction(producer_id, first[producer_id], len(log) - 1, min(others, default=len(log)))


def _stable_by_scan(log: list[tuple[int, str]], high_watermark: int) -> int:
    """Return the first offset of a transaction without a marker below the high watermark."""
    first = _open_by_scan(log[:high_watermark])
    # Transactions that began above the high watermark hold nobody back who stops there.
    return min(first.values(), default=high_watermark)
