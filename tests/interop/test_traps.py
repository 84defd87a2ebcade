"""Traps of the protocol, by hand over a socket; the whole list with its tests stands in docs/traps.md."""

import struct
import time
from pathlib import Path

import pytest

from pylog.testing import BrokerProcess
from tests.interop import frames
from tests.interop.batches import Batch
from tests.interop.conftest import PEER, Broker, create_topic
from tests.interop.frames import Connection

UNKNOWN_LEADER_EPOCH = 76 - 1  # 75
ZSTD = 4


def test_trap_7_an_empty_list_asks_for_all_topics_in_version_0_alone(broker: Broker, shared_topic: str) -> None:
    name = shared_topic.encode()
    with Connection(broker.bootstrap) as connection:
        assert name in connection.ask(frames.frame(frames.METADATA, 0, struct.pack(">i", 0)))
        assert name in connection.ask(frames.frame(frames.METADATA, 1, struct.pack(">i", -1)))
        assert name not in connection.ask(frames.frame(frames.METADATA, 1, struct.pack(">i", 0)))


@pytest.mark.parametrize(("version", "error"), [(6, frames.UNSUPPORTED_COMPRESSION_TYPE), (7, frames.NONE)])
def test_trap_13_zstd_needs_version_7(broker: Broker, topic: str, version: int, error: int) -> None:
    import cramjam

    from tests.interop.batches import record

    packed = bytes(cramjam.zstd.compress(record(0, None, b"v")))
    batch = Batch(records=packed, attributes=ZSTD).encode()
    request = frames.produce(topic, batch)
    with Connection(broker.bootstrap) as connection:
        answer = connection.ask(request[:6] + struct.pack(">h", version) + request[8:])
    assert frames.produce_result(answer)[0] == error


@pytest.mark.parametrize(
    ("version", "compression", "error"),
    [
        (9, "zstd", frames.UNSUPPORTED_COMPRESSION_TYPE),
        (10, "zstd", frames.NONE),
        (9, "gzip", frames.NONE),
        # Asked of the topic, as Apache Kafka does: a producer's zstd goes out to clients that may know it all the same.
        (9, "producer", frames.NONE),
    ],
)
def test_a_topic_kept_in_zstd_needs_version_10_to_be_fetched(
    broker: Broker, version: int, compression: str, error: int
) -> None:
    name = f"fetched-{compression}-{version}"
    create_topic(broker.bootstrap, name, compression_type=compression)
    with Connection(broker.bootstrap) as connection:
        assert frames.produce_result(connection.ask(frames.produce(name, Batch().encode())))[0] == frames.NONE
        body = connection.ask(fetch_of([name], 1000, version=version))
    (found,) = struct.unpack_from(">h", body, 14 + 2 + len(name) + 8)
    assert found == error


@pytest.mark.skipif(PEER != "pylog", reason="reads pylog's counters")
def test_t17_a_time_ahead_is_refused_and_counted_by_topic(tmp_path: Path) -> None:
    ahead_ms = time.time_ns() // 1_000_000 + 2 * 3_600_000  # an hour is allowed
    with BrokerProcess(tmp_path) as broker, Connection(broker.bootstrap) as connection:
        create_topic(broker.bootstrap, "timed")
        batch = Batch(timestamp_ms=ahead_ms).encode()
        error, _ = frames.produce_result(connection.ask(frames.produce("timed", batch)))
        assert error == frames.INVALID_TIMESTAMP
        assert frames.listed_offset(connection.ask(frames.list_offsets("timed"))) == 0
        assert 'pylog_produce_bad_timestamps_total{topic="timed"} 1' in broker.admin("GET", "/metrics")[1]


def fetch_of(topics: list[str], max_bytes: int, *, version: int = 4, leader_epoch: int = -1) -> bytes:
    """Read partition 0 of each topic from its start."""
    body = struct.pack(">iiiib", -1, 0, 0, max_bytes, 0)
    if version >= 7:
        body += struct.pack(">ii", 0, -1)
    body += struct.pack(">i", len(topics))
    for topic in topics:
        body += frames.string(topic.encode()) + struct.pack(">ii", 1, 0)
        body += struct.pack(">i", leader_epoch) if version >= 9 else b""
        body += struct.pack(">q", 0) + (struct.pack(">q", -1) if version >= 5 else b"") + struct.pack(">i", max_bytes)
    if version >= 7:
        body += struct.pack(">i", 0)
    return frames.frame(frames.FETCH, version, body)


def fetched(body: bytes, count: int) -> list[tuple[int, int]]:
    """Return (error, size of records) of each of *count* topics in a Fetch v4 answer."""
    found: list[tuple[int, int]] = []
    position = 8
    for _ in range(count):
        (length,) = struct.unpack_from(">h", body, position)
        position += 2 + length + 8
        error, _, _, aborted = struct.unpack_from(">hqqi", body, position)
        assert aborted <= 0
        (size,) = struct.unpack_from(">i", body, position + 22)
        found.append((error, max(size, 0)))
        position += 26 + max(size, 0)
    assert position == len(body)
    return found


def test_trap_26_the_first_batch_of_the_first_partition_that_has_one_goes_whole(broker: Broker) -> None:
    for name in ("empty", "first", "second"):
        create_topic(broker.bootstrap, f"order-{name}")
    batch = Batch(values=(b"x" * 500,)).encode()
    with Connection(broker.bootstrap) as connection:
        for name in ("first", "second"):
            assert frames.produce_result(connection.ask(frames.produce(f"order-{name}", batch)))[0] == frames.NONE
        names = ["order-empty", "order-first", "order-second"]
        sizes = fetched(connection.ask(fetch_of(names, max_bytes=10)), 3)
        assert sizes == [(0, 0), (0, len(batch)), (0, 0)]
        # The order in the request decides, and a limit that has room for both gives both.
        assert fetched(connection.ask(fetch_of(names[::-1], max_bytes=10)), 3) == [(0, len(batch)), (0, 0), (0, 0)]
        both = fetched(connection.ask(fetch_of(names, max_bytes=10_000)), 3)
        assert both == [(0, 0), (0, len(batch)), (0, len(batch))]


def test_trap_32_a_fetch_ahead_of_the_leader_epoch_is_refused(broker: Broker, topic: str) -> None:
    with Connection(broker.bootstrap) as connection:
        body = connection.ask(fetch_of([topic], 1000, version=9, leader_epoch=1000))
    # throttle, error, session, topics, name, partitions, index
    (error,) = struct.unpack_from(">h", body, 14 + 2 + len(topic) + 8)
    assert error == UNKNOWN_LEADER_EPOCH
