"""A librdkafka producer as a process: idempotent, acks=all, at an even rate, until SIGTERM; writes its history.

    python -m tests.chaos.producer NAME BOOTSTRAP FILE RATE TIMEOUT_S TOPIC:PARTITIONS[:KEYS[:BYTES]]...

It ends with 0 once the outcome of every record is known.
"""

import signal
import sys
import time
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.chaos.history import UNKNOWN_OFFSET, now_ms, value_of, write_line

_TICK_S = 0.02
_WAITING_PER_PARTITION = 400
"""More than this unanswered, and the partition waits: what is queued while nobody leads would come all at once."""
_FLUSH_S = 310.0
_SETTINGS = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 5,
    "socket.timeout.ms": 6_000,
    "reconnect.backoff.max.ms": 1_000,
    "topic.metadata.refresh.interval.ms": 10_000,
}


class Load:
    """Counts records up in each partition and writes down what becomes of them."""

    def __init__(
        self, name: str, bootstrap: str, file: Path, timeout_s: int, topics: dict[str, tuple[int, int, int]]
    ) -> None:
        self._file = file.open("w", buffering=1 << 16)
        self._name = name
        self._settings = {**_SETTINGS, "bootstrap.servers": bootstrap, "message.timeout.ms": 1000 * timeout_s}
        self._incarnation = 0
        self._partitions = [(topic, number) for topic, (count, _, _) in topics.items() for number in range(count)]
        self._keys = {topic: keys for topic, (_, keys, _) in topics.items()}
        self._bytes = {topic: size_bytes for topic, (_, _, size_bytes) in topics.items()}
        self._next: dict[tuple[str, int], int] = {}
        self._waiting = dict.fromkeys(self._partitions, 0)
        self._open()

    def _open(self) -> None:
        # A producer that met a fatal error is followed by another one, which counts anew.
        self._incarnation += 1
        self._producer_name = f"{self._name}.{self._incarnation}"
        self._next = dict.fromkeys(self._partitions, 0)
        self._producer = Producer({**self._settings, "client.id": self._producer_name})

    def send(self, count: int) -> None:
        """Send *count* records, spread over the partitions."""
        for _ in range(max(count // len(self._partitions), 1)):
            for partition in self._partitions:
                if self._waiting[partition] < _WAITING_PER_PARTITION:
                    self._send_one(partition)
        self._producer.poll(0)

    def _send_one(self, partition: tuple[str, int]) -> None:
        topic, index = partition
        number, name, sent_ms = self._next[partition], self._producer_name, now_ms()

        def delivered(error: KafkaError | None, message: Message) -> None:
            self._waiting[partition] -= 1
            if error is None:
                offset = message.offset()
                told = UNKNOWN_OFFSET if offset is None or offset < 0 else offset
                write_line(self._file, "a", sent_ms, now_ms(), topic, index, name, number, told)
            else:
                write_line(self._file, "f", sent_ms, now_ms(), topic, index, name, number, error.name())

        keys = self._keys[topic]
        key = f"{number % keys}" if keys else None
        value = value_of(name, number, self._bytes[topic])
        try:
            self._producer.produce(topic, value, key, partition=index, on_delivery=delivered)
        except BufferError:
            return
        except KafkaException as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            self._producer.flush(_FLUSH_S)
            self._open()
            return
        self._next[partition] = number + 1
        self._waiting[partition] += 1

    def poll(self, seconds: float) -> None:
        """Take acknowledgements."""
        self._producer.poll(seconds)

    def close(self) -> int:
        """Wait for every outcome; return how many are missing."""
        left = self._producer.flush(_FLUSH_S)
        self._file.close()
        return left


def topics_of(words: list[str]) -> dict[str, tuple[int, int, int]]:
    """Return partitions, keys and bytes of a value by topic, from TOPIC:PARTITIONS[:KEYS[:BYTES]]; 0 if left out."""
    rows = [[*word.split(":"), "0", "0"] for word in words]
    return {row[0]: (int(row[1]), int(row[2]), int(row[3])) for row in rows}


def main() -> int:
    """Produce until SIGTERM."""
    name, bootstrap, file, rate, timeout_s, *topics = sys.argv[1:]
    ended = False

    def end(_number: int, _frame: object) -> None:
        nonlocal ended
        ended = True

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # the run blocks it while Python starts
    load = Load(name, bootstrap, Path(file), int(timeout_s), topics_of(topics))
    began_s, sent = time.monotonic(), 0
    while not ended:
        due = int((time.monotonic() - began_s) * int(rate)) - sent
        if due > 0:
            load.send(due)
            sent += due
        load.poll(_TICK_S)
    left = load.close()
    if left:
        print(f"{name}: the outcome of {left} records is not known", file=sys.stderr)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
