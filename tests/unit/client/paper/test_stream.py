"""What a stream hands out, and what counts as done, while partitions come and go."""

import queue
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from pylog.client.paper.stream import MessageStream
from pylog.errors import CorruptRecords, PylogError
from pylog.model import Offset, TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
WAIT_S = 20.0
INTERRUPT = object()


@dataclass
class Fetched:
    """What a stream asks of a message of librdkafka."""

    where: TopicPartition
    number: int

    def topic(self) -> str:
        return self.where.topic

    def partition(self) -> int:
        return self.where.partition

    def offset(self) -> int:
        return self.number

    def value(self) -> bytes:
        return b"%d" % self.number


class Script:
    """A transport that returns the batches it was told to."""

    def __init__(self) -> None:
        self.batches: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.assigned: dict[TopicPartition, Offset] = {}
        self.is_closed = False
        self._positions: dict[TopicPartition, Offset] = {}

    def arrive(self, *messages: tuple[TopicPartition, int]) -> None:
        self.batches.put([Fetched(*one) for one in messages])

    def assign(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        self.assigned |= offsets

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        for one in partitions:
            del self.assigned[one]

    def take(self, timeout_s: float) -> tuple[list[Any], list[PylogError]]:
        try:
            found = self.batches.get(timeout=timeout_s)
        except queue.Empty:
            return [], []
        if isinstance(found, PylogError):
            return [], [found]
        if found is INTERRUPT:
            self._positions = dict.fromkeys(self._positions, 1_000)
            raise KeyboardInterrupt
        self._positions |= {one.where: one.number + 1 for one in found}
        return found, []

    def positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        return {one: self._positions[one] for one in partitions if one in self._positions}

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def stream(script: Script) -> MessageStream:
    made = MessageStream("c-0", script)
    made.assign({A: 10, B: 20})
    made.go_on()
    return made


def done(stream: MessageStream, *, is_hand_done: bool = False) -> tuple[int | None, int | None]:
    found = stream.done(is_hand_done=is_hand_done)
    return found.get(A), found.get(B)


def test_what_is_in_hand_is_not_done(script: Script, stream: MessageStream) -> None:
    script.arrive((A, 10), (A, 11), (B, 20), (A, 14))
    assert done(stream) == (10, 20)
    messages = iter(stream)
    assert next(messages).payload() == b"10"
    assert (done(stream), done(stream, is_hand_done=True)) == ((10, 20), (11, 20))
    next(messages)
    next(messages)
    # 12 and 13 hold no message; the next one that is there says where to go on.
    assert (done(stream), done(stream, is_hand_done=True)) == ((14, 20), (14, 21))
    assert next(messages).offset() == 14
    assert (done(stream), done(stream, is_hand_done=True)) == ((14, 21), (15, 21))


def test_a_for_that_is_left_goes_on_where_it_was(script: Script, stream: MessageStream) -> None:
    script.arrive((A, 10), (A, 11), (A, 12))
    for message in stream:
        assert message.offset() == 10
        break
    assert [next(iter(stream)).offset(), next(iter(stream)).offset()] == [11, 12]
    assert done(stream) == (12, 20)


def test_a_partition_that_goes_is_not_handed_out_any_more(script: Script, stream: MessageStream) -> None:
    script.arrive((A, 10), (B, 20), (A, 11), (B, 21), (A, 12))
    messages = iter(stream)
    next(messages)
    assert stream.revoke([B], wait_s=0) == {B: 20}
    assert (script.assigned.keys(), done(stream)) == ({A}, (10, None))
    assert [next(messages).offset(), next(messages).offset()] == [11, 12]
    assert done(stream, is_hand_done=True) == (13, None)


def test_a_message_in_hand_of_a_partition_that_goes_is_given_up_after_the_wait(
    script: Script, stream: MessageStream
) -> None:
    script.arrive((A, 10), (A, 11), (B, 20))
    messages = iter(stream)
    next(messages)
    next(messages)
    assert stream.revoke([A], wait_s=0.01) == {A: 11}
    assert next(messages).offset() == 20
    assert done(stream, is_hand_done=True) == (None, 21)


def test_a_message_in_hand_is_waited_for(script: Script, stream: MessageStream) -> None:
    script.arrive((A, 10), (A, 11))
    has_one, may_go_on = threading.Event(), threading.Event()

    def read() -> None:
        for _ in stream:
            has_one.set()
            assert may_go_on.wait(WAIT_S)

    reader = threading.Thread(target=read)
    reader.start()
    assert has_one.wait(WAIT_S)
    answers: queue.SimpleQueue[dict[TopicPartition, Offset]] = queue.SimpleQueue()
    taker = threading.Thread(target=lambda: answers.put(stream.revoke([A, B], WAIT_S)))
    taker.start()
    while script.assigned:  # until the taker waits for the reader
        pass
    may_go_on.set()
    assert answers.get(timeout=WAIT_S) == {A: 11, B: 20}
    stream.close()
    reader.join(WAIT_S)
    assert not reader.is_alive()
    taker.join()


def test_what_comes_back_begins_where_it_is_told(script: Script, stream: MessageStream) -> None:
    script.arrive((A, 10), (A, 11))
    messages = iter(stream)
    next(messages)
    stream.revoke([A], wait_s=0)
    stream.assign({A: 10})
    assert done(stream) == (10, 20)
    script.arrive((A, 10), (A, 11))
    assert [next(messages).offset(), next(messages).offset()] == [10, 11]


def test_held_means_that_nothing_more_is_fetched(script: Script, stream: MessageStream) -> None:
    script.arrive((A, 10), (A, 11))
    messages = iter(stream)
    next(messages)
    stream.hold()
    script.arrive((A, 12))
    assert next(messages).offset() == 11
    got: queue.SimpleQueue[int] = queue.SimpleQueue()
    reader = threading.Thread(target=lambda: got.put(next(messages).offset()))
    reader.start()
    while done(stream) != (12, 20):  # until the reader waits
        pass
    assert script.batches.qsize() == 1
    stream.go_on()
    assert got.get(timeout=WAIT_S) == 12
    reader.join()


def test_close_ends_the_iteration(script: Script, stream: MessageStream) -> None:
    script.arrive((A, 10), (A, 11))
    seen = []
    for message in stream:
        seen.append(message.offset())
        stream.close()
    assert seen == [10]
    assert script.is_closed
    assert list(stream) == []


def test_close_wakes_who_waits(script: Script, stream: MessageStream) -> None:
    reader = threading.Thread(target=lambda: list(stream))
    reader.start()
    stream.close()
    reader.join(WAIT_S)
    assert not reader.is_alive()


def test_an_interrupted_fetch_loses_nothing(script: Script, stream: MessageStream) -> None:
    script.arrive((A, 10), (B, 20))
    script.batches.put(INTERRUPT)
    messages = iter(stream)
    next(messages)
    next(messages)
    with pytest.raises(KeyboardInterrupt):
        next(messages)
    # It may have taken messages that never came here, so all that was not known to be done comes again.
    assert (done(stream), script.assigned) == ((10, 20), {A: 10, B: 20})
    script.arrive((A, 10), (B, 20), (A, 11))
    assert [one.offset() for _, one in zip(range(3), stream, strict=False)] == [10, 20, 11]
    assert done(stream, is_hand_done=True) == (12, 21)


def test_what_fails_is_raised_behind_what_came_before(script: Script, stream: MessageStream) -> None:
    script.arrive((A, 10))
    script.batches.put(CorruptRecords("t-0 at offset 11"))
    script.arrive((A, 12))
    messages = iter(stream)
    assert next(messages).offset() == 10
    with pytest.raises(CorruptRecords):
        next(messages)
    assert next(iter(stream)).offset() == 12
