"""CPU of the group coordinator without a network: commits and heartbeats from frame to reply, and its clock.

python -m bench.micro.group_commit [--requests 20000] [--groups 500] [--profile]

Each figure is the best of several rounds, so that a busy neighbour shows as little as possible.
"""

import argparse
import asyncio
import cProfile
import pstats
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
from pylog.broker.groups.coordinator import SWEEP_MS, CoordinatorConfig, GroupCoordinator
from pylog.broker.quotas import Quotas
from pylog.broker.requests import Requests
from pylog.broker.settings import parse_broker_settings, typed
from pylog.cluster.image import BrokerInfo, ClusterImage, PartitionImage, TopicImage
from pylog.group.records import TOPIC
from pylog.log.directory import LogDirectory
from pylog.metrics import Metrics
from pylog.model import NodeAddress
from pylog.net.connection import Connection, Part
from pylog.security.principal import Session
from pylog.wire.api.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pylog.wire.api.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
)
from pylog.wire.api.message import Request
from tests.kafka_client import payload

ROUNDS = 5
BATCH = 20
HEARTBEAT_S = 3.0
PARTITIONS = 50
COMMIT_VERSION, HEARTBEAT_VERSION = 8, 4


class _NoSlot:
    read_ns = 0

    def complete(self, parts: list[Part]) -> None:
        """Take an answer that came later."""


class _NoConnection:
    peer = "bench:1"
    session = Session(client_host="bench", listener_name="client")
    read_ns = 0

    def open_slot(self) -> _NoSlot:
        return _NoSlot()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _topic(name: str, partitions: int) -> TopicImage:
    state = PartitionImage(0, 0, (0,), (0,), 0)
    return TopicImage(name, uuid.uuid4(), dict.fromkeys(range(partitions), state))


async def _broker(directory: Path) -> tuple[Requests, GroupCoordinator]:
    settings = parse_broker_settings({"group.initial.rebalance.delay.ms": 0, "offsets.topic.replication.factor": 1})
    partitions = Partitions(LogDirectory.open(directory, broker_id=0), 0, settings)
    topics = {TOPIC: _topic(TOPIC, PARTITIONS), "bench": _topic("bench", 100)}
    here = NodeAddress(0, "localhost", 1)
    brokers = {0: BrokerInfo(0, partitions.registered_epoch(), None, here, here)}
    image = ClusterImage(1, 1, "bench", 0, brokers=brokers, topics=topics)
    changed = partitions.switch(image, partitions.prepare(image))
    metrics = Metrics()
    acknowledgements = Acknowledgements(_now_ms)
    fetch = FetchHandler(
        partitions,
        metrics,
        max_bytes=55 << 20,
        now_ms=_now_ms,
        throttles=Throttles(0, settings, partitions, _now_ms),
    )
    produce = ProduceHandler(partitions, metrics, now_ms=_now_ms, acknowledgements=acknowledgements)
    groups = GroupCoordinator(
        partitions,
        typed(CoordinatorConfig, settings),
        metrics,
        now_ms=_now_ms,
        wall_ms=_now_ms,
        acknowledgements=acknowledgements,
    )
    groups.image_applied(changed)
    await asyncio.sleep(0.2)  # empty partitions are loaded at once
    cluster = SimpleNamespace(broker_id=0, partitions=partitions, settings=settings, groups=groups, authorizer=None)
    return Requests(cast(Any, cluster), produce, fetch, Quotas(metrics, _now_ms), metrics), groups


async def _member(groups: GroupCoordinator, group_id: str) -> JoinGroupResponse:
    """Make a stable group of one member."""
    joined = await groups.join(
        JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=1_800_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        ),
        "bench",
        "/127.0.0.1",
        3,
    )
    assert isinstance(joined, JoinGroupResponse)
    await groups.sync(
        SyncGroupRequest(group_id=group_id, generation_id=joined.generation_id, member_id=joined.member_id)
    )
    return joined


def _frame(request: Request, version: int) -> memoryview:
    return memoryview(payload(request.api_key, version, 0, "bench", request.encode(version)))


def _commit(group_id: str, member: JoinGroupResponse, partitions: int) -> memoryview:
    rows = [OffsetCommitRequestPartition(partition_index=number, committed_offset=7) for number in range(partitions)]
    return _frame(
        OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=member.generation_id,
            member_id=member.member_id,
            topics=[OffsetCommitRequestTopic(name="bench", partitions=rows)],
        ),
        COMMIT_VERSION,
    )


def _repeat(run: Callable[[], None], count: int) -> None:
    for _ in range(count):
        run()


async def _best_us(run: Callable[[], None], count: int) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time_ns()
        for _ in range(count // BATCH):
            _repeat(run, BATCH)
            await asyncio.sleep(0)  # what is answered later is answered here
        best = min(best, (time.process_time_ns() - began) / (count // BATCH * BATCH) / 1000)
    return best


async def _main(count: int, group_count: int, profile: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        requests, groups = await _broker(Path(directory))
        members = {f"group-{number}": await _member(groups, f"group-{number}") for number in range(group_count)}
        first, member = next(iter(members.items()))
        connection = cast(Connection, _NoConnection())
        beat = _frame(
            HeartbeatRequest(group_id=first, generation_id=member.generation_id, member_id=member.member_id),
            HEARTBEAT_VERSION,
        )
        rows = {
            "commit, 1 partition": (_commit(first, member, 1), count),
            "commit, 20 partitions": (_commit(first, member, 20), count // 10),
            "heartbeat": (beat, count),
        }
        found = {}
        for name, (frame, number) in rows.items():

            def run(frame: memoryview = frame) -> None:
                requests.on_frame(connection, frame)

            if profile:
                profiler = cProfile.Profile()
                profiler.runcall(_repeat, run, number)
                print(name)
                pstats.Stats(profiler).sort_stats("tottime").print_stats(18)
            found[name] = await _best_us(run, number)
            print(f"{name:30} {found[name]:8.2f} us")
        found["sweep"] = await _best_us(lambda: groups.expire(_now_ms()), 1000)
        print(f"{f'sweep of {group_count} groups':30} {found['sweep']:8.2f} us")
        share = (group_count / HEARTBEAT_S * found["heartbeat"] + found["sweep"] * 1000 / SWEEP_MS) / 10_000
        print(
            f"{f'{group_count} groups, a beat each {HEARTBEAT_S:.0f} s':30} {share:8.2f} % of a core, "
            "without the network"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--groups", type=int, default=500)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    asyncio.run(_main(options.requests, options.groups, options.profile))
