"""Many members that come, leave and die without a word, and a checker that watches every step (T21)."""

import asyncio
import random
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from pylog.testing import BrokerProcess
from tests.consumers.conftest import CONFIG, create_topic
from tests.consumers.raw import SESSION_MS, TOPIC, Ledger, RawMember

MEMBERS = 50
PARTITIONS = 60
STORM_S = 12.0
CALM_S = 20.0


class Storm:
    """Starts and ends members at random."""

    def __init__(self, address: tuple[str, int], seed: int) -> None:
        self.ledger = Ledger(PARTITIONS)
        self._address = address
        self._random = random.Random(seed)
        self._running: dict[RawMember, asyncio.Task[None]] = {}
        self._count = 0

    async def blow(self, duration_s: float) -> None:
        """Let members come and go for so long."""
        deadline = time.monotonic() + duration_s
        while time.monotonic() < deadline:
            self.fill(self._random.randrange(MEMBERS // 2, MEMBERS + 1))
            for _ in range(self._random.randrange(3)):
                await self._end_one()
            self.check()
            await asyncio.sleep(self._random.random() * 0.5)

    def fill(self, count: int) -> None:
        """Start members until there are *count*."""
        while len(self._running) < count:
            self._count += 1
            member = RawMember(self._address, self.ledger, self._count)
            self._running[member] = asyncio.create_task(member.run())

    async def _end_one(self) -> None:
        member = self._random.choice(list(self._running))
        task = self._running.pop(member)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if self._random.random() < 0.5:
            await member.leave()

    def check(self) -> None:
        """Raise what a member found."""
        for task in self._running.values():
            if task.done():
                task.result()

    async def end(self) -> None:
        """Kill everybody."""
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def wait_calm(self) -> None:
        """With nobody coming or going, wait until one generation owns every partition and all of them get on."""
        self.fill(MEMBERS)
        deadline = time.monotonic() + CALM_S
        before = {partition: offset for partition, (_, offset) in self.ledger.committed.items()}
        while True:
            self.check()
            owners = self.ledger.owners[max(self.ledger.generations, default=0)]
            moved = [one for one, (_, offset) in self.ledger.committed.items() if offset > before.get(one, 0)]
            if len(owners) == len(moved) == PARTITIONS and len(set(owners.values())) == MEMBERS:
                return
            assert time.monotonic() < deadline, f"{len(owners)} owned, {len(moved)} get on, {self.ledger.generations}"
            await asyncio.sleep(0.05)


def coordinate(bootstrap: str) -> None:
    """Make the broker a coordinator: bare members ask nobody where to go."""
    create_topic(bootstrap, TOPIC, PARTITIONS)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "anything", "log_level": 0})
    consumer.subscribe([TOPIC])
    deadline = time.monotonic() + 30
    while not consumer.assignment():
        consumer.poll(0.1)
        assert time.monotonic() < deadline
    consumer.close()


@pytest.mark.parametrize("is_broker_killed", [False, True], ids=["members", "members-and-broker"])
def test_a_storm_of_members(tmp_path: Path, is_broker_killed: bool) -> None:
    with BrokerProcess(tmp_path, config=CONFIG) as broker:
        coordinate(broker.bootstrap)
        host, port = broker.bootstrap.split(":")
        storm = Storm((host, int(port)), seed=7)

        async def go() -> None:
            try:
                await storm.blow(STORM_S / 2)
                if is_broker_killed:
                    broker.kill()
                    await asyncio.to_thread(broker.start)
                await storm.blow(STORM_S / 2)
                await asyncio.sleep(SESSION_MS / 1000)
                await storm.wait_calm()
            finally:
                await storm.end()

        asyncio.run(go())
        assert len(storm.ledger.generations) > 3
        assert storm.ledger.commits > PARTITIONS
        print(f"{len(storm.ledger.generations)} generations, {storm.ledger.commits} commits")
