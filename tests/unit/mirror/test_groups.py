"""What is written down of the source's groups, and when."""

import pytest

from pylog.mirror.groups import Checkpoint, GroupTopic, changed, checkpoints
from pylog.model import TopicPartition

IDS = {"clicks": "C", "views": "V"}
READERS = {TopicPartition("clicks", 0): 5, TopicPartition("clicks", 1): 7, TopicPartition("views", 0): 1}


def test_each_topic_of_a_group_is_a_record_and_what_is_not_mirrored_is_none() -> None:
    found = checkpoints({"readers": READERS | {TopicPartition("at-home", 0): 3}, "idle": {}}, IDS)
    assert found == {
        GroupTopic("readers", "clicks"): Checkpoint("C", {0: 5, 1: 7}),
        GroupTopic("readers", "views"): Checkpoint("V", {0: 1}),
    }


def test_only_news_are_written() -> None:
    known = checkpoints({"readers": READERS, "gone": READERS}, IDS)
    seen = checkpoints({"readers": READERS | {TopicPartition("views", 0): 2}, "new": READERS}, {**IDS, "clicks": "C"})
    assert changed(seen, known) == {
        GroupTopic("readers", "views"): Checkpoint("V", {0: 2}),
        GroupTopic("new", "clicks"): Checkpoint("C", {0: 5, 1: 7}),
        GroupTopic("new", "views"): Checkpoint("V", {0: 1}),
        GroupTopic("gone", "clicks"): None,
        GroupTopic("gone", "views"): None,
    }
    assert changed(seen, seen) == {}


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
