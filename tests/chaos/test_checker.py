"""The checker passes a history that is in order, and finds each thing that must not be, planted into the same one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.chaos import checker, replicas
from tests.chaos.history import UNKNOWN_OFFSET, Ack, Commit, Grouped, Produced, Reading, Row, whole_lines

COUNT = 40


@dataclass
class Seen:
    """What was seen of one partition: two producers wrote by turns, two members read one half each."""

    acks: list[Ack] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)

    def check(self) -> set[str]:
        """Return the kinds of violations."""
        found = checker.check_log("t-0", self.acks, self.rows)
        found += checker.check_group("t-0", self.rows, self.readings, self.commits)
        return {one.kind for one in found}


def seen() -> Seen:
    rows = [Row(offset, f"p{offset % 2}.1", offset // 2) for offset in range(COUNT)]
    acks = [Ack(row.producer, row.number, row.offset, 10 * row.offset, 10 * row.offset + 5) for row in rows]
    half = COUNT // 2
    # The second member begins where the last commit was, before the end of what the first one had read.
    readings = [Reading("m1", 0, rows[: half + 3]), Reading("m2", 1000, rows[half:])]
    return Seen(acks, rows, readings, [Commit(500, 7), Commit(900, half)])


def test_what_a_killed_client_wrote_is_read_up_to_its_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "p.tsv"
    path.write_text("a\t1\t2\tt\t0\tp.1\t0\t7\na\t1\t2\tt\t0\tp.1\t1")
    produced = Produced()
    produced.take(whole_lines(path))
    assert produced.acks["t", 0] == [Ack("p.1", 0, 7, 1, 2)]


def test_deleted_records_that_can_be_read_are_told() -> None:
    rows = seen().rows
    starts = {1: 7, 2: 8}
    assert checker.check_trimmed("t-0", rows[7:], starts, 7) == []
    (violation,) = checker.check_trimmed("t-0", rows[6:], starts, 7)
    assert violation == (checker.RETURNED, "t-0", "p0.1 3 at offset 6 below 7")


def test_a_replica_that_would_show_deleted_records_if_it_led_is_told() -> None:
    (violation,) = checker.check_trimmed("t-0", seen().rows[7:], {1: 7, 2: 6}, 7)
    assert violation == (checker.RETURNED, "t-0", "broker 2 begins at 6 below 7")


def test_a_replica_begins_at_its_first_segment_or_where_the_checkpoint_says(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    for base in (5, 20):
        (directory / f"{base:020}.log").touch()
    assert replicas.log_start(tmp_path, "t", 0) == 5
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n2\nt 1 17\nt 0 9\n")
    assert replicas.log_start(tmp_path, "t", 0) == 9


def renumbered(rows: Sequence[Row]) -> list[Row]:
    return [Row(offset, row.producer, row.number) for offset, row in enumerate(rows)]


def lose(history: Seen) -> None:
    del history.rows[11]


def double(history: Seen) -> None:
    history.rows.append(Row(COUNT, "p1.1", 5))
    history.readings[1].rows = [*history.readings[1].rows, history.rows[-1]]


def reorder(history: Seen) -> None:
    # Two records of one producer have changed places, in what is read too.
    first, second = history.rows[10], history.rows[12]
    swapped = {10: Row(10, second.producer, second.number), 12: Row(12, first.producer, first.number)}
    history.rows = [swapped.get(row.offset, row) for row in history.rows]
    for reading in history.readings:
        reading.rows = [swapped.get(row.offset, row) for row in reading.rows]
    history.acks = [ack._replace(offset=UNKNOWN_OFFSET) if ack.offset in swapped else ack for ack in history.acks]


def misplace(history: Seen) -> None:
    history.acks[9] = history.acks[9]._replace(offset=10)


def misread(history: Seen) -> None:
    history.readings[0].rows[4] = history.readings[0].rows[4]._replace(number=999)


def leave_unseen(history: Seen) -> None:
    history.readings[1].rows.pop()


def skip(history: Seen) -> None:
    # The record is read in the end, by a member that comes later, so it is not unseen.
    jumped = history.readings[1].rows.pop(5)
    history.readings.append(Reading("m3", 2000, [jumped]))
    history.commits.clear()


def go_back(history: Seen) -> None:
    history.readings[0].rows.append(history.rows[1])


def forget_a_commit(history: Seen) -> None:
    history.readings.append(Reading("m3", 3000, history.rows[:3]))


PLANTED: Sequence[tuple[Callable[[Seen], None], str]] = (
    (lose, checker.LOST),
    (double, checker.DOUBLED),
    (reorder, checker.REORDERED),
    (misplace, checker.INCONSISTENT),
    (misread, checker.INCONSISTENT),
    (leave_unseen, checker.UNSEEN),
    (skip, checker.SKIPPED),
    (go_back, checker.WENT_BACK),
    (forget_a_commit, checker.COMMIT_WENT_BACK),
)


def test_a_history_in_order_passes() -> None:
    assert seen().check() == set()


@pytest.mark.parametrize(("plant", "kind"), PLANTED, ids=[plant.__name__ for plant, _ in PLANTED])
def test_a_planted_fault_is_found_and_named(plant: Callable[[Seen], None], kind: str) -> None:
    history = seen()
    plant(history)
    assert history.check() == {kind}


def test_what_was_not_acknowledged_may_be_there_or_not() -> None:
    history = seen()
    history.acks = [ack for ack in history.acks if ack.number % 3]
    assert history.check() == set()


def test_a_producer_that_gave_a_record_up_may_double_others_but_lose_none() -> None:
    history = seen()
    double(history)
    del history.rows[13]
    kinds = {one.kind for one in checker.check_log("t-0", history.acks, history.rows, gave_up={"p1.1"})}
    assert kinds == {checker.LOST}


def test_what_a_deletion_was_asked_for_may_be_gone() -> None:
    acks, rows = seen().acks, seen().rows[15:]
    assert checker.check_log("t-0", acks, rows, begin=15) == []
    assert {one.kind for one in checker.check_log("t-0", acks, rows, begin=14)} == {checker.LOST}


def test_a_copy_whose_offset_was_not_said_lies_behind_the_record_before_it() -> None:
    acks = [Ack("p", 0, 20, 0, 1), Ack("p", 1, UNKNOWN_OFFSET, 0, 1)]
    rows = [Row(20, "p", 0)]
    assert checker.lost(acks, rows, begin=20) == ["p 1 acknowledged at offset -1, 1 ms"]
    assert checker.lost(acks, rows, begin=22) == []


def test_many_violations_are_counted_and_some_told() -> None:
    found = checker.check_log("t-0", seen().acks, [])
    assert [one.what for one in found][-1] == f"and {COUNT - checker.TOLD} more"


def test_a_record_acknowledged_before_the_deletion_is_foreign_in_the_next_incarnation() -> None:
    acks = seen().acks
    in_flight = acks[30]
    rows = [Row(0, in_flight.producer, in_flight.number)]
    assert checker.check_foreign("t-0", acks, in_flight.done_ms, rows) == []
    [violation] = checker.check_foreign("t-0", acks, in_flight.done_ms + 1, rows)
    assert violation.kind == checker.FOREIGN


def test_a_member_that_goes_on_in_a_new_topic_at_the_old_offset_left_records_unseen() -> None:
    before = [Row(offset, "p0.1", offset) for offset in range(4)]
    after = [Row(offset, "p1.1", offset) for offset in range(6)]
    anew = [Reading("m", 0, before), Reading("m", 100, after)]
    assert checker.check_lived_through("t-0", before, anew) == []
    assert checker.check_lived_through("t-0", after, anew) == []
    went_on = [Reading("m", 0, [*before, *after[4:]])]
    missing = checker.check_lived_through("t-0", after, went_on)
    assert [one.kind for one in missing] == [checker.UNSEEN] * 4
    assert missing[0].what == "p1.1 0 at offset 0"


def test_compaction_keeps_the_last_value_of_each_key() -> None:
    acks = [Ack("p", number, number, number, number) for number in range(20)]
    kept = [Row(number, "p", number) for number in range(15, 20)]
    assert checker.check_compacted("t-0", acks, kept, keys=5) == []
    # A later value that nobody acknowledged stands in for the acknowledged one.
    later = [*kept[1:], Row(20, "p", 20)]
    assert checker.check_compacted("t-0", acks, later, keys=5) == []
    [violation] = checker.check_compacted("t-0", acks, kept[1:], keys=5)
    assert (violation.kind, violation.what[:6]) == (checker.COMPACTED_AWAY, "key 0:")


def test_replicas_differ_by_a_byte_or_a_batch() -> None:
    same = {0: "10 bytes, aa", 5: "10 bytes, bb"}
    assert checker.check_replicas("t-0", {1: same, 2: dict(same), 3: dict(same)}) == []
    for other in ({**same, 5: "10 bytes, bc"}, {0: same[0]}):
        [violation] = checker.check_replicas("t-0", {1: same, 2: other})
        assert violation.kind == checker.DIVERGED


def test_pauses_are_told_longest_first() -> None:
    acks = [Ack("p", number, number, 0, done_ms) for number, done_ms in enumerate((100, 130, 1130))]
    assert checker.longest_pauses_ms(acks, 100, 1200) == [1000, 70, 30, 0]


def test_lines_become_histories() -> None:
    produced, grouped = Produced(), Grouped()
    produced.take(["a\t1\t5\tt\t0\tp.1\t7\t42\n", "f\t2\t9\tt\t0\tp.1\t8\t_MSG_TIMED_OUT\n"])
    assert produced.acks == {("t", 0): [Ack("p.1", 7, 42, 1, 5)]}
    assert produced.failed == {("t", 0): [("p.1", 8, 2)]}
    grouped.take("m", ["b\t1\tt\t0\n", "p\t2\tt\t0\t42\tp.1\t7\n", "c\t3\tt\t0\t43\n", "e\t4\tt\t0\n"])
    [reading] = grouped.readings["t", 0]
    assert (reading.member, reading.begin_ms, reading.rows) == ("m", 1, [Row(42, "p.1", 7)])
    assert grouped.commits == {("t", 0): [Commit(3, 43)]}
