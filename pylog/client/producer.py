"""Sends records and knows when they are safe."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, overload

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Message as _Record
from confluent_kafka import Producer as _Producer

from pylog.client.connection import ClientError, Connection, as_connection, error_of, translate
from pylog.client.message import Message, MessageSet
from pylog.client.partitioner import Partitioner
from pylog.errors import ConfigError, PylogError, Unreachable

OnDelivery: TypeAlias = Callable[[PylogError | None], None]
"""Hears how one record ended: None when it is acknowledged, else why it is not written."""

Serializer: TypeAlias = Callable[[Any], bytes | None]
"""Makes the bytes of a message's payload."""

ACKS: Final = {"none": "0", "leader": "1", "all": "all", "0": "0", "1": "1", "-1": "all"}
"""Who has a record before it counts as sent: nobody says, the leader, or every in-sync replica."""

_BatchRecord: TypeAlias = dict[str, object]
"""What `produce_batch` takes: ``key``, ``value``; it adds ``_error`` to those it refuses."""

_FULL_QUEUE_WAIT_S = 0.1
_NEW_TOPIC_WAIT_S = 0.1

PARTITION_COUNT_AGE_S = 60.0
"""How long a partition function works with a topic's number of partitions before it is asked for again."""


class Producer:
    """Sends records to a cluster.

    Not thread-safe towards its own counters: use one from one thread.  It has no transactions, and refuses a
    transactional id.

    Args:
        cluster: a `Connection`, or just ``host:port``.
        acks: "all" (every in-sync replica has it), "leader" or "none" (nobody says); Kafka's "1" and "0" will do.
        compression: none, gzip, snappy, lz4 or zstd.
        linger_ms: how long a record may wait for company in its batch.
        delivery_timeout_ms: after which an unacknowledged record counts as failed; 0 waits for ever.
        buffered_bytes: records in memory at most; `send` waits at the limit.
        reports_success: whether *on_delivery* of `send` hears of success too; that costs a call for each record.
        sync: whether `send` returns only when all it was given is acknowledged, and raises if something was not;
            otherwise it returns at once and sends in the background.
        partitioner: chooses among a topic's partitions where the sender does not (`pylog.client.partitioner`); by
            default the key's hash does as in Apache Kafka's own clients, or chance.
        serializer: makes the bytes of each `Message`'s payload.

    Attributes:
        failed_count: records that were refused or timed out.
        first_error: why the first of them failed.
        first_failed: topic and partition of the first of them, -1 for a partition that was not chosen yet; None where
            nobody says.
    """

    def __init__(
        self,
        cluster: Connection | str,
        *,
        acks: str = "all",
        compression: str = "none",
        linger_ms: float = 5,
        delivery_timeout_ms: int = 120_000,
        buffered_bytes: int = 256 << 20,
        reports_success: bool = False,
        sync: bool = False,
        partitioner: Partitioner | None = None,
        serializer: Serializer | None = None,
        **properties: object,
    ) -> None:
        if acks not in ACKS:
            raise ConfigError(f"acks: {acks!r}; wanted one of {', '.join(ACKS)}")
        self._cluster = as_connection(cluster)
        if "transactional__id" in properties or "transactional.id" in self._cluster.properties:
            raise ConfigError("transactional.id: this producer has no transactions; confluent_kafka.Producer has")
        self._is_sync = sync
        self._partitioner = partitioner
        self._serializer = serializer
        self._partition_counts: dict[str, tuple[int, float]] = {}
        self._raised: BaseException | None = None
        self.failed_count = 0
        self.first_error: PylogError | None = None
        self.first_failed: tuple[str, int] | None = None
        own: dict[str, object] = {
            "acks": ACKS[acks],
            # Idempotence keeps order and drops the duplicates of retries; the protocol allows it with acks=all only.
            "enable__idempotence": ACKS[acks] == "all",
            "compression__type": compression,
            "linger__ms": linger_ms,
            "message__timeout__ms": delivery_timeout_ms,
            "queue__buffering__max__kbytes": max(1, buffered_bytes >> 10),
            "queue__buffering__max__messages": 500_000,
            # The same partition for the same key as Apache Kafka's own clients choose.
            "partitioner": "murmur2_random",
            # A callback for each of a million successes costs more than sending them.
            "delivery__report__only__error": not reports_success,
            "on_delivery": self._delivered,
        }
        try:
            self._producer = _Producer(self._cluster.librdkafka(**(own | properties)))
        except KafkaException as exception:
            raise translate(error_of(exception), self._cluster) from exception
        self._produce: Callable[..., None] = self._producer.produce

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()

    def __len__(self) -> int:
        """Return how many records wait for their acknowledgement."""
        return len(self._producer)

    @overload
    def send(self, topic: str, value: Message | MessageSet, *, on_delivery: OnDelivery | None = None) -> None: ...

    @overload
    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int = -1,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int = 0,
        on_delivery: OnDelivery | None = None,
    ) -> None: ...

    def send(
        self,
        topic: str,
        value: Message | MessageSet | bytes | None,
        key: bytes | None = None,
        *,
        partition: int = -1,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int = 0,
        on_delivery: OnDelivery | None = None,
    ) -> None:
        """Hand over one record, a message or a set of messages; unless *sync*, waits only while the buffer is full.

        Args:
            topic: where to.
            value: payload, where None deletes the key from a compacted topic; or messages, which say the rest.
            key: decides the partition, unless *partition* does.
            partition: -1 lets the partitioner, the key, or chance, decide.
            headers: names and values.
            timestamp_ms: since 1970; 0 is now.
            on_delivery: told from `poll` or `flush` how each record ended.

        Raises:
            ClientError: a record cannot be sent at all, for instance because it is too large.
            PylogError: only with *sync*: what became of the first record that failed; the others may be written.
        """
        failures: list[PylogError] = []
        told = partial(_note_failure, failures, on_delivery) if self._is_sync else on_delivery
        if isinstance(value, Message | MessageSet):
            for message in (value,) if isinstance(value, Message) else value:
                self._send_message(topic, message, told)
        else:
            self._send_record(topic, value, key, partition, headers, timestamp_ms, told)
        if self._is_sync:
            self.flush()
            if failures:
                raise failures[0]

    def _send_message(self, topic: str, message: Message, on_delivery: OnDelivery | None) -> None:
        payload = message.payload() if self._serializer is None else self._serializer(message.payload())
        if not isinstance(payload, bytes | None):
            found = type(payload).__name__
            raise ConfigError(f"payload of type {found}; wanted bytes, or a producer with a serializer")
        named = message.partition()
        self._send_record(
            topic, payload, message.key(), -1 if named is None else named, message.headers(), 0, on_delivery
        )

    def _send_record(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        headers: Sequence[tuple[str, bytes | None]],
        timestamp_ms: int,
        on_delivery: OnDelivery | None,
    ) -> None:
        if partition < 0 and self._partitioner is not None:
            partition = self._choose(self._partitioner, topic, key)
        while not self.send_nowait(
            topic, value, key, partition=partition, headers=headers, timestamp_ms=timestamp_ms, on_delivery=on_delivery
        ):
            self.poll(_FULL_QUEUE_WAIT_S)

    def _choose(self, partitioner: Partitioner, topic: str, key: bytes | None) -> int:
        count = self._partition_count(topic)
        partition = partitioner(key, count)
        if not 0 <= partition < count:
            raise ClientError(f"partition function chose {partition} of topic {topic!r}; wanted 0 to {count - 1}")
        return partition

    def _partition_count(self, topic: str) -> int:
        count, asked_s = self._partition_counts.get(topic, (0, 0.0))
        now_s = time.monotonic()
        if count and now_s < asked_s + PARTITION_COUNT_AGE_S:
            return count
        while True:
            try:
                found = self._producer.list_topics(topic, self._cluster.timeout_s).topics[topic]
            except KafkaException as exception:
                raise translate(error_of(exception), self._cluster) from exception
            if found.partitions:
                self._partition_counts[topic] = (len(found.partitions), now_s)
                return len(found.partitions)
            # The broker may just be making it.
            if time.monotonic() > now_s + self._cluster.timeout_s:
                raise Unreachable(f"{self._cluster.bootstrap}: topic {topic!r} has no partition: {found.error}")
            time.sleep(_NEW_TOPIC_WAIT_S)

    def send_nowait(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int = -1,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int = 0,
        on_delivery: OnDelivery | None = None,
    ) -> bool:
        """Hand over one record, or return False if the buffer is full."""
        # Without a callback of its own a record has that of all, which costs nothing to name.
        told = None if on_delivery is None else partial(self._told, on_delivery)
        return self.hand_over(topic, value, key, partition, list(headers), told, timestamp_ms)

    def hand_over(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        headers: list[tuple[str, bytes | None]],
        told: Callable[[KafkaError | None, _Record], None] | None,
        timestamp_ms: int = 0,
    ) -> bool:
        """Hand over one record with librdkafka's own kind of callback, or return False if the buffer is full.

        For those who send millions: *told* hears nothing of success, and counts a failure with `note_failure`.
        """
        try:
            self._produce(topic, value, key, partition, on_delivery=told, timestamp=timestamp_ms, headers=headers)
        except BufferError:
            return False
        except KafkaException as exception:
            raise translate(error_of(exception), self._cluster) from exception
        return True

    def send_many(self, topic: str, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        """Hand over many (key, value) pairs at once, at half the cost of `send`; waits while the buffer is full."""
        self.send_records(topic, [{"key": key, "value": value} for key, value in records])

    def send_records(self, topic: str, records: list[dict[str, object]]) -> None:
        """Hand over records as ``{"key", "value"}``, with ``"partition"`` where that is given, as `send_many` does.

        Partition -1 lets key or chance decide.  The dictionaries may be changed.
        """
        left: list[_BatchRecord] = records
        while left:
            try:
                taken = self._producer.produce_batch(topic, left)
            except KafkaException as exception:
                raise translate(error_of(exception), self._cluster) from exception
            if taken == len(left):
                break
            left = self._refused(left)
            self.poll(_FULL_QUEUE_WAIT_S)
        self.poll(0)

    def poll(self, timeout_s: float) -> None:
        """Take notice of failures, waiting for the first of them at most *timeout_s*.

        Raises:
            BaseException: what an *on_delivery* of `send` raised.
        """
        self._calling_back(self._producer.poll, timeout_s)

    def flush(self, timeout_s: float = -1) -> int:
        """Wait until nothing is under way, at most *timeout_s* (-1: until each is acknowledged or has failed).

        Returns:
            How many records are still under way.

        Raises:
            BaseException: what an *on_delivery* of `send` raised; the other records are still under way, or have ended.
        """
        return self._calling_back(self._producer.flush, timeout_s)

    def close(self) -> None:
        """Flush, and raise the first error if any record failed."""
        self.flush()
        if self.first_error is not None:
            raise self.first_error

    def _told(self, on_delivery: OnDelivery, error: KafkaError | None, record: _Record) -> None:
        if not self._is_sync:  # there `send` has raised it
            self._delivered(error, record)
        try:
            on_delivery(None if error is None else translate(error, self._cluster))
        except BaseException as raised:
            # confluent-kafka 2.16 makes a SystemError of some of it in flush, and may drop it in poll.
            self._raised = self._raised or raised
            raise

    def _calling_back(self, serve: Callable[[float], int], timeout_s: float) -> int:
        """Return what *serve* does, which calls back; raise what a callback raised, if one did."""
        try:
            count = serve(timeout_s)
        except BaseException:
            if self._raised is None:
                raise
            count = 0
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised
        return count

    def note_failure(self, error: KafkaError) -> None:
        """Count a record that failed."""
        self.failed_count += 1
        self.first_error = self.first_error or translate(error, self._cluster)

    def _delivered(self, error: KafkaError | None, record: _Record | None) -> None:
        if error is None:
            return
        topic = None if record is None else record.topic()
        if self.first_error is None and record is not None and topic is not None:
            partition = record.partition()
            self.first_failed = (topic, -1 if partition is None else partition)
        self.note_failure(error)

    def _refused(self, records: list[_BatchRecord]) -> list[_BatchRecord]:
        """Return those that found the queue full; any other refusal lasts, and counts as a failure."""
        again: list[_BatchRecord] = []
        for record in records:
            error = record.pop("_error", None)
            if not isinstance(error, KafkaError):
                continue
            if error.code() == KafkaError._QUEUE_FULL:
                again.append(record)
            else:
                self._delivered(error, None)
        return again


def _note_failure(failures: list[PylogError], on_delivery: OnDelivery | None, error: PylogError | None) -> None:
    if error is not None:
        failures.append(error)
    if on_delivery is not None:
        on_delivery(error)
