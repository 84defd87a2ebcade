"""Every served request in every version, whole and damaged, against the handlers of a live broker in this process.

Never an unhandled exception, a hang, or memory by claim: each frame is answered, refused, or waited for.
"""

import asyncio
import datetime
import importlib
import io
import logging
import resource
import socket
import struct
import threading
import time
import uuid
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_writer

from pylog.broker.broker import Broker
from pylog.broker.watchdog import Watchdog
from pylog.config import standalone_config
from pylog.errors import ProtocolError
from pylog.log.directory import LogDirectory
from pylog.net.connection import Connection
from pylog.security.principal import Session
from pylog.wire.api import SERVED, ApiKey
from pylog.wire.api.message import Request
from pylog.wire.records import Record, encode_batch
from tests.fuzz.effort import damaged, effort
from tests.unit.wire.api.catalogue import message_classes, messages, sample

T = TypeVar("T")

HANG_S = 20.0
"""Longest the loop may take for one frame, on a machine with other work."""

MEMORY_BYTES = 200 << 20
"""What all frames together may cost: far more than they hold, far less than they claim."""

TOPIC = "name"  # as `sample` names everything
_topic_ids: dict[str, uuid.UUID] = {}  # of the topics that were made

REQUESTS = {cls.api_key: cls for cls in message_classes() if issubclass(cls, Request) and cls.api_key in SERVED}
CASES = [(key, version) for key, row in SERVED.items() for version in range(row.min_served, row.max_advertised + 1)]


class LiveBroker:
    """A broker on a loop of its own thread; its watchdog sleeps, the tests' own time-out does its work."""

    def __init__(self, directory: Path) -> None:
        self.bugs: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._handler = _Bugs(self.bugs)
        logging.getLogger("pylog").addHandler(self._handler)
        self.run(self._start(directory))

    async def _start(self, directory: Path) -> None:
        overrides = {"auto.create.topics.enable": "false", "offsets.topic.num.partitions": "1"}
        config = standalone_config(directory, port=0, overrides=overrides)
        self._broker = Broker(config, LogDirectory.open(directory, broker_id=0), asyncio.Event())
        self._broker._watchdog = Watchdog(3600, self._broker.metrics)
        await self._broker.start()

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float = HANG_S) -> T:
        """Run *work* on the loop; a TimeoutError says that it hangs."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    async def give(self, frame: bytes) -> bytes | None:
        """Hand *frame* to the handlers as a connection does; return what is answered at once, None if refused."""
        here, there = socket.socketpair()
        connection = Connection(
            here, handler=self._broker._requests, buffer=bytearray(1 << 16), max_frame_bytes=1 << 20,
            session=Session(client_host="127.0.0.1", listener_name="client"), peer="127.0.0.1:1",
            on_close=lambda connection, reason: None,
        )  # fmt: skip
        try:
            reply = self._broker._requests.on_frame(connection, memoryview(bytearray(frame)))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        except ProtocolError as error:
            if "failed here" in str(error):
                raise
            return None
        finally:
            connection.close()
            there.close()
        return b"".join(part for part in reply or () if isinstance(part, bytes))

    def close(self) -> None:
        """End it."""
        self.run(self._broker.stop(), 60)
        logging.getLogger("pylog").removeHandler(self._handler)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _Bugs(logging.Handler):
    def __init__(self, found: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info or record.getMessage().startswith("bug"):
            self._found.append(self.format(record))


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    # A damaged count of partitions must not fill the disk of whoever runs the tests.
    with patch("pylog.cluster.topics.MAX_PARTITIONS", 20):
        broker = LiveBroker(tmp_path_factory.mktemp("fuzz"))
        broker.run(broker.give(framed(ApiKey.CREATE_TOPICS, 2, create_topic())))
        topics = broker._broker.partitions.image.topics
        deadline_s = time.monotonic() + HANG_S
        while TOPIC not in topics:
            assert time.monotonic() < deadline_s, "the topic was not made"
            time.sleep(0.01)
            topics = broker._broker.partitions.image.topics
        _topic_ids[TOPIC] = topics[TOPIC].topic_id
        yield broker
        broker.close()


def create_topic() -> bytes:
    wanted = struct.pack(">h", len(TOPIC)) + TOPIC.encode() + struct.pack(">ihii", 2, 1, 0, 0)
    return struct.pack(">i", 1) + wanted + struct.pack(">ib", 10_000, 0)


def framed(key: ApiKey, version: int, body: bytes, correlation_id: int = 7) -> bytes:
    """Return the payload of a frame."""
    tags = b"\x00" if version >= SERVED[key].flexible_from else b""
    return struct.pack(">hhih", key, version, correlation_id, 4) + b"fuzz" + tags + body


def sound_body(key: ApiKey, version: int) -> bytes:
    """Return a request with one of everything in it."""
    if key in (ApiKey.PRODUCE, ApiKey.FETCH):
        return hot_body(key, version)
    body: bytes = sample(REQUESTS[key], version).encode(version)
    return body


def hot_body(key: ApiKey, version: int) -> bytes:
    """Return a sound Produce or Fetch request, as an independent implementation writes it."""
    name = "produce" if key is ApiKey.PRODUCE else "fetch"
    kio: Any = importlib.import_module(f"kio.schema.{name}.v{version}.request")
    if key is ApiKey.PRODUCE:
        batch = encode_batch([Record(0, 1_700_000_000_000, b"key", b"value")])
        partition = kio.PartitionProduceData(index=0, records=batch)
        entity = kio.ProduceRequest(
            transactional_id=None, acks=-1, timeout=datetime.timedelta(milliseconds=10),
            topic_data=(kio.TopicProduceData(name=TOPIC, partition_data=(partition,)),),
        )  # fmt: skip
    else:
        more: dict[str, Any] = {}
        if version >= 7:
            more = {"session_id": 0, "session_epoch": -1, "forgotten_topics_data": ()}
        if version >= 11:
            more["rack_id"] = "r"
        if version < 15:
            more["replica_id"] = -1
        partition = kio.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=999)
        which = {"topic": TOPIC} if version < 13 else {"topic_id": _topic_ids[TOPIC]}
        entity = kio.FetchRequest(
            max_wait=datetime.timedelta(milliseconds=1), min_bytes=1, max_bytes=1000, isolation_level=0,
            topics=(kio.FetchTopic(partitions=(partition,), **which),), **more,
        )  # fmt: skip
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    key, version = draw(st.sampled_from(CASES))
    body = sound_body(key, version)
    if key in REQUESTS and draw(st.booleans()):
        body = draw(messages(REQUESTS[key], version)).encode(version)
    return draw(damaged(framed(key, version, body)))


@pytest.mark.parametrize(("key", "version"), CASES)
def test_every_request_is_answered_as_it_is(live: LiveBroker, key: ApiKey, version: int) -> None:
    reply = live.run(live.give(framed(key, version, sound_body(key, version))))
    assert reply is not None, "refused"
    if reply:  # the others wait
        assert struct.unpack_from(">ii", reply) == (len(reply) - 4, 7) or key is ApiKey.FETCH
    assert live.bugs == []


@pytest.mark.parametrize("version", [10, 11, 12])
def test_a_topic_without_name_is_answered_in_every_version_that_can_ask(live: LiveBroker, version: int) -> None:
    body = b"\x02" + bytes(15) + b"\x05" + b"\x00" + b"\x00"  # one topic: id 5, no name, no tags
    flags = b"\x01\x00\x00" if version < 11 else b"\x01\x00"  # creation, authorized operations
    reply = live.run(live.give(framed(ApiKey.METADATA, version, body + flags + b"\x00")))
    assert reply
    assert live.bugs == []


@given(frame=requests())
@effort(1500)
def test_t30_damaged_requests_are_answered_or_refused(live: LiveBroker, frame: bytes) -> None:
    live.run(live.give(frame))
    assert live.bugs == []


def test_the_broker_is_sound_and_no_larger_after_all_of_it(live: LiveBroker) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    claims = (b"\xff\xff\xff\x7f", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07")
    for key, version in CASES:
        for claim in claims:
            live.run(live.give(framed(key, version, claim * 3)))
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - before < MEMORY_BYTES
    reply = live.run(live.give(framed(ApiKey.API_VERSIONS, 0, b"")))
    assert reply is not None
    assert len(reply) > 100
    assert live.bugs == []
