"""A member of a consumer group (librdkafka) as a process, until SIGTERM; writes what it reads and commits.

python -m tests.chaos.group MEMBER GROUP BOOTSTRAP FILE TOPIC...
"""

import signal
import sys
import time
from pathlib import Path
from typing import TextIO

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.chaos.history import now_ms, parse_value, write_line

_POLL_S = 0.2
_STALLED = "Failed to fetch committed offset"
"""How librdkafka begins to say that it will not read a partition that it was assigned, because its group's coordinator
was just another one: the application has to join again."""
_COMMIT_EVERY_S = 1.0
_SETTINGS = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "session.timeout.ms": 10_000,
    "heartbeat.interval.ms": 2_000,
    "socket.timeout.ms": 6_000,
    "reconnect.backoff.max.ms": 1_000,
    # A member that joins while its topic is gone is assigned nothing, and looks for the topic only so often.
    "topic.metadata.refresh.interval.ms": 10_000,
    "check.crcs": True,
}


class Member:
    """Reads, commits what it read every second, and writes both down."""

    def __init__(self, group: str, bootstrap: str, file: TextIO, topics: list[str]) -> None:
        self._file = file
        self._next: dict[tuple[str, int], int] = {}
        client = {"bootstrap.servers": bootstrap, "group.id": group}
        self._consumer = Consumer({**_SETTINGS, **client})
        self._topics = topics
        self._subscribe()

    def _subscribe(self) -> None:
        self._consumer.subscribe(self._topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    def _assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            write_line(self._file, "b", now_ms(), one.topic, one.partition)
            self._next.pop((one.topic, one.partition), None)

    def _revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            write_line(self._file, "e", now_ms(), one.topic, one.partition)
            self._next.pop((one.topic, one.partition), None)

    def read(self) -> None:
        """Take what is there."""
        is_stalled = False
        for message in self._consumer.consume(1000, _POLL_S):
            error = message.error()
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            if error is not None or topic is None or partition is None or offset is None:
                print(f"{now_ms()} {topic} {partition}: {error}", file=sys.stderr, flush=True)
                is_stalled |= error is not None and error.str().startswith(_STALLED)
                continue
            producer, number = parse_value(message.value())
            write_line(self._file, "p", now_ms(), topic, partition, offset, producer, number)
            self._next[topic, partition] = offset + 1
        if is_stalled:
            self.commit()
            self._consumer.unsubscribe()
            self._subscribe()

    def commit(self) -> None:
        """Commit what was read, and write down what the coordinator took."""
        offsets = [TopicPartition(topic, number, offset) for (topic, number), offset in self._next.items()]
        if not offsets:
            return
        try:
            answered = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            print(f"{now_ms()} commit: {error}", file=sys.stderr, flush=True)
            return
        for one in answered or []:
            if one.error is None:
                write_line(self._file, "c", now_ms(), one.topic, one.partition, one.offset)
        self._file.flush()

    def close(self) -> None:
        """Commit and leave the group."""
        self.commit()
        self._consumer.close()


def main() -> int:
    """Read until SIGTERM."""
    _member, group, bootstrap, path, *topics = sys.argv[1:]
    ended = False

    def end(_number: int, _frame: object) -> None:
        nonlocal ended
        ended = True

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # the run blocks it while Python starts
    with Path(path).open("w", buffering=1 << 16) as file:
        member = Member(group, bootstrap, file, topics)
        committed_s = time.monotonic()
        while not ended:
            member.read()
            if time.monotonic() - committed_s > _COMMIT_EVERY_S:
                member.commit()
                committed_s = time.monotonic()
        member.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
