"""Images as they travel: both formats, deltas, and what the release before reads and writes (rule 15)."""

import json
import uuid
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.cluster.image import BrokerInfo, ClusterImage, DeletedTopic, Move, PartitionImage, TopicImage
from pylog.cluster.image_codec import ImageHistory, decode_image, encode_whole
from pylog.cluster.quotas import QuotaEntity
from pylog.errors import ProtocolError
from pylog.model import NodeAddress

texts = st.text(max_size=3)
entities = st.builds(QuotaEntity, st.none() | texts, st.none() | texts, st.none()) | st.builds(
    QuotaEntity, st.none(), st.none(), texts
)
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
    listeners = draw(st.dictionaries(names, address, max_size=2))
    return BrokerInfo(number, epoch, rack, draw(address), draw(address), is_clean, listeners=listeners)


@st.composite
def images(draw: st.DrawFn) -> ClusterImage:
    topics = draw(
        st.lists(
            st.builds(
                TopicImage,
                names,
                ids,
                st.lists(partitions, max_size=3).map(lambda some: dict(enumerate(some))),
                configs,
                st.dictionaries(st.integers(0, 2), st.builds(Move, replicas, replicas), max_size=2),
                st.dictionaries(st.integers(0, 2), replicas, max_size=2),
                st.integers(0, 2**41),
            ),
            max_size=3,
        )
    )
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
        draw(st.dictionaries(entities, st.dictionaries(names, st.floats(0, 9), min_size=1, max_size=2), max_size=2)),
        draw(st.integers(1, 9)),
    )


NOTHING = ClusterImage(-1, 0, "", -1)

PREVIOUS_RELEASE = (
    b'{"format":1,"controller_epoch":4,"version":7,"cluster_id":"c","controller_id":1,'
    b'"brokers":[[1,100,"r1","a",9092,"a",9093,true],[2,101,null,"b",9092,"b",9093,false]],'
    b'"topics":[["t","AAAAAAAAAAAAAAAAAAAAAQ",[[1,3,5,[1,2],[1]],[-1,0,0,[2],[2]]],{"retention.ms":"5"}]],'
    b'"deleted_topics":[["u","AAAAAAAAAAAAAAAAAAAAAg",[2]]],"broker_configs":{"<default>":{"a":"b"}}}'
)
"""What commit 978b658, the last before formats were numbered, made of `EXAMPLE`."""

EXAMPLE = ClusterImage(
    4,
    7,
    "c",
    1,
    {
        1: BrokerInfo(1, 100, "r1", NodeAddress(1, "a", 9092), NodeAddress(1, "a", 9093)),
        2: BrokerInfo(2, 101, None, NodeAddress(2, "b", 9092), NodeAddress(2, "b", 9093), is_clean=False),
    },
    {
        "t": TopicImage(
            "t",
            uuid.UUID(int=1),
            {0: PartitionImage(1, 3, (1,), (1, 2), 5), 1: PartitionImage(-1, 0, (2,), (2,), 0)},
            {"retention.ms": "5"},
        )
    },
    {uuid.UUID(int=2): DeletedTopic("u", uuid.UUID(int=2), (2,))},
    {"<default>": {"a": "b"}},
)


@given(images())
def test_an_image_survives_its_encoding(image: ClusterImage) -> None:
    assert decode_image(encode_whole(image, 2), NOTHING) == image


def test_rule_15_this_release_writes_what_the_previous_one_reads_until_finalized() -> None:
    assert encode_whole(EXAMPLE, 1) == PREVIOUS_RELEASE


def test_rule_15_this_release_reads_what_the_previous_one_writes() -> None:
    assert decode_image(PREVIOUS_RELEASE, NOTHING) == EXAMPLE


def test_rule_15_format_1_tells_its_readers_that_the_cluster_was_finalized() -> None:
    found = decode_image(encode_whole(replace(EXAMPLE, level=2), 1), NOTHING)
    assert found is not None
    assert found.level == 2


def test_users_travel_with_an_image_and_one_without_users_has_the_form_from_before() -> None:
    image = ClusterImage(1, 1, "c", 1, scram_credentials={"alice": {"SCRAM-SHA-256": "salt=YQ=="}})
    for version in (1, 2):
        assert decode_image(encode_whole(image, version), NOTHING) == image
        assert b"scram" not in encode_whole(replace(image, scram_credentials={}), version)
    assert "salt" not in repr(image)


def test_a_broker_of_seven_fields_is_clean() -> None:
    document = json.loads(PREVIOUS_RELEASE)
    document["brokers"] = [row[:7] for row in document["brokers"]]
    found = decode_image(json.dumps(document).encode(), NOTHING)
    assert found is not None
    assert [broker.is_clean for broker in found.brokers.values()] == [True, True]


@given(st.lists(images(), min_size=2, max_size=6), st.data())
def test_deltas_lead_to_the_image_that_they_are_made_of(some: list[ClusterImage], data: st.DataObject) -> None:
    history = ImageHistory()
    before = NOTHING
    for version, one in enumerate(some, 1):
        # Topics live on from image to image, so that there is something to leave out.
        topics = dict(before.topics) | dict(one.topics) if data.draw(st.booleans()) else dict(one.topics)
        now = replace(one, controller_epoch=1, version=version, topics=topics)
        history.advance(now)
        if data.draw(st.booleans()):
            continue  # a reader that misses an image
        assert decode_image(history.answer(before.order, 2), before) == now
        before = now


def test_a_delta_has_only_what_changed() -> None:
    history = ImageHistory()
    history.advance(EXAMPLE)
    changed = replace(EXAMPLE.topics["t"].partitions[1], leader=2)
    topic = replace(EXAMPLE.topics["t"], partitions={**EXAMPLE.topics["t"].partitions, 1: changed})
    other = TopicImage("o", uuid.UUID(int=9), {0: PartitionImage(1, 0, (1,), (1,), 0)})
    history.advance(replace(EXAMPLE, version=8, topics={"t": topic, "o": other}))
    document = json.loads(history.answer((4, 7), 2))
    assert document["since"] == 7
    assert {row[0]: list(row[2]) for row in document["topics"]} == {"t": ["1"], "o": ["0"]}
    assert json.loads(history.answer((4, 8), 2))["topics"] == []


@pytest.mark.parametrize("order", [(3, 99), (4, 6), (5, 1)], ids=["other controller", "before it", "later controller"])
def test_whoever_has_no_image_of_this_controller_gets_a_whole_one(order: tuple[int, int]) -> None:
    history = ImageHistory()
    history.advance(EXAMPLE)
    assert json.loads(history.answer(order, 2))["since"] is None


def test_a_delta_upon_another_image_says_nothing() -> None:
    history = ImageHistory()
    history.advance(EXAMPLE)
    history.advance(replace(EXAMPLE, version=8))
    assert decode_image(history.answer((4, 7), 2), replace(EXAMPLE, controller_epoch=5)) is None


def test_an_image_of_another_format_is_refused_by_name() -> None:
    content = json.loads(PREVIOUS_RELEASE) | {"format": 9}
    with pytest.raises(ProtocolError, match="format 9"):
        decode_image(json.dumps(content).encode(), NOTHING)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b"null", b'{"format":1}', b"\xff", b'{"format":1,"topics":3}', b'{"format":2,"since":null}'],
)
def test_what_is_no_image_is_refused(content: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_image(content, NOTHING)
