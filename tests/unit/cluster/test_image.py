"""The image: order, lookup, topic ids."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.cluster.image import ClusterImage, PartitionImage, TopicImage, parse_topic_id, topic_id_text

ids = st.uuids()


@given(ids)
def test_a_topic_id_survives_its_text(topic_id: uuid.UUID) -> None:
    text = topic_id_text(topic_id)
    assert len(text) == 22
    assert parse_topic_id(text) == topic_id


@pytest.mark.parametrize("text", ["", "short", "!" * 22, "A" * 23])
def test_a_text_that_is_no_topic_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_topic_id(text)


def test_a_topic_is_found_by_its_id() -> None:
    topic = TopicImage("t", uuid.UUID(int=1), {0: PartitionImage(1, 0, (1,), (1,), 0)})
    image = ClusterImage(1, 1, "c", 1, topics={"t": topic})
    assert image.topic_by_id(uuid.UUID(int=1)) is topic
    assert image.topic_by_id(uuid.UUID(int=2)) is None
    assert image.partition("t", 0) == topic.partitions[0]
    assert image.partition("t", 1) is image.partition("u", 0) is None


def test_images_are_ordered_by_controller_epoch_then_version() -> None:
    orders = [ClusterImage(epoch, version, "c", 1).order for epoch, version in [(1, 9), (2, 1), (2, 2)]]
    assert orders == sorted(orders)
