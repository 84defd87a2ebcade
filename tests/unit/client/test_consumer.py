"""What a reader by assignment makes of what librdkafka hands it."""

from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError

from pylog.client.consumer import Consumer, GroupConsumer
from pylog.errors import ApiError, ErrorCode
from pylog.model import TopicPartition


class Taken:
    """What is asked of a message of librdkafka: a record, or an error of its partition."""

    def __init__(self, partition: int, offset: int, code: int | None = None) -> None:
        self._partition = partition
        self._offset = offset
        self._error = None if code is None else KafkaError(code)

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError | None:
        return self._error

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_000

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b"v"


class Handed:
    """A consumer of librdkafka that hands out these batches, since nothing makes two partitions arrive together."""

    def __init__(self, *batches: list[Taken]) -> None:
        self.batches = deque(batches)
        self.committed: list[tuple[int, int]] = []

    def consume(self, max_count: int, timeout_s: float) -> list[Taken]:
        return self.batches.popleft() if self.batches else []

    def poll(self, timeout_s: float) -> None:
        return None

    def commit(self, *, offsets: list[Any], asynchronous: bool) -> None:
        self.committed += [(one.partition, one.offset) for one in offsets]

    def close(self) -> None:
        pass


@pytest.fixture
def group() -> Iterator[GroupConsumer]:
    with GroupConsumer("127.0.0.1:1", "g", ["t"]) as made:
        yield made


def hand(consumer: Consumer, *batches: list[Taken]) -> Handed:
    consumer._consumer.close()
    handed: Any = Handed(*batches)
    consumer._consumer = handed
    return handed  # type: ignore[no-any-return]


def test_records_that_came_with_an_error_are_read_before_it_is_raised(group: GroupConsumer) -> None:
    refused = KafkaError.TOPIC_AUTHORIZATION_FAILED
    handed = hand(group, [Taken(0, 10), Taken(1, -1, refused), Taken(0, 11)], [Taken(0, 12)])
    assert [one.offset for one in group.read(0)] == [10, 11]
    with pytest.raises(ApiError) as found:
        group.read(0)
    assert found.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert [one.offset for one in group.read(0)] == [12]
    group.commit()
    assert handed.committed == [(0, 13)]


def test_an_error_that_comes_alone_is_raised_at_once_and_an_end_is_none(group: GroupConsumer) -> None:
    hand(group, [Taken(1, 7, KafkaError._PARTITION_EOF)], [Taken(1, -1, KafkaError.TOPIC_AUTHORIZATION_FAILED)])
    assert group.read(0) == []
    assert group.at_end == {TopicPartition("t", 1): 7}
    with pytest.raises(ApiError):
        group.read(0)
    assert group.read(0) == []
