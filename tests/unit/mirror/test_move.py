"""Where a group goes on in the other cluster, and the proof that it skips nothing."""

from collections import Counter

import pytest

from pylog.client.admin.cluster import OffsetRange
from pylog.client.consumer import ConsumedRecord
from pylog.mirror.move import Move, Patience, moves, returning
from pylog.mirror.offsets import OffsetMap, Pair
from pylog.mirror.proof import Proof, compare, identity
from pylog.model import TopicPartition

P = TopicPartition("clicks", 0)


def record(key: bytes | None, value: bytes | None, timestamp_ms: int = 1, offset: int = 0) -> ConsumedRecord:
    return ConsumedRecord("clicks", 0, offset, timestamp_ms, key, value, [])


@pytest.mark.parametrize(
    ("translated", "entered", "is_mapped"),
    [(40, 40, True), (None, 30, False), (10, 30, True), (90, 60, True)],
    ids=["mapped", "without a pair at the log start", "below the log start", "above the end"],
)
def test_a_group_goes_on_inside_what_the_other_holds(translated: int | None, entered: int, is_mapped: bool) -> None:
    found = moves({P: 45}, {P: OffsetRange(30, 60)}, lambda _partition, _offset: translated)
    assert found == [Move(P, 45, entered, is_mapped, 60 - entered)]


def test_a_partition_that_the_other_lacks_is_told() -> None:
    assert moves({P: 45}, {}, lambda _partition, offset: offset) == [Move(P, 45, None, False, 0)]


def test_a_slow_mirror_is_waited_for_and_a_stuck_one_is_not() -> None:
    patience = Patience(60)
    assert not any(patience.is_over(1000 - number, now_s=50.0 * number) for number in range(1000))
    assert not patience.is_over(1, now_s=49_950 + 60)
    assert not patience.is_over(7, now_s=49_950 + 60), "more of it is no progress, and costs none"
    assert patience.is_over(1, now_s=49_950 + 61)


def test_the_proof_counts_by_what_records_are() -> None:
    here, there = Counter({b"a": 1, b"b": 2}), Counter({b"x": 1, b"a": 2, b"b": 2})
    assert compare(here, there) == Proof(unread=3, reread=2, lost=0)
    assert compare(there, here) == Proof(unread=5, reread=0, lost=2)
    assert compare(Counter({b"a": 2}), Counter({b"a": 1})).lost == 1, "two alike of which one is gone"


def test_a_copy_is_the_same_record_and_its_neighbours_are_not() -> None:
    original = record(b"k", b"v")
    copy = record(b"k", b"v", offset=9)
    copy.headers.append(("pylog.origin", b"live"))
    assert identity(original) == identity(copy)
    others = [record(b"k", b"w"), record(b"kv", b""), record(None, b"v"), record(b"k", None), record(b"k", b"v", 2)]
    assert len({identity(one) for one in [original, *others]}) == 6


@pytest.mark.parametrize(
    ("committed", "earlier", "goes_on"),
    [(115, None, 10), (115, 17, 17), (125, 17, 20), (105, 17, 0), (95, 17, None), (115, 5, 10)],
    ids=["never read in the source", "read further there", "read further since", "set back", "set back to before all",
         "read less there"],
)  # fmt: skip
def test_a_group_that_returns_reads_little_again_and_obeys_who_set_it_back(
    committed: int, earlier: int | None, goes_on: int | None
) -> None:
    known = OffsetMap("clicks", "id", [Pair(0, 100), Pair(10, 110), Pair(20, 120)])
    assert returning(known, committed, earlier) == goes_on
