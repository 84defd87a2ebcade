"""Faults of several steps, each made for one situation that chance alone hardly ever brings about.

A plot looks at the cluster, waits until something it needs has come about, and gives up when that takes too long or the
time of faults is over.  Whatever it did is undone then.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from pylog.cluster.image import Move, PartitionImage
from pylog.cluster.znodes import CONTROLLER, decode_controller
from pylog.log.checkpoint import LEADER_EPOCHS
from pylog.log.log import Log
from pylog.model import TopicPartition
from pylog.sim import clients
from pylog.sim.checks import Checks
from pylog.sim.clients import Client
from pylog.sim.cluster import CLIENT_PORT, Cluster, Host
from pylog.sim.world import Process

LOOK_S = 0.02
"""Between two looks at the cluster."""

SLOWNESS_S = 6.0
"""Longest a plot waits for one thing: a session to end, an election, a lag, an answer that does not come."""


class Plots:
    """See the module.

    Attributes:
        is_over: no more harm may be done.
        open: how many of them go on.
    """

    def __init__(self, cluster: Cluster, checks: Checks) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._checks = checks
        self.is_over = False
        self.open = 0
        self._running: set[str] = set()

    def start(self, name: str, plot: Callable[[], Awaitable[None]]) -> None:
        """Let a plot go on beside everything else, unless there is one of that name."""
        if name in self._running:
            return
        self._world.note("plot", name)
        self._running.add(name)

        async def main() -> None:
            await plot()
            self._running.discard(name)

        self._cluster.spawn(Process(name), main)

    # -- an epoch's beginning is misread -----------------------------------------------------------------------------

    async def tear_epochs_of_the_last(self) -> None:
        """Have a follower lead alone, and cut its power when the file of its epochs has a number that tears unseen."""
        found = [
            (state, log)
            for key, state in self._checks.states.items()
            for broker_id in state.isr
            if broker_id != state.leader and (log := self._log(key, broker_id)) is not None and _would_tear(log)
        ]
        if not found or self._is_damaged():
            return
        state, log = self._world.random.choice(found)
        last = next(self._host(one) for one in state.isr if self._log(log.topic_partition, one) is log)
        others = [host for host in self._cluster.hosts.values() if host is not last]
        epoch = log.epochs.latest
        with self._going_on(), self._keeping_away(others):
            if await self._until(lambda: log.epochs.latest > epoch and log.epochs.is_saved and _is_torn_unseen(log)):
                self._cluster.cut_power(last, torn=LEADER_EPOCHS)
                last.is_held_down = True
                await self._sleep(0.05, 1.0)
                last.is_held_down = False
                self._cluster.start(last)
                await self._sleep(0.2, 1.5)

    # -- a wish that comes too late ----------------------------------------------------------------------------------

    async def delay_a_wish(self) -> None:
        """Hold back a leader's wish to take a follower in until it asked again, was heard, and wished the contrary."""
        chosen = self._partition_beside_the_controller()
        if chosen is None or self._is_damaged():
            return
        key, leader, follower, controller = chosen
        with self._going_on():
            with self._cutting(leader, follower):
                if not await self._until(lambda: not self._is_in_sync(key, follower)):
                    return
            for_s = self._world.random.uniform(3.5, 5.0)
            over_s = self._world.now_s + for_s
            self._cluster.network.hang(leader.name, controller.name, for_s)
            if not await self._until(lambda: self._is_in_sync(key, follower)):
                return
            with self._cutting(leader, follower):
                if await self._until(lambda: not self._is_in_sync(key, follower)):
                    await self._until(lambda: self._world.now_s > over_s + LOOK_S)

    def _partition_beside_the_controller(self) -> tuple[TopicPartition, Host, Host, Host] | None:
        """Return a partition with its leader, a follower, and the controller, which is neither."""
        controller = self._controller()
        found = [
            (key, self._host(state.leader), self._host(one), controller)
            for key, state in self._checks.states.items()
            for one in state.isr
            if controller is not None
            and controller.broker_id not in (state.leader, one)
            and state.leader in self._cluster.hosts
            and one != state.leader
        ]
        return self._world.random.choice(found) if found else None

    # -- away and back -----------------------------------------------------------------------------------------------

    def bring_back(self, key: TopicPartition, move: Move) -> None:
        """Give a partition back to a broker that has just lost it, before it, or the leader, hears of either."""
        chance, state, controller = self._world.random, self._checks.states[key], self._controller()
        hosts = self._cluster.hosts
        gone = [hosts[one] for one in move.removing if hosts[one].process is not None]
        is_possible = not self.is_over and not self._is_damaged() and controller is not None and state.leader in hosts
        if not is_possible or not gone or chance.random() < 0.25:
            return
        assert controller is not None
        back, leader = chance.choice(gone), hosts[state.leader]
        if controller in (back, leader):
            return
        kept = [one for one in state.isr if one not in move.adding]
        wanted = [*kept, back.broker_id, *(one for one in state.isr if one in move.adding)][:3]
        for_s = chance.uniform(0.3, 1.2)
        is_leader_blind = chance.random() < 0.4
        if is_leader_blind:
            # Whom it would see fetch is far away, too.
            self._cluster.network.cut(back.name, leader.name)
        self._cluster.network.hang(controller.name, (leader if is_leader_blind else back).name, for_s)

        async def ask() -> None:
            await asyncio.sleep(chance.uniform(0.02, 0.4))
            brokers = {one.broker_id: (one.name, CLIENT_PORT) for one in hosts.values()}
            await clients.move_once(Client(self._world, "back", brokers), controller.broker_id, key, wanted)

        async def heal() -> None:
            with self._going_on():
                await asyncio.sleep(for_s + chance.uniform(0.1, 0.5))
            self._cluster.network.uncut(back.name, leader.name)

        self.start("back", ask)
        self.start("nemesis", heal)

    # -- what plots need ---------------------------------------------------------------------------------------------

    async def _until(self, is_so: Callable[[], bool]) -> bool:
        """Wait until something has come about; return whether it has, and harm may still be done."""
        deadline_s = self._world.now_s + SLOWNESS_S
        while not self.is_over and self._world.now_s < deadline_s:
            if is_so():
                return True
            await asyncio.sleep(LOOK_S)
        return False

    async def _sleep(self, low_s: float, high_s: float) -> None:
        until_s = self._world.now_s + self._world.random.uniform(low_s, high_s)
        await self._until(lambda: self._world.now_s >= until_s)

    @contextmanager
    def _going_on(self) -> Iterator[None]:
        """Count as a fault that is not over."""
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1

    @contextmanager
    def _keeping_away(self, hosts: list[Host]) -> Iterator[None]:
        """Kill brokers and do not let them back before the end."""
        for host in hosts:
            self._cluster.kill(host)
            host.is_held_down = True
        try:
            yield
        finally:
            for host in hosts:
                host.is_held_down = False
                self._cluster.start(host)

    @contextmanager
    def _cutting(self, one: Host, other: Host) -> Iterator[None]:
        """Let nothing pass between two hosts."""
        pairs = [(one.name, other.name), (other.name, one.name)]
        for pair in pairs:
            self._cluster.network.cut(*pair)
        try:
            yield
        finally:
            for pair in pairs:
                self._cluster.network.uncut(*pair)

    def _is_damaged(self) -> bool:
        return any(host.damaged for host in self._cluster.hosts.values())

    def _host(self, broker_id: int) -> Host:
        return self._cluster.hosts[broker_id]

    def _controller(self) -> Host | None:
        node = self._cluster.ensemble.tree.tree.nodes.get(CONTROLLER)
        return self._cluster.hosts.get(decode_controller(node.data)) if node is not None else None

    def _is_in_sync(self, key: TopicPartition, host: Host) -> bool:
        state: PartitionImage = self._checks.states[key]
        return host.broker_id in state.isr

    def _log(self, key: TopicPartition, broker_id: int) -> Log | None:
        broker = self._host(broker_id).broker
        partition = broker.partitions.get(*key) if broker is not None else None
        return partition.log if partition is not None else None


def _would_tear(log: Log) -> bool:
    """Whether an epoch that began now would have a beginning of which a part is still behind that of the one before."""
    starts = [start for _, start in log.epochs.entries()]
    return bool(starts) and log.log_end_offset // 10 > starts[-1]


def _is_torn_unseen(log: Log) -> bool:
    """Whether the file of epochs would still look whole without its last digit and line end."""
    starts = [-1, *(start for _, start in log.epochs.entries())]
    return len(starts) > 1 and starts[-1] // 10 > starts[-2]
