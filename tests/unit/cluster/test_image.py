"""The image: order, lookup, and its encoded form."""

import json
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.cluster.image import (
    BrokerInfo,
    ClusterImage,
    DeletedTopic,
    PartitionImage,
    TopicImage,
    decode_image,
    encode_image,
    parse_topic_id,
    topic_id_text,
)
from pylog.errors import ProtocolError
from pylog.model import NodeAddress

names = st.text(st.characters(codec="utf-8"), max_size=8)
ids = st.uuids()
configs = st.dictionaries(names, names, max_size=2)
broker_ids = st.integers(0, 2**31 - 1)
replicas = st.lists(broker_ids, min_size=1, max_size=3).map(tuple)
partitions = st.builds(PartitionImage, broker_ids, st.integers(0, 99), replicas, replicas, st.integers(0, 99))


@st.composite
def brokers(draw: st.DrawFn) -> BrokerInfo:
    number = draw(broker_ids)
    address = st.builds(NodeAddress, st.just(number), names, st.integers(0, 65535))
    epoch, rack, is_clean = draw(st.integers(0, 2**63 - 1)), draw(st.none() | names), draw(st.booleans())
    return BrokerInfo(number, epoch, rack, draw(address), draw(address), is_clean)


@st.composite
def images(draw: st.DrawFn) -> ClusterImage:
    topics = draw(st.lists(st.builds(
        TopicImage, names, ids, st.lists(partitions, max_size=3).map(lambda some: dict(enumerate(some))), configs
    ), max_size=3))
    deleted = draw(st.lists(st.builds(DeletedTopic, names, ids, replicas), max_size=2))
    live = draw(st.lists(brokers(), max_size=3))
    return ClusterImage(
        draw(st.integers(0, 99)),
        draw(st.integers(0, 99)),
        draw(names),
        draw(broker_ids),
        {broker.broker_id: broker for broker in live},
        {topic.name: topic for topic in topics},
        {one.topic_id: one for one in deleted},
        draw(st.dictionaries(names, configs, max_size=2)),
    )


@given(images())
def test_an_image_survives_its_encoding(image: ClusterImage) -> None:
    assert decode_image(encode_image(image)) == image


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


def test_an_image_of_another_format_is_refused_by_name() -> None:
    content = json.loads(encode_image(ClusterImage(1, 1, "c", 1))) | {"format": 9}
    with pytest.raises(ProtocolError, match="format 9"):
        decode_image(json.dumps(content).encode())


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"null", b'{"format":1}', b"\xff", b'{"format":1,"topics":3}'])
def test_what_is_no_image_is_refused(content: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_image(content)
