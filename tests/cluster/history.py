"""What clients saw, and whether the log agrees: nothing acknowledged is lost or reordered, copies are counted."""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

POLL_S = 0.2


@dataclass
class History:
    """Records are numbers, counted up in each partition by its one producer.

    Attributes:
        acknowledged: by partition, in the order of the acknowledgements.
        failed: by partition: refused or timed out; they may or may not be in the log.
        read: by partition, in the order of the log.
        longest_pause_s: longest time between two acknowledgements of one partition while records waited.
    """

    acknowledged: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    failed: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    read: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    longest_pause_s: float = 0.0

    def lost(self) -> dict[int, list[int]]:
        """Return what was acknowledged and is not in the log."""
        missing = {number: sorted(set(rows) - set(self.read[number])) for number, rows in self.acknowledged.items()}
        return {number: rows for number, rows in missing.items() if rows}

    def doubled(self) -> dict[int, list[int]]:
        """Return what is in the log more than once."""
        found = {
            number: sorted(row for row, count in Counter(rows).items() if count > 1)
            for number, rows in self.read.items()
        }
        return {number: rows for number, rows in found.items() if rows}

    def reordered(self) -> dict[int, list[int]]:
        """Return records that stand behind a later one; copies count by their first place."""
        found: dict[int, list[int]] = {}
        for number, rows in self.read.items():
            first = list(dict.fromkeys(rows))
            wrong = [after for before, after in pairwise(first) if after < before]
            if wrong:
                found[number] = wrong
        return found

    def invented(self) -> dict[int, list[int]]:
        """Return what is in the log and nobody sent."""
        sent = {
            number: set(self.acknowledged[number]) | set(self.failed[number])
            for number in {*self.acknowledged, *self.failed}
        }
        found = {number: sorted(set(rows) - sent.get(number, set())) for number, rows in self.read.items()}
        return {number: rows for number, rows in found.items() if rows}


class Load:
    """A producer that writes to every partition of a topic until it is left, and keeps the history."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, *, rate: int = 500, **settings: object) -> None:
        self.history = History()
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._pause_s = 1 / rate
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 60_000, "linger.ms": 2, **settings}
        )
        self._stop = threading.Event()
        self._last_ack_s: dict[int, float] = {}
        self._thread = threading.Thread(target=self._run, name="load")

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(60)
        assert left == 0, f"{left} records are neither acknowledged nor failed"

    @property
    def acknowledged(self) -> int:
        """How many were acknowledged so far."""
        return sum(map(len, self.history.acknowledged.values()))

    def read_back(self, settle_s: float = 3.0) -> History:
        """Read the whole topic into the history and return it."""
        for message in read(self._bootstrap, self._topic, self._partitions, settle_s):
            partition, number = _numbered(message)
            self.history.read[partition].append(number)
        return self.history

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            for partition in range(self._partitions):
                self._producer.produce(self._topic, str(number), partition=partition, on_delivery=self._delivered)
            self._producer.poll(self._pause_s * self._partitions)
            number += 1

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        now_s = time.monotonic()
        partition, number = _numbered(message)
        if error is None:
            before_s = self._last_ack_s.get(partition, now_s)
            self.history.longest_pause_s = max(self.history.longest_pause_s, now_s - before_s)
            self._last_ack_s[partition] = now_s
            self.history.acknowledged[partition].append(number)
        else:
            self.history.failed[partition].append(number)


def _numbered(message: Message) -> tuple[int, int]:
    """Return the partition and the number of a record that was sent here; a client's message may lack either."""
    partition, value = message.partition(), message.value()
    assert partition is not None
    assert value is not None
    return partition, int(value)


def read(bootstrap: str, topic: str, partitions: int, settle_s: float = 3.0) -> Iterator[Message]:
    """Yield every record of a topic, each partition from its start to where it ends now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "history",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    ended: set[int] = set()
    deadline_s = time.monotonic() + 60
    while len(ended) < partitions:
        assert time.monotonic() < deadline_s, f"only partitions {sorted(ended)} were read to their end"
        for message in consumer.consume(1000, settle_s):
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                end_of = message.partition()
                assert end_of is not None
                ended.add(end_of)
            else:
                raise AssertionError(error)
    consumer.close()
