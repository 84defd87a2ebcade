"""What goes wrong, drawn by lot: crashes, power cuts, pauses, cuts of the network, a lost ensemble, clocks, full disks.

Faults keep to what the cluster promises to survive (docs/guarantees.md): without syncs a disk may forget only where
another member of the ISR forgets nothing; everything else may come in any number at any time.
"""

import asyncio
import random
from collections.abc import Callable, Iterable
from functools import partial
from itertools import combinations
from typing import NamedTuple

from pylog.group.records import TOPIC as GROUPS_TOPIC
from pylog.model import TRANSACTIONS_TOPIC
from tests.sim.checks import Checks
from tests.sim.cluster import Cluster, Host
from tests.sim.network import Weather
from tests.sim.plots import Plots
from tests.sim.retention import SKEW_MS
from tests.sim.zookeeper import HOST as ZOOKEEPER

RESTS_S = ((0.05, 1.5), (0.05, 1.5), (0.02, 0.5), (0.5, 3.0))
"""Between two faults; each run has its own pace."""

CALM_SHARE = 0.2
"""Runs in which only two kinds of fault come: what takes several steps is not disturbed by others."""

APART_SHARE = 0.4
"""How often at the end two brokers do not reach each other, and not one is dead."""

RETURNING_SHARE = 0.95
"""Runs in which a partition that has moved may be given back at once."""

DAY_MS = 86_400_000

ALONE_S = 2.9
"""After so long without the others a broker is alone in sync: their sessions and perhaps the controller's are over."""


class Faults:
    """Draws faults until told to stop, then mends everything.

    Attributes:
        clients: the hosts they run on.
    """

    def __init__(self, cluster: Cluster, checks: Checks, stage: "Stage | None", *, is_flushing: bool) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._checks = checks
        self._stage = stage
        self._is_flushing = is_flushing
        self._absent: Host | None = None
        self._apart: tuple[Host, Host] | None = None
        self.clients: list[str] = []
        self._open = 0
        self._plots = Plots(cluster, checks)

    async def run(self, until_s: float) -> None:
        """Do harm until *until_s*."""
        chance = self._world.random
        kinds: list[tuple[float, Callable[[], None]]] = [
            (3, self._kill),
            (2, self._cut_power),
            (3, self._pause),
            (3, self._cut_host),
            (2, self._cut_one_way),
            (2, self._cut_from_store),
            (1, self._lose_store),
            (1, self._drop_store_answers),
            (1, self._cluster.ensemble.depose),
            (2, self._ambush),
            (2, self._terminate),
            (2, self._change_weather),
            (1, self._turn_clock),
            (1, self._fill_disk),
            (1, self._fail_syncs),
            (2, self._kill_leader_behind_a_cut),
            (1, self._kill_everybody_else_in_the_dark),
            (1, self._corner_leader),
            (1, self._cut_power_after_truncation),
            (1, self._hang_streams),
            (1, self._delay_a_wish),
            (1, self._tear_epochs),
            (1, self._die_before_the_news),
            (1, self._join_in_the_gap),
            (1, self._cut_power_at_an_acknowledgement),
            (1, self._sleep_over_an_image),
            (1, self._lose_two_coordinators),
            (1, self._fail_reads),
            (1, self._starve),
        ]
        if self._stage is not None:
            kinds = [(1, partial(self._stage.fault, self))]
        if self._cluster.is_embedded:
            # One broker, which nothing can be cut from.
            alone = (self._kill, self._cut_power, self._pause, self._terminate, self._turn_clock, self._fill_disk)
            kinds = [(1, fault) for fault in (*alone, self._fail_syncs, self._fail_reads, self._starve)]
        if chance.random() < RETURNING_SHARE:
            self._checks.on_moved = self._plots.bring_back
        rest_s = chance.choice(RESTS_S)
        # Each run likes some kinds and knows nothing of others: that reaches further than a bit of everything.
        weights = [weight * chance.choice((0, 1, 1, 4)) for weight, _ in kinds]
        if not any(weights):
            weights = [weight for weight, _ in kinds]
        if self._stage is not None:
            weights = [1.0]
        elif chance.random() < CALM_SHARE:
            few = chance.sample(range(len(kinds)), 2)
            weights = [float(number in few) for number in range(len(kinds))]
        while self._world.now_s < until_s:
            await asyncio.sleep(chance.uniform(*rest_s))
            chance.choices([fault for _, fault in kinds], weights)[0]()
            self.start_dead()

    def mend(self) -> Host | None:
        """End every fault but, now and then, a full disk; return whose that is."""
        self._world.note("mend")
        self._plots.is_over = True
        self._cluster.network.heal()
        self._cluster.network.weather = Weather()
        self._cluster.ensemble.is_up = True
        self._cluster.ensemble.drop = 0.0
        self._cluster.ensemble.is_in_ambush = False
        self._cluster.disks.starved.clear()
        self._cluster.disks.unreadable.clear()
        full = self._keep_one_full()
        for host in self._cluster.hosts.values():
            if host.name in self._cluster.disks.failing:
                self._cluster.kill(host)  # its next sync would do so
            elif _has_offline_log(host):
                self._cluster.kill(host)  # as an operator does who got the disk replaced
            host.skew_ms = 0
            if host.process is not None:
                host.process.skew_ms = 0
                if host.process.is_paused:
                    self._world.resume(host.process)
        self.start_dead()
        return full

    def _keep_one_full(self) -> Host | None:
        disks, hosts, chance = self._cluster.disks, self._cluster.hosts.values(), self._world.random
        full = [host for host in hosts if host.name in disks.full]
        disks.full.clear()
        if self._cluster.is_embedded or chance.random() > (0.6 if full else 0.15):
            return None
        kept = chance.choice(full or list(hosts))
        self._world.note("disk_stays_full", kept.name)
        disks.full.add(kept.name)
        return kept

    def make_room(self) -> None:
        """End the last full disk."""
        self._cluster.disks.full.clear()

    def keep_away(self) -> bool:
        """Kill a broker that the others can do without, or part two from each other; return whether that was possible.

        Nothing else is wrong any more, so everybody has to go on.
        """
        chance = self._world.random
        if chance.random() < 0.3:
            return False
        pairs = self._separable()
        if pairs and chance.random() < (APART_SHARE if self._stage is None else self._stage.apart_share):
            self._apart = chance.choice(pairs)
            self._world.note("apart", *(host.name for host in self._apart))
            for pair in _both_ways(*self._apart):
                self._cluster.network.cut(*pair)
            return True
        spare = [host for host in self._cluster.hosts.values() if self._may_hurt(host) and self._is_spare(host)]
        if not spare:
            return False
        self._absent = chance.choice(spare)
        self._cluster.kill(self._absent)
        self._absent.is_held_down = True
        return True

    def let_back_if_needed(self) -> None:
        """End that if the others need it: the last fault may be over before it is known who is needed."""
        is_needed = self._absent is not None and not self._is_spare(self._absent)
        if is_needed or (self._apart is not None and self._apart not in self._separable()):
            self._world.note("needed")
            self.let_back()
        if self._checks.is_growing:
            self.make_room()  # no partition is added while one moves, and a move to a full disk does not end

    def let_back(self) -> None:
        """End that."""
        if self._apart is not None:
            self._heal(_both_ways(*self._apart))
        if self._absent is not None:
            self._absent.is_held_down = False
        self._apart = self._absent = None

    def _separable(self) -> list[tuple[Host, Host]]:
        """Return the pairs that need not reach each other: both have a session, the controller and one more."""
        if self._checks.is_growing:
            # While another partition moves none is added, and a move waits for replicas that cannot reach their leader.
            return []
        hosts, controller = list(self._cluster.hosts.values()), self._plots.controller()
        is_well = all(self._cluster.is_registered(host) and not host.damaged for host in hosts)
        if controller is None or not is_well:
            return []
        pairs = combinations((host for host in hosts if host is not controller), 2)
        return [pair for pair in pairs if not self._share_transactions(*pair)]

    def _share_transactions(self, one: Host, other: Host) -> bool:
        """Whether transactions wait for what a leader and a coordinator, which these are, tell each other."""
        leaders: dict[bool, set[int]] = {True: set(), False: set()}
        for key, state in self._checks.states.items():
            leaders[key.topic == TRANSACTIONS_TOPIC].add(state.leader)
        pair = (one.broker_id, other.broker_id)
        return any(first in leaders[True] and second in leaders[False] for first, second in (pair, pair[::-1]))

    def _is_spare(self, host: Host) -> bool:
        """Whether the others can do without *host*."""
        hosts, states = self._cluster.hosts, self._checks.states.values()
        if not self._checks.has_topics or self._checks.is_growing:
            return False  # a partition is made with all its replicas or not at all
        # One that still waits to register is in an ISR only until its last session is over.
        others = {one for one, other in hosts.items() if other is not host and self._cluster.is_registered(other)}
        # Without a leader a partition may wait for each of its ISR, `unclean.recovery.wait.ms`.
        return all(others & set(state.isr) if state.leader >= 0 else others >= set(state.isr) for state in states)

    def start_dead(self) -> None:
        """Start what ended by itself, as systemd does."""
        for host in self._cluster.hosts.values():
            if host.process is None and not host.is_held_down:
                self._cluster.start(host)

    # -- the faults ---------------------------------------------------------------------------------------------------

    def _host(self) -> Host:
        return self._world.random.choice(list(self._cluster.hosts.values()))

    def _later(self, low_s: float, high_s: float, step: Callable[[], None]) -> None:
        self._world.after(self._world.random.uniform(low_s, high_s), None, step)

    def _may_hurt(self, host: Host) -> bool:
        """Whether *host* may be taken from the cluster: not while it alone has what another's disk forgot."""
        return not any(other.damaged for other in self._cluster.hosts.values() if other is not host)

    def _kill(self) -> None:
        host = self._host()
        if host.process is not None and self._may_hurt(host):
            self._cluster.kill(host)
            self._start_later(host)

    def _start_later(self, host: Host) -> None:
        host.is_held_down = True

        def start() -> None:
            host.is_held_down = False
            self._cluster.start(host)

        self._later(0.05, 4.0, start)

    def _cut_power(self) -> None:
        self._cut_power_of(self._host())

    def _cut_power_of(self, host: Host) -> None:
        if host.process is None:
            return
        if not self._is_flushing and not self._may_forget(host):
            return
        self._damage(host)
        self._cluster.cut_power(host)
        self._start_later(host)

    def _may_forget(self, host: Host) -> bool:
        """Whether every partition has another member of its ISR that is well, and stays so until this one is back."""
        cluster = self._cluster
        for other in cluster.hosts.values():
            if other is host:
                continue
            process = other.process
            if process is None or process.is_paused or other.damaged or not self._cluster.is_registered(other):
                return False
            if not cluster.ensemble.reaches(other.name):
                return False
        if self._open or self._plots.open or self._has_wishes(host):
            return False
        states = self._checks.states.values()
        return all(len(state.isr) > 1 for state in states if host.broker_id in state.isr)

    def _has_wishes(self, host: Host) -> bool:
        """Whether a wish of *host* for fewer in sync may be under way, and be granted when it has forgotten."""
        partitions = host.broker.partitions if host.broker is not None else ()
        return any(one.leading is not None and one.leading.pending is not None for one in partitions)

    def _begin(self, low_s: float, high_s: float, end: Callable[[], None]) -> None:
        """Count a fault that ends by itself."""
        self._open += 1

        def over() -> None:
            self._open -= 1
            end()

        self._later(low_s, high_s, over)

    def _pause(self) -> None:
        host = self._host()
        process = host.process
        if process is None or process.is_paused or not self._may_hurt(host):
            return
        self._world.happened("pause")
        self._world.note("pause", host.name)
        self._world.pause(process)

        def resume() -> None:
            if process.is_paused and process.is_alive:
                self._world.note("resume", host.name)
                self._world.resume(process)

        self._begin(0.1, self._world.random.choice((0.5, 2.0, 6.0)), resume)

    def _cut_host(self) -> None:
        host = self._host()
        if not self._may_hurt(host):
            return
        others = [other.name for other in self._cluster.hosts.values() if other is not host]
        if self._world.random.random() < 0.5:
            others = [self._world.random.choice(others)]
        self._cut([(host.name, other) for other in others] + [(other, host.name) for other in others])

    def _cut_one_way(self) -> None:
        host = self._host()
        other = self._world.random.choice([*(one.name for one in self._cluster.hosts.values()), ZOOKEEPER])
        if other != host.name and self._may_hurt(host) and self._world.random.random() < 0.5:
            self._cut([(host.name, other)])
        elif other != host.name and self._may_hurt(host):
            self._cut([(other, host.name)])

    def _cut_from_store(self) -> None:
        host = self._host()
        if self._may_hurt(host):
            self._cut([(host.name, ZOOKEEPER), (ZOOKEEPER, host.name)])

    def _cut(self, pairs: list[tuple[str, str]]) -> None:
        self._world.happened("cut")
        self._world.note("cut", *(f"{source}>{target}" for source, target in pairs))
        for pair in pairs:
            self._cluster.network.cut(*pair)
        self._begin(0.2, self._world.random.choice((1.0, 3.0, 8.0)), lambda: self._heal(pairs))

    def _heal(self, pairs: list[tuple[str, str]]) -> None:
        for pair in pairs:
            self._cluster.network.uncut(*pair)

    def _lose_store(self) -> None:
        if any(host.damaged for host in self._cluster.hosts.values()):
            return
        self._world.happened("store down")
        self._cluster.ensemble.is_up = False

        def back() -> None:
            self._cluster.ensemble.is_up = True

        self._begin(0.2, 5.0, back)

    def _hang_streams(self) -> None:
        """Hold back what is sent between two hosts, but on streams that they open from now on."""
        hosts = [*(host.name for host in self._cluster.hosts.values()), self._world.random.choice(self.clients)]
        source, target = self._world.random.sample(hosts, 2)
        self._cluster.network.hang(source, target, self._world.random.uniform(0.2, 6.0))

    def _delay_a_wish(self) -> None:
        self._plots.start("wish", self._plots.delay_a_wish)

    def _tear_epochs(self) -> None:
        if self._is_flushing:
            self._plots.start("tear", self._plots.tear_epochs_of_the_last)

    def _die_before_the_news(self) -> None:
        self._plots.start("news", self._plots.die_before_the_news)

    def _join_in_the_gap(self) -> None:
        self._plots.start("gap", self._plots.join_in_the_gap)

    def _cut_power_at_an_acknowledgement(self) -> None:
        if self._is_flushing:
            self._plots.start("ack", self._plots.cut_power_at_an_acknowledgement)

    def _sleep_over_an_image(self) -> None:
        self._plots.start("sleep", self._plots.sleep_over_an_image)

    def _lose_two_coordinators(self) -> None:
        self._plots.start("two", self._plots.lose_two_coordinators)

    def _drop_store_answers(self) -> None:
        self._cluster.ensemble.drop = 0.3

        def end() -> None:
            self._cluster.ensemble.drop = 0.0

        self._begin(0.5, 4.0, end)

    def _ambush(self) -> None:
        """Have another controller elected while a write of this one is on its way."""
        self._world.note("ambush")
        self._cluster.ensemble.is_in_ambush = True
        self._kill()  # so that there is something to write

    def _terminate(self) -> None:
        host = self._host()
        if host.process is not None and not host.process.is_paused and self._may_hurt(host):
            self._cluster.terminate(host)

    def _change_weather(self) -> None:
        chance = self._world.random
        slow_s = chance.choice((0.001, 0.02, 0.2))
        self._cluster.network.weather = Weather(
            (0.0001, slow_s), chance.choice((0.0, 0.02, 0.1)), chance.choice((0.0, 0.0, 0.01))
        )
        self._world.note("weather", self._cluster.network.weather)

    def _turn_clock(self) -> None:
        host = self._host()
        host.skew_ms = self._world.random.choice((0, SKEW_MS, -SKEW_MS, DAY_MS, DAY_MS, -DAY_MS))
        self._world.happened("clock set")
        self._world.note("clock", host.name, host.skew_ms)
        if host.process is not None:
            host.process.skew_ms = host.skew_ms

    def _cut_power_after_truncation(self) -> None:
        """Cut the power of a host whose logs were cut a moment ago, and may come back uncut."""
        for host in self._cluster.hosts.values():
            partitions = list(host.broker.partitions) if host.broker is not None else []
            if any(one.log is not None and one.log.truncation_count for one in partitions):
                self._cut_power_of(host)
                return

    def _kill_everybody_else_in_the_dark(self) -> None:
        """Cut one host's power and kill all brokers before anybody can do without it: who has the most shall lead.

        They are back long before the wait for them is over, and nothing else goes wrong until then.
        """
        hosts = list(self._cluster.hosts.values())
        host = self._host()
        if host.process is None or not self._may_forget(host):
            return
        self._damage(host)
        self._cluster.cut_power(host)
        self._start_later(host)
        for other in hosts:
            if other is not host and other.process is not None:
                self._cluster.kill(other)
                self._begin_absence(other)

    def _begin_absence(self, host: Host) -> None:
        host.is_held_down = True

        def start() -> None:
            host.is_held_down = False
            self._cluster.start(host)

        self._begin(0.05, 4.0, start)

    def _corner_leader(self) -> None:
        """Keep everybody else away until a broker is alone in sync, then fill its disk: it must let the others in."""
        hosts = list(self._cluster.hosts.values())
        leader = self._host()
        if leader.process is None or leader.process.is_paused or any(host.damaged for host in hosts):
            return
        for other in hosts:
            if other is not leader:
                self._cluster.kill(other)
                other.is_held_down = True

        def fill() -> None:
            if not self._plots.is_over:
                self._world.note("disk_full", leader.name)
                self._cluster.disks.full.add(leader.name)

        def back() -> None:
            for other in hosts:
                if other is not leader:
                    other.is_held_down = False
                    self._cluster.start(other)

        self._world.after(ALONE_S, None, fill)
        self._begin(ALONE_S + 0.2, ALONE_S + 1.0, back)

    def _fill_disk(self) -> None:
        host = self._host()
        if not self._may_hurt(host):
            return
        self._world.happened("full disk")
        self._world.note("disk_full", host.name)
        self._cluster.disks.full.add(host.name)
        self._begin(0.2, 3.0, lambda: self._cluster.disks.full.discard(host.name))

    def _fail_reads(self) -> None:
        """Let a few of the next reads of a host's files fail; a partition that met one is offline until a start."""
        host = self._host()
        if host.process is None or not self._may_hurt(host):
            return
        self._world.happened("failed read")
        self._cluster.disks.unreadable[host.name] = self._world.random.randint(1, 3)

        def replace() -> None:
            self._cluster.disks.unreadable.pop(host.name, None)
            if _has_offline_log(host) and self._may_hurt(host):
                self._cluster.kill(host)
                self._start_later(host)

        self._begin(0.2, 3.0, replace)

    def _starve(self) -> None:
        """Let a broker open nothing for a while: no file, as if others had all the descriptors."""
        host = self._host()
        self._world.happened("no descriptors")
        self._cluster.disks.starved.add(host.name)
        self._begin(0.1, 2.0, lambda: self._cluster.disks.starved.discard(host.name))

    def _fail_syncs(self) -> None:
        """Let the next sync fail: the broker must end itself, for what it wrote is gone."""
        host = self._host()
        if host.process is None or (not self._is_flushing and not self._may_forget(host)):
            return
        self._damage(host)
        self._world.happened("failed sync")
        self._world.note("syncs_fail", host.name)
        self._cluster.disks.failing.add(host.name)

    def _damage(self, host: Host) -> None:
        if not self._is_flushing:
            host.damaged = {key for key, state in self._checks.states.items() if host.broker_id in state.isr}

    def _kill_leader_behind_a_cut(self) -> None:
        """Cut a leader's followers off, let it write alone for a moment, then kill it; or, instead, its answers."""
        states = [state for state in self._checks.states.values() if state.leader in self._cluster.hosts]
        if not states:
            return
        # Groups have one partition of three; what they promise deserves half of the tries.
        groups = [state for key, state in self._checks.states.items() if key.topic == GROUPS_TOPIC and state in states]
        state = self._world.random.choice(self._world.random.choice((groups, states)) or states)
        leader = self._cluster.hosts[state.leader]
        if not self._may_hurt(leader):
            return
        if self._world.random.random() < 0.5:
            others = [other.name for other in self._cluster.hosts.values() if other is not leader]
            self._cut([(other, leader.name) for other in others])
        else:
            self._cut([(leader.name, client) for client in self.clients])

        def kill() -> None:
            if not self._plots.is_over and leader.process is not None and self._may_hurt(leader):
                self._cluster.kill(leader)
                self._start_later(leader)

        self._later(0.05, 1.5, kill)


def _has_offline_log(host: Host) -> bool:
    """Whether a partition is offline for good: its log failed, or could not be opened when the broker started."""
    if host.broker is None:
        return False
    waiting = host.broker.partitions._directory.waiting()
    return any(one.is_offline and one.key not in waiting for one in host.broker.partitions)


def _both_ways(one: Host, other: Host) -> list[tuple[str, str]]:
    return [(one.name, other.name), (other.name, one.name)]


class Stage(NamedTuple):
    """A run in which one fault comes again and again and nothing else, under settings that let it do harm.

    Attributes:
        is_flushing: whether each record is synced before it counts; None leaves it to the lot.
        min_isr: `min.insync.replicas`; None leaves it to the lot.
        apart_share: see `APART_SHARE`.
    """

    fault: Callable[[Faults], None]
    is_flushing: bool | None = None
    min_isr: int | None = None
    apart_share: float = APART_SHARE

    @property
    def name(self) -> str:
        """The fault's, as the command line takes it."""
        return self.fault.__name__.strip("_").replace("_", "-")


STAGES = (
    Stage(Faults._delay_a_wish),
    Stage(Faults._tear_epochs, is_flushing=True, min_isr=1),
    Stage(Faults._die_before_the_news),
    Stage(Faults._join_in_the_gap, min_isr=2),
    Stage(Faults._cut_power_at_an_acknowledgement, is_flushing=True, min_isr=1),
    Stage(Faults._sleep_over_an_image),
    Stage(Faults._kill_everybody_else_in_the_dark, is_flushing=False),
    Stage(Faults._kill_leader_behind_a_cut),
    Stage(Faults._turn_clock, apart_share=1.0),
    Stage(Faults._lose_two_coordinators),
)

STAGED_SHARE = 0.2
"""Runs that are a stage."""


def draw_stage(chance: random.Random) -> Stage | None:
    """Return the stage that a run is, if it is one; the first that a run draws."""
    return chance.choice(STAGES) if chance.random() < STAGED_SHARE else None


def seeds_of_stage(name: str, seeds: Iterable[int]) -> list[int]:
    """Return those of *seeds* whose run is the stage of that name.

    Raises:
        ValueError: there is none.
    """
    names = [stage.name for stage in STAGES]
    if name not in names:
        raise ValueError(f"no stage {name!r}; known: {', '.join(names)}")
    drawn = ((seed, draw_stage(random.Random(seed))) for seed in seeds)
    return [seed for seed, stage in drawn if stage is not None and stage.name == name]
