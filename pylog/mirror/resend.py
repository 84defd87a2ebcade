"""Sends parked records to where they belong, once their topics take them."""

from collections.abc import Iterator
from dataclasses import dataclass

from pylog.client.admin.groups import GroupAdmin
from pylog.client.consumer import ConsumedRecord, Consumer
from pylog.client.producer import Producer
from pylog.errors import ApiError
from pylog.mirror.config import MirrorConfig
from pylog.mirror.follow import MAX_PARKED_BYTES
from pylog.mirror.parking import REFUSALS, Place, parked_mark, parked_place
from pylog.mirror.plan import PARKED_HEADER
from pylog.model import Offset, OnProgress, TopicPartition, nobody

_COMMIT_EVERY = 100
"""Records between two commits: at most so many are sent twice after a crash."""


@dataclass(frozen=True, slots=True)
class Parked:
    """A record that waits.

    Attributes:
        place: where it belongs, and why it is not there.
        record: as it is parked.
    """

    place: Place
    record: ConsumedRecord


def waiting(config: MirrorConfig, on_progress: OnProgress = nobody) -> Iterator[Parked]:
    """Yield the records that are parked and were not sent on since, oldest first, up to the end of now.

    Args:
        config: the mirror's.
        on_progress: told how many the caller is done with.

    Raises:
        PylogError: the target does not answer, or has no topic of parked records.
        ValueError: a record of the topic was written by somebody else.
    """
    partition = TopicPartition(config.parked_topic, 0)
    target = config.target.connection
    done = GroupAdmin(target).committed(_group(config)).get(partition, 0)
    start = GroupAdmin(target).offsets([partition])[partition].start
    with Consumer(target) as consumer:
        consumer.assign({partition: max(done, start)})
        for record in consumer.records_to_end(on_progress):
            marks = [value for name, value in record.headers if name == PARKED_HEADER]
            try:
                yield Parked(parked_place(marks[-1] if marks else None), record)
            except ValueError as error:
                raise ValueError(f"{config.parked_topic} offset {record.offset}: {error}") from error


def resend(config: MirrorConfig, on_progress: OnProgress = nobody) -> Iterator[tuple[Parked, str | None]]:
    """Send what waits to where it belongs, one after the other; yield each record, and why it is refused again.

    What is refused again is parked anew, with the new reason, before the old copy counts as done: nothing is lost if
    this ends in between, and at most the last hundred records come twice.

    Args:
        config: the mirror's.
        on_progress: told how many the caller is done with.

    Raises:
        PylogError: the target did not say what becomes of a record; begin again.
    """
    admin = GroupAdmin(config.target.connection)
    there = {name: len(one.partitions) for name, one in admin.cluster().topics.items()}
    done: Offset | None = None
    with Producer(config.target.connection, sync=True, message__max__bytes=MAX_PARKED_BYTES) as producer:
        try:
            for number, one in enumerate(waiting(config, on_progress), 1):
                reason = _send(producer, one, there)
                if reason is not None:
                    _park(producer, config.parked_topic, one, reason)
                done = one.record.offset + 1
                if number % _COMMIT_EVERY == 0:
                    _commit(admin, config, done)
                yield one, reason
        finally:
            if done is not None:
                _commit(admin, config, done)


def _send(producer: Producer, one: Parked, there: dict[str, int]) -> str | None:
    """Send a record to its place and wait; return why it is refused."""
    place = one.place.partition
    if place.partition >= there.get(place.topic, 0):
        return "the target has no such partition"
    error = _sent(producer, place, one.record, _without_mark(one.record))
    return None if error is None else str(error)


def _park(producer: Producer, topic: str, one: Parked, reason: str) -> None:
    mark = parked_mark(one.place.partition, one.place.offset, reason)
    headers = [*_without_mark(one.record), (PARKED_HEADER, mark)]
    error = _sent(producer, TopicPartition(topic, 0), one.record, headers)
    if error is not None:
        raise error


def _sent(
    producer: Producer, place: TopicPartition, record: ConsumedRecord, headers: list[tuple[str, bytes | None]]
) -> ApiError | None:
    """Send one record and wait; return the refusal whose cause is the record or its topic.

    Raises:
        PylogError: anything else: the same may be taken in a moment.
    """
    try:
        producer.send(
            place.topic,
            record.value,
            record.key,
            partition=place.partition,
            headers=headers,
            timestamp_ms=max(0, record.timestamp_ms),
        )
    except ApiError as error:
        if int(error.code) in REFUSALS or not error.retriable:
            return error
        raise
    return None


def _without_mark(record: ConsumedRecord) -> list[tuple[str, bytes | None]]:
    """Return a record's headers without the last mark, which parking put on it."""
    last = max(number for number, (name, _) in enumerate(record.headers) if name == PARKED_HEADER)
    return [*record.headers[:last], *record.headers[last + 1 :]]


def _commit(admin: GroupAdmin, config: MirrorConfig, done: Offset) -> None:
    admin.commit(_group(config), {TopicPartition(config.parked_topic, 0): done})


def _group(config: MirrorConfig) -> str:
    """Return the group whose committed offset says which parked records were sent on."""
    return f"{config.parked_topic}.resend"
