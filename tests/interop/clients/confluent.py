"""confluent-kafka: librdkafka of today under Python."""

from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.interop.clients.client import TIMEOUT_S, Record


class Confluent:
    """Producer and consumer of confluent-kafka."""

    name = "confluent"
    sets_timestamps = True

    def can_write(self, record: Record) -> bool:
        """Everything."""
        return True

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> None:
        """See `Client.produce`."""
        errors: list[Any] = []
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "acks": acks,
                "linger.ms": 20,
                "enable.idempotence": idempotent,
                "message.max.bytes": 100_000_000,
                "message.timeout.ms": int(TIMEOUT_S * 1000),
            }
        )
        for record in records:
            # 0 lets librdkafka take the time of the call.
            producer.produce(
                topic,
                record.value,
                record.key,
                0,
                headers=list(record.headers),
                on_delivery=lambda error, _message: errors.append(error) if error else None,
                timestamp=record.timestamp_ms or 0,
            )
        left = producer.flush(TIMEOUT_S)
        assert left == 0, f"{left} of {len(records)} records were not delivered"
        if errors:
            raise KafkaException(errors[0])

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Record]:
        """See `Client.consume`."""
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, 0, 0)])
        got: list[Record] = []
        try:
            while len(got) < count:
                messages = consumer.consume(count - len(got), TIMEOUT_S)
                assert messages, f"{topic}: only {len(got)} of {count} records in {TIMEOUT_S} s"
                got += [_record(message) for message in messages]
        finally:
            consumer.close()
        return got


def _record(message: Any) -> Record:
    if message.error():
        raise KafkaException(message.error())
    return Record(
        message.key(), message.value(), tuple(message.headers() or ()), message.timestamp()[1], message.offset()
    )
