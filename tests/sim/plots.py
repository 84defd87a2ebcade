"""Faults of several steps, each made for one situation that chance alone hardly ever brings about.

A plot looks at the cluster, waits until something it needs has come about, and gives up when that takes too long or the
time of faults is over.  Whatever it did is undone then.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager

from pylog.cluster.image import Move, PartitionImage
from pylog.cluster.znodes import CONTROLLER, decode_controller
from pylog.group.records import TOPIC as GROUPS_TOPIC
from pylog.log.checkpoint import LEADER_EPOCHS
from pylog.log.log import Log
from pylog.model import TopicPartition
from pylog.replica.leader import Leader
from tests.sim import clients
from tests.sim.checks import Checks
from tests.sim.clients import Client
from tests.sim.cluster import CLIENT_PORT, Cluster, Host
from tests.sim.world import Process
from tests.sim.zookeeper import HOST as ZOOKEEPER

LOOK_S = 0.02
"""Between two looks at the cluster."""

SLOWNESS_S = 6.0
"""Longest a plot waits for one thing: a session to end, an election, a lag, an answer that does not come."""


DEAF_S = 3.0
"""Longer than a dead leader's session: what it had sent comes when somebody else leads."""


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
        self._world.happened(f"plot {name}")
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
                self._cut_power(last, torn=LEADER_EPOCHS)
                await self._sleep(0.05, 1.0)
                self._switch_on(last)
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
        controller = self.controller()
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

    # -- who has how much, and who knows it --------------------------------------------------------------------------

    async def die_before_the_news(self) -> None:
        """Kill a leader whose next one has what was promised, and a third has more and has not heard of the promise."""
        chosen = self._partition_with_its_heir()
        if chosen is None or self._is_damaged():
            return
        key, leader, heir, third = chosen
        network, chance = self._cluster.network, self._world.random

        def is_ahead() -> bool:
            leading, log = self._leading(key, leader), self._log(key, heir.broker_id)
            return leading is not None and log is not None and _known_end(leading, heir) < log.log_end_offset

        def is_promised_unheard() -> bool:
            held, more = self._log(key, heir.broker_id), self._log(key, third.broker_id)
            if held is None or more is None or self._checks.states[key].leader != leader.broker_id:
                return False
            return more.high_watermark <= self._checks.newest.get(key, -1) < held.log_end_offset < more.log_end_offset

        with self._going_on():
            # The heir's fetches come late, so that the third is told of more before the heir has what came before.
            network.hang(heir.name, leader.name, chance.uniform(0.1, 0.4))
            is_deaf = await self._at_once(is_ahead, lambda: network.hang(leader.name, heir.name, DEAF_S), 1.0)
            if is_deaf and await self._at_once(is_promised_unheard, lambda: self._switch_off(leader), 1.0):
                await self._until(lambda: self._checks.states[key].leader == heir.broker_id)
                await self._sleep(0.3, 1.0)
                self._switch_on(leader)

    async def join_in_the_gap(self) -> None:
        """Have a new leader fetched from by one that has what it knows to be everywhere, and not what was promised."""
        chosen = self._partition_with_its_heir()
        if chosen is None or self._is_damaged():
            return
        key, leader, heir, third = chosen

        def has_caught_up_unheard() -> bool:
            leading, log = self._leading(key, leader), self._log(key, leader.broker_id)
            held = self._log(key, third.broker_id)
            if leading is None or log is None or held is None:
                return False
            return held.log_end_offset >= max(log.high_watermark, _known_end(leading, third) + 1)

        def is_promised_beyond() -> bool:
            held, known = self._log(key, third.broker_id), self._log(key, heir.broker_id)
            if held is None or known is None or self._checks.states[key].leader != leader.broker_id:
                return False
            return known.high_watermark <= held.log_end_offset <= self._checks.newest.get(key, -1)

        def is_seen() -> bool:
            leading, log = self._leading(key, heir), self._log(key, heir.broker_id)
            return leading is not None and log is not None and 0 <= _known_end(leading, third) < log.log_end_offset

        with self._going_on():
            with self._cutting(leader, third):
                if not await self._until(lambda: not self._is_in_sync(key, third)):
                    return
            if not await self._at_once(has_caught_up_unheard, lambda: self._stop(third), 2.0):
                return
            is_gone = await self._at_once(is_promised_beyond, lambda: self._switch_off(leader), 1.2)
            self._go_on(third)
            if is_gone:
                if await self._at_once(is_seen, lambda: self._stop(third)):
                    await self._until(lambda: self._is_in_sync(key, third), 1.2)
                    self._go_on(third)
                self._switch_on(leader)

    async def cut_power_at_an_acknowledgement(self) -> None:
        """Cut the power of a broker that is alone in sync in the very moment in which it has promised something."""
        chosen = self._partition_with_its_heir()
        if chosen is None or self._is_damaged():
            return
        key, last, _, _ = chosen
        others = [host for host in self._cluster.hosts.values() if host is not last]
        with self._going_on(), self._keeping_away(others):
            if not await self._until(lambda: self._checks.states[key].isr == (last.broker_id,)):
                return
            before = self._checks.newest.get(key, -1)
            if await self._at_once(lambda: self._checks.newest.get(key, -1) > before, lambda: self._cut_power(last)):
                await self._sleep(0.05, 1.0)
                self._switch_on(last)
                await self._until(lambda: self._leading(key, last) is not None)

    async def lose_two_coordinators(self) -> None:
        """Kill a coordinator, then its heir, which alone had what was written last and was asked for it meanwhile."""
        chosen = self._partition_with_its_heir([key for key in self._checks.states if key.topic == GROUPS_TOPIC])
        if chosen is None or self._is_damaged():
            return
        key, leader, heir, third = chosen
        network = self._cluster.network

        def is_ahead() -> bool:
            held, less = self._log(key, heir.broker_id), self._log(key, third.broker_id)
            return held is not None and less is not None and held.log_end_offset > less.log_end_offset

        with self._going_on():
            with self._cutting(heir, third):
                network.hang(leader.name, third.name, DEAF_S)
                is_gone = await self._at_once(is_ahead, lambda: self._switch_off(leader), 1.0)
                if is_gone and await self._until(lambda: self._checks.states[key].leader == heir.broker_id):
                    # Not so long that it finds out that the third lags, and goes on without it.
                    await self._sleep(0.2, 1.2)
                    self._switch_off(heir)
            if heir.is_held_down:
                await self._until(lambda: self._checks.states[key].leader == third.broker_id)
                await self._sleep(0.5, 1.5)
                self._switch_on(heir)
            if is_gone:
                self._switch_on(leader)

    def _partition_with_its_heir(
        self, keys: Iterable[TopicPartition] | None = None
    ) -> tuple[TopicPartition, Host, Host, Host] | None:
        """Return a partition with all its replicas in sync: its leader, who will be the next one, and one more.

        Without *keys* it is one of which something was promised.
        """
        found = []
        for key in self._checks.newest if keys is None else keys:
            state = self._checks.states[key]
            others = [self._host(one) for one in state.replicas if one in state.isr and one != state.leader]
            if state.leader in self._cluster.hosts and len(others) == 2:
                found.append((key, self._host(state.leader), others[0], others[1]))
        return self._world.random.choice(found) if found else None

    # -- an image of before ------------------------------------------------------------------------------------------

    async def sleep_over_an_image(self) -> None:
        """Let a broker read an image only after it has become controller itself: its thread was not run."""
        hosts, chance, cluster = self._cluster.hosts, self._world.random, self._cluster
        if self.controller() is None or self._is_damaged():
            return
        sleeper = chance.choice([host for host in hosts.values() if host is not self.controller()])
        with self._going_on():
            late_s = chance.uniform(0.8, 1.6)
            cluster.loop.late_s[sleeper.name] = late_s
            cluster.ensemble.depose()
            await self._sleep(0.25, 0.5)  # a pull that failed is tried again after a fifth of a second
            del cluster.loop.late_s[sleeper.name]
            pairs = [(host.name, ZOOKEEPER) for host in hosts.values() if host is not sleeper]
            if self.controller() not in (None, sleeper):
                for pair in pairs:
                    cluster.network.cut(*pair)
                cluster.ensemble.depose()
                await self._until(lambda: self.controller() is sleeper, 0.5)
                for pair in pairs:
                    cluster.network.uncut(*pair)
                await self._sleep(late_s, late_s + 0.2)

    # -- away and back -----------------------------------------------------------------------------------------------

    def bring_back(self, key: TopicPartition, move: Move) -> None:
        """Give a partition back to a broker that has just lost it, before it, or the leader, hears of either."""
        chance, state, controller = self._world.random, self._checks.states[key], self.controller()
        hosts = self._cluster.hosts
        gone = [hosts[one] for one in move.removing if hosts[one].process is not None]
        is_possible = not self.is_over and not self._is_damaged() and controller is not None and state.leader in hosts
        if not is_possible or not gone or chance.random() < 0.1:
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

    async def _until(self, is_so: Callable[[], bool], slowness_s: float = SLOWNESS_S) -> bool:
        """Wait until something has come about; return whether it has, and harm may still be done."""
        deadline_s = self._world.now_s + slowness_s
        while not self.is_over and self._world.now_s < deadline_s:
            if is_so():
                return True
            await asyncio.sleep(LOOK_S)
        return False

    async def _at_once(
        self, is_so: Callable[[], bool], then: Callable[[], None], slowness_s: float = SLOWNESS_S
    ) -> bool:
        """Do something in the very step in which something else has come about; return whether it has."""
        is_done = False

        def watch() -> None:
            nonlocal is_done
            if not is_done and not self.is_over and is_so():
                is_done = True
                then()

        self._world.watches.append(watch)
        try:
            await self._until(lambda: is_done, slowness_s)
            return is_done  # also where the plots ended in the same moment: what was done is to be undone
        finally:
            self._world.watches.remove(watch)

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
            self._switch_off(host)
        try:
            yield
        finally:
            for host in hosts:
                self._switch_on(host)

    def _switch_off(self, host: Host) -> None:
        self._cluster.kill(host)
        host.is_held_down = True

    def _cut_power(self, host: Host, torn: str = "") -> None:
        self._cluster.cut_power(host, torn=torn)
        host.is_held_down = True

    def _switch_on(self, host: Host) -> None:
        host.is_held_down = False
        self._cluster.start(host)

    def _stop(self, host: Host) -> None:
        if host.process is not None:
            self._world.note("pause", host.name)
            self._world.pause(host.process)

    def _go_on(self, host: Host) -> None:
        if host.process is not None and host.process.is_paused:
            self._world.note("resume", host.name)
            self._world.resume(host.process)

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

    def controller(self) -> Host | None:
        """Return the host whose broker is controller, None while there is none."""
        node = self._cluster.tree.nodes.get(CONTROLLER)
        return self._cluster.hosts.get(decode_controller(node.data)) if node is not None else None

    def _is_in_sync(self, key: TopicPartition, host: Host) -> bool:
        state: PartitionImage = self._checks.states[key]
        return host.broker_id in state.isr

    def _leading(self, key: TopicPartition, host: Host) -> Leader | None:
        partition = host.broker.partitions.get(*key) if host.broker is not None else None
        return partition.leading if partition is not None else None

    def _log(self, key: TopicPartition, broker_id: int) -> Log | None:
        broker = self._host(broker_id).broker
        partition = broker.partitions.get(*key) if broker is not None else None
        return partition.log if partition is not None else None


def _known_end(leading: Leader, host: Host) -> int:
    """Return what a leader knows a follower to have, -1 for nothing."""
    return leading.progress(host.broker_id).log_end_offset if leading.is_replica(host.broker_id) else -1


def _would_tear(log: Log) -> bool:
    """Whether an epoch that began now would have a beginning of which a part is still behind that of the one before."""
    starts = [start for _, start in log.epochs.entries()]
    return bool(starts) and log.log_end_offset // 10 > starts[-1]


def _is_torn_unseen(log: Log) -> bool:
    """Whether the file of epochs would still look whole without its last digit and line end."""
    starts = [-1, *(start for _, start in log.epochs.entries())]
    return len(starts) > 1 and starts[-1] // 10 > starts[-2]
