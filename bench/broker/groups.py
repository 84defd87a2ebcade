"""Consumer groups against a broker in a process of its own, driven by bare members over real connections.

python -m bench.broker.groups [--members 50] [--partitions 1000] [--groups 500] [--seconds 20] [--commits 20000]
                              [--runs 5]

assignment   from the end of the initial delay, when the first member is let in, until each member has its share
commit       CPU of the broker for one commit of one partition, forty members committing at once; median of the runs
heartbeats   share of one core that the broker uses while so many groups of one member beat every three seconds
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.harness.process import cpu_s
from pylog.client.admin.cluster import Admin
from pylog.errors import ErrorCode
from pylog.testing import BrokerProcess
from pylog.wire.api.coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from pylog.wire.api.group_offsets import OffsetCommitResponse
from pylog.wire.api.groups import HeartbeatResponse, JoinGroupResponse, SyncGroupResponse
from tests.kafka_client import Link, Membership

TOPIC = "wide"
DELAY_S = 3.0
HEARTBEAT_S = 3.0
COMMITTING_MEMBERS = 40
SESSION_MS = 30_000
WANTED = {"assignment_s": 3.0, "commit_us": 60.0, "heartbeats_percent": 10.0}


@dataclass
class Member:
    """One member of one group, on a connection of its own."""

    link: Link
    membership: Membership
    partitions: int = 0
    let_in_s: float = 0.0


async def find_coordinator(link: Link) -> None:
    """Ask until there is one, which makes the topic of groups."""
    while True:
        found = await link.call(FindCoordinatorRequest(coordinator_keys=["any"]), FindCoordinatorResponse)
        if found.coordinators[0].error_code == ErrorCode.NONE:
            return
        await asyncio.sleep(0.1)


async def join(address: tuple[str, int], group: str, partitions: int) -> Member:
    """Join, assign partitions if it leads, and return with its share; the metadata are as long as a real consumer's."""
    link = Link(address)
    await link.connect()
    member = Member(link, Membership(group, "range", SESSION_MS, SESSION_MS))
    membership = member.membership
    while True:
        joined = await link.call(membership.join(bytes(24)), JoinGroupResponse)
        membership.member_id = joined.member_id or membership.member_id
        if joined.error_code in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            continue
        assert joined.error_code == ErrorCode.NONE, ErrorCode(joined.error_code)
        membership.generation, member.let_in_s = joined.generation_id, time.perf_counter()
        shares = [range(number, partitions, len(joined.members)) for number in range(len(joined.members))]
        assignments = {
            one.member_id: b"".join(each.to_bytes(4, "big") for each in share)
            for one, share in zip(joined.members, shares, strict=True)
        }
        synced = await link.call(membership.sync(joined.generation_id, assignments), SyncGroupResponse)
        if synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            continue
        assert synced.error_code == ErrorCode.NONE, ErrorCode(synced.error_code)
        member.partitions = len(synced.assignment) // 4
        return member


async def assignment_s(address: tuple[str, int], members: int, partitions: int) -> float:
    """Return how long after the initial delay the last member has its share."""
    start_s = time.perf_counter()
    joined = await asyncio.gather(*(join(address, "many", partitions) for _ in range(members)))
    end_s = time.perf_counter()
    # As in Kafka, a member that joins during the delay makes it begin again, once for all that come at once.
    delay_s = min(one.let_in_s for one in joined) - start_s
    print(f"{members} members over {partitions} partitions: {end_s - start_s:.2f} s in all, {delay_s:.2f} s of delay")
    assert sum(one.partitions for one in joined) == partitions, "not every partition was assigned"
    assert len({one.membership.generation for one in joined}) == 1, "there is more than one generation"
    for one in joined:
        one.link.close()
    return end_s - start_s - delay_s


async def commit_us(address: tuple[str, int], pid: int, commits: int, run: int = 0) -> float:
    """Return the broker's CPU for one commit."""
    groups = [f"commits-{run}-{number}" for number in range(COMMITTING_MEMBERS)]
    members = await asyncio.gather(*(join(address, group, 1) for group in groups))

    async def commit(member: Member, count: int) -> None:
        for number in range(count):
            answer = await member.link.call(member.membership.commit(TOPIC, {0: number}), OffsetCommitResponse)
            assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE

    await asyncio.gather(*(commit(one, 50) for one in members))
    before_s = cpu_s(pid)
    await asyncio.gather(*(commit(one, commits // len(members)) for one in members))
    used_s = cpu_s(pid) - before_s
    for one in members:
        one.link.close()
    return used_s / (commits // len(members) * len(members)) * 1e6


async def heartbeats_percent(address: tuple[str, int], pid: int, groups: int, seconds: float) -> float:
    """Return how much of a core the broker uses, everything it does besides included."""
    members = await asyncio.gather(*(join(address, f"beats-{number}", 1) for number in range(groups)))
    end_s = time.monotonic() + HEARTBEAT_S + seconds

    async def beat(member: Member, number: int) -> None:
        await asyncio.sleep(HEARTBEAT_S * number / groups)
        while time.monotonic() < end_s:
            answer = await member.link.call(member.membership.heartbeat(), HeartbeatResponse)
            assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
            await asyncio.sleep(HEARTBEAT_S)

    beating = asyncio.gather(*(beat(one, number) for number, one in enumerate(members)))
    await asyncio.sleep(HEARTBEAT_S)
    before_s, start_s = cpu_s(pid), time.monotonic()
    await asyncio.sleep(seconds - 1)
    percent = (cpu_s(pid) - before_s) / (time.monotonic() - start_s) * 100
    await beating
    for one in members:
        one.link.close()
    return percent


def main(arguments: Sequence[str]) -> int:
    """Print the three figures; return 1 if one is worse than wanted."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.broker.groups", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    defaults = {"members": 50, "partitions": 1_000, "groups": 500, "seconds": 20, "commits": 20_000, "runs": 5}
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args(arguments)

    async def measure(broker: BrokerProcess) -> dict[str, float]:
        host, port = broker.bootstrap.split(":")
        address = (host, int(port))
        link = Link(address)
        await link.connect()
        await find_coordinator(link)
        link.close()
        assigned_s = await assignment_s(address, options.members, options.partitions)
        commits = [await commit_us(address, broker.pid, options.commits, run) for run in range(options.runs)]
        print("commits, us each:", *(f"{one:.0f}" for one in commits))
        return {
            "assignment_s": assigned_s,
            "commit_us": statistics.median(commits),
            "heartbeats_percent": await heartbeats_percent(address, broker.pid, options.groups, options.seconds),
        }

    config = {"group.initial.rebalance.delay.ms": int(DELAY_S * 1000), "offsets.topic.num.partitions": 50}
    with tempfile.TemporaryDirectory() as directory, BrokerProcess(Path(directory), config=config) as broker:
        Admin(broker.bootstrap).create_topic(TOPIC, partitions=options.partitions, replication_factor=1)
        found = asyncio.run(measure(broker))
    for name, value in found.items():
        print(f"{name} {value:.2f}, wanted at most {WANTED[name]:g}")
    return 0 if all(value <= WANTED[name] for name, value in found.items()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
