"""One member of a consumer group as a program of its own, so that a test can kill it.

python -m tests.consumers.member CLIENT BOOTSTRAP GROUP TOPIC [NAME=VALUE ...]

Every event is one line of JSON on stdout: an assignment, a record, a fatal error.  SIGTERM leaves the group.
"""

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

SESSION_MS = 2_500
"""Short enough for a test to wait for, long enough for a busy machine."""

HEARTBEAT_MS = 300
KAFKA_PYTHON_POLL_MS = 1_000
"""kafka-python 3.0.12 forgets an assignment that comes just as a poll's time is over: from then on it has no
partitions, sends no heartbeat and does not join again. Its metadata comes after 100 ms: with polls of 100 ms that hit
many starts.
"""
_is_ended = False


def emit(**event: object) -> None:
    """Write one event."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def _end(*_: object) -> None:
    global _is_ended
    _is_ended = True


def run_confluent(bootstrap: str, group: str, topic: str, options: Mapping[str, str]) -> None:
    """Be a member with confluent-kafka."""
    from confluent_kafka import Consumer, KafkaError

    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "client.id": "confluent",
        "auto.offset.reset": "earliest",
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "auto.commit.interval.ms": 200,
        "topic.metadata.refresh.interval.ms": 500,
        "log_level": 0,
    }

    consumer = Consumer(settings | dict(options))
    is_cooperative = options.get("partition.assignment.strategy") == "cooperative-sticky"

    def told(kind: str, act: Callable[..., None]) -> Callable[..., None]:
        def take(_: object, partitions: Iterable[Any]) -> None:
            emit(**{kind: sorted(one.partition for one in partitions)})
            act(partitions) if kind == "assigned" else act()

        return take

    assign = consumer.incremental_assign if is_cooperative else consumer.assign
    unassign = (lambda *_: None) if is_cooperative else consumer.unassign
    consumer.subscribe([topic], on_assign=told("assigned", assign), on_revoke=told("revoked", unassign))
    while not _is_ended:
        message = consumer.poll(0.1)
        if message is None:
            continue
        error = message.error()
        if error is None:
            emit(partition=message.partition(), offset=message.offset(), value=_text(message.value()))
        elif error.code() == KafkaError._FATAL:
            emit(fatal=error.str())
            break
    consumer.close()


def run_kafka_python(bootstrap: str, group: str, topic: str, options: Mapping[str, str]) -> None:
    """Be a member with kafka-python."""
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.errors import KafkaConnectionError

    class Listener(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            emit(assigned=sorted(one.partition for one in assigned))

        def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            emit(revoked=sorted(one.partition for one in revoked))

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        client_id="kafka-python",
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        auto_commit_interval_ms=200,
        max_poll_interval_ms=20_000,
        **options,
    )
    consumer.subscribe([topic], listener=Listener())
    while not _is_ended:
        try:
            polled = consumer.poll(KAFKA_PYTHON_POLL_MS)
        except KafkaConnectionError:
            # Its poll looks for the coordinator while the only broker restarts; an application polls again.
            continue
        for messages in polled.values():
            for message in messages:
                emit(partition=message.partition, offset=message.offset, value=_text(message.value))
    consumer.close()


def run_aiokafka(bootstrap: str, group: str, topic: str, options: Mapping[str, str]) -> None:
    """Be a member with aiokafka."""
    asyncio.run(_aiokafka(bootstrap, group, topic, options))


async def _aiokafka(bootstrap: str, group: str, topic: str, options: Mapping[str, str]) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor

    class Listener(ConsumerRebalanceListener):
        async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            emit(assigned=sorted(one.partition for one in assigned))

        async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            emit(revoked=sorted(one.partition for one in revoked))

    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        client_id="aiokafka",
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        auto_commit_interval_ms=200,
        rebalance_timeout_ms=20_000,
        partition_assignment_strategy=[RangePartitionAssignor],
        **options,
    )
    consumer.subscribe([topic], listener=Listener())
    await consumer.start()
    while not _is_ended:
        for messages in (await consumer.getmany(timeout_ms=100)).values():
            for message in messages:
                emit(partition=message.partition, offset=message.offset, value=_text(message.value))
    await consumer.stop()


def run_streams(bootstrap: str, group: str, topic: str, options: Mapping[str, str]) -> None:
    """Be a consumer of the paper's kind; its options are `ConsumerConnector`'s, and ``linger_s`` before each next."""
    import logging
    import time

    from pylog.client import ConsumerConnector

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("kazoo").setLevel(logging.WARNING)
    own: dict[str, Any] = {
        "start": "smallest",
        "auto_commit_interval_ms": 200,
        "session_timeout_ms": 2_000,
        **{name: int(text) if text.isdigit() else text for name, text in options.items()},
    }
    linger_s = own.pop("linger_ms", 0) / 1000
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with ConsumerConnector(bootstrap, own.pop("zookeeper"), group, **own) as consumer:
            [stream] = consumer.createMessageStreams(topic, 1)
            emit(consumer_id=consumer.consumer_id)
            for message in stream:
                emit(partition=message.partition(), offset=message.offset(), value=message.payload().decode())
                time.sleep(linger_s)
    except KeyboardInterrupt:
        pass
    emit(ended=True)


def _text(value: bytes | None) -> str:
    return (value or b"").decode()


RUNS = {"confluent": run_confluent, "kafka-python": run_kafka_python, "aiokafka": run_aiokafka, "streams": run_streams}


def main(arguments: list[str]) -> None:
    """Run one member until it is told to end."""
    signal.signal(signal.SIGTERM, _end)
    client, bootstrap, group, topic, *options = arguments
    RUNS[client](bootstrap, group, topic, dict(option.split("=", 1) for option in options))


if __name__ == "__main__":
    main(sys.argv[1:])
