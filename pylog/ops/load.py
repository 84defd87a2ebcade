"""A producer with acks=all that goes on while something is broken, and what the log holds afterwards.

Records are numbers, counted up in each partition, so that a loss, a copy and a wrong order all show.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition

RECORDS_PER_S = 200
VALUE = b"x" * 200
END_LIMIT_S = 130.0


@dataclass
class History:
    """What was sent, and what is there.

    Attributes:
        acknowledged: by partition, in the order of the acknowledgements.
        failures: what the client gave up on.
        read: by partition, in the order of the log.
        longest_pause_s: longest time in which nothing was acknowledged.
    """

    acknowledged: dict[int, list[int]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    read: dict[int, list[int]] = field(default_factory=dict)
    longest_pause_s: float = 0.0

    def lost(self) -> int:
        """Return how many acknowledged records the log does not have."""
        return sum(len(set(rows) - set(self.read.get(number, ()))) for number, rows in self.acknowledged.items())

    def doubled(self) -> int:
        """Return how many records the log has more than once."""
        return sum(len(rows) - len(set(rows)) for rows in self.read.values())

    def reordered(self) -> int:
        """Return how many records stand behind a later one; a copy counts by its first place."""
        return sum(after < before for rows in self.read.values() for before, after in pairwise(dict.fromkeys(rows)))

    def report(self) -> dict[str, Any]:
        """Return the numbers."""
        return {
            "acknowledged": sum(map(len, self.acknowledged.values())),
            "failed": len(self.failures),
            "lost": self.lost(),
            "doubled": self.doubled(),
            "reordered": self.reordered(),
            "longest_pause_ms": round(self.longest_pause_s * 1000),
        }


class Load:
    """The producer, from entering the context until leaving it; then `history` has what became of everything."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, properties: Mapping[str, Any], *,
        records_per_s: int = RECORDS_PER_S, end_limit_s: float = END_LIMIT_S,
    ) -> None:  # fmt: skip
        """Take where to, connect later.

        Args:
            bootstrap: brokers to ask first.
            topic: an empty one.
            partitions: how many it has.
            properties: librdkafka's, beside the address.
            records_per_s: sent to all partitions together.
            end_limit_s: longest wait for the last acknowledgements, and longest time to read everything back.
        """
        self.history = History({number: [] for number in range(partitions)})
        self._bootstrap, self._topic, self._partitions = bootstrap, topic, partitions
        self._producer = Producer({"bootstrap.servers": bootstrap, **properties})
        self._records_per_s, self._end_limit_s = records_per_s, end_limit_s
        self._stop = threading.Event()
        self._last_s = 0.0
        self._thread = threading.Thread(target=self._run, name="load")

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(self._end_limit_s)
        self.history.failures += ["neither acknowledged nor refused in time"] * left

    @property
    def acknowledged(self) -> int:
        """How many were acknowledged so far."""
        return sum(map(len, self.history.acknowledged.values()))

    def read_back(self) -> History:
        """Read the whole topic into the history and return it; what cannot be read in time counts as lost."""
        consumer = Consumer({
            "bootstrap.servers": self._bootstrap, "group.id": "pylog-drill", "enable.auto.commit": False,
        })  # fmt: skip
        try:
            ends = {
                number: consumer.get_watermark_offsets(TopicPartition(self._topic, number), timeout=30)[1]
                for number in range(self._partitions)
            }
            left = {number for number, end in ends.items() if end}
            consumer.assign([TopicPartition(self._topic, number, 0) for number in sorted(left)])
            deadline_s = time.monotonic() + self._end_limit_s
            while left and time.monotonic() < deadline_s:
                self._take(consumer.consume(1000, 0.5), ends, left)
        finally:
            consumer.close()
        return self.history

    def _take(self, messages: Sequence[Message], ends: Mapping[int, int], left: set[int]) -> None:
        for message in messages:
            value, number, offset = message.value(), message.partition(), message.offset()
            if message.error() is not None or value is None or number is None or offset is None:
                continue
            self.history.read.setdefault(number, []).append(int(value.split()[0]))
            if offset + 1 >= ends[number]:
                left.discard(number)

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(self._partitions / self._records_per_s):
            for partition in range(self._partitions):
                try:
                    self._producer.produce(
                        self._topic, b"%d " % number + VALUE, partition=partition, on_delivery=self._delivered
                    )
                except BufferError:
                    continue  # the cluster has been away for long; what was taken waits its turn
            self._producer.poll(0)
            number += 1

    def _delivered(self, error: object, message: Message) -> None:
        now_s = time.monotonic()
        value, partition = message.value(), message.partition()
        assert value is not None
        assert partition is not None
        if error is not None:
            self.history.failures.append(str(error))
            return
        if self._last_s:  # the first one includes connecting, which is no pause
            self.history.longest_pause_s = max(self.history.longest_pause_s, now_s - self._last_s)
        self._last_s = now_s
        self.history.acknowledged[partition].append(int(value.split()[0]))
