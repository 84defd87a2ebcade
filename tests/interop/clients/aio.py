"""aiokafka: kafka-python's asyncio sibling, with an own codec of record batches."""

import asyncio
from collections.abc import Sequence

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.interop.clients.client import TIMEOUT_S, Record


class Aiokafka:
    """Producer and consumer of aiokafka."""

    name = "aiokafka"
    sets_timestamps = True

    def can_write(self, record: Record) -> bool:
        """All but a null key with a null value, which its own check refuses."""
        return record.key is not None or record.value is not None

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
        asyncio.run(asyncio.wait_for(self._produce(bootstrap, topic, records, codec, acks, idempotent), TIMEOUT_S))

    async def _produce(
        self, bootstrap: str, topic: str, records: Sequence[Record], codec: str, acks: str, idempotent: bool
    ) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            acks=acks if acks == "all" else int(acks),
            linger_ms=20,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            max_request_size=100_000_000,
            max_batch_size=2_000_000,
        )
        await producer.start()
        try:
            sent = [
                await producer.send(topic, record.value, record.key, 0, record.timestamp_ms, list(record.headers))
                for record in records
            ]
            await producer.flush()
            await asyncio.gather(*sent)
        finally:
            await producer.stop()

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Record]:
        """See `Client.consume`."""
        return asyncio.run(asyncio.wait_for(self._consume(bootstrap, topic, count), TIMEOUT_S))

    async def _consume(self, bootstrap: str, topic: str, count: int) -> list[Record]:
        partition = TopicPartition(topic, 0)
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
        await consumer.start()
        got: list[Record] = []
        try:
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            while len(got) < count:
                for messages in (await consumer.getmany(timeout_ms=1000, max_records=count - len(got))).values():
                    got += [Record(m.key, m.value, tuple(m.headers), m.timestamp, m.offset) for m in messages]
        finally:
            await consumer.stop()
        return got
