"""Which topics are mirrored, and what becomes of the target's."""

from pylog.mirror.plan import HEADROOM_BYTES, Alter, Create, Grow, Topic, changes, chosen


def test_patterns_match_whole_names_and_a_cluster_s_own_topics_stay() -> None:
    names = ["clicks", "clicks-old", "views", "__consumer_offsets", "_audit", "pylog.offsets.live", "_schemas"]
    assert chosen(names, ["clicks", "v.*"], []) == ["clicks", "views"]
    assert chosen(names, [".*"], [".*-old"]) == ["clicks", "views"]
    assert chosen(["_schemas", "pylog.parked.live"], [".*", "_schemas"], []) == [], "ids would stand for two schemas"


LIMIT = {"max.message.bytes": str(1048588 + HEADROOM_BYTES)}
"""What the target takes where the source takes Kafka's default."""


def test_new_topics_partitions_and_settings_follow() -> None:
    source = {
        "new": Topic(3, {"retention.ms": "5", "min.insync.replicas": "2", "message.timestamp.type": "LogAppendTime"}),
        "same": Topic(2, {"cleanup.policy": "compact"}),
        "more": Topic(4),
        "other": Topic(1, {"retention.ms": "7"}),
    }
    target = {
        "same": Topic(2, {"cleanup.policy": "compact", "min.insync.replicas": "1"} | LIMIT),
        "more": Topic(2, LIMIT),
        "other": Topic(1, {"retention.ms": "6", "retention.bytes": "9"} | LIMIT),
        "gone": Topic(1),
    }
    assert changes(source, target) == [
        Grow("more", 4),
        Create("new", 3, {"retention.ms": "5"} | LIMIT),
        Alter("other", {"retention.ms": "7"}, ["retention.bytes"]),
    ]


def test_fewer_partitions_at_the_source_change_nothing() -> None:
    assert changes({"t": Topic(1)}, {"t": Topic(2, LIMIT)}) == []
