"""What moved between two looks."""

import pytest

from pylog.cli.rates import (
    MAX_TREND,
    GroupRate,
    LagAges,
    Look,
    PartitionRate,
    TopicRate,
    Trends,
    group_rates,
    hot_partitions,
    sparkline,
    topic_rates,
)
from pylog.model import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_topics_by_what_was_written() -> None:
    before = Look(10.0, {A0: 100, A1: 100, B0: 0}, {})
    after = Look(12.0, {A0: 110, A1: 120, B0: 100}, {})
    assert topic_rates(before, after) == [TopicRate("b", 1, 50.0), TopicRate("a", 2, 15.0)]


def test_a_topic_that_is_new_or_made_anew_wrote_nothing_yet() -> None:
    assert topic_rates(Look(0, {A0: 100}, {}), Look(1, {A0: 5, B0: 7}, {})) == [
        TopicRate("a", 1, 0.0),
        TopicRate("b", 1, 0.0),
    ]


def test_groups_by_what_is_left() -> None:
    before = Look(0, {A0: 100, A1: 50}, {"slow": {A0: 10}, "fast": {A0: 90, A1: 50}})
    after = Look(2, {A0: 120, A1: 50}, {"slow": {A0: 10}, "fast": {A0: 120, A1: 50}, "new": {A1: 40}})
    assert group_rates(before, after) == [
        GroupRate("slow", 110, 0.0, 10.0),
        GroupRate("new", 10, 0.0, 0.0),
        GroupRate("fast", 0, 15.0, -5.0),
    ]


def test_a_group_that_was_moved_back_read_nothing() -> None:
    before, after = Look(0, {A0: 100}, {"g": {A0: 90}}), Look(1, {A0: 100}, {"g": {A0: 10}})
    assert group_rates(before, after) == [GroupRate("g", 90, 0.0, 80.0)]


def test_partitions_without_a_leader_have_no_lag() -> None:
    look = Look(1, {}, {"g": {A0: 3}})
    assert group_rates(Look(0, {A0: 5}, {"g": {A0: 3}}), look) == [GroupRate("g", 0, 0.0, -2.0)]


def test_a_partition_that_takes_most_of_its_topic_is_hot() -> None:
    before = Look(0, {A0: 0, A1: 0, B0: 5}, {})
    after = Look(2, {A0: 180, A1: 20, B0: 5}, {}, {A0: 3})
    assert hot_partitions(before, after) == [PartitionRate(A0, 3, 90.0, 1.8), PartitionRate(A1, -1, 10.0, 0.2)]


def test_a_lag_is_as_old_as_the_oldest_record_that_was_not_read() -> None:
    ages = LagAges()
    committed = {"g": {A0: 150}, "done": {A0: 200}, "old": {A0: 10}, "gone": {A1: 5}}
    for look in (Look(10, {A0: 100}, committed), Look(20, {A0: 200}, committed), Look(30, {A0: 200}, committed)):
        ages.note(look)
    assert ages.seconds(look, "g") == pytest.approx(15)
    assert ages.seconds(look, "done") == 0
    assert ages.seconds(look, "old") == pytest.approx(20), "at least since the first look"
    assert ages.seconds(look, "gone") == 0, "nobody knows where its log ends"


def test_ends_that_no_group_reads_any_more_are_forgotten() -> None:
    ages = LagAges()
    ages.note(Look(10, {A0: 100, A1: 5}, {"g": {A0: 50}}))
    ages.note(Look(20, {A0: 100, A1: 5}, {"g": {A1: 0}}))
    assert list(ages._ends) == [A1]


def test_a_trend_remembers_the_last_values_of_the_rows_that_are_there() -> None:
    trends = Trends()
    for number in range(MAX_TREND + 5):
        trends.note({"a": number, "b": 1.0})
    trends.note({"a": 7.0})
    assert len(trends.of("a")) == MAX_TREND
    assert trends.of("a")[-1] == 7.0
    assert trends.of("b") == ()


def test_a_sparkline_reaches_from_nothing_to_its_largest_value() -> None:
    assert sparkline([0, 1, 2, 3, 4], 10) == "▁▃▅▇█"
    assert sparkline([9, 9, 0, 1], 2) == "▁█"
    assert sparkline([0.0, 0.0], 5) == "▁▁"
    assert sparkline([], 5) == ""
