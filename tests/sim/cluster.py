"""The simulated cluster: hosts with disks, broker processes on them, and what can be done to both."""

import asyncio
from collections.abc import Callable, Mapping
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pylog.broker import process as process_module
from pylog.broker.broker import Broker
from pylog.broker.config import STORE, BrokerConfig, ListenerConfig, StoreConfig
from pylog.broker.settings import parse_broker_settings
from pylog.cluster.formats import NEWEST_LEVEL
from pylog.cluster.znodes import broker_path
from pylog.errors import ApiError
from pylog.group.records import TOPIC as GROUPS_TOPIC
from pylog.model import TopicPartition
from pylog.store.base import Store
from pylog.store.embedded import EmbeddedTree
from pylog.store.nodes import NodeTree
from tests.sim.disk import Disks
from tests.sim.loop import SimLoop
from tests.sim.network import Network
from tests.sim.system import install
from tests.sim.threads import Turns
from tests.sim.world import CRASH, CURRENT, Process, ProcessEnded, World
from tests.sim.zookeeper import HOST as ZOOKEEPER
from tests.sim.zookeeper import Ensemble

CLIENT_PORT = 9092
INTERNAL_PORT = 9093
SECRET = b"simulated"
SESSION_TIMEOUT_S = 2.0

RACKS = ("rack-0", "rack-1", "rack-2")
RETENTION_S = 0.7

FINALIZE_S = 3
"""How long an operator waits for a broker to finalize."""

SETTINGS: Mapping[str, str] = {
    "auto.create.topics.enable": "false",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "replica.lag.time.max.ms": "1500",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "log.segment.bytes": "4096",
    "log.index.interval.bytes": "256",
    "log.retention.ms": "-1",
    "log.cleaner.backoff.ms": "700",
    "log.cleaner.min.cleanable.ratio": "0.1",
    "log.cleaner.delete.retention.ms": "1000",
    "controlled.shutdown.max.wait.ms": "2000",
    "group.initial.rebalance.delay.ms": "100",
    "group.min.session.timeout.ms": "500",
}
"""Every time shorter than in production, so that a run of seconds sees what takes a cluster minutes."""


@dataclass(eq=False, slots=True)
class Host:
    """One machine with its disk; a broker process runs on it, or none.

    Attributes:
        is_held_down: it is switched off, and not by itself.
        is_stopping: its broker got SIGTERM.
        damaged: partitions of which its disk may have lost something, and whose ISR has not been without it since.
    """

    broker_id: int
    name: str
    data_dir: Path
    process: Process | None = None
    broker: Broker | None = None
    rack: str | None = None
    damaged: set[TopicPartition] = field(default_factory=set)
    is_held_down: bool = False
    is_stopping: bool = False
    skew_ms: int = 0
    signals: dict[int, Callable[[], object]] = field(default_factory=dict)

    @property
    def is_running(self) -> bool:
        """Whether a broker runs on it, has joined the cluster, and was not told to stop."""
        return self.broker is not None and self.broker.lifecycle.is_running and not self.is_stopping


class Cluster:
    """All of it.

    Attributes:
        hosts: by broker id.
        tree: the nodes of the store: the ensemble's, or those of the broker with an embedded one.
        is_embedded: there is one broker, with its store in its data directory.
    """

    def __init__(
        self,
        world: World,
        directory: Path,
        broker_count: int,
        settings: Mapping[str, str],
        format_level: int = NEWEST_LEVEL,
        *,
        is_embedded: bool = False,
    ) -> None:
        self.world = world
        self.network = Network(world)
        self.turns = Turns(world)
        self.loop = SimLoop(world, self.turns, self.network)  # type: ignore[abstract]  # what is missing is never asked
        self.loop.add_signal_handler = self._add_signal_handler  # type: ignore[method-assign,assignment]
        self.disks = Disks(world.random)
        self.hosts = {
            number: Host(number, f"broker-{number}", directory / f"broker-{number}", rack=RACKS[number % 3])
            for number in range(1, broker_count + 1)
        }
        self._settings = parse_broker_settings({**SETTINGS, **settings})
        self.ensemble = Ensemble(world, self.turns, self.network, directory / ZOOKEEPER, SESSION_TIMEOUT_S)
        self.tree = self.ensemble.tree.tree
        self.is_embedded = is_embedded
        self._on_tree: Callable[[NodeTree], None] = lambda tree: None
        store = self._open_store
        install(world, self.loop, self.turns, self.network, self.disks, store, format_level, self._ended)
        cluster = self

        class SeenBroker(Broker):
            """The production broker; the checks look at it."""

            def __init__(self, *arguments: Any) -> None:
                super().__init__(*arguments)
                cluster._host_of(CURRENT.get()).broker = self

        process_module.Broker = SeenBroker  # type: ignore[attr-defined,assignment]

    def on_tree(self, watch: Callable[[NodeTree], None]) -> None:
        """Call *watch* with the nodes of the store, and again whenever a broker has read them from its disk."""
        self._on_tree = watch
        watch(self.tree)

    def _open_store(self, config: BrokerConfig) -> Store:
        if not self.is_embedded:
            return self.ensemble.store()
        store = EmbeddedTree(config.data_dir / STORE)
        self.tree = store.tree
        self._on_tree(self.tree)
        return store.session()

    def start(self, host: Host) -> None:
        """Start a broker process on *host*, as systemd does."""
        if host.process is not None:
            return
        self.network.set_up(host.name, True)
        host.process = process = Process(host.name, is_broker=True, skew_ms=host.skew_ms)
        host.signals, host.is_stopping = {}, False
        self.world.note("start", host.name)
        if self.is_embedded:
            self.world.happened("embedded store")
        self.spawn(process, lambda: self._main(host, process))
        self.spawn(process, lambda: self._retain(host))

    def spawn(self, process: Process, main: Callable[[], Any]) -> None:
        """Run a coroutine as *process*."""
        context = copy_context()
        context.run(CURRENT.set, process)

        def begin() -> None:
            task = context.run(self.loop.create_task, main(), context=context)
            process.kept.append(task)
            task.add_done_callback(self._task_ended, context=context)

        self.world.at(self.world.now_us, process, begin)

    async def _main(self, host: Host, process: Process) -> None:
        code = await process_module.serve(self._config(host))
        self.world.note("exit", host.name, code)
        if host.process is process:
            self._bury(host, process)

    async def _retain(self, host: Host) -> None:
        """Ask for retention again and again, as the host's timer does; it forgets idempotent producers that are old."""
        compactions = 0
        while True:
            await asyncio.sleep(RETENTION_S)
            if host.broker is not None and host.is_running:
                before, compactions = compactions, int(host.broker._maintenance._compactions.value)
                if compactions > before:
                    self.world.happened("compaction")
                done = await host.broker._maintenance.retain(dry_run=False)
                if any(row["topic"] != GROUPS_TOPIC for row in done["deleted"]):
                    self.world.happened("retention")

    def _task_ended(self, task: "asyncio.Task[Any]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, ProcessEnded):
            self.world.fail(error)

    async def finalize(self) -> bool:
        """Ask a broker, as an operator on its host does, to have the newest formats written; return whether it did."""
        host = self.world.random.choice(list(self.hosts.values()))
        process, broker = host.process, host.broker
        if process is None or broker is None:
            return False
        done: list[bool] = []

        async def ask() -> None:
            try:
                await broker.membership.finalize()
            except ApiError as error:
                self.world.note("not finalized", error)
                return
            done.append(True)

        self.spawn(process, ask)
        for _ in range(FINALIZE_S):
            await asyncio.sleep(1.0)
            if done:
                return True
        return False

    # -- what happens to it -------------------------------------------------------------------------------------------

    def terminate(self, host: Host) -> None:
        """Send SIGTERM."""
        process = host.process
        if process is None or not host.signals:
            return
        self.world.note("sigterm", host.name)
        host.is_stopping = True
        handler = next(iter(host.signals.values()))
        self.world.at(self.world.now_us, process, lambda: self._signalled(process, handler))

    def _signalled(self, process: Process, handler: Callable[[], object]) -> None:
        context = copy_context()
        context.run(CURRENT.set, process)
        context.run(handler)

    def is_registered(self, host: Host) -> bool:
        """Whether the broker on *host* runs, and the store has this very process."""
        node = self.tree.nodes.get(broker_path(host.broker_id))
        epoch = host.broker.membership.broker_epoch if host.broker is not None else -1
        return host.is_running and node is not None and node.czxid == epoch

    def kill(self, host: Host) -> None:
        """Kill the process; its disk and page cache live on."""
        process = host.process
        if process is None:
            return
        self.world.note("kill", host.name)
        self.world.happened(CRASH)
        self._bury(host, process)

    def _bury(self, host: Host, process: Process) -> None:
        """Take from a process what the operating system gave it."""
        process.kept += [host.broker, host.signals]
        process.is_alive = False
        host.process = host.broker = None
        self.network.forget(process)
        self.disks.forget(process)
        if host.name in self.disks.failing:
            # The kernel has dropped what it could not write.
            self.disks.failing.discard(host.name)
            self.world.note("dropped", host.name, self.disks.cut_power(host.data_dir))

    def cut_power(self, host: Host, *, torn: str = "", to_the_last_sync: bool = False) -> None:
        """Switch the machine off; what was not synced may be gone.  For the options see `Disks.cut_power`."""
        self.network.set_up(host.name, False)
        self.kill(host)
        self.world.happened("power cut")
        lost_bytes = self.disks.cut_power(host.data_dir, torn=torn, to_the_last_sync=to_the_last_sync)
        self.world.note("power", host.name, "lost_bytes", lost_bytes)

    def _ended(self, process: Process) -> None:
        host = self._host_of(process)
        self.world.note("ended_itself", host.name)
        self.kill(host)

    # -- parts --------------------------------------------------------------------------------------------------------

    def _config(self, host: Host) -> BrokerConfig:
        return BrokerConfig(
            broker_id=host.broker_id,
            data_dir=host.data_dir,
            client=_listener(host.name, CLIENT_PORT),
            internal=_listener(host.name, INTERNAL_PORT),
            admin_socket=host.data_dir / "admin.sock",
            rack=host.rack,
            store=StoreConfig(
                kind="embedded" if self.is_embedded else "zookeeper",
                hosts=ZOOKEEPER,
                session_timeout_ms=int(SESSION_TIMEOUT_S * 1000),
            ),
            cluster_secret=SECRET,
            settings=self._settings,
        )

    def _host_of(self, process: Process | None) -> Host:
        return next(host for host in self.hosts.values() if host.process is process and process is not None)

    def _add_signal_handler(self, number: int, callback: Callable[[], object]) -> None:
        self._host_of(CURRENT.get()).signals[number] = callback


def _listener(host: str, port: int) -> ListenerConfig:
    return ListenerConfig(host=host, port=port, advertised_host=host, advertised_port=port)
