"""Which offsets are read, and in which pieces."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.ingest import plan
from pylog.ingest.plan import DataLoss, Load, Position, PositionError, Range
from pylog.model import TopicPartition

A, B, C = (TopicPartition("logins", number) for number in range(3))
IDS = {"logins": "id-1"}


def at(**offsets: int) -> Position:
    """A position by letters: at(a=5, b=0)."""
    names = {"a": A, "b": B, "c": C}
    return Position({names[name]: offset for name, offset in offsets.items()}, IDS)


def starts(offset: int = 0) -> dict[TopicPartition, int]:
    return dict.fromkeys((A, B, C), offset)


def test_a_position_survives_sparks_checkpoint() -> None:
    position = Position({A: 3, TopicPartition("pageviews", 12): 9}, {**IDS, "pageviews": "id-2", "empty": "id-3"})
    assert Position.from_json(position.to_json()) == position
    assert position.to_json()["topics"]["pageviews"] == {"id": "id-2", "partitions": {"12": 9}}


def test_a_position_of_a_later_release_is_refused() -> None:
    with pytest.raises(PositionError, match="version 2"):
        Position.from_json({"version": 2, "topics": {}})


def test_ranges_lie_between_two_positions() -> None:
    found = plan.ranges_between(at(a=1, b=5, c=7), at(a=4, b=5, c=8), starts())
    assert found == [Range(A, 1, 4), Range(C, 7, 8)]


def test_a_new_partition_begins_at_its_log_start() -> None:
    assert plan.ranges_between(at(a=1), at(a=1, b=9), starts(2)) == [Range(B, 2, 9)]


def test_a_partition_that_is_gone_from_the_end_is_not_read() -> None:
    # A batch planned before a partition was added is replayed as it was.
    assert plan.ranges_between(at(a=1, b=2), at(a=3), starts()) == [Range(A, 1, 3)]


def test_a_topic_made_again_is_refused_by_name() -> None:
    again = Position({A: 10}, {"logins": "id-2"})
    with pytest.raises(PositionError, match="'logins' was deleted and made again: its id was id-1 and is id-2"):
        plan.ranges_between(at(a=1), again, starts())


def test_the_position_of_other_topics_is_refused_by_name() -> None:
    before = Position({A: 1}, {"logins": "id-1", "searches": "id-2"})
    plan.check_topics(before, Position({}, {"logins": "id-1", "searches": "id-2", "pageviews": "id-3"}))
    with pytest.raises(PositionError, match="last run read 'searches', this one reads 'logins', 'pageviews':"):
        plan.check_topics(before, Position({}, {"pageviews": "id-3", "logins": "id-1"}))
    with pytest.raises(PositionError, match="reads no topic"):
        plan.check_topics(before, Position())


def test_an_end_before_the_start_is_refused_by_name() -> None:
    with pytest.raises(PositionError, match="logins-0 ends at 3, before 7"):
        plan.ranges_between(at(a=7), at(a=3), starts())


def test_offsets_that_retention_deleted_stop_the_query() -> None:
    with pytest.raises(DataLoss, match="logins-0 offsets 2 to 4; logins-1 offsets 0 to 2"):
        plan.present([Range(A, 2, 9), Range(B, 0, 3)], starts(5), fail_on_data_loss=True)


def test_with_the_loss_allowed_reading_goes_on_behind_the_hole() -> None:
    ranges = [Range(A, 2, 9), Range(B, 0, 3), Range(C, 6, 8)]
    assert plan.present(ranges, starts(5), fail_on_data_loss=False) == [Range(A, 5, 9), Range(C, 6, 8)]


def test_a_fat_partition_is_split() -> None:
    pieces = list(plan.split([Range(A, 0, 25), Range(B, 5, 6)], 10))
    assert pieces == [Range(A, 0, 10), Range(A, 10, 20), Range(A, 20, 25), Range(B, 5, 6)]


def test_without_a_limit_nothing_is_split() -> None:
    assert list(plan.split([Range(A, 0, 25)], None)) == [Range(A, 0, 25)]


def test_holes_are_what_retention_deleted() -> None:
    ranges = [Range(A, 2, 9), Range(B, 0, 3), Range(C, 6, 8)]
    assert plan.holes(ranges, starts(5)) == [Range(A, 2, 5), Range(B, 0, 3)]


def test_little_is_one_task() -> None:
    ranges = [Range(A, 0, 20), Range(B, 0, 6)]
    assert plan.pack(ranges, 8, 500_000) == [ranges]


def test_a_fat_partition_does_not_hold_the_job() -> None:
    shares = plan.pack([Range(A, 0, 900_000), Range(B, 0, 50_000), Range(C, 7, 50_007)], 2, 10_000_000)
    sizes = [sum(r.offset_count for r in share) for share in shares]
    assert len(shares) == 2
    assert max(sizes) <= 550_000


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(1, 3_000_000)), max_size=12),
    st.integers(1, 16),
    st.integers(1, 1_000_000),
)
def test_shares_hold_everything_once_and_are_about_equal(
    sizes: list[tuple[int, int]], task_count: int, max_count: int
) -> None:
    max_count = max(max_count, sum(size for _, size in sizes) // 200)
    ranges = [Range(TopicPartition("logins", n), start, start + size) for n, (start, size) in enumerate(sizes)]
    shares = plan.pack(ranges, task_count, max_count)
    pieces = sorted(piece for share in shares for piece in share)
    for before, after in pairwise(pieces):
        assert before.partition != after.partition or before.end == after.start
    assert sum(r.offset_count for r in pieces) == sum(size for _, size in sizes)
    assert {r.partition for r in pieces} == {r.partition for r in ranges}
    total = sum(size for _, size in sizes)
    share = min(max_count, max(plan.MIN_TASK_OFFSETS, -(-total // task_count)))
    assert all(sum(r.offset_count for r in one) <= share for one in shares)


@pytest.mark.parametrize("task_count", [16, 64])
def test_the_partitions_of_a_topic_stay_together(task_count: int) -> None:
    ranges = [Range(TopicPartition(f"t{n:04}", p), 7, 7 + 2500) for n in range(1000) for p in range(8)]
    shares = plan.pack(ranges, task_count, 500_000)
    assert len(shares) == max(task_count, 40)
    files = sum(len({r.partition.topic for r in share}) for share in shares)
    assert files <= 1000 + len(shares)


@given(
    counts=st.lists(st.integers(1, 1000), max_size=300),
    least=st.integers(1, 100),
    most=st.none() | st.integers(1, 2000),
)
def test_small_ranges_share_tasks_and_no_offset_is_lost(counts: list[int], least: int, most: int | None) -> None:
    ranges = [Range(TopicPartition("t", number), 5, 5 + count) for number, count in enumerate(counts)]
    shares = plan.gather(ranges, least, most)
    assert [one for share in shares for one in share] == ranges
    assert len(shares) >= min(least, len(ranges))
    for share in shares:
        count = sum(one.offset_count for one in share)
        assert len(share) == 1 or count <= min(sum(counts) // least, most or count)
    size = sum(counts) // least
    if most is None and size >= max(counts, default=0):
        # Two shares that follow each other do not fit into one.
        sizes = [sum(one.offset_count for one in share) for share in shares]
        assert len(ranges) <= least or all(a + b > size for a, b in pairwise(sizes))


def test_pieces_are_at_least_so_many_as_asked_for() -> None:
    assert len(plan.spread([Range(A, 0, 100), Range(B, 0, 1)], 10)) >= 10
    assert plan.spread([], 10) == []
    assert plan.spread([Range(A, 0, 3)], 10) == [Range(A, n, n + 1) for n in range(3)]


def test_a_position_moves_and_forgets_a_topic() -> None:
    other = TopicPartition("searches", 0)
    position = at(a=3, b=4).moved_to(Position({A: 9, other: 1}, {"searches": "id-2"}))
    assert position == Position({A: 9, B: 4, other: 1}, {**IDS, "searches": "id-2"})
    assert position.without(["logins"]) == Position({other: 1}, {"searches": "id-2"})


def test_a_limit_is_shared_by_what_is_left() -> None:
    assert plan.limited(at(a=0, b=0), at(a=900, b=100), starts(), 100) == at(a=90, b=10)


def test_a_small_partition_is_not_starved() -> None:
    assert plan.limited(at(a=0, b=0), at(a=1_000_000, b=1), starts(), 100).offsets[B] == 1


def test_a_limit_that_is_not_reached_changes_nothing() -> None:
    assert plan.limited(at(a=0), at(a=5), starts(), 5) == at(a=5)


@given(st.tuples(*[st.integers(0, 50)] * 3), st.tuples(*[st.integers(0, 500)] * 3), st.integers(1, 600))
def test_a_limited_position_advances_and_stays_within_both_bounds(
    before: tuple[int, int, int], more: tuple[int, int, int], limit: int
) -> None:
    start = Position(dict(zip((A, B, C), before, strict=True)), IDS)
    latest = Position({p: start.offsets[p] + n for p, n in zip((A, B, C), more, strict=True)}, IDS)
    limited = plan.limited(start, latest, starts(), limit)
    assert all(start.offsets[p] <= limited.offsets[p] <= latest.offsets[p] for p in (A, B, C))
    taken = sum(limited.offsets[p] - start.offsets[p] for p in (A, B, C))
    assert taken <= limit
    assert taken > 0 or sum(more) == 0  # or a drained trigger would never end


def test_a_topic_that_ended_is_a_hole_and_keeps_its_place() -> None:
    gone = TopicPartition("gone", 0)
    ids = {**IDS, "gone": "id-2"}
    start, latest = Position({A: 1, gone: 4}, ids), Position({A: 9, gone: 7}, ids)
    load = Load(start=start, latest=latest, log_starts={A: 0, gone: 5}, position=start)
    whole = load.up_to(100, fail_on_data_loss=False)
    assert (whole.ranges, whole.holes) == ([Range(gone, 5, 7), Range(A, 1, 9)], [Range(gone, 4, 5)])
    assert whole.position == latest
    # Whether it is found out before the ranges are chosen or while they are read.
    for less in (load.without_ended({"gone"}).up_to(100, fail_on_data_loss=True), whole.without_ended({"gone"})):
        assert (less.ranges, less.holes) == ([Range(A, 1, 9)], [Range(gone, 4, 7)])
        assert less.position == Position({A: 9, gone: 4}, ids)
        assert less.latest == Position({A: 9}, IDS)


def test_a_topic_that_ended_before_anything_was_loaded_is_remembered() -> None:
    load = Load(start=Position(), latest=at(a=3, b=0), log_starts=starts(0), position=Position())
    less = load.without_ended({"logins"})
    assert less.holes == [Range(A, 0, 3)]
    assert less.position == at(a=0, b=0)


def test_a_target_is_not_passed() -> None:
    assert plan.not_beyond(at(a=9, b=3, c=1), at(a=5, b=7)) == at(a=5, b=3)


# -- partitions that are gone, topics that stop ------------------------------------------------------------------------

GONE = TopicPartition("gone", 0)
BOTH = {**IDS, "gone": "id-2"}


def test_a_partition_that_is_gone_before_it_was_read_is_a_hole_or_named() -> None:
    start, end = Position({A: 1}, IDS), Position({A: 4, GONE: 9}, BOTH)
    ranges = plan.ranges_between(start, end, {A: 0})
    assert ranges == [Range(GONE, 0, 9), Range(A, 1, 4)]
    with pytest.raises(DataLoss, match="the topic was deleted, or is another one, with gone-0 offsets 0 to 8"):
        plan.present(ranges, {A: 0}, fail_on_data_loss=True)
    assert plan.present(ranges, {A: 0}, fail_on_data_loss=False) == [Range(A, 1, 4)]
    assert plan.limited(start, end, {A: 0}, 2) == Position({A: 3, GONE: 9}, BOTH)


def test_offsets_that_retention_deleted_do_not_fill_a_batch() -> None:
    start, latest = at(a=0, b=5), at(a=1_000_100, b=5)
    assert plan.limited(start, latest, {A: 1_000_000, B: 0}, 10) == at(a=1_000_010, b=5)


def load_of(start: Position, latest: Position, log_starts: dict[TopicPartition, int]) -> Load:
    return Load(start=start, latest=latest, log_starts=log_starts, position=start)


@pytest.mark.parametrize(
    ("latest", "log_start", "said"),
    [
        (Position({A: 9, GONE: 9}, BOTH), 6, "retention deleted gone-0 offsets 4 to 5"),
        (Position({A: 9, GONE: 3}, BOTH), 0, "gone-0 ends at 3, before 4"),
        (Position({A: 9, GONE: 9}, {**BOTH, "gone": "id-3"}), 0, "'gone' was deleted and made again"),
    ],
)
def test_one_topic_stops_alone_and_goes_on_when_that_is_accepted(latest: Position, log_start: int, said: str) -> None:
    start = Position({A: 1, GONE: 4}, BOTH)
    log_starts = {A: 0, GONE: log_start}
    load = load_of(start, latest, log_starts)
    found = plan.stopped(load, (), fail_on_data_loss=True)
    assert list(found) == ["gone"]
    assert said in str(found["gone"])
    done = load.without_stopped(found).up_to(100, fail_on_data_loss=False)
    assert (done.ranges, done.holes) == ([Range(A, 1, 9)], [])
    assert done.position == Position({A: 9, GONE: 4}, BOTH)
    again = load_of(plan.accepting(start, latest, {"gone"}), latest, log_starts)
    assert plan.stopped(again, {"gone"}, fail_on_data_loss=True) == {}
    assert again.up_to(100, fail_on_data_loss=False).position == latest


def test_holes_stop_nobody_where_they_may_be() -> None:
    load = load_of(at(a=1), at(a=9), {A: 6})
    assert plan.stopped(load, (), fail_on_data_loss=False) == {}


def test_a_log_that_was_cut_and_written_on_since_stops_its_topic() -> None:
    start = Position({A: 50, GONE: 50}, BOTH, {A: 5, GONE: 5})
    latest = Position({A: 60, GONE: 60}, BOTH, {A: 6, GONE: 6})
    ends = {A: 50, GONE: 40}
    load = load_of(start, latest, {A: 0, GONE: 0})
    found = plan.stopped(load, (), fail_on_data_loss=True, epoch_ends=ends)
    assert list(found) == ["gone"]
    assert "gone-0 was cut back to 40, before 50 where the last run stopped" in str(found["gone"])
    again = plan.accepting(start, latest, {"gone"}, ends)
    assert again.offsets == {A: 50, GONE: 40}
    assert (
        plan.stopped(load_of(again, latest, {A: 0, GONE: 0}), {"gone"}, fail_on_data_loss=True, epoch_ends=ends) == {}
    )
    plan.check_not_cut(start, {A: -1, GONE: 70})  # unknown, or not cut


def test_a_position_keeps_leader_epochs() -> None:
    position = Position({A: 3, B: 4}, IDS, {A: 7})
    assert Position.from_json(position.to_json()) == position
    assert plan.limited(at(a=0, b=4), position, starts(), 1).epochs == {A: 7}
    assert position.without(["logins"]) == Position()


def test_a_limit_in_bytes_counts_what_offsets_of_each_topic_took() -> None:
    start, latest = Position({A: 0, GONE: 0}, BOTH), Position({A: 1000, GONE: 1000}, BOTH)
    load = load_of(start, latest, {A: 0, GONE: 500})
    assert load.offsets_in(1500 * 100, {"logins": 100.0, "gone": 100.0}) == 1500
    assert load.offsets_in(15_000, {"logins": 100.0, "gone": 100.0}) == 150
    assert load.offsets_in(105_000, {"logins": 100.0, "gone": 10.0}) == 1500
    assert load.offsets_in(plan.GUESSED_BYTES * 150, {}) == 150
    assert load.offsets_in(1, {"logins": 1e9, "gone": 1e9}) == 1
