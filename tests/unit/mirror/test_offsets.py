"""The offset map: wherever a group stands, a move skips nothing."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.mirror.flight import Flight
from pylog.mirror.offsets import MapKey, OffsetMap, Pair


@given(seed=st.integers(0, 1 << 32))
def test_a_move_never_skips_whatever_was_doubled_or_left_out(seed: int) -> None:
    """A source with holes and a start above 0; passes that die anywhere and begin again at what they committed."""
    chance = random.Random(seed)
    start = chance.randrange(1000)
    offsets = [start]
    while len(offsets) < chance.randrange(2, 80):
        offsets.append(offsets[-1] + chance.choice([1, 1, 1, 2, 7]))
    target: list[int | None] = [None] * chance.randrange(20)  # records of somebody else, before
    found = OffsetMap("t", "id")
    committed = offsets[0]
    while committed <= offsets[-1]:
        flight = Flight(committed)
        # More are sent than arrive, more arrive than are committed, and not every pair gets written.
        for offset in [offset for offset in offsets if offset >= committed][: chance.randrange(1, 40)]:
            flight.send(offset)
            target.append(offset)
            flight.acknowledge(len(target) - 1)
            if chance.random() < 0.3:
                committed = flight.next_source
                assert flight.next_target is not None
                if chance.random() < 0.7:
                    found.note(committed, flight.next_target)
                    found = OffsetMap.decode(found.encode())
        target += [None] * chance.randrange(3)
    for group in range(start, offsets[-1] + 2):
        place = found.translate(group)
        after = set(target[0 if place is None else place :])
        assert {offset for offset in offsets if offset >= group} <= after
    for group in range(len(target) + 1):
        place_back = found.translate_back(group)
        before = set(target[:group])
        assert {offset for offset in offsets if place_back is not None and offset < place_back} <= before


def test_records_that_the_target_lost_take_their_pairs_with_them() -> None:
    found = OffsetMap("t", "id")
    for offset in (10, 20, 30):
        found.note(offset, offset)
    found.note(40, 15)
    assert found.pairs == [Pair(10, 10), Pair(40, 15)]


def test_a_target_that_lost_its_end_and_was_filled_again_since_the_last_pair_takes_its_pairs_with_it() -> None:
    """The target's log goes from 100 back to 85, and the next copies fill the gap before a pair is noted."""
    found = OffsetMap("t", "id")
    for offset in (80, 90, 100):
        found.note(offset, offset)
    flight = Flight(100)
    for offset in range(100, 110):
        flight.send(offset)
        flight.acknowledge(offset - 15)
    assert flight.next_target is not None
    found.note(flight.next_source, flight.next_target, flight.take_lowest_target())
    assert found.pairs == [Pair(80, 80), Pair(110, 95)]
    assert flight.take_lowest_target() is None


def test_a_source_that_lost_its_end_takes_its_pairs_with_it() -> None:
    """The source's log goes from 100 back to 80, and what it writes there has its copies from 100 on."""
    found = OffsetMap("t", "id", [Pair(80, 80), Pair(100, 100)])
    assert found.cut(80)
    found.note(90, 110, 100)
    found.note(100, 120, 110)
    assert [found.translate_back(target) for target in (105, 110, 120)] == [80, 90, 100]
    assert not found.cut(100)
    assert found.cut(0)
    assert found.translate(95) is None


def test_no_group_goes_on_behind_a_record_that_came_late_from_the_target() -> None:
    """Of two mirrors that face each other: B:50 comes to A:200 after A:90 has its copy at B:80."""
    found = OffsetMap("t", "id", [Pair(10, 10), Pair(90, 80)])
    assert not found.pass_over(200, 80)
    assert found.pass_over(200, 50)
    assert found.translate(100) == 10
    found.note(201, 130)
    assert (found.translate(200), found.translate(201)) == (10, 130)


def test_a_record_that_is_passed_over_again_leaves_the_pairs_behind_it() -> None:
    found = OffsetMap("t", "id", [Pair(10, 10), Pair(201, 130)])
    assert not found.pass_over(200, 50)
    assert found.translate(201) == 130


def test_what_came_from_the_target_is_told_once_all_before_it_has_arrived() -> None:
    flight = Flight(0)
    flight.send(0)
    for offset, original in ((1, 50), (2, 40)):
        flight.note_original(offset, original)
        flight.skip(offset)
    assert flight.take_passed() is None
    flight.acknowledge(80)
    assert flight.take_passed() == (2, 40)
    assert flight.take_passed() is None


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=400))
def test_a_map_stays_small_and_keeps_its_first_and_last_pair(steps: list[int]) -> None:
    found = OffsetMap("t", "id")
    source = target = 0
    for step in steps:
        source, target = source + step, target + step
        found.note(source, target)
    assert len(found.pairs) <= 8 + 1 + source.bit_length()
    assert found.pairs[-1] == Pair(source, target)
    assert found.pairs[0] == Pair(steps[0], steps[0])
    assert found.translate(source + 5) == target
    assert found.translate(steps[0] - 1) is None


def test_a_pass_that_is_repeated_leaves_the_lower_target_offset() -> None:
    found = OffsetMap("t", "id")
    found.note(10, 5)
    found.note(20, 15)
    found.note(20, 25)
    found.note(15, 30)
    assert found.translate(20) == 15


def test_a_map_keeps_when_everything_had_arrived_and_the_release_before_did_not_say() -> None:
    found = OffsetMap("t", "id", [Pair(1, 2)])
    assert OffsetMap.decode(found.encode()).complete_ms is None
    found.complete_ms = 17
    assert OffsetMap.decode(found.encode()).complete_ms == 17
    before = b'{"version":1,"topic":"t","target_id":"id","pairs":[[1,2]]}'
    assert (OffsetMap.decode(before).complete_ms, OffsetMap.decode(before).pairs) == (None, [Pair(1, 2)])


def test_offsets_without_a_record_before_the_end_are_passed_once_all_before_them_arrived() -> None:
    flight = Flight(3)
    flight.reach_end(3)
    assert flight.next_source == 3
    flight.send(3)
    flight.reach_end(4)
    flight.send(4)
    flight.reach_end(7)
    assert flight.next_source == 3
    flight.acknowledge(40)
    assert flight.next_source == 4
    flight.acknowledge(41)
    assert (flight.next_source, flight.next_target, len(flight)) == (7, 42, 0)


def test_a_flight_takes_a_second_copy_and_no_record_behind_one_that_it_passed() -> None:
    flight = Flight(3)
    flight.send(5)
    flight.send(5)
    with pytest.raises(AssertionError, match="would be passed over"):
        flight.skip(4)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"3",
        b'{"version":2}',
        b'{"version":1,"topic":"t","target_id":"i","pairs":[[1]]}',
        b'{"version":1,"topic":"t","target_id":"i","pairs":[[5,1],[4,2]]}',
    ],
)
def test_what_is_no_map_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        OffsetMap.decode(data)
    with pytest.raises(ValueError):
        MapKey.decode(data)


def test_skipped_records_move_the_position_only_behind_what_was_sent() -> None:
    flight = Flight(3)
    flight.skip(3)
    flight.send(5)
    flight.skip(6)
    assert (flight.next_source, flight.next_target) == (4, None)
    flight.acknowledge(40)
    assert (flight.next_source, flight.next_target, len(flight)) == (7, 41, 0)
