"""Records that the target refuses in their own topic.  Decides; waits for nothing.

A refusal names a batch, so the mirror first sends each of its records by itself: those that are in order then arrive,
in their order.  What is refused alone is *parked*: written as it is to a topic of its own in the target, with a header
that says where it belongs and why it is not there.

header pylog.parked => {"topic": string, "partition": int, "offset": int, "reason": string}      (JSON)
"""

import json
from typing import NamedTuple

from confluent_kafka import KafkaError

from pylog.errors import ErrorCode
from pylog.metrics import OTHER
from pylog.model import Offset, TopicPartition

REFUSALS = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_MSG,
    }
)
"""What a broker answers whose cause is the record: the same again would be refused again."""

MAX_SUSPECTS = 100_000
"""Remembered at once; one that is forgotten is refused with its batch once more."""


def refusal_name(error: KafkaError) -> str:
    """Return the name of the target's answer, as metrics and `pylog explain` know it: one of a few.

    librdkafka refuses some of it before it is sent, under numbers of its own.
    """
    return ErrorCode(error.code()).name if error.code() in REFUSALS else OTHER


class Suspects:
    """Records of refused batches, which are sent one by one; they outlive the session that ended by them."""

    def __init__(self) -> None:
        self._offsets: set[tuple[TopicPartition, Offset]] = set()

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._offsets)

    def __contains__(self, record: tuple[TopicPartition, Offset]) -> bool:
        return record in self._offsets

    def add(self, partition: TopicPartition, offset: Offset) -> bool:
        """Remember a record of a refused batch; return False if there are too many."""
        if len(self._offsets) >= MAX_SUSPECTS:
            return False
        self._offsets.add((partition, offset))
        return True

    def discard(self, partition: TopicPartition, offset: Offset) -> None:
        """Forget one of which the target has said what it does."""
        self._offsets.discard((partition, offset))


def parked_mark(partition: TopicPartition, offset: Offset, reason: str) -> bytes:
    """Return the header's value."""
    return json.dumps(
        {"topic": partition.topic, "partition": partition.partition, "offset": offset, "reason": reason}
    ).encode()


class Place(NamedTuple):
    """Where a parked record belongs, its offset in the source, and why the target refused it."""

    partition: TopicPartition
    offset: Offset
    reason: str


def parked_place(mark: bytes | None) -> Place:
    """Return what `parked_mark` was given.

    Raises:
        ValueError: the mirror wrote no such mark.
    """
    try:
        found = json.loads(mark or b"")
        partition = TopicPartition(str(found["topic"]), int(found["partition"]))
        return Place(partition, int(found["offset"]), str(found["reason"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"header pylog.parked: found {mark!r}, wanted topic, partition, offset and reason") from error
