"""What follows from the topics that are wanted and those that are there, as a table."""

from typing import Any

import pytest

from pylog.errors import ConfigError
from pylog.ops.topics import Action, Found, Verdict, Wanted, compare, read

THERE = {
    "clicks": Found(partitions=4, replication_factor=3, config={"retention.ms": "1000"}),
    "plain": Found(partitions=1, replication_factor=1),
    "__consumer_offsets": Found(partitions=50, replication_factor=3),
}


def verdict(*topics: dict[str, Any], absent: tuple[str, ...] = ()) -> Verdict:
    return compare(*read({"topics": list(topics), "absent": list(absent)}), THERE)


@pytest.mark.parametrize(
    ("topic", "differences"),
    [
        ({"name": "clicks"}, []),
        ({"name": "clicks", "partitions": 4, "replication_factor": 3, "config": {"retention.ms": 1000}}, []),
        ({"name": "clicks", "partitions": "4"}, []),
        ({"name": "clicks", "partitions": 6}, ["clicks: partitions: found 4, wanted 6"]),
        ({"name": "clicks", "config": {"retention.ms": 2000}}, ["clicks: retention.ms: found 1000, wanted 2000"]),
        ({"name": "clicks", "config": {"retention.ms": None}}, ["clicks: retention.ms: found 1000, wanted none"]),
        ({"name": "plain", "config": {"retention.ms": None}}, []),
        (
            {"name": "plain", "config": {"unclean.leader.election.enable": True}},
            ["plain: unclean.leader.election.enable: found none, wanted true"],
        ),
        (
            {"name": "new", "partitions": 8, "config": {"cleanup.policy": "compact", "segment.ms": None}},
            [
                "new: partitions: found none, wanted 8",
                "new: replication_factor: found none, wanted the brokers' default",
                "new: cleanup.policy: found none, wanted compact",
            ],
        ),
    ],
)
def test_what_differs_is_what_changes(topic: dict[str, Any], differences: list[str]) -> None:
    found = verdict(topic)
    assert [str(one) for change in found.changes for one in change.differences] == differences
    assert found.refusals == ()


@pytest.mark.parametrize(
    ("topic", "difference", "remedy"),
    [
        ({"name": "clicks", "partitions": 3}, "clicks: partitions: found 4, wanted 3", "want 4, or make a new topic"),
        (
            {"name": "clicks", "replication_factor": 2},
            "clicks: replication_factor: found 3, wanted 2",
            "pylog partition reassign --topic clicks --replication-factor 2 --execute",
        ),
        (
            {"name": "plain", "replication_factor": 3},
            "plain: replication_factor: found 1, wanted 3",
            "pylog partition reassign --topic plain --replication-factor 3 --execute",
        ),
    ],
)
def test_what_nobody_asked_for_by_name_is_refused(topic: dict[str, Any], difference: str, remedy: str) -> None:
    [refusal] = verdict(topic).refusals
    assert str(refusal.difference) == difference
    assert refusal.remedy.startswith(remedy)


def test_a_topic_that_nobody_names_is_left_alone() -> None:
    assert verdict() == Verdict(changes=(), refusals=())


def test_only_a_topic_that_absent_names_is_deleted() -> None:
    found = verdict({"name": "plain"}, absent=("clicks", "gone"))
    assert [(one.action, one.topic) for one in found.changes] == [(Action.DELETE, "clicks")]


def test_a_topic_of_the_brokers_own_is_never_deleted() -> None:
    found = verdict(absent=("__consumer_offsets",))
    assert found.changes == ()
    assert [one.difference.topic for one in found.refusals] == ["__consumer_offsets"]


def test_partitions_and_settings_change_by_a_request_each() -> None:
    config = {"retention.ms": None, "segment.bytes": 2048, "max.message.bytes": 4096}
    grow, configure = verdict({"name": "clicks", "partitions": 5, "config": config}).changes
    assert (grow.action, grow.partitions) == (Action.GROW, 5)
    assert (configure.set, configure.unset) == (
        {"segment.bytes": "2048", "max.message.bytes": "4096"},
        ("retention.ms",),
    )


def test_what_was_changed_differs_no_more() -> None:
    wanted = [Wanted(name="clicks", partitions=6, config={"retention.ms": None, "segment.ms": "5"})]
    after = {"clicks": Found(partitions=6, replication_factor=3, config={"segment.ms": "5"})}
    assert compare(wanted, [], after) == Verdict(changes=(), refusals=())


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ([], "the document: found a list, wanted a mapping"),
        ({"topic": []}, "found the key 'topic', wanted topics or absent"),
        ({"topics": {}, "absent": "x"}, "absent: found text, wanted a list"),
        ({"topics": ["clicks"]}, "topics[0]: found text, wanted a mapping with a name"),
        ({"topics": [{}]}, "topics[0]: name: found None, wanted the name of a topic"),
        ({"topics": [{"name": "a", "partition": 1}]}, "topic a: found the key 'partition', wanted one of name"),
        ({"topics": [{"name": "a", "partitions": 0}]}, "topic a: partitions: found 0, wanted a number from 1"),
        (
            {"topics": [{"name": "a", "partitions": "four"}]},
            "topic a: partitions: found 'four', wanted a number from 1",
        ),
        ({"topics": [{"name": "a", "replication_factor": True}]}, "topic a: replication_factor: found True"),
        ({"topics": [{"name": "a", "config": ["x"]}]}, "topic a: config: found a list, wanted a mapping"),
        ({"topics": [{"name": "a", "config": {"x": [1]}}]}, "topic a: x: found a list, wanted one value"),
        ({"topics": [{"name": "a"}, {"name": "a"}]}, "topic a: found 2 times, wanted once"),
        ({"topics": [{"name": "a"}], "absent": ["a"]}, "topic a: found in topics and in absent"),
        ({"absent": [7]}, "absent: found 7, wanted the name of a topic"),
    ],
)
def test_a_wrong_document_says_what_was_found_and_what_is_wanted(document: object, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(document)
    assert told in str(caught.value)


def test_everything_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        read({"topics": [{"name": "a", "partitions": -1}, {"name": "b", "config": 3}]})
    assert str(caught.value).count("; ") == 1
