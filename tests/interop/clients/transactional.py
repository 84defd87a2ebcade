"""Transactional producers of several clients behind the same verbs, and their readers of committed records."""

import asyncio
import subprocess
import tempfile
import threading
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import aiokafka
import kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata

from tests.servers.kafka import fetch
from tests.servers.maven import classpath, jars

TIMEOUT_S = 60.0
JAVA_4 = "4.1.1"
_SOURCE = Path(__file__).with_name("TransactionClient.java")
_T = TypeVar("_T")


class ClientError(Exception):
    """What a client raised; the message begins with the name of its exception."""


class Producing(Protocol):
    """One transactional producer; each method raises `ClientError`."""

    def begin(self) -> None:
        """Begin a transaction."""

    def send(self, topic: str, partition: int, value: str) -> None:
        """Write a record and wait for the broker's answer."""

    def copy(self, group: str, source: str, target: str) -> int:
        """Copy what *group* has not read, with its offsets, into the open transaction; return how many records."""

    def commit(self) -> None:
        """Commit."""

    def abort(self) -> None:
        """Abort."""

    def close(self) -> None:
        """Let go of it, whatever its state."""


class TransactionalClient(Protocol):
    """One client library."""

    name: str

    def start(self, bootstrap: str) -> None:
        """Work with the broker at *bootstrap*."""

    def producer(self, transactional_id: str) -> Producing:
        """Return a producer that has taken the id over."""

    def read(self, topic: str) -> Sequence[str]:
        """Return the committed values of a topic."""

    def stop(self) -> None:
        """Let go of everything."""


# -- Java --------------------------------------------------------------------------------------------------------------


class Java:
    """Apache Kafka's own client, `TransactionClient.java`, in one process."""

    name = "java"

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._directory = tempfile.TemporaryDirectory()
        self._count = 0

    def start(self, bootstrap: str) -> None:
        """See `TransactionalClient`."""
        path, classes = self._classpath(), self._directory.name
        compiler = ["java", "-m", "jdk.compiler/com.sun.tools.javac.Main"]
        subprocess.run([*compiler, "-cp", path, "-d", classes, str(_SOURCE)], check=True)
        self._process = subprocess.Popen(
            ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{path}:{classes}", "TransactionClient", bootstrap],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def _classpath(self) -> str:
        return classpath(fetch(), without="logback")

    def ask(self, *words: str) -> str:
        """Return what the client answers to one line."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(" ".join(words) + "\n")
        process.stdin.flush()
        kind, _, rest = process.stdout.readline().strip().partition(" ")
        if kind != "ok":
            raise ClientError(rest)
        return rest

    def producer(self, transactional_id: str) -> Producing:
        """See `TransactionalClient`."""
        self._count += 1
        made = _JavaProducer(self, f"p{self._count}")
        self.ask(made.name, "init", transactional_id)
        return made

    def read(self, topic: str) -> Sequence[str]:
        """See `TransactionalClient`."""
        return self.ask("-", "read", topic).split()

    def stop(self) -> None:
        """See `TransactionalClient`."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        self._directory.cleanup()


class Java4(Java):
    """The same with Apache Kafka's client of release 4, which gives each transaction an epoch of its own."""

    name = "java-4"

    def _classpath(self) -> str:
        return classpath(jars(f"kafka-clients-{JAVA_4}", [f"org.apache.kafka:kafka-clients:{JAVA_4}"]))


class _JavaProducer:
    def __init__(self, java: Java, name: str) -> None:
        self.name = name
        self._java = java

    def begin(self) -> None:
        self._java.ask(self.name, "begin")

    def send(self, topic: str, partition: int, value: str) -> None:
        self._java.ask(self.name, "send", topic, str(partition), value)

    def copy(self, group: str, source: str, target: str) -> int:
        return int(self._java.ask(self.name, "copy", group, source, target))

    def commit(self) -> None:
        self._java.ask(self.name, "commit")

    def abort(self) -> None:
        self._java.ask(self.name, "abort")

    def close(self) -> None:
        self._java.ask(self.name, "close")


# -- kafka-python ------------------------------------------------------------------------------------------------------


class KafkaPython:
    """kafka-python."""

    name = "kafka-python"

    def __init__(self) -> None:
        self._bootstrap = ""

    def start(self, bootstrap: str) -> None:
        """See `TransactionalClient`."""
        self._bootstrap = bootstrap

    def producer(self, transactional_id: str) -> Producing:
        """See `TransactionalClient`."""
        return _PythonProducer(self._bootstrap, transactional_id)

    def read(self, topic: str) -> Sequence[str]:
        """See `TransactionalClient`."""
        consumer = _python_consumer(self._bootstrap, None)
        partitions = [kafka.TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
        consumer.assign(partitions)
        values = _read_to_end(consumer, partitions)
        consumer.close()
        return [value for _, value in values]

    def stop(self) -> None:
        """See `TransactionalClient`."""


def _python_consumer(bootstrap: str, group: str | None) -> KafkaConsumer:
    return KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )


def _read_to_end(consumer: KafkaConsumer, partitions: Sequence[Any]) -> list[tuple[int, str]]:
    """Return (partition, value) of all that is committed by now."""
    ends = consumer.end_offsets(partitions)
    found: list[tuple[int, str]] = []
    while any(consumer.position(one) < ends[one] for one in partitions):
        for rows in consumer.poll(timeout_ms=200).values():
            found += [(row.partition, row.value.decode()) for row in rows]
    return found


class _PythonProducer:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._bootstrap = bootstrap
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id, acks="all")
        self._do(self._producer.init_transactions)

    def _do(self, verb: Any, *arguments: Any) -> Any:  # the library has no types
        try:
            return verb(*arguments)
        except kafka.errors.KafkaError as error:
            raise ClientError(f"{type(error).__name__} {error}") from error

    def begin(self) -> None:
        self._do(self._producer.begin_transaction)

    def send(self, topic: str, partition: int, value: str) -> None:
        self._do(lambda: self._producer.send(topic, value.encode(), partition=partition).get(TIMEOUT_S))

    def copy(self, group: str, source: str, target: str) -> int:
        consumer = _python_consumer(self._bootstrap, group)
        consumer.subscribe([source])
        rows: list[tuple[int, str]] = []
        while not consumer.assignment():
            rows += [(row.partition, row.value.decode()) for part in consumer.poll(200).values() for row in part]
        partitions = sorted(consumer.assignment())
        rows += _read_to_end(consumer, partitions)
        for partition, value in rows:
            self.send(target, partition, value)
        offsets = {one: OffsetAndMetadata(consumer.position(one), "", -1) for one in partitions}
        self._do(self._producer.send_offsets_to_transaction, offsets, consumer.group_metadata())
        consumer.close()
        return len(rows)

    def commit(self) -> None:
        self._do(self._producer.commit_transaction)

    def abort(self) -> None:
        self._do(self._producer.abort_transaction)

    def close(self) -> None:
        self._producer.close(timeout=0)


# -- aiokafka ----------------------------------------------------------------------------------------------------------


class Aiokafka:
    """aiokafka, in a thread with an event loop."""

    name = "aiokafka"

    def __init__(self) -> None:
        self._bootstrap = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def start(self, bootstrap: str) -> None:
        """See `TransactionalClient`."""
        self._bootstrap = bootstrap
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Return what *work* comes to."""
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT_S)
        except aiokafka.errors.KafkaError as error:
            raise ClientError(f"{type(error).__name__} {error}") from error

    def producer(self, transactional_id: str) -> Producing:
        """See `TransactionalClient`."""
        return _AioProducer(self, self._bootstrap, transactional_id)

    def read(self, topic: str) -> Sequence[str]:
        """See `TransactionalClient`."""
        return [value for _, value in self.run(_aio_read(self._bootstrap, None, topic))[0]]

    def stop(self) -> None:
        """See `TransactionalClient`."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)


async def _aio_read(bootstrap: str, group: str | None, topic: str) -> tuple[list[tuple[int, str]], dict[Any, int]]:
    """Return (partition, value) of what is committed and not read by *group*, and the positions after that."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    try:
        if group is None:
            numbers = (await consumer._client.fetch_all_metadata()).partitions_for_topic(topic)
            consumer.assign([AioPartition(topic, number) for number in numbers or ()])
        else:
            consumer.subscribe([topic])
        while not consumer.assignment():
            await asyncio.sleep(0.05)
        partitions = sorted(consumer.assignment())
        ends = await consumer.end_offsets(partitions)
        found: list[tuple[int, str]] = []
        while any([await consumer.position(one) < ends[one] for one in partitions]):
            for rows in (await consumer.getmany(timeout_ms=200)).values():
                found += [(row.partition, row.value.decode()) for row in rows if row.value is not None]
        return found, {one: await consumer.position(one) for one in partitions}
    finally:
        await consumer.stop()


class _AioProducer:
    def __init__(self, client: Aiokafka, bootstrap: str, transactional_id: str) -> None:
        self._client, self._bootstrap = client, bootstrap
        self._producer = client.run(self._start(transactional_id))

    async def _start(self, transactional_id: str) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(bootstrap_servers=self._bootstrap, transactional_id=transactional_id)
        await producer.start()
        return producer

    def begin(self) -> None:
        self._client.run(self._producer.begin_transaction())

    def send(self, topic: str, partition: int, value: str) -> None:
        self._client.run(self._producer.send_and_wait(topic, value.encode(), partition=partition))

    def copy(self, group: str, source: str, target: str) -> int:
        rows, positions = self._client.run(_aio_read(self._bootstrap, group, source))
        for partition, value in rows:
            self.send(target, partition, value)
        self._client.run(self._producer.send_offsets_to_transaction(positions, group))
        return len(rows)

    def commit(self) -> None:
        self._client.run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._client.run(self._producer.abort_transaction())

    def close(self) -> None:
        self._client.run(self._producer.stop())
