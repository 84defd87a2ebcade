"""Finding the transactional ids that have waited too long."""

from dataclasses import replace
from random import Random

import pytest

from pylog.transaction.deadlines import AGAIN_MS, Deadlines
from pylog.transaction.state import NO_TIME, TransactionConfig, TransactionMetadata, TransactionState

CONFIG = TransactionConfig(expiration_ms=10_000)
EMPTY, ONGOING, PREPARE_COMMIT, *_ = TransactionState


def metadata(state: TransactionState, update_ms: int, timeout_ms: int = 60) -> TransactionMetadata:
    start_ms = update_ms if state is ONGOING else NO_TIME
    return TransactionMetadata(
        producer_id=1, producer_epoch=0, timeout_ms=timeout_ms, state=state, start_ms=start_ms, update_ms=update_ms
    )


def test_an_open_transaction_is_due_after_its_timeout_until_somebody_ends_it() -> None:
    deadlines = Deadlines(CONFIG)
    deadlines.note("a", metadata(ONGOING, 0))
    assert deadlines.due(60) == []
    assert deadlines.due(61) == ["a"]
    assert deadlines.due(62 + AGAIN_MS) == ["a"], "its abort may have been refused"
    deadlines.note("a", metadata(PREPARE_COMMIT, 70))
    assert deadlines.due(500) == []


def test_a_transaction_has_its_own_time_whatever_the_one_before_had() -> None:
    deadlines = Deadlines(CONFIG)
    for start_ms, timeout_ms in ((0, 1_000), (10, 2_000), (20, 100)):
        deadlines.note("a", metadata(ONGOING, start_ms, timeout_ms))
    assert deadlines.due(120) == []
    assert deadlines.due(121) == ["a"]
    deadlines.note("a", metadata(EMPTY, 130))
    deadlines.note("a", metadata(ONGOING, 140, 3_000))
    assert deadlines.due(3_140) == []
    assert deadlines.due(3_141) == ["a"]


def test_ids_expire_in_the_order_of_their_last_use() -> None:
    deadlines = Deadlines(CONFIG)
    for name, used_ms in (("a", 0), ("b", 5), ("c", 7), ("a", 9)):
        deadlines.note(name, metadata(EMPTY, used_ms))
    assert deadlines.due(10_004) == []
    assert deadlines.due(10_007) == ["b", "c"]
    deadlines.forget("b")
    assert deadlines.due(10_009) == ["c", "a"]


def test_a_busy_id_takes_no_more_room_than_an_idle_one() -> None:
    deadlines = Deadlines(CONFIG)
    for now_ms in range(0, 5_000, 2):
        deadlines.note("a", metadata(ONGOING, now_ms))
        deadlines.note("a", metadata(EMPTY, now_ms + 1))
        assert deadlines.due(now_ms + 1) == []
    assert (len(deadlines), len(deadlines._heap)) == (1, 1)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_due_is_what_a_look_at_all_ids_finds(seed: int) -> None:
    chance = Random(seed)
    deadlines, known, now_ms = Deadlines(replace(CONFIG, expiration_ms=700)), dict[str, TransactionMetadata](), 0
    for _ in range(3_000):
        now_ms += chance.choice([0, 1, 1, 3, 40])
        name = chance.choice("abcdefgh")
        if chance.random() < 0.1:
            known.pop(name, None)
            deadlines.forget(name)
        elif chance.random() < 0.4:
            state = chance.choice([EMPTY, ONGOING, PREPARE_COMMIT])
            known[name] = metadata(state, now_ms, chance.choice([20, 90, 400]))
            deadlines.note(name, known[name])
        if chance.random() < 0.2:
            now_ms += AGAIN_MS + 1  # what was due before is due again by now
            late = {name for name, one in known.items() if one.state is ONGOING and one.late_ms < now_ms}
            unused = {name for name, one in known.items() if one.update_ms + 700 <= now_ms}
            due = deadlines.due(now_ms)
            assert set(due) == late | unused
            assert len(due) == len(set(due))
