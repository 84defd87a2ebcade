"""Transactional clients of a run, and the judge of what readers of committed records got in the end."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from pylog.errors import ErrorCode
from pylog.log.log import Log
from pylog.model import TopicPartition
from tests.servers.outcome import Outcome
from tests.sim.clients import Client, Unanswered
from tests.sim.copier import AGAIN, PATIENCE_S, Copier, read_committed
from tests.sim.world import Violation

TOPIC = "transfers"
PARTITIONS = 2
CLIENTS = 2
EPOCH_EACH_SHARE = 0.5
"""Clients whose transactions have an epoch each."""
KEYS = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]


@dataclass
class Transfer:
    """One transaction; it writes a value to some partitions, or two."""

    values: list[bytes] = field(default_factory=list)
    outcome: Outcome = Outcome.ABORTED


class _Failed(Exception):
    """A request was refused for good."""


class Transferer(Copier):
    """A client of either protocol, by seed.

    In the classic one it initializes itself anew once it cannot know what brokers still have of it: a request that
    nobody answered may arrive later, and would count for the next transaction of the same epoch, a known gap.  Where
    each transaction has an epoch it goes on.

    Attributes:
        transfers: all transactions, in order.
    """

    def __init__(self, client: Client) -> None:
        has_epoch_each = client.world.random.random() < EPOCH_EACH_SHARE
        super().__init__(
            client, f"id of {client.name}", KEYS[0], f"group of {client.name}", has_epoch_each=has_epoch_each
        )
        self.transfers: list[Transfer] = []
        self._is_sure = False

    async def work(self, may_go_on: Callable[[], bool]) -> None:
        """Make transfers as long as *may_go_on* says so, and leave nothing open."""
        random = self.client.world.random
        while may_go_on():
            if not self._is_sure:
                await self._take_id()
            one = Transfer()
            self.transfers.append(one)
            try:
                await self._transfer(one, is_commit=random.random() < 0.75)
            except _Failed as failed:
                self.client.world.note(self.client.name, "failed", str(failed))
                self._is_sure = False
            await self.client.pause()
        await self._take_id()

    async def _take_id(self) -> None:
        try:
            await self.begin()
        except _Failed as failed:
            raise Violation("a transactional id can always be taken over", str(failed)) from failed
        self._is_sure = True

    async def _transfer(self, one: Transfer, *, is_commit: bool) -> None:
        random, number = self.client.world.random, len(self.transfers)
        partitions = sorted(random.sample(range(PARTITIONS), random.randint(1, PARTITIONS)))
        await self._until_done("partitions added", lambda: self._add(partitions))
        for partition in partitions:
            for count in range(random.randint(1, 2)):
                value = f"transfer:{self.client.name}:{number}:{partition}:{count}".encode()
                one.values.append(value)
                await self._until_done("a record", lambda p=partition, v=value: self._produce(v, p))
                self._sequences[partition] += 1
        if random.random() < 0.3:
            await self._until_done("a group added", self._add_group)
            await self._until_done("an offset", lambda: self._commit_offset(number))
        if is_commit:
            one.outcome = Outcome.UNKNOWN
        await self._until_done("the end", lambda: self.end_once(is_commit=is_commit))
        if is_commit:
            one.outcome = Outcome.COMMITTED
            if self.offset < number:
                self.offset = number

    async def _until_done(self, what: str, ask: Callable[[], Awaitable[ErrorCode]]) -> None:
        world, last = self.client.world, "nothing"
        deadline_s = world.now_s + PATIENCE_S
        while world.now_s < deadline_s:
            try:
                code = await ask()
            except Unanswered as fault:
                last = str(fault)
                self._is_sure = self._is_sure and self.has_epoch_each
            else:
                last = code.name
                if code is ErrorCode.NONE:
                    return
                if code not in AGAIN:
                    raise _Failed(f"{what}: {last}")
            self.client.leaders.clear()
            await self.client.pause()
        raise Violation("progress", f"{what} not done after {PATIENCE_S:g} s: {last}")


def are_decided(logs: Iterable[Log | None]) -> bool:
    """Whether all of the leaders' logs are there, and no transaction is open in any."""
    return all(log is not None and read_committed(log) is not None for log in logs)


def judge(transferers: Sequence[Transferer], logs: Sequence[Log]) -> None:
    """Compare what readers of committed records get of *logs*, of all partitions, with what the clients know.

    Raises:
        Violation: a committed value is missing or doubled, an aborted one is read, or a transaction is torn.
    """
    read: list[bytes] = []
    for log in logs:
        found = read_committed(log)
        if found is None:
            raise Violation("no transaction stays open", f"{log.topic_partition}: {log.last_stable_offset}")
        read += found
    seen = set(read)
    if len(seen) < len(read):
        raise Violation(
            "what is committed is read once", f"doubled: {sorted(one for one in seen if read.count(one) > 1)}"
        )
    for transferer in transferers:
        for one in transferer.transfers:
            there = [value for value in one.values if value in seen]
            if one.outcome is Outcome.ABORTED and there:
                raise Violation("what is aborted is not read", f"{there} of {one}")
            if one.outcome is Outcome.COMMITTED and there != one.values:
                raise Violation("what is committed is read", f"{there} of {one}")
            if there not in ([], one.values):
                raise Violation("transactions are whole", f"{there} of {one}")
