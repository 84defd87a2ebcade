"""Transactional producers that know what became of each transaction, and a judge of what readers got."""

import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.cluster.conftest import DEADLINE_S
from tests.servers.outcome import Outcome

CALL_S = 20.0
END_S = 120.0
"""How long a client may take to come to an end once brokers die no more."""

Place = tuple[int, int]
"""Partition and offset."""


@dataclass
class Sent:
    """One transaction: its values, each written once, and what became of it."""

    values: list[str] = field(default_factory=list)
    outcome: Outcome = Outcome.UNKNOWN


class Transactional(threading.Thread):
    """Runs transactions under one id until told to end; one that fails for good is followed by its heir.

    Attributes:
        sent: all transactions, in their order.
        ends: why producers of the id failed for good.
        error: what ended it, None as long as all is well.
    """

    def __init__(self, bootstrap: str, transactional_id: str, topic: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self.sent: list[Sent] = []
        self.ends: list[str] = []
        self.error: BaseException | None = None
        self._servers, self._id = bootstrap, transactional_id
        self._topic, self._partitions = topic, partitions
        self._chance = Random(transactional_id)
        self._ending = threading.Event()

    @property
    def committed(self) -> int:
        """How many transactions are committed for sure."""
        return sum(one.outcome is Outcome.COMMITTED for one in self.sent)

    def run(self) -> None:
        try:
            while not self._ending.is_set():
                self._live()
        except BaseException as error:  # noqa: BLE001  # the test tells of it
            self.error = error

    def end(self) -> None:
        """Finish the transaction that is open, and wait for that."""
        self._ending.set()
        self.join(END_S)
        assert not self.is_alive(), f"{self._id} came to no end"
        assert self.error is None, self.error

    def _live(self) -> None:
        """Be one producer of the id, until it is told to end or has failed for good."""
        producer = Producer(
            {
                "bootstrap.servers": self._servers,
                "transactional.id": self._id,
                "transaction.timeout.ms": 60_000,  # a broker that was killed may take half of it to start
                "linger.ms": 0,
            }
        )
        _until_done(lambda: producer.init_transactions(CALL_S))
        while not self._ending.is_set():
            one = Sent()
            self.sent.append(one)
            try:
                producer.begin_transaction()
                self._write(producer, one)
                if self._chance.random() < 0.25:
                    _until_done(lambda: producer.abort_transaction(CALL_S))
                    one.outcome = Outcome.ABORTED
                else:
                    _until_done(lambda: producer.commit_transaction(CALL_S))
                    one.outcome = Outcome.COMMITTED
            except KafkaException as raised:
                error = raised.args[0]
                if error.fatal() or not error.txn_requires_abort():
                    self.ends.append(str(error))
                    return  # nobody knows what became of it
                _until_done(lambda: producer.abort_transaction(CALL_S))
                one.outcome = Outcome.ABORTED

    def _write(self, producer: Producer, one: Sent) -> None:
        for number in range(self._chance.randint(1, 8)):
            value = f"{self._id}/{len(self.sent)}/{number}"
            one.values.append(value)
            producer.produce(self._topic, value, partition=self._chance.randrange(self._partitions))
        producer.poll(0)


class Copier(Transactional):
    """Copies a topic in transactions with the offsets of a group, and aborts some; begins again where the group is."""

    def __init__(self, bootstrap: str, transactional_id: str, source: str, topic: str, count: int) -> None:
        super().__init__(bootstrap, transactional_id, topic, 1)
        self._source, self._count = source, count
        self._copied = 0

    def _live(self) -> None:
        self._reader = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": f"group-of-{self._id}",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self._reader.subscribe([self._source])
        try:
            super()._live()
        finally:
            self._reader.close()

    def _write(self, producer: Producer, one: Sent) -> None:
        if one is not self.sent[0] and self.sent[-2].outcome is not Outcome.COMMITTED:
            self._go_back()
        rows: list[Message] = self._reader.consume(25, 1.0)
        for row in rows:
            if row.error() is None:
                value = (row.value() or b"").decode()
                one.values.append(value)
                producer.produce(self._topic, value, partition=0)
        assigned = self._reader.position(self._reader.assignment())
        offsets = [row for row in assigned if row.offset >= 0]
        if offsets:
            metadata = self._reader.consumer_group_metadata()
            _until_done(lambda: producer.send_offsets_to_transaction(offsets, metadata, CALL_S))

    def _go_back(self) -> None:
        """Read again what was read for a transaction that was aborted."""
        for row in self._reader.committed(self._reader.assignment(), CALL_S):
            self._reader.seek(TopicPartition(row.topic, row.partition, max(row.offset, 0)))

    def end_when_copied(self) -> None:
        """Wait until all is copied, and end."""
        deadline_s = time.monotonic() + END_S
        while self.is_alive() and time.monotonic() < deadline_s:
            if sum(len(one.values) for one in self.sent if one.outcome is Outcome.COMMITTED) >= self._count:
                break
            time.sleep(0.2)
        self.end()


def _until_done(call: object) -> None:
    """Call until it succeeds or fails for good; a call that did not come through in time is repeated."""
    deadline_s = time.monotonic() + END_S
    while True:
        try:
            call()  # type: ignore[operator]
            return
        except KafkaException as raised:
            if not raised.args[0].retriable() or time.monotonic() > deadline_s:
                raise


class Reader(threading.Thread):
    """Reads committed records of all partitions while brokers die.

    Attributes:
        got: values by partition and offset, in the order in which they came.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self.got: dict[Place, str] = {}
        self.repeated: list[Place] = []
        self._ends: list[int] | None = None
        self._topic, self._partitions = topic, partitions
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"reader-of-{topic}",
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )

    def start(self) -> Self:  # type: ignore[override]
        super().start()
        return self

    def run(self) -> None:
        self._consumer.assign([TopicPartition(self._topic, number, 0) for number in range(self._partitions)])
        met = [-1] * self._partitions  # the last end that was met: it is told once
        while self._ends is None or any(offset < end for offset, end in zip(met, self._ends, strict=True)):
            row = self._consumer.poll(0.2)
            if row is None:
                continue
            number, offset = row.partition(), row.offset()
            assert number is not None
            assert offset is not None
            error = row.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    met[number] = offset
                continue
            if (number, offset) in self.got:
                self.repeated.append((number, offset))
            self.got[number, offset] = (row.value() or b"").decode()
        self._consumer.close()

    def read_to(self, ends: Sequence[int]) -> dict[Place, str]:
        """Read on to the *ends* of the partitions and return all that came."""
        self._ends = list(ends)
        self.join(END_S)
        assert not self.is_alive(), f"the reader does not reach {self._ends}"
        return self.got


def stable_ends(bootstrap: str, topic: str, partitions: int) -> tuple[list[int], list[int]]:
    """Return the last stable offsets and the high watermarks of a topic."""
    found = []
    for level in ("read_committed", "read_uncommitted"):
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends", "isolation.level": level})
        places = [TopicPartition(topic, number) for number in range(partitions)]
        found.append([consumer.get_watermark_offsets(one, timeout=DEADLINE_S)[1] for one in places])
        consumer.close()
    return found[0], found[1]


def judge(transactions: Sequence[Sent], read: Sequence[str]) -> None:
    """Fail unless *read* is what the producers know: all that is committed once, all or none of what nobody knows."""
    times = Counter(read)
    assert max(times.values(), default=0) <= 1, [value for value, count in times.items() if count > 1][:5]
    known: set[str] = set()
    for one in transactions:
        known.update(one.values)
        seen = [value for value in one.values if value in times]
        if one.outcome is Outcome.COMMITTED:
            assert seen == one.values, f"lost of {one}: {len(one.values) - len(seen)}"
        elif one.outcome is Outcome.ABORTED:
            assert not seen, f"aborted and read: {one}"
        else:
            assert seen in ([], one.values), f"torn: {one}, read {seen}"
    assert times.keys() <= known, "nobody wrote it"
