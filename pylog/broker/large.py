"""Requests that name thousands of things: cut into parts, so that other clients have a turn between two of them.

One request may hold 65,536 elements, which take a second to decode, to look up and to encode.
"""

import asyncio
import dataclasses
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Hashable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

from pylog.broker.error_counts import error_codes
from pylog.broker.places import Places, Room, RoomHolder
from pylog.errors import ProtocolError
from pylog.net.connection import Connection
from pylog.security.principal import Session
from pylog.wire.api import ApiKey, Message, encode_response
from pylog.wire.api.message import Request

_logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

LARGE_BYTES = 4096
"""From this length of its body on a request is decoded, and its answer encoded, in a thread.  An element has three
bytes or more, so a shorter one keeps the loop busy for some milliseconds at most."""

HELD_BYTES = 4 << 20
"""Bodies of large requests that are decoded and handled at the same time, all clients together; one that is larger is
alone.  Decoded, an element may take fifty times as much memory."""

OUTSIDE_BYTES = HELD_BYTES
"""Bodies of large requests of one client that wait, decoded, for something slow while others are handled."""

RESULT_BYTES = 32
"""What a partition of an answer to Produce or Fetch counts for while the answer is made."""

PART_ELEMENTS = 256
"""So many elements of a request are handled in one turn of the loop, which takes one or two milliseconds."""


class Steps(Awaitable[Message]):
    """What a handler does element by element before it can answer.

    The connection hands over nothing else until all is done, and the time counts for the client's quota: so whoever
    has the request takes the steps (`pylog.broker.requests`).  To await them takes them with turns for others.
    """

    def __init__(self, steps: Iterator[object], answer: Callable[[], Message | Awaitable[Message]]) -> None:
        """Make them.

        Args:
            steps: does something between its elements; ends by itself, or by raising ApiError.
            answer: called at the end of the last step, in the same turn.
        """
        self._steps = steps
        self._answer = answer

    def take_some(self) -> Message | Awaitable[Message] | None:
        """Take the steps of one turn; return the answer after the last one, else None.

        Raises:
            ApiError: why nothing is done.
        """
        for count, _ in enumerate(self._steps, 1):
            if count == PART_ELEMENTS:
                return None
        return self._answer()

    def __await__(self) -> Generator[Any, None, Message]:
        return self._finish().__await__()

    async def _finish(self) -> Message:
        while (answer := self.take_some()) is None:
            await asyncio.sleep(0)
        return answer if isinstance(answer, Message) else await answer


def in_steps(
    steps: Iterator[object], answer: Callable[[], Message | Awaitable[Message]]
) -> Message | Awaitable[Message]:
    """Take the first of *steps* here and now; return `answer()` if those were all of them, else the rest.

    Raises:
        ApiError: why nothing is done.
    """
    taken = Steps(steps, answer)
    answered = taken.take_some()
    return taken if answered is None else answered


class Workshop:
    """Where large requests are worked on: one step at a time, so many bytes at a time, and a thread.

    Attributes:
        places: held for each step.
        room: held while a request is decoded, its steps are taken and its answer is encoded.
    """

    def __init__(self) -> None:
        self.places = Places(1)
        self.room = Room(HELD_BYTES, OUTSIDE_BYTES)
        # Of its own: commits and joins must not wait behind threads that read cold segments or remove files.
        self._thread = ThreadPoolExecutor(1, "large-requests")

    @asynccontextmanager
    async def working(self, connection: Connection, size_bytes: int, request: str) -> AsyncIterator[RoomHolder]:
        """Hold room for a large request of *connection*, whose `Connection.hold` ends with it.

        A request that cannot be decoded costs its client the connection, and so does a bug of ours: nobody else waits
        for it.

        Args:
            connection: held since the request came.
            size_bytes: of its body.
            request: its kind, for the log.
        """
        try:
            async with self.room.hold(connection.session, size_bytes) as holder:
                yield holder
        except ProtocolError as error:
            connection.close(f"protocol error: {error}")
        except Exception:
            _logger.exception("bug in a large request request=%s peer=%s", request, connection.peer)
            connection.close("request failed here")
        finally:
            connection.release()

    async def in_thread(self, session: Session, work: Callable[..., _Result], *arguments: Any) -> _Result:  # noqa: ANN401  # those of *work*
        """Return what *work* returns, for which others have a turn."""
        async with self.places.hold(session):
            return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    def close(self) -> None:
        """Let the thread end."""
        self._thread.shutdown(wait=False, cancel_futures=True)


class Turns:
    """Counts the elements that a handler has done, and gives others a turn after `PART_ELEMENTS`."""

    def __init__(self) -> None:
        self._done = 0

    async def next(self) -> None:
        """Go on with the next element."""
        self._done += 1
        if self._done % PART_ELEMENTS == 0:
            await asyncio.sleep(0)


class Cut(NamedTuple):
    """Where a request may be cut, and its answers joined: each element is answered for itself, in the same order.

    Attributes:
        wanted: array of the request.
        answered: array of the answer, with an element for each of *wanted*.
        inner: array within an element of *wanted* that is cut as well, "" for none.
        answered_inner: the same within an element of *answered*.
        name: what an element is about, where that is answered once however often it is there: a topic of ten thousand
            partitions must not be described once for each part.
    """

    wanted: str
    answered: str
    inner: str = ""
    answered_inner: str = ""
    name: Callable[[Any], Hashable] | None = None


CUTS: Mapping[ApiKey, Cut] = {
    ApiKey.METADATA: Cut("topics", "topics", name=lambda topic: (topic.name, topic.topic_id)),
    ApiKey.LIST_OFFSETS: Cut("topics", "topics", "partitions", "partitions"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Cut("topics", "topics", "partitions", "partitions"),
    ApiKey.FIND_COORDINATOR: Cut("coordinator_keys", "coordinators"),
    ApiKey.DESCRIBE_GROUPS: Cut("groups", "groups", name=str),
    ApiKey.DELETE_GROUPS: Cut("groups_names", "results"),
}
"""Others are handled whole: their elements belong together, or their handler gives others a turn by itself."""


class Part(NamedTuple):
    """A part of a request; *goes_on* where its first element is the rest of the one before it."""

    request: Request
    goes_on: bool


def parts(request: Request, size: int = PART_ELEMENTS) -> Iterator[Part]:
    """Yield *request* in parts of at most *size* elements, an element with others within it counted as one more."""
    cut = CUTS.get(request.api_key)
    elements = getattr(request, cut.wanted) if cut is not None else None
    if cut is None or not elements:
        yield Part(request, False)
        return
    if cut.name is not None:
        elements = list({cut.name(element): element for element in elements}.values())
    taken: list[Any] = []
    count, goes_on = 0, False
    for element in elements:
        rest: list[Any] = getattr(element, cut.inner) if cut.inner else []
        is_rest = False
        while True:
            if count >= size:
                yield Part(_with(request, cut.wanted, taken), goes_on)
                taken, count, goes_on = [], 0, is_rest
            room = max(size - count - 1, 1)
            taken.append(_with(element, cut.inner, rest[:room]) if cut.inner else element)
            count += 1 + len(rest[:room])
            rest, is_rest = rest[room:], True
            if not rest:
                break
    yield Part(_with(request, cut.wanted, taken), goes_on)


def join(whole: Message, answer: Message, *, goes_on: bool) -> None:
    """Add the *answer* to a part to that of all parts before it."""
    cut = CUTS[whole.api_key]
    before, added = getattr(whole, cut.answered), getattr(answer, cut.answered)
    if goes_on and added:
        getattr(before[-1], cut.answered_inner).extend(getattr(added[0], cut.answered_inner))
        added = added[1:]
    before.extend(added)


def encode(answer: Message, correlation_id: int, version: int) -> tuple[Mapping[int, int], bytes]:
    """Return how often *answer* has each error code, and its bytes; for a thread, since nobody else has it any more."""
    return Counter(error_codes(answer)), encode_response(answer, correlation_id, version)


def _with(struct: Any, name: str, elements: list[Any]) -> Any:  # noqa: ANN401  # a message or a part of one
    return dataclasses.replace(struct, **{name: elements})
