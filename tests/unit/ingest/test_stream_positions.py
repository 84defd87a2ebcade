"""Where a stream's micro-batches end, whatever single brokers have heard of."""

from collections.abc import Iterable, Mapping
from uuid import UUID

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pylog.client.raw import Topic
from pylog.ingest.options import parse_options
from pylog.ingest.plan import Position, PositionError, kept
from pylog.ingest.source import PylogDataSource, PylogStreamReader
from pylog.model import TopicPartition

ONE, OTHER = TopicPartition("one", 0), TopicPartition("other", 0)


class Brokers:
    """Answer as one of them does that has heard of some topics; each log begins at 0."""

    def __init__(self, ends: Mapping[TopicPartition, int]) -> None:
        self.ends = dict(ends)
        self.unheard: set[str] = set()
        self.ids: dict[str, UUID] = {}

    def topics(self, names: Iterable[str] | None = None) -> dict[str, Topic]:
        heard = sorted({p.topic for p in self.ends} - self.unheard)
        return {
            name: Topic(self.ids.get(name, UUID(int=7)), {p.partition: 1 for p in self.ends if p.topic == name})
            for name in heard
        }

    def present_topics(self, names: Iterable[str], failed: object = None) -> dict[str, Topic]:
        return {name: topic for name, topic in self.topics().items() if name in set(names)}

    def end_offsets(
        self, partitions: Iterable[TopicPartition], *_: object, **__: object
    ) -> dict[TopicPartition, object]:
        return {p: (self.ends[p], 3) for p in partitions}

    def list_offsets(self, partitions: Iterable[TopicPartition], *_: object) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def epoch_ends(self, epochs: Mapping[TopicPartition, int], *_: object) -> dict[TopicPartition, int]:
        return dict.fromkeys(epochs, 1000)


def reader_of(brokers: Brokers, **more: str) -> PylogStreamReader:
    given = {"bootstrap": "127.0.0.1:1", "topicPattern": ".*", "startingOffsets": "earliest", **more}
    found = PylogStreamReader(parse_options(given, is_stream=True), PylogDataSource(given).schema())
    found.__dict__["_client"] = brokers
    found._clock = iter(range(0, 1000, 10)).__next__
    return found


def test_a_stream_goes_on_without_topics_that_its_pattern_meant_in_an_earlier_release() -> None:
    audit = TopicPartition("_audit", 0)
    brokers = Brokers({ONE: 10, audit: 5})
    reader = reader_of(brokers)
    ids = {topic: str(UUID(int=7)) for topic in ("one", "_audit")}
    start, end = Position({ONE: 8, audit: 3}, ids).to_json(), Position({ONE: 9, audit: 4}, ids).to_json()
    assert Position.from_json(reader.latestOffset(start, ReadAllAvailable())).offsets == {ONE: 10}
    [task] = reader.partitions(start, end)
    assert [r.partition for r in task.ranges] == [ONE]


@pytest.mark.parametrize("is_available_now", [False, True])
def test_a_topic_that_a_broker_has_not_heard_of_is_not_read_once_more(is_available_now: bool) -> None:
    brokers = Brokers({ONE: 10, OTHER: 20})
    reader = reader_of(brokers, failOnDataLoss="false")
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    brokers.unheard, brokers.ends[ONE] = {"other"}, 11
    if is_available_now:
        reader.prepareForTriggerAvailableNow()
    middle = reader.latestOffset(start, ReadAllAvailable())
    assert Position.from_json(middle).offsets == {ONE: 11, OTHER: 20}
    assert reader.latestOffset(middle, ReadAllAvailable()) == middle == reader.reportLatestOffset()
    brokers.unheard, brokers.ends[OTHER] = set(), 21
    reader = reader_of(brokers, failOnDataLoss="false")
    end = reader.latestOffset(middle, ReadAllAvailable())
    assert [(r.partition, r.start, r.end) for task in reader.partitions(middle, end) for r in task.ranges] == [
        (OTHER, 20, 21)
    ]


def test_a_topic_that_is_gone_is_named_unless_data_may_be_lost() -> None:
    brokers = Brokers({ONE: 10, OTHER: 20})
    reader = reader_of(brokers)
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    brokers.unheard = {"other"}
    for _ in range(2):
        with pytest.raises(PositionError, match="'other'"):
            reader.latestOffset(start, ReadAllAvailable())


def test_a_topic_that_was_made_again_is_read_anew_where_data_may_be_lost(capsys: pytest.CaptureFixture[str]) -> None:
    brokers = Brokers({ONE: 10, OTHER: 20})
    reader = reader_of(brokers, failOnDataLoss="false")
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    brokers.ids["other"], brokers.ends[OTHER] = UUID(int=8), 3
    end = reader.latestOffset(start, ReadAllAvailable())
    assert Position.from_json(end).offsets == {ONE: 10, OTHER: 3}

    def read(start: dict[str, object], end: dict[str, object]) -> list[tuple[TopicPartition, int, int]]:
        return [(r.partition, r.start, r.end) for task in reader.partitions(start, end) for r in task.ranges]

    assert read(start, end) == [(OTHER, 0, 3)]
    assert capsys.readouterr().err.count("'other' was deleted and made again: its id was") == 1
    brokers.ids["other"], brokers.ends = UUID(int=9), {ONE: 11, OTHER: 1}  # before that batch was carried out
    assert read(start, end) == []
    after = reader.latestOffset(end, ReadAllAvailable())
    assert read(end, after) == [(ONE, 10, 11), (OTHER, 0, 1)]
    with pytest.raises(PositionError, match="'other' was deleted and made again"):
        reader_of(brokers).latestOffset(end, ReadAllAvailable())


def test_partitions_of_a_topic_that_was_made_again_are_not_kept() -> None:
    more = TopicPartition("one", 1)
    start = Position({ONE: 5, more: 6, OTHER: 7}, {"one": "a", "other": "c"}, {more: 2})
    assert kept(start, Position({ONE: 9}, {"one": "a"})) == Position(
        {ONE: 9, more: 6, OTHER: 7}, {"one": "a", "other": "c"}, {more: 2}
    )
    assert kept(start, Position({ONE: 1, OTHER: 8}, {"one": "b", "other": "c"})) == Position(
        {ONE: 1, OTHER: 8}, {"one": "b", "other": "c"}
    )
