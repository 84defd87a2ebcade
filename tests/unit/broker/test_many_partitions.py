"""Produce and Fetch of many partitions: others have turns, nothing overtakes them, and no wake-up is missed."""

import asyncio
import dataclasses
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pylog.broker.data.acks import Acknowledgements
from pylog.broker.data.fetch import FetchHandler
from pylog.broker.data.partitions import Moved
from pylog.broker.data.produce import ProduceHandler
from pylog.broker.quotas import Quotas
from pylog.client.raw import RawBatches, RawConfig, encode_fetch, parse_fetched
from pylog.errors import ErrorCode
from pylog.model import Key, TopicPartition
from pylog.wire.api import ApiKey
from pylog.wire.api.metadata import MetadataRequest, MetadataResponse
from pylog.wire.fetch import FetchRequest
from pylog.wire.records import Record, decode_records, encode_batch, iter_batches
from tests.unit.broker.test_large import Client, Cluster, asked, run

PART, COUNT = 4, 11
ALL = range(COUNT)
WIDE = {"auto.create.topics.enable": "true", "num.partitions": str(COUNT)}


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few partitions be many: a topic of hundreds takes seconds to make."""
    monkeypatch.setattr("pylog.broker.data.produce.PART_ELEMENTS", PART)
    monkeypatch.setattr("pylog.broker.data.fetch.PART_ELEMENTS", PART)


async def create(client: Client) -> None:
    """Have the topic made."""
    error = -1
    while error:
        client.send(MetadataRequest(topics=[asked("t")], allow_auto_topic_creation=True))
        [topic] = (await client.receive(MetadataResponse)).topics
        error = topic.error_code or max((part.error_code for part in topic.partitions), default=-1)


def produce(client: Client, partitions: Sequence[int], value: bytes, acks: int = -1) -> None:
    batch = encode_batch([Record(0, 1_700_000_000_000, None, value)])
    body = struct.pack(">hhiih", -1, acks, 10_000, 1, 1) + b"t" + struct.pack(">i", len(partitions))
    for number in partitions:
        body += struct.pack(">ii", number, len(batch)) + batch
    client.send_bytes(ApiKey.PRODUCE, body, 3)


async def produced(client: Client) -> dict[int, tuple[int, int]]:
    """Return (error code, base offset) by partition."""
    body = await client.receive_bytes()
    topics, length, _, count = struct.unpack_from(">ihsi", body)
    assert (topics, length) == (1, 1)
    rows = struct.iter_unpack(">ihqq", body[11 : 11 + 22 * count])
    return {number: (error, offset) for number, error, offset, _ in rows}


def fetch(client: Client, offset: int, partitions: Sequence[int] = ALL, *, max_wait_ms: int = 0) -> None:
    positions = {TopicPartition("t", number): offset for number in partitions}
    config = dataclasses.replace(RawConfig(), max_wait_ms=max_wait_ms, max_bytes=1 << 24)
    client.send_bytes(ApiKey.FETCH, encode_fetch(positions, config), 11)


def values(found: tuple[int, RawBatches]) -> list[bytes]:
    error, batches = found
    assert error == ErrorCode.NONE
    headers = [(at, header) for at, header in iter_batches(batches.records)]
    read = [record for at, header in headers for record in decode_records(batches.records, header, at)]
    return [bytes(record.value or b"") for record in read]


async def fetched(client: Client) -> dict[int, list[bytes]]:
    """Return the values by partition, of those that have any."""
    found = parse_fetched(await client.receive_bytes())
    return {key.partition: read for key, one in found.items() if (read := values(one))}


def test_batches_of_many_partitions_are_appended_in_parts_and_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    append_all = ProduceHandler._append_all

    def note(handler: ProduceHandler, version: int, request: Any, *more: Any) -> Any:
        sizes.append(len(request.parts))
        return append_all(handler, version, request, *more)

    async def story(cluster: Cluster) -> None:
        async with cluster.connected() as client:
            await create(client)
            monkeypatch.setattr(ProduceHandler, "_append_all", note)
            produce(client, ALL, b"first")
            produce(client, [0], b"second")
            produce(client, ALL, b"third", acks=1)
            assert await produced(client) == dict.fromkeys(ALL, (0, 0))
            assert await produced(client) == {0: (0, 1)}
            assert await produced(client) == {0: (0, 2), **dict.fromkeys(ALL[1:], (0, 1))}
            assert max(sizes) <= PART
            fetch(client, 0)
            found = await fetched(client)
            assert found == {0: [b"first", b"second", b"third"], **{key: [b"first", b"third"] for key in ALL[1:]}}

    run(tmp_path, story, **WIDE)


def test_without_an_answer_a_refusal_of_one_of_many_partitions_closes_the_connection(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with cluster.connected() as client:
            await create(client)
            produce(client, ALL, b"first", acks=0)
            produce(client, [1], b"second")
            assert await produced(client) == {1: (0, 1)}
            produce(client, [*ALL, COUNT], b"third", acks=0)
            assert await client.is_closed()

    run(tmp_path, story, **WIDE)


def test_a_fetch_of_many_partitions_waits_for_the_first_record_of_any(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with cluster.connected() as client, cluster.connected() as other:
            await create(client)
            fetch(client, 0, max_wait_ms=60_000)
            while not len(cluster.broker._data.fetch.waiting):
                await asyncio.sleep(0.01)
            produce(other, [COUNT - 1], b"late")
            await produced(other)
            assert await fetched(client) == {COUNT - 1: [b"late"]}
            fetch(client, 1, ALL[:-1], max_wait_ms=1)
            found = parse_fetched(await client.receive_bytes())
            assert {error for error, _ in found.values()} == {ErrorCode.OFFSET_OUT_OF_RANGE}

    run(tmp_path, story, **WIDE)


def test_a_fetch_of_many_partitions_is_answered_with_nothing_when_its_time_is_up(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with cluster.connected() as client:
            await create(client)
            fetch(client, 0, max_wait_ms=5)
            assert await fetched(client) == {}
            assert len(cluster.broker._data.fetch.waiting) == 0

    run(tmp_path, story, **WIDE)


def test_a_record_that_comes_between_two_turns_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first partitions were read already, and nobody would say again that there is something."""
    read_in_turns = FetchHandler._read_in_turns
    readings: list[int] = []

    async def story(cluster: Cluster) -> None:
        async with cluster.connected() as client, cluster.connected() as other:
            await create(client)

            async def read(handler: FetchHandler, *more: Any) -> Any:
                reading = await read_in_turns(handler, *more)
                readings.append(reading.found_bytes)
                if len(readings) == 1:
                    produce(other, [0], b"between")
                    await produced(other)
                return reading

            monkeypatch.setattr(FetchHandler, "_read_in_turns", read)
            fetch(client, 0, max_wait_ms=60_000)
            assert await fetched(client) == {0: [b"between"]}
            assert readings[0] == 0

    run(tmp_path, story, **WIDE)


def test_a_segment_that_goes_while_many_partitions_are_read_is_sent_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = FetchHandler._account

    async def story(cluster: Cluster) -> None:
        async with cluster.connected() as client:
            await create(client)
            produce(client, ALL, b"first")
            await produced(client)

            def trim(handler: FetchHandler, request: FetchRequest, *more: Any) -> Any:
                for number in ALL:
                    _, log = cluster.broker.partitions.leader("t", number)
                    log.roll()
                    log.delete_records_before(-1)
                    while log.jobs:
                        job = log.jobs.popleft()
                        job.run()
                        job.finish()
                    assert len(log.segments) == 1
                return account(handler, request, *more)

            monkeypatch.setattr(FetchHandler, "_account", trim)
            fetch(client, 0)
            assert await fetched(client) == {key: [b"first"] for key in ALL}

    run(tmp_path, story, **WIDE)


def test_the_time_of_many_partitions_counts_for_the_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[float] = []

    class Counting:
        """Counts what is charged."""

        fetch_max_bytes = 1 << 20

        def worked(self) -> int:
            return 0

        def worked_on(self, seconds: float) -> int:
            counted.append(seconds)
            return 0

        def produced(self, size_bytes: int) -> int:
            return 0

        fetched = produced

    async def story(cluster: Cluster) -> None:
        async with cluster.connected() as client:
            await create(client)
            monkeypatch.setattr(Quotas, "is_any", property(lambda _: True, lambda *_: None), raising=False)
            monkeypatch.setattr(Quotas, "meter", lambda *_: Counting())
            produce(client, ALL, b"first")
            await produced(client)
            assert len(counted) == 1
            fetch(client, 0)
            await fetched(client)
            assert len(counted) == 2
            assert min(counted) > 0

    run(tmp_path, story, **WIDE)


def test_a_move_of_one_partition_looks_at_no_other_of_its_request() -> None:
    looked: list[int] = []

    class Awaited:
        """Waits until its turn has come."""

        def __init__(self, number: int) -> None:
            self._number = number
            self.is_done = False

        def result(self) -> ErrorCode | None:
            looked.append(self._number)
            return ErrorCode.NONE if self.is_done else None

    async def story() -> None:
        acknowledgements, errors = Acknowledgements(lambda: 0), dict[Key, ErrorCode]()
        waits: Any = {("t", number): Awaited(number) for number in range(3)}
        acknowledgements.wait(waits, 1000, errors.update)
        looked.clear()
        for number in (1, 0, 2):
            waits["t", number].is_done = True
            acknowledgements.moved(("t", number), Moved.HIGH_WATERMARK)
        assert looked == [1, 0, 2]
        assert errors == {("t", number): ErrorCode.NONE for number in range(3)}

    asyncio.run(story())
