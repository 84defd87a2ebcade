"""What moved between two looks."""

from pylog.cli.rates import GroupRate, Look, TopicRate, group_rates, topic_rates
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
