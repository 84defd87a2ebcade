import struct
import subprocess

import pytest

from pylog.metrics import Metrics
from pylog.model import TopicPartition
from pylog.probe import lag
from pylog.probe.lag import GroupLags, MemberNote
from pylog.probe.reader import show_report

FIRST, SECOND = TopicPartition("pageviews", 0), TopicPartition("pageviews", 1)
ROW = ("readers", "pageviews")


def test_lag_is_the_sum_of_records_and_the_age_of_the_oldest_unread_one() -> None:
    lags = GroupLags()
    lags.note_commit("readers", FIRST, 10_000, 100)
    lags.note_commit("readers", SECOND, 10_000, 10)
    lags.note_ends(10_000, {FIRST: 100, SECOND: 10})
    lags.note_ends(20_000, {FIRST: 200, SECOND: 10})
    report = lags.report(25_000)
    assert report.records == {ROW: 100}
    assert report.seconds == {ROW: 15}


def test_who_has_read_everything_is_not_behind() -> None:
    lags = GroupLags()
    lags.note_commit("readers", FIRST, 10_000, 100)
    lags.note_ends(10_000, {FIRST: 100})
    report = lags.report(500_000)
    assert (report.records, report.seconds, report.status) == ({ROW: 0}, {ROW: 0}, {ROW: 0})


def test_a_commit_beyond_the_sampled_end_is_no_negative_lag() -> None:
    lags = GroupLags()
    lags.note_ends(10_000, {FIRST: 100})
    lags.note_commit("readers", FIRST, 12_000, 130)
    lags.note_ends(10_500, {FIRST: 100})
    report = lags.report(13_000)
    assert (report.records, report.seconds) == ({ROW: 0}, {ROW: 0})


def test_an_end_that_is_not_known_is_absent_and_counted() -> None:
    lags = GroupLags()
    lags.note_commit("readers", FIRST, 10_000, 100)
    report = lags.report(11_000)
    assert report.records == {}
    assert report.unknown == 1


def test_the_lag_of_a_partition_that_lost_its_leader_is_unknown_until_it_has_one_again() -> None:
    lags = GroupLags()
    lags.note_commit("readers", FIRST, 1_000, 0)
    lags.note_ends(1_000, {FIRST: 10})
    assert lags.report(1_000).records == {ROW: 10}
    lags.note_ends(2_000, {})
    report = lags.report(2_000)
    assert (report.records, report.seconds, report.status, report.unknown) == ({}, {}, {}, 1)
    lags.note_ends(3_000, {FIRST: 10})
    report = lags.report(3_000)
    assert (report.records, report.unknown) == ({ROW: 10}, 0)


def test_a_group_that_commits_no_longer_has_stopped() -> None:
    lags = GroupLags()
    for at_ms in range(0, 10_000, 1_000):
        lags.note_commit("readers", FIRST, at_ms, 100)
    for at_ms in range(0, 200_000, 15_000):
        lags.note_ends(at_ms, {FIRST: 100 + at_ms // 100})
    assert lags.report(200_000).status == {ROW: 3}


def test_a_group_that_commits_the_same_offset_stalls() -> None:
    lags = GroupLags()
    for at_ms in range(0, 200_000, 5_000):
        lags.note_ends(at_ms, {FIRST: 100 + at_ms // 100})
        lags.note_commit("readers", FIRST, at_ms, 100)
        lags.note_ends(at_ms + 1, {FIRST: 100 + at_ms // 100})
    assert lags.report(200_000).status == {ROW: 2}


def test_right_after_the_start_an_old_commit_is_judged_by_its_silence_alone() -> None:
    lags = GroupLags()
    for at_ms in range(0, 100_000, 10_000):
        lags.note_commit("readers", FIRST, at_ms, at_ms // 1_000)
    lags.note_commit("readers", FIRST, 100_000, 100)
    lags.note_ends(101_000, {FIRST: 5_000})
    assert lags.report(101_000).status == {ROW: 0}
    assert lags.report(400_000).status == {ROW: 3}


def test_offsets_and_groups_that_are_gone_are_not_shown() -> None:
    lags = GroupLags()
    lags.note_commit("readers", FIRST, 10_000, 100)
    lags.note_members("readers", 2)
    lags.note_ends(10_000, {FIRST: 200})
    assert lags.report(10_000).members == {("readers",): 2}
    lags.forget_commit("readers", FIRST)
    lags.note_members("readers", None)
    report = lags.report(11_000)
    assert report.records == {}
    assert report.members == {}
    lags.note_ends(12_000, {})
    assert lags.partitions() == set()
    assert not lags._ends


def _stalls(lags: GroupLags) -> None:
    """Commit the same offset of one partition again and again, and go on with the other."""
    for at_ms in range(0, 200_000, 5_000):
        ends = {FIRST: 100 + at_ms // 100, SECOND: at_ms}
        lags.note_ends(at_ms, ends)
        lags.note_commit("readers", FIRST, at_ms, 100)
        lags.note_commit("readers", SECOND, at_ms, at_ms)
        lags.note_ends(at_ms + 1, ends)


def _assignment(**partitions: list[int]) -> bytes:
    raw = struct.pack(">hi", 3, len(partitions))
    for topic, numbers in partitions.items():
        raw += (
            struct.pack(">h", len(topic)) + topic.encode() + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
        )
    return raw + struct.pack(">i", -1)


def test_where_a_group_stalls_is_shown_with_the_member_that_reads_there() -> None:
    lags = GroupLags()
    _stalls(lags)
    assert lags.report(200_000).stuck == {("readers", "pageviews", "0", "", ""): 100}
    other = MemberNote("b-2", "192.0.2.2", _assignment(logins=[0], pageviews=[1]))
    lags.note_members("readers", 2, [other, MemberNote("a-1", "192.0.2.1", _assignment(pageviews=[2, 0]))])
    assert lags.report(200_000).stuck == {("readers", "pageviews", "0", "a-1", "192.0.2.1"): 100}
    lags.note_members("readers", 1, [other])  # the member has left, and nobody has its partition yet
    assert lags.report(200_000).stuck == {("readers", "pageviews", "0", "", ""): 100}


def test_members_beyond_what_is_remembered_are_counted_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "MAX_MEMBER_BYTES", 1_000)
    lags = GroupLags()
    _stalls(lags)
    reader = MemberNote("a-1", "192.0.2.1", _assignment(pageviews=[0]))
    lags.note_members("large", 1, [MemberNote("c-3", "192.0.2.3", bytes(700))])
    lags.note_members("readers", 1, [reader])
    report = lags.report(200_000)
    assert report.members == {("readers",): 1, ("large",): 1}
    assert [row.member for row in report.stuck] == [""]
    lags.note_members("large", None)  # there is room again
    lags.note_members("readers", 1, [reader])
    assert [row.member for row in lags.report(200_000).stuck] == ["a-1"]


def test_of_too_many_partitions_where_groups_stand_still_those_furthest_behind_are_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lag, "MAX_STUCK", 1)
    lags = GroupLags()
    for partition in (FIRST, SECOND):
        lags.note_commit("readers", partition, 0, 10)
        lags.note_commit("readers", partition, 1_000, 10)
    lags.note_ends(0, {FIRST: 10, SECOND: 10})
    lags.note_ends(10_000, {FIRST: 20, SECOND: 10})
    lags.note_ends(20_000, {FIRST: 20, SECOND: 20})
    assert [row.partition for row in lags.report(500_000).stuck] == ["0"]


def test_of_too_many_groups_those_furthest_behind_are_shown() -> None:
    lags = GroupLags()
    ends = {}
    for number in range(lag.MAX_ROWS + 7):
        partition = TopicPartition("pageviews", number)
        lags.note_commit(f"group-{number}", partition, 0, number)
        ends[partition] = lag.MAX_ROWS + 7
    lags.note_ends(0, ends)
    report = lags.report(1_000)
    assert len(report.records) == lag.MAX_ROWS
    assert report.left_out == 7
    assert ("group-0", "pageviews") in report.records
    assert (f"group-{lag.MAX_ROWS + 6}", "pageviews") not in report.records


def test_a_million_groups_take_bounded_memory_and_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "MAX_FOLLOWED", 100)
    lags = GroupLags()
    for number in range(1_000):
        lags.note_commit(f"g{number}", FIRST, 0, 0)
        lags.note_members(f"g{number}", 1)
    lags.note_commit("g5", FIRST, 1, 7)  # one that is followed goes on
    lags.note_ends(10, {FIRST: 10})
    report = lags.report(20)
    assert len(report.records) == len(report.members) == 100
    assert report.records["g5", FIRST.topic] == 3
    assert report.passed_over == 900
    lags.forget_commit("g5", FIRST)
    lags.forget_commit("g5", FIRST)
    lags.note_commit("late", FIRST, 30, 9)  # there is room again, for one
    lags.note_commit("later", FIRST, 30, 9)
    assert "late" in {group for group, _ in lags.report(40).records}
    assert lags.report(40).passed_over == 901


def test_members_are_shown_of_the_groups_whose_lag_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "MAX_ROWS", 2)
    lags = GroupLags()
    for name in ("a", "b", "c"):
        lags.note_members(name, 3)
    lags.note_commit("c", FIRST, 0, 0)
    lags.note_ends(10, {FIRST: 10})
    assert set(lags.report(20).members) == {("c",), ("a",)}


def test_ids_of_thousands_of_characters_and_odd_bytes_make_a_page_that_prometheus_reads() -> None:
    lags = GroupLags()
    names = ["x" * 8_000 + end for end in ("1", "2")] + ['"\\\n\r\t\x00\u2028\U0001f600']
    for name in names:
        lags.note_commit(name, FIRST, 0, 0)
        lags.note_members(name, 1)
    lags.note_ends(10, {FIRST: 10})
    metrics, report = Metrics(), lags.report(20)
    show_report(metrics, lambda: report)
    page = metrics.render()
    assert max(map(len, page.split("\n"))) < 300
    rows = [line for line in page.split("\n") if line.startswith("pylog_group_lag_records{")]
    assert len(set(rows)) == len(names)
    done = subprocess.run(["promtool", "check", "metrics"], input=page.encode(), capture_output=True, check=False)
    assert b"error while" not in done.stderr, done.stderr
    assert done.returncode in (0, 3), done.stderr  # 3: it has advice on names
