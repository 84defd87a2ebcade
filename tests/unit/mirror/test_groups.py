"""What is written down of the source's groups, and when."""

import math
import re

import pytest

from pylog.client.connection import Connection
from pylog.daemon.notices import Notices
from pylog.errors import ApiError, ErrorCode, PylogError, Unreachable
from pylog.metrics import Metrics
from pylog.mirror.config import Cluster, MirrorConfig
from pylog.mirror.groups import Carrier, Checkpoint, GroupTopic, Written, ask, checkpoints, is_carrier
from pylog.mirror.meters import Meters
from pylog.mirror.scout import Scout
from pylog.model import TopicPartition

IDS = {"clicks": "C", "views": "V"}
READERS = {TopicPartition("clicks", 0): 5, TopicPartition("clicks", 1): 7, TopicPartition("views", 0): 1}


def test_each_topic_of_a_group_is_a_record_and_what_is_not_mirrored_is_none() -> None:
    found = checkpoints({"readers": READERS | {TopicPartition("at-home", 0): 3}, "idle": {}}, IDS)
    assert found == {
        GroupTopic("readers", "clicks"): Checkpoint("C", {0: 5, 1: 7}),
        GroupTopic("readers", "views"): Checkpoint("V", {0: 1}),
    }


def changed(seen: dict[GroupTopic, Checkpoint], known: dict[GroupTopic, Checkpoint]) -> object:
    return Written(known).news(seen)


def test_only_news_are_written() -> None:
    known = checkpoints({"readers": READERS}, IDS)
    seen = checkpoints({"readers": READERS | {TopicPartition("views", 0): 2}, "new": READERS}, {**IDS, "clicks": "C"})
    assert changed(seen, known) == {
        GroupTopic("readers", "views"): Checkpoint("V", {0: 2}),
        GroupTopic("new", "clicks"): Checkpoint("C", {0: 5, 1: 7}),
        GroupTopic("new", "views"): Checkpoint("V", {0: 1}),
    }
    assert changed(seen, seen) == {}


def test_a_group_is_gone_once_its_coordinator_said_so_twice_in_a_row() -> None:
    both, one = (dict.fromkeys(names, READERS) for names in (["idle", "readers"], ["readers"]))
    written = Written(checkpoints(both, IDS))
    left = checkpoints(one, IDS)
    assert written.news(left) == {}
    assert written.news(checkpoints(both, IDS)) == {}, "it is back"
    assert written.news(left) == {}
    assert written.news(left) == {GroupTopic("idle", "clicks"): None, GroupTopic("idle", "views"): None}
    assert written.news(left) == {}, "it is told once"
    assert written.groups == {"readers"}


def test_groups_of_which_no_coordinator_speaks_stay_written_down() -> None:
    written = Written(checkpoints({"idle": READERS, "readers": READERS}, IDS))
    for _ in range(3):
        assert written.news({}, unknown={"idle", "readers"}) == {}
    assert written.news({}) == {}, "the first look that tells is the first of two"
    assert written.groups == {"idle", "readers"}


def test_a_topic_that_was_made_again_is_news() -> None:
    known = checkpoints({"readers": READERS}, IDS)
    assert changed(checkpoints({"readers": READERS}, {**IDS, "views": "V2"}), known) == {
        GroupTopic("readers", "views"): Checkpoint("V2", {0: 1})
    }


def test_records_come_back_as_they_were() -> None:
    key, value = GroupTopic("rea ders\u00e4", "clicks"), Checkpoint("C", {0: 5, 10: 2**62})
    assert (GroupTopic.decode(key.encode()), Checkpoint.decode(value.encode(7))) == (key, value)


@pytest.mark.parametrize("data", [b"", b"x", b"[]", b"{}", b'{"version":2,"id":"C","offsets":[]}', b'{"version":1}'])
def test_what_is_no_checkpoint_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"checkpoint|JSON|Expecting"):
        Checkpoint.decode(data)


def test_the_instance_with_the_first_partition_of_what_the_target_takes_carries_the_offsets() -> None:
    first, second = ({TopicPartition(topic, number) for topic in ("clicks", "views")} for number in (0, 1))
    assert is_carrier(["clicks", "views"], first)
    assert not is_carrier(["clicks", "views"], second)
    assert not is_carrier([], first)


@pytest.mark.parametrize(
    ("error", "unknown"),
    [
        (ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED), {"denied"}),
        (ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE), {"denied", "readers"}),
        (Unreachable("no broker answers"), {"denied", "readers"}),
    ],
)
def test_a_group_that_is_refused_leaves_the_next_ones_known(error: PylogError, unknown: set[str]) -> None:
    told: list[PylogError] = []

    def committed(group: str) -> dict[TopicPartition, int]:
        if group == "denied":
            raise error
        return READERS

    known = {"audit", "denied", "readers"}
    assert ask(known, committed, told.append) == (dict.fromkeys(known - unknown, READERS), unknown)
    assert told == [error]


def test_an_instance_that_starts_while_the_clusters_are_away_tells_that_nothing_is_carried() -> None:
    nobody = Connection(bootstrap="127.0.0.1:1")
    config = MirrorConfig(
        source=Cluster("live", nobody), target=Cluster("offline", nobody), topics=("clicks",), group="mirror"
    )
    metrics, notices = Metrics(), Notices()
    meters = Meters(metrics)
    carrier = Carrier(config, Scout(config, meters, notices), meters, notices)

    def age() -> float:
        return float(re.findall(r"^pylog_mirror_groups_age_seconds (\S+)$", metrics.render(), re.MULTILINE)[0])

    assert math.isnan(age())
    carrier.start()
    try:
        assert age() >= 0
    finally:
        carrier.close()
