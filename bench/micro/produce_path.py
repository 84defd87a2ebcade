"""CPU of the broker's hot path without a network: one Produce or Fetch request from frame to reply, in microseconds.

python -m bench.micro.produce_path [--requests 50000] [--authorizer] [--profile]

Each figure is the best of several rounds, so that a busy neighbour shows as little as possible.
"""

import argparse
import asyncio
import cProfile
import pstats
import struct
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from pylog.broker.data.acks import Acknowledgements
from pylog.broker.data.fetch import FetchHandler
from pylog.broker.data.partitions import Partitions
from pylog.broker.data.produce import ProduceHandler
from pylog.broker.data.throttles import Throttles
from pylog.broker.quotas import Quotas
from pylog.broker.requests import Requests
from pylog.broker.settings import parse_broker_settings
from pylog.cluster.image import BrokerInfo, ClusterImage, PartitionImage, TopicImage
from pylog.log.directory import LogDirectory
from pylog.metrics import Histogram, Metrics
from pylog.model import NodeAddress
from pylog.net.connection import Connection
from pylog.security.acl import Entry, Operation, Pattern, PatternType, Permission, ResourceType
from pylog.security.authorizer import Authorizer, Policy
from pylog.security.principal import Principal, Session
from pylog.security.rules import Rules
from pylog.wire import records
from pylog.wire.primitives import write_unsigned_varint
from pylog.wire.records import Record

ROUNDS = 5
TOPIC_ID = uuid.UUID(int=1)


class _Ignored(list[Histogram]):
    """Keeps nothing: a connection empties its list after each read."""

    def append(self, histogram: Histogram) -> None:
        pass


class _NoConnection:
    peer = "bench"
    read_ns = 0
    answered = _Ignored()
    session = Session(principal=Principal("User", "bench"), client_host="192.0.2.1", listener_name="client")
    rights = None


def _authorizer() -> Authorizer:
    """Return one with a thousand ACLs, of which some let the client of this benchmark write and read."""
    authorizer = Authorizer(Policy())
    entries = tuple(
        Entry("User:bench", "*", operation, Permission.ALLOW) for operation in (Operation.READ, Operation.WRITE)
    )
    names = ["bench", *(f"topic-{number}" for number in range(1_000))]
    authorizer.learn(Rules({Pattern(ResourceType.TOPIC, PatternType.LITERAL, name): entries for name in names}))
    return authorizer


def _produce_frame(batch_records: int) -> bytes:
    batch = records.encode_batch([Record(number, 1, None, b"x" * 200) for number in range(batch_records)])
    topic = b"bench"
    body = struct.pack(">hhi", -1, 1, 1000) + struct.pack(">ih", 1, len(topic)) + topic
    body += struct.pack(">iii", 1, 0, len(batch)) + batch
    return struct.pack(">hhih", 0, 7, 1, 5) + b"bench" + body


def _flexible_frame(batch_records: int) -> bytes:
    """The same by version 11, as the clients of today send it."""
    batch = records.encode_batch([Record(number, 1, None, b"x" * 200) for number in range(batch_records)])
    size = bytearray()
    write_unsigned_varint(size, len(batch) + 1)
    body = struct.pack(">BhiBB", 0, -1, 1000, 2, 6) + b"bench" + struct.pack(">Bi", 2, 0) + size + batch + bytes(3)
    return struct.pack(">hhih", 0, 11, 1, 5) + b"bench" + b"\0" + body


def _fetch_frame(offset: int, max_bytes: int) -> bytes:
    topic = b"bench"
    body = struct.pack(">iiiibii", -1, 0, 1, max_bytes, 0, 0, -1) + struct.pack(">ih", 1, len(topic)) + topic
    body += struct.pack(">iiiqqi", 1, 0, -1, offset, -1, max_bytes) + struct.pack(">ih", 0, 0)
    return struct.pack(">hhih", 1, 11, 1, 5) + b"bench" + body


def _fetch_frame_by_id(offset: int, max_bytes: int) -> bytes:
    """The same by version 17, as the clients of today send it."""
    body = struct.pack(">iiibii", 0, 1, max_bytes, 0, 0, -1) + b"\2" + TOPIC_ID.bytes
    body += struct.pack(">BiiqiqiBBBBB", 2, 0, -1, offset, -1, -1, max_bytes, 0, 0, 1, 1, 0)
    return struct.pack(">hhih", 1, 17, 1, 5) + b"bench" + b"\0" + body


def _requests(directory: Path, authorizer: Authorizer | None = None) -> Requests:
    settings = parse_broker_settings({})
    partitions = Partitions(LogDirectory.open(directory, broker_id=0), 0, settings)
    state = PartitionImage(0, 0, (0,), (0,), 0)
    here = NodeAddress(0, "localhost", 1)
    # Without itself among the brokers it would not lead, and refuse everything.
    brokers = {0: BrokerInfo(0, partitions.registered_epoch(), None, here, here)}
    topics = {"bench": TopicImage("bench", TOPIC_ID, {0: state})}
    image = ClusterImage(1, 1, "bench", 0, brokers=brokers, topics=topics)
    partitions.switch(image, partitions.prepare(image))
    metrics = Metrics()

    def now_ms() -> int:
        return time.time_ns() // 1_000_000

    acks = Acknowledgements(now_ms)
    fetch = FetchHandler(
        partitions,
        metrics,
        max_bytes=55 << 20,
        now_ms=now_ms,
        throttles=Throttles(0, settings, partitions, now_ms),
    )
    produce = ProduceHandler(partitions, metrics, now_ms=now_ms, acknowledgements=acks)
    return Requests(cast(Any, SimpleNamespace(authorizer=authorizer)), produce, fetch, Quotas(metrics, now_ms), metrics)


def _best_us(run: Callable[[], None], count: int) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time_ns()
        for _ in range(count):
            run()
        best = min(best, (time.process_time_ns() - began) / count / 1000)
    return best


def _repeat(run: Callable[[], None], count: int) -> None:
    for _ in range(count):
        run()


async def _main(count: int, profile: bool, is_authorized: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        requests = _requests(Path(directory), _authorizer() if is_authorized else None)
        connection = cast(Connection, _NoConnection())
        rows: dict[str, tuple[bytes, int]] = {
            "produce, 1 x 200 bytes": (_produce_frame(1), count),
            "produce, 50 x 200 bytes": (_produce_frame(50), count // 5),
            "produce v11, 1 x 200 bytes": (_flexible_frame(1), count),
            "fetch, 200 KB": (_fetch_frame(0, 200_000), count // 5),
            "fetch v17, 200 KB": (_fetch_frame_by_id(0, 200_000), count // 5),
        }
        for name, (frame, number) in rows.items():
            buffer = bytearray(frame)
            view = memoryview(buffer)

            def run(view: memoryview = view, buffer: bytearray = buffer, frame: bytes = frame) -> None:
                buffer[:] = frame  # a produced batch was patched in place
                requests.on_frame(connection, view)

            if profile:
                profiler = cProfile.Profile()
                profiler.runcall(_repeat, run, number)
                print(name)
                pstats.Stats(profiler).sort_stats("tottime").print_stats(14)
            else:
                print(f"{name:26} {_best_us(run, number):8.2f} us")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--authorizer", action="store_true", help="have ACLs decide each request")
    options = parser.parse_args()
    asyncio.run(_main(options.requests, options.profile, options.authorizer))
