"""The topics that workers keep, by the hosts' variables."""

from pylog.connect.document import read, with_dead_letters
from pylog.connect.topics import internal_topics, workers_of


def test_workers_of_one_group_have_three_compacted_topics_together() -> None:
    topics = internal_topics([{}, {}, {"connect_datacenter": "offline"}], "all")
    assert [(one["name"], one["partitions"], one["replication_factor"]) for one in topics] == [
        ("connect-configs", 1, 3), ("connect-offsets", 25, 3), ("connect-status", 5, 3)
    ]  # fmt: skip
    assert {one["config"]["cleanup.policy"] for one in topics} == {"compact"}


def test_another_group_of_the_same_datacenter_has_its_own() -> None:
    host = {"pylog_datacenter": "live", "connect_group": "mirror", "connect_offset_partitions": "7"}
    assert [(one["name"], one["partitions"]) for one in internal_topics([host], "live")] == [
        ("mirror-configs", 1), ("mirror-offsets", 7), ("mirror-status", 5)
    ]  # fmt: skip
    assert workers_of(host) == ("live", "mirror")


def test_a_sink_gets_a_topic_for_what_it_cannot_convert_unless_it_says_itself_what_happens() -> None:
    def sink(name: str, **config: str) -> dict[str, object]:
        return {"name": name, "config": {"connector.class": "Sink", "topics": "t", **config}}

    source = {"name": "source", "config": {"connector.class": "Source", "topic": "t"}}
    rows = with_dead_letters([sink("a"), sink("b", **{"errors.tolerance": "none"}), source], "connect", 2)
    assert rows[0]["config"] | {"errors.log.enable": "true"} == rows[0]["config"]
    assert rows[0]["config"]["errors.deadletterqueue.topic.name"] == "connect-dead-letters-a"
    assert rows[0]["config"]["errors.deadletterqueue.topic.replication.factor"] == "2"
    assert rows[1:] == [sink("b", **{"errors.tolerance": "none"}), source]
    assert [one.name for one in read({"connectors": rows})[0]] == ["a", "b", "source"]
