"""A message stream: an iterator that waits for messages and ends only when its consumer is closed.

The application's thread fetches for itself.  What it was given but has not asked beyond is known without counting: the
list of a batch, and how much of it its iterator has left.  So a message costs nothing but its own object, and taking a
partition away means to empty that iterator.
"""

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Protocol

from confluent_kafka import Message as Transported

from pylog.client.message import ReceivedMessage
from pylog.errors import PylogError
from pylog.model import Offset, TopicPartition

_POLL_S = 0.1


class Transport(Protocol):
    """Fetches the messages of the partitions it is told; one thread takes, any thread assigns."""

    def assign(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Read these too, from these offsets."""

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these no longer."""

    def take(self, timeout_s: float) -> tuple[list[Transported], list[PylogError]]:
        """Return what arrived, waiting for a first message at most *timeout_s*, and what went wrong."""

    def positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Return the offset behind the last message taken of each; those of which none was are left out."""

    def close(self) -> None:
        """Stop; nobody is in `take`."""


class MessageStream:
    """The messages of some of a consumer's partitions, one after the other.

    One thread iterates it; ``for`` may be left and begun again.  The iterator blocks until there is a message.  It
    ends when the consumer is closed, and raises what stops a partition from being read; the next ``for`` goes on.

    Attributes:
        name: as the ownership registry has it.
    """

    def __init__(self, name: str, transport: Transport, messages: type[ReceivedMessage] = ReceivedMessage) -> None:
        self.name = name
        self._transport = transport
        self._messages = messages
        self._changed = threading.Condition()
        self._is_closed = False
        self._is_held = True
        self._ended_by: PylogError | None = None
        self._failures: list[PylogError] = []
        self._batch: list[Transported] = []
        self._rest: Iterator[Transported] = iter(self._batch)
        # What the application is at, once the batch that it was in was taken back.
        self._hand_before: Transported | None = None
        # How far each partition is done when all of the batch is; asked for only when somebody wants to know.
        self._ends: dict[TopicPartition, Offset] = {}
        self._is_settled = True
        self._thread: threading.Thread | None = None
        self._is_taking = False
        self._changes_waiting = 0

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return chain.from_iterable(self._batches())

    def _batches(self) -> Iterator[Iterator[ReceivedMessage]]:
        while (batch := self._next_batch()) is not None:
            yield self._messages.each(batch)

    # -- the application's thread ----------------------------------------------------------------------------------

    def _next_batch(self) -> Iterator[Transported] | None:
        """Return the next messages, waiting for them; None once closed.  Being here means: all before are done."""
        with self._changed:
            self._thread = threading.current_thread()
            self._hand_before = None
            # A ``for`` that was left early has left some.  Not `list`: Ctrl-C behind it would lose them.
            self._set_batch(self._batch[len(self._batch) - self._left() :])
            self._changed.notify_all()
            while not self._is_closed and self._ended_by is None:
                if self._changes_waiting:
                    self._changed.wait()
                elif self._failures and (self._is_held or not self._batch):
                    raise self._failures.pop(0)
                elif self._is_held:
                    self._changed.wait()
                elif self._batch:
                    return self._rest
                elif self._ends:
                    self._take()
                else:
                    self._changed.wait()
            if self._ended_by is not None:
                raise self._ended_by
            return None

    def _set_batch(self, batch: list[Transported]) -> None:
        self._batch = batch
        self._rest = iter(batch)

    def _left(self) -> int:
        """Return how many messages of the batch were not handed out."""
        return int(self._rest.__length_hint__())  # type: ignore[attr-defined]  # every list's iterator has it

    def _take(self) -> None:
        """Fetch; what is assigned does not change meanwhile."""
        self._is_taking = True
        try:
            batch, failures = self._unlocked_take(0)
            if not batch and not failures:
                self._settle()  # so that nobody who wants to know has to wait for a message
                batch, failures = self._unlocked_take(_POLL_S)
            self._failures += failures
            if batch:
                self._is_settled = False
                self._set_batch(batch)
        except BaseException:  # Ctrl-C, after messages were taken perhaps, that nobody has now
            self._set_batch([])
            self._transport.unassign(self._ends)
            self._transport.assign(self._ends)
            self._is_settled = True
            raise
        finally:
            self._is_taking = False
            self._changed.notify_all()

    def _unlocked_take(self, timeout_s: float) -> tuple[list[Transported], list[PylogError]]:
        self._changed.release()
        try:
            return self._transport.take(timeout_s)
        finally:
            self._changed.acquire()

    def _settle(self) -> None:
        """Learn the positions behind the last batch, while none is being fetched."""
        if not self._is_settled:
            self._ends |= self._transport.positions(self._ends)
            self._is_settled = True

    # -- the consumer's thread -------------------------------------------------------------------------------------

    @contextmanager
    def _between_takes(self) -> Iterator[None]:
        with self._changed:
            self._changes_waiting += 1
            try:
                self._changed.wait_for(lambda: not self._is_taking)
                yield
            finally:
                self._changes_waiting -= 1
                self._changed.notify_all()

    def hold(self) -> None:
        """Fetch nothing more until `go_on`; the batch that is being handed out goes on to its end."""
        with self._changed:
            self._is_held = True

    def go_on(self) -> None:
        """Fetch again."""
        with self._changed:
            self._is_held = False
            self._changed.notify_all()

    def assign(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Read these partitions too, from these offsets."""
        with self._between_takes():
            self._transport.assign(offsets)
            self._ends |= offsets

    def revoke(self, partitions: Iterable[TopicPartition], wait_s: float) -> dict[TopicPartition, Offset]:
        """Hand out nothing more of *partitions*, and return how far each was done.

        A message that the application is at counts as done when it asks for the next one within *wait_s*.
        """
        with self._between_takes():
            going = set(partitions) & self._ends.keys()
            if not going:
                return {}
            self._take_back(going)
            self._transport.unassign(going)
            hand = self._hand_before
            if hand is not None and _partition_of(hand) in going and self._thread and self._thread.is_alive():
                self._changed.wait_for(lambda: self._hand_before is not hand or self._is_closed, wait_s)
            done = self._done(going, is_hand_done=False)
            for partition in going:
                del self._ends[partition]
            return done

    def _take_back(self, going: Collection[TopicPartition]) -> None:
        """Empty the application's iterator; what is not of *going* becomes its next batch."""
        self._settle()
        left = list(self._rest)
        if len(left) < len(self._batch):
            self._hand_before = self._batch[len(self._batch) - len(left) - 1]
        for one in reversed(left):
            if (partition := _partition_of(one)) in going:
                self._ends[partition] = int(one.offset() or 0)
        self._set_batch([one for one in left if _partition_of(one) not in going])

    def done(self, *, is_hand_done: bool) -> dict[TopicPartition, Offset]:
        """Return how far each partition is done: the first offset that the application has not seen or is still at.

        Args:
            is_hand_done: whether the message that the application is at counts as done.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_settled or not self._is_taking)
            self._settle()
            return self._done(self._ends, is_hand_done=is_hand_done)

    def is_iterated_by(self, thread: threading.Thread) -> bool:
        """Return whether *thread* is the one that asked for the last message."""
        return self._thread is thread

    def fail(self, failure: PylogError) -> None:
        """Raise *failure* wherever the application asks for a message, from now on."""
        with self._changed:
            self._ended_by = failure
            self._changed.notify_all()

    def report(self, failure: PylogError) -> None:
        """Raise *failure* once where the application asks for a message, unless another one waits there already."""
        with self._changed:
            if not self._failures:
                self._failures.append(failure)
                self._changed.notify_all()

    def close(self) -> None:
        """End the iteration."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
        with self._between_takes():
            self._take_back(self._ends.keys())
            self._transport.close()

    def _done(self, partitions: Iterable[TopicPartition], *, is_hand_done: bool) -> dict[TopicPartition, Offset]:
        # The iterator may move on while we look, which makes the answer too low at worst.
        handed = len(self._batch) - self._left()
        ahead = self._batch[handed:]
        hand = self._batch[handed - 1] if handed else self._hand_before
        if hand is not None and not is_hand_done:
            ahead = [hand, *ahead]
        positions = {partition: self._ends[partition] for partition in partitions}
        for one in reversed(ahead):
            partition = _partition_of(one)
            if partition in positions:
                positions[partition] = int(one.offset() or 0)
        return positions


def _partition_of(message: Transported) -> TopicPartition:
    return TopicPartition(message.topic() or "", int(message.partition() or 0))
