"""The paper's nouns: a message, a set of messages, and what a message stream hands over.

Whatever a message carries is asked for with a method, as the paper writes ``message.payload()``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pylog.errors import ConfigError
from pylog.model import Offset, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Message as Transported

Headers = Sequence[tuple[str, bytes | None]]


class Message:
    """One message to send.

    Args:
        payload: the bytes, or what the producer's serializer makes bytes of; None deletes the key from a compacted
            topic.
        key: chooses the partition and names what the message is about.
        partition: sends it there, whatever the key says.
        headers: names and values.
    """

    __slots__ = ("_headers", "_key", "_partition", "_payload")

    def __init__(
        self,
        payload: Any,  # noqa: ANN401  (see serializer)
        key: bytes | None = None,
        *,
        partition: int | None = None,
        headers: Headers = (),
    ) -> None:
        if partition is not None and partition < 0:
            raise ConfigError(f"Message: partition {partition}; wanted a number from 0 on, or None")
        self._payload = payload
        self._key = key
        self._partition = partition
        self._headers = tuple(headers)

    def payload(self) -> Any:  # noqa: ANN401
        """Return what it carries."""
        return self._payload

    def key(self) -> bytes | None:
        """Return its key."""
        return self._key

    def partition(self) -> int | None:
        """Return the partition it is meant for, if its sender named one."""
        return self._partition

    def headers(self) -> Headers:
        """Return its headers."""
        return self._headers

    def __repr__(self) -> str:
        return f"Message({self._payload!r}, key={self._key!r})"


class MessageSet:
    """Messages that are sent together: ``MessageSet(message)``, ``MessageSet(first, second)``, ``MessageSet(many)``.

    Args:
        messages: each a `Message`, a payload, or an iterable of those.
    """

    __slots__ = ("_messages",)

    def __init__(self, *messages: Message | bytes | Iterable[Message | bytes]) -> None:
        self._messages = [_as_message(one) for given in messages for one in _flat(given)]

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages)

    def __len__(self) -> int:
        return len(self._messages)


def _flat(given: Message | bytes | Iterable[Message | bytes]) -> Iterable[Message | bytes]:
    return (given,) if isinstance(given, Message | bytes) else given


def _as_message(given: Message | bytes) -> Message:
    return given if isinstance(given, Message) else Message(given)


# A tuple of one, because no other object is made as fast (an object with a slot takes a third longer), and one is made
# for each message that is read.  Nothing is taken apart before it is asked for.
class ReceivedMessage(tuple["Transported"]):
    """One message as a stream hands it over."""

    __slots__ = ()

    @classmethod
    def each(cls, transported: Iterable[Transported]) -> Iterator[ReceivedMessage]:
        """Return the messages that stand for what librdkafka handed over."""
        return map(cls, zip(transported))

    def payload(self) -> Any:  # noqa: ANN401  (a stream with a deserializer returns what that makes)
        """Return the bytes, or what the stream's deserializer makes of them; None where a key was deleted."""
        return self[0].value()

    def key(self) -> bytes | None:
        """Return its key."""
        return self[0].key()

    def headers(self) -> Headers:
        """Return its headers."""
        found: Any = self[0].headers() or ()  # the stub also allows what only `produce` takes
        return tuple(found)

    def topic(self) -> str:
        """Return its topic."""
        return self[0].topic() or ""

    def partition(self) -> int:
        """Return its partition."""
        return int(self[0].partition() or 0)

    def offset(self) -> Offset:
        """Return its offset; the next message of the partition has this plus one, or more after a gap."""
        return int(self[0].offset() or 0)

    def topic_partition(self) -> TopicPartition:
        """Return where it comes from."""
        return TopicPartition(self.topic(), self.partition())

    def timestamp_ms(self) -> int:
        """Return its time since 1970; -1 if it has none."""
        return self[0].timestamp()[1]

    def __repr__(self) -> str:
        return f"ReceivedMessage({self.topic_partition()}@{self.offset()}, key={self.key()!r})"
