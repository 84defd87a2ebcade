"""One run: a cluster, clients, faults, checks, all from one seed."""

import asyncio
import logging
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pylog.broker.settings import RACK_AWARE_SELECTOR
from pylog.cluster.formats import NEWEST_LEVEL
from pylog.log.log import Log
from pylog.model import TopicPartition
from tests.sim import clients, groups, transfers
from tests.sim.checks import Checks
from tests.sim.clients import Client
from tests.sim.cluster import CLIENT_PORT, RACKS, Cluster
from tests.sim.faults import Faults, draw_stage
from tests.sim.operators import Operator, Plan
from tests.sim.world import CURRENT, Process, Violation, World

FAULTS_S = 12.0
"""How long things go wrong."""

SETTLE_S = 60.0
"""How long a healed cluster may take to have every replica in sync."""

ABSENCE_S = 4.0
"""How long one broker, or the way between two, stays away when everything else is well again."""

OLD_MS = 400 * 86_400_000
"""How old the records of one producer are, as when history is copied."""

REPLICAS = BROKERS = 3
MOVING_SHARE = 0.3
"""Runs with one broker more, so that the operator moves partitions about."""

RACK_SHARE = 0.25
"""Runs in which consumers read from replicas in their rack."""

EXPIRING_SHARE = 0.25
"""Runs in which the topic has retention by time or size from the beginning."""

SLOW_SHARE = 0.2
SLOW_STEP_SHARES = (0.001, 0.01)
"""Runs in which some steps of brokers are slow, and how many."""

UNCLEAN_SHARE = 0.35
"""Runs in which the topic may be led by a replica that was not in sync."""

COMPACTED_SHARE = 0.3
"""Runs with a topic that is compacted."""

STATIC_SHARE = 0.3
"""Runs in which the members of the group are static ones."""

OLD_FORMATS_SHARE = 0.15
"""Runs that begin with the formats of the release before."""

EMBEDDED_SHARE = 0.1
"""Runs of a single broker with an embedded store."""

LEDGER = "ledger"
LEDGER_CONFIGS = {"cleanup.policy": "compact", "segment.bytes": "1024"}

MEMBERS = (0, 2, 3)
"""How many consumers share the partitions."""

TOPIC = "orders"
PARTITIONS = 2


@dataclass(slots=True)
class Result:
    """How a run ended.

    Attributes:
        name: of the story, if it was one.
        invariant: that was violated, "" if none was.
        fingerprint: of everything that happened, in order.
        kinds: how often each kind of event happened.
        pairs: how many of them had a crash beside them.
        cpu_s: processor time that the run took.
        trace: the last events, if they were written down.
    """

    seed: int
    name: str = ""
    invariant: str = ""
    detail: str = ""
    fingerprint: int = 0
    virtual_s: float = 0.0
    events: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)
    pairs: Counter[str] = field(default_factory=Counter)
    trace: list[str] = field(default_factory=list)
    cpu_s: float = 0.0

    @property
    def summary(self) -> str:
        """One line."""
        counts = " ".join(f"{name}={count}" for name, count in self.counts.items())
        outcome = self.invariant or "ok"
        facts = f"events={self.events} virtual_s={self.virtual_s:.1f} {counts}"
        return f"{self._subject} fingerprint={self.fingerprint:08x} {facts} {outcome}"

    def story(self, events: int) -> str:
        """What broke, the last *events* before it, and how to see it again."""
        outcome = f"FAILED {self._subject}: {self.detail}" if self.invariant else "no invariant broke"
        lines = [outcome, "last events (seconds, process, what):"]
        lines += [f"  {line}" for line in self.trace[-events:]] if events else []
        return "\n".join([*lines, f"replay: python -m tests.sim --{self._subject.replace('=', ' ')}"])

    @property
    def _subject(self) -> str:
        return f"story={self.name}" if self.name else f"seed={self.seed}"


class Run:
    """See the module."""

    def __init__(self, seed: int, directory: Path, *, trace: bool = False) -> None:
        self.world = World(seed, trace=trace)
        watch_logs(self.world)
        chance = self.world.random
        stage = draw_stage(chance)
        self._is_flushing = chance.random() < 0.35
        self._min_isr = chance.choice((1, 2, 2))
        if stage is not None and stage.is_flushing is not None:
            self._is_flushing = stage.is_flushing
        if stage is not None and stage.min_isr is not None:
            self._min_isr = stage.min_isr
        settings = {"log.flush.interval.messages": "1"} if self._is_flushing else {}
        self._is_moving = chance.random() < MOVING_SHARE
        is_calm = stage is not None
        brokers = BROKERS + self._is_moving * (1 if is_calm else chance.choice((1, 1, 2)))
        self._is_rack_aware = not is_calm and chance.random() < RACK_SHARE
        if self._is_rack_aware:
            settings["replica.selector.class"] = RACK_AWARE_SELECTOR
        is_embedded = not is_calm and chance.random() < EMBEDDED_SHARE
        replicas = 1 if is_embedded else REPLICAS
        if is_embedded:
            self._is_moving, brokers, self._min_isr = False, 1, 1
            settings |= dict.fromkeys(
                ("default.replication.factor", "offsets.topic.replication.factor", "min.insync.replicas"), "1"
            )
        is_unfinished = not is_calm and chance.random() < OLD_FORMATS_SHARE
        level = NEWEST_LEVEL - is_unfinished
        self._cluster = Cluster(self.world, directory, brokers, settings, level, is_embedded=is_embedded)
        self._checks = Checks(self._cluster, replicas)
        self._checks.topics.append(TOPIC)
        configs = {"min.insync.replicas": str(self._min_isr)}
        if not is_calm and chance.random() < EXPIRING_SHARE:
            configs |= chance.choice(({"retention.bytes": "6000"}, {"retention.ms": "3000"}))
            self._checks.expiring.add(TOPIC)
        if not is_calm and chance.random() < UNCLEAN_SHARE:
            configs |= {"unclean.leader.election.enable": "true"}
            self._checks.unclean.add(TOPIC)
        self._has_ledger = not is_calm and chance.random() < COMPACTED_SHARE
        if self._has_ledger:
            self._checks.compacted.add(LEDGER)
            self._checks.topics.append(LEDGER)
        self._is_static = not is_calm and chance.random() < STATIC_SHARE
        if not is_calm and chance.random() < SLOW_SHARE:
            self.world.slow_share = chance.choice(SLOW_STEP_SHARES)
        # Without a sync of each batch all replicas may lose power, and what producers were told with it.
        self._has_transfers = self._is_flushing and not (is_calm or is_embedded or is_unfinished)
        self._transferers: list[transfers.Transferer] = []
        if self._has_transfers:
            self._checks.topics.append(transfers.TOPIC)
        self._keys = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        self._plan = Plan(
            topic=TOPIC,
            keys=self._keys,
            replicas=replicas,
            configs=configs,
            broker_ids=sorted(self._cluster.hosts) if self._is_moving else [],
            is_calm=is_calm,
            is_unfinished=is_unfinished,
            finalize=self._cluster.finalize,
            on_grown=self._read,
        )
        self._faults = Faults(self._cluster, self._checks, stage, is_flushing=self._is_flushing)
        self._may_write = True
        self._busy = 0

    def go(self) -> Result:
        """Run to the end; never raises for what the run is about."""
        world = self.world
        result = Result(world.seed)
        world.note(
            "begin", world.seed, "flushing", self._is_flushing, "moving", self._is_moving, "min_isr", self._min_isr
        )
        world.after_step = self._checks.look
        for host in self._cluster.hosts.values():
            self._cluster.start(host)
        self._cluster.spawn(Process("nemesis"), self._story)
        try:
            world.run(until_s=FAULTS_S + 2 * SETTLE_S + 60)
            self._checks.check_end()
        except Violation as violation:
            result.invariant, result.detail = violation.invariant, str(violation)
        except BaseException as error:
            result.invariant = "no exception"
            result.detail = f"{result.invariant}: {''.join(traceback.format_exception(error))}"
        result.fingerprint, result.virtual_s, result.events = world.fingerprint, world.now_s, world.events
        result.counts, result.trace = dict(self._checks.counts), list(world.trace)
        result.kinds, result.pairs = world.kinds, world.pairs
        return result

    async def _story(self) -> None:
        world = self.world
        client = self._client("maker")
        plan = self._plan
        topics: dict[str, tuple[int, int, Mapping[str, str]]] = {TOPIC: (len(plan.keys), plan.replicas, plan.configs)}
        if self._has_ledger:
            topics[LEDGER] = (1, plan.replicas, LEDGER_CONFIGS | {"min.insync.replicas": str(self._min_isr)})
        if self._has_transfers:
            topics[transfers.TOPIC] = (transfers.PARTITIONS, plan.replicas, {"min.insync.replicas": "2"})
        await clients.create_topics(client, topics)
        begun_s = world.now_s
        self._start_clients()
        await self._faults.run(begun_s + FAULTS_S)
        full = self._faults.mend()
        is_somebody_away = full is None and self._faults.keep_away()
        if full is not None or is_somebody_away:
            await self._sit_out()
        self._may_write = False

        def is_done() -> bool:
            self._faults.let_back_if_needed()
            return not self._busy

        await self._wait_until(is_done, "clients wait")
        self._faults.make_room()
        self._faults.let_back()
        await self._wait_until(self._checks.is_settled, "replicas are not in sync")
        if self._has_transfers:
            await self._wait_until(lambda: transfers.are_decided(self._transfer_logs()), "transactions are open")
            transfers.judge(self._transferers, [log for log in self._transfer_logs() if log is not None])
            self._checks.counts["transfers"] += sum(len(one.transfers) for one in self._transferers)
        self.world.is_over = True

    def _transfer_logs(self) -> list[Log | None]:
        """Return the leaders' logs of the partitions that transactions write to; None for one that nobody leads."""
        found: list[Log | None] = []
        for key in transfers.KEYS:
            state = self._checks.states.get(key)
            host = None if state is None else self._cluster.hosts.get(state.leader)
            partition = None if host is None or host.broker is None else host.broker.partitions.get(*key)
            found.append(None if partition is None else partition.log)
        return found

    async def _sit_out(self) -> None:
        """Let the cluster do for a while without a broker, the disk of one, or the way between two."""
        until_s = self.world.now_s + ABSENCE_S
        while self.world.now_s < until_s:
            await asyncio.sleep(0.1)
            self._faults.start_dead()
            self._faults.let_back_if_needed()

    async def _wait_until(self, is_done: Callable[[], bool], otherwise: str) -> None:
        deadline_s = self.world.now_s + SETTLE_S
        while not is_done():
            if self.world.now_s > deadline_s:
                detail = f"{SETTLE_S:g} s after the last fault {otherwise}: {self._checks.states}"
                raise Violation("progress", detail)
            await asyncio.sleep(0.1)
            self._faults.start_dead()

    def _start_clients(self) -> None:
        """Two producers that write each record once, one that may double, one that does not care, readers, a group."""
        may_go_on, keys = self._goes_on, self._keys
        rest_s = self.world.random.choice(((0.01, 0.06), (0.05, 0.3)))

        def producer(name: str, acks: int, is_idempotent: bool, age_ms: int = 0) -> None:
            self._spawn(
                name,
                lambda client: clients.produce(
                    client,
                    self._checks,
                    keys,
                    acks=acks,
                    is_idempotent=is_idempotent,
                    may_go_on=may_go_on,
                    rest_s=rest_s,
                    age_ms=age_ms,
                ),
            )

        producer("once-1", -1, True)
        producer("once-2", -1, True, age_ms=OLD_MS)
        producer("often", -1, False)
        producer("careless", 1, False)
        producer("blind", 0, False)
        for key in keys:
            self._read(key)
        self._spawn("operator", lambda client: Operator(client, self._checks, self._plan).operate(may_go_on))
        self._spawn("group", lambda client: groups.commit(client, self._checks, groups.READERS, keys, may_go_on))
        for number in range(self.world.random.choice(MEMBERS)):
            name = f"member-{number}"
            self._spawn(name, partial(self._take_part, name if self._is_static else None))
        for number in range(transfers.CLIENTS * self._has_transfers):
            self._spawn(f"transferer-{number}", self._make_transfers)
        if self._has_ledger:
            ledger = TopicPartition(LEDGER, 0)
            self._spawn("keeper", lambda client: clients.keep(client, self._checks, ledger, may_go_on))

    async def _make_transfers(self, client: Client) -> None:
        transferer = transfers.Transferer(client)
        self._transferers.append(transferer)
        await transferer.work(self._goes_on)

    async def _take_part(self, instance_id: str | None, client: Client) -> None:
        await groups.take_part(client, self._checks, self._keys, self._goes_on, instance_id)

    def _read(self, key: TopicPartition) -> None:
        """Have a partition read from now on."""
        rack = self.world.random.choice(RACKS) if self._is_rack_aware else ""
        self._spawn(
            f"reader-{key.partition}", lambda client: clients.consume(client, self._checks, key, self._goes_on, rack)
        )

    def _spawn(self, name: str, work: Callable[[Client], Awaitable[None]]) -> None:
        self._busy += 1
        self._faults.clients.append(name)

        async def main() -> None:
            await work(self._client(name))
            self._busy -= 1

        self._cluster.spawn(Process(name), main)

    def _client(self, name: str) -> Client:
        brokers = {host.broker_id: (host.name, CLIENT_PORT) for host in self._cluster.hosts.values()}
        return Client(self.world, name, brokers)

    def _goes_on(self) -> bool:
        return self._may_write


class _LogHandler(logging.Handler):
    """Brokers' log lines: among the events, and an exception nobody expected ends the run."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        process = CURRENT.get()
        line = f"{record.levelname.lower()} {record.getMessage()}"
        if record.exc_info:
            line += "\n" + logging.Formatter().formatException(record.exc_info)
            self._world.fail(Violation("no exception", line))
        self._world.trace.append(f"{self._world.now_s:10.6f} {process.host if process else '-':<9}   {line}")


def watch_logs(world: World) -> None:
    """Let what brokers log stand in the trace; an exception that one logs fails the run."""
    logger = logging.getLogger("pylog")
    logger.setLevel(logging.INFO if world.is_tracing else logging.ERROR)
    logger.propagate = False
    logger.handlers = [_LogHandler(world)]
    logging.getLogger("asyncio").disabled = True
