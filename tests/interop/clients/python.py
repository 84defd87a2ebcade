"""kafka-python: pure Python, with codecs from python-snappy, lz4 and zstandard."""

import time
from collections.abc import Sequence

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.interop.clients.client import TIMEOUT_S, Record


class KafkaPython:
    """Producer and consumer of kafka-python."""

    name = "kafka-python"
    sets_timestamps = True

    def can_write(self, record: Record) -> bool:
        """All but null header values and a null key with a null value, which its own checks refuse."""
        has_content = record.key is not None or record.value is not None
        return has_content and all(value is not None for _, value in record.headers)

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
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            acks=acks if acks == "all" else int(acks),
            linger_ms=20,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            max_request_size=100_000_000,
        )
        try:
            sent = [
                producer.send(topic, record.value, record.key, list(record.headers), 0, record.timestamp_ms)
                for record in records
            ]
            producer.flush(TIMEOUT_S)
            for future in sent:
                future.get(TIMEOUT_S)
        finally:
            producer.close(TIMEOUT_S)

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Record]:
        """See `Client.consume`."""
        partition = TopicPartition(topic, 0)
        consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
        got: list[Record] = []
        try:
            consumer.assign([partition])
            consumer.seek_to_beginning(partition)
            deadline = time.monotonic() + TIMEOUT_S
            while len(got) < count:
                assert time.monotonic() < deadline, f"{topic}: only {len(got)} of {count} records in {TIMEOUT_S} s"
                for messages in consumer.poll(1000, max_records=count - len(got)).values():
                    got += [Record(m.key, m.value, tuple(m.headers), m.timestamp, m.offset) for m in messages]
        finally:
            consumer.close()
        return got
