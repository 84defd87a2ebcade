"""What is written down of the source's groups, and when."""

import pytest

from pylog.mirror.groups import Checkpoint, GroupTopic, Written, checkpoints, is_carrier
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
