"""How topic('…') in a query becomes a view."""

import pytest

from pylog.ingest.sql import topic_of, views_of


def test_a_topic_becomes_a_view() -> None:
    assert views_of("SELECT * FROM topic('host.journal') WHERE partition = 1") == (
        "SELECT * FROM topic_0 WHERE partition = 1", {"topic_0": "host.journal"},
    )  # fmt: skip


def test_each_topic_has_one_view() -> None:
    query, views = views_of("SELECT * FROM TOPIC( 'a' ) x JOIN topic('b') USING (key) JOIN topic('a') y USING (key)")
    assert query == "SELECT * FROM topic_0 x JOIN topic_1 USING (key) JOIN topic_0 y USING (key)"
    assert views == {"topic_0": "a", "topic_1": "b"}


@pytest.mark.parametrize(
    "other", ["'topic(''a'')'", "\"topic('a')\"", "`topic('a')`", "-- topic('a')\n", "/* topic('a') */", "mytopic('a')"]
)
def test_what_only_looks_like_a_topic_is_left_alone(other: str) -> None:
    query, views = views_of(f"SELECT {other} FROM topic('b')")
    assert query == f"SELECT {other} FROM topic_0"
    assert views == {"topic_0": "b"}


@pytest.mark.parametrize("query", ["SELECT 1", "SELECT * FROM clicks"])
def test_a_query_without_topic_is_left_to_spark(query: str) -> None:
    assert views_of(query) == (query, {})


@pytest.mark.parametrize(
    ("relation", "topic"),
    [
        ("`clicks`", "clicks"),
        ("`host`.`journal`", "host.journal"),
        ("`host.journal`", "host.journal"),
        ("`a``b`", None),
        ("", None),
    ],
)
def test_a_missing_table_is_a_topic(relation: str, topic: str | None) -> None:
    assert topic_of(relation) == topic
