"""Sends records and knows when they are safe."""

from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Self, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as _Producer

from pylog.client.connection import Connection, as_connection, error_of, translate
from pylog.errors import PylogError

OnDelivery: TypeAlias = Callable[[PylogError | None], None]
"""Hears how one record ended: None when it is acknowledged, else why it is not written."""

_BatchRecord: TypeAlias = dict[str, object]
"""What `produce_batch` takes: ``key``, ``value``; it adds ``_error`` to those it refuses."""

_FULL_QUEUE_WAIT_S = 0.1


class Producer:
    """Sends records to a cluster.

    Not thread-safe towards its own counters: use one from one thread.

    Args:
        cluster: a `Connection`, or just ``host:port``.
        acks: "all" (every in-sync replica has it), "1" (the leader has it) or "0" (nobody says).
        compression: none, gzip, snappy, lz4 or zstd.
        linger_ms: how long a record may wait for company in its batch.
        delivery_timeout_ms: after which an unacknowledged record counts as failed; 0 waits for ever.
        buffered_bytes: records in memory at most; `send` waits at the limit.
        reports_success: whether *on_delivery* of `send` hears of success too; that costs a call for each record.

    Attributes:
        failed_count: records that were refused or timed out.
        first_error: why the first of them failed.
    """

    def __init__(
        self, cluster: Connection | str, *, acks: str = "all", compression: str = "none", linger_ms: float = 5,
        delivery_timeout_ms: int = 120_000, buffered_bytes: int = 256 << 20, reports_success: bool = False,
        **properties: object,
    ) -> None:
        self._cluster = as_connection(cluster)
        self.failed_count = 0
        self.first_error: PylogError | None = None
        own: dict[str, object] = {
            "acks": acks,
            # Idempotence keeps order and drops the duplicates of retries; the protocol allows it with acks=all only.
            "enable__idempotence": acks == "all",
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

    def send(
        self, topic: str, value: bytes | None, key: bytes | None = None, *, partition: int = -1,
        headers: Sequence[tuple[str, bytes | None]] = (), timestamp_ms: int = 0, on_delivery: OnDelivery | None = None,
    ) -> None:
        """Hand over one record; waits only while the buffer is full.

        Args:
            topic: where to.
            value: payload; None deletes the key from a compacted topic.
            key: decides the partition, unless *partition* does.
            partition: -1 lets the key, or chance, decide.
            headers: names and values.
            timestamp_ms: since 1970; 0 is now.
            on_delivery: told from `poll` or `flush` how it ended.

        Raises:
            ClientError: the record cannot be sent at all, for instance because it is too large.
        """
        while not self.send_nowait(topic, value, key, partition=partition, headers=headers, timestamp_ms=timestamp_ms,
                                   on_delivery=on_delivery):
            self.poll(_FULL_QUEUE_WAIT_S)

    def send_nowait(
        self, topic: str, value: bytes | None, key: bytes | None = None, *, partition: int = -1,
        headers: Sequence[tuple[str, bytes | None]] = (), timestamp_ms: int = 0, on_delivery: OnDelivery | None = None,
    ) -> bool:
        """Hand over one record, or return False if the buffer is full."""
        try:
            self._producer.produce(
                topic, value, key, partition=partition, headers=list(headers), timestamp=timestamp_ms,
                on_delivery=self._delivered if on_delivery is None else partial(self._told, on_delivery))
        except BufferError:
            return False
        except KafkaException as exception:
            raise translate(error_of(exception), self._cluster) from exception
        return True

    def send_many(self, topic: str, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        """Hand over many (key, value) pairs at once, at half the cost of `send`; waits while the buffer is full."""
        left: list[_BatchRecord] = [{"key": key, "value": value} for key, value in records]
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
        """Take notice of failures, waiting for the first of them at most *timeout_s*."""
        self._producer.poll(timeout_s)

    def flush(self, timeout_s: float = -1) -> int:
        """Wait until nothing is under way, at most *timeout_s* (-1: until each is acknowledged or has failed).

        Returns:
            How many records are still under way.
        """
        return self._producer.flush(timeout_s)

    def close(self) -> None:
        """Flush, and raise the first error if any record failed."""
        self.flush()
        if self.first_error is not None:
            raise self.first_error

    def _told(self, on_delivery: OnDelivery, error: KafkaError | None, record: Message) -> None:
        self._delivered(error, record)
        on_delivery(None if error is None else translate(error, self._cluster))

    def _delivered(self, error: KafkaError | None, _record: Message | None) -> None:
        if error is not None:
            self.failed_count += 1
            self.first_error = self.first_error or translate(error, self._cluster)

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
