"""One run: make the cluster, let clients work, carry out the schedule, heal, and have the checker compare."""

import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from uuid import UUID

from pylog.testing import ask_admin
from tests.chaos import checker, replicas
from tests.chaos.checker import Violation
from tests.chaos.disks import Disk
from tests.chaos.history import Ack, Grouped, Partition, Produced, Row, now_ms, whole_lines
from tests.chaos.java import JavaClients
from tests.chaos.ledger import Ledger
from tests.chaos.network import Network
from tests.chaos.nodes import Broker, Node, ZooKeeperServer, ensemble_hosts
from tests.chaos.operations import NotSettled, Operator, Topic
from tests.chaos.schedule import Fault, Kind, World, plan
from tests.servers.previous import compile_sources

_CHECKOUT = Path(__file__).resolve().parents[2]
_SYNCED = (("min.insync.replicas", "2"),)
STEADY = Topic("steady", 6, configs=_SYNCED)
TRIMMED = Topic("trimmed", 3, configs=_SYNCED)
COMPACTED = Topic(
    "compacted",
    2,
    keys=150,
    configs=(
        *_SYNCED,
        ("cleanup.policy", "compact"),
        ("segment.bytes", "65536"),
        ("min.cleanable.dirty.ratio", "0.1"),
    ),
)
AGAIN = Topic("again", 3, configs=_SYNCED)
_GROUPS = {"readers": ("member-1", "member-2"), "java-readers": ("java-member",)}
"""Groups and their members; the last one is Apache Kafka's own."""

_AGAIN_GROUP = "again-readers"
"""Reads the topic that is made again: its member of an incarnation must not begin where the one before it ended."""

_LIVES_THROUGH = "java-again"
"""Apache Kafka's producer, which goes on with a topic that is made again, and lives as long as the run."""

_READ_ON = {"again-through": "through-member", "java-through": "java-through-member"}
"""Groups with one member each, the last one Apache Kafka's own, which lives as long as the run and reads the topic that
is made again: it must read each incarnation from its first record on, whatever it had committed before."""

_MEMBERS = {member: group for group, members in _GROUPS.items() for member in members}
_DISK_MB = 1024
_TICK_S = 0.1
_SAMPLE_S = 5.0
_BEFORE_DELETION_S = 1.0
PATIENCE_S = 240.0
_MESSAGE_S = 300
_CROSSING_S = 5
_GROUP_S = 90.0
_CLIENT_STOP_S = 320.0
_PYTHON = ("env", "--block-signal=TERM", sys.executable, "-m")
# One that is told to end while Python still starts does so once it is ready: it unblocks the signal then.


@dataclass(slots=True)
class Life:
    """One incarnation of the topic that is deleted and made again.

    Attributes:
        producer: the name of the producer that wrote to it.
        made_ms: when the deletion of the one before was asked for.
        sure_ms: from when on every broker knew it, so that what is acknowledged is in it; None if that never was.
        read_ms: from when on it was read: what is acknowledged later may be missing in *rows*; None while it was not.
        rows: what was in it then, once its own producer had ended.
        is_read: whether the group came to its end before the deletion.
        read_on: groups whose member lives through deletions and came to its end before the next one.
    """

    number: int
    producer: str
    made_ms: int
    sure_ms: int | None = None
    read_ms: int | None = None
    rows: dict[int, list[Row]] = field(default_factory=dict)
    is_read: bool = False
    read_on: set[str] = field(default_factory=set)

    @property
    def is_comparable(self) -> bool:
        """Whether it is known what must be in it, and what was."""
        return self.sure_ms is not None and self.read_ms is not None

    @property
    def member(self) -> str:
        """The member of the group that reads this incarnation and no other."""
        return f"again-member-{self.number}"


@dataclass(slots=True)
class Report:
    """What a run found.

    Attributes:
        acknowledged: how many records were, by topic.
        done: how often each kind of fault or operation was carried out.
        violations: what the checker and the brokers' logs tell.
        read_through: by group whose member lives through deletions, how many incarnations it read to their end.
        unsettled: what did not come to rest.
        pauses_ms: by partition its longest times without an acknowledgement.
        memory_kb: samples: second of the run, broker, resident memory.
        deaths: by broker how often it ended by itself.
        notes: what somebody should look at, with how often it was seen.
    """

    seed: int
    duration_s: float
    world: World
    planned: Counter[Kind] = field(default_factory=Counter)
    done: Counter[Kind] = field(default_factory=Counter)
    acknowledged: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    polled: int = 0
    commits: int = 0
    lives: int = 0
    sure_lives: int = 0
    read_through: Counter[str] = field(default_factory=Counter)
    batches_compared: int = 0
    violations: list[Violation] = field(default_factory=list)
    unsettled: list[str] = field(default_factory=list)
    pauses_ms: dict[Partition, list[int]] = field(default_factory=dict)
    memory_kb: list[tuple[float, int, int]] = field(default_factory=list)
    deaths: dict[str, list[int]] = field(default_factory=dict)
    notes: Counter[str] = field(default_factory=Counter)

    @property
    def is_clean(self) -> bool:
        """Whether nothing was violated and everything came to rest."""
        return not self.violations and not self.unsettled


@dataclass(frozen=True, slots=True)
class Options:
    """What to run.

    Attributes:
        directory: of this run, empty.
        previous: directory with the sources of the release before.
        current: directory with a copy of this checkout's, which may change while the run goes on.
        rate: records a second of all producers.
        mutant: a fault of `tests.chaos.planted` that every broker of this release gets.
        patience_s: so long may it take in the end until replicas are in sync and everything is read.
    """

    directory: Path
    seed: int
    duration_s: float
    world: World
    previous: Path
    current: Path
    rate: int
    mutant: str = ""
    patience_s: float = PATIENCE_S


class Run:
    """Processes and what was seen of them."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._directory = options.directory
        self._world = options.world
        self._ledger = Ledger(options.directory)
        nodes = options.world.brokers + options.world.servers
        self._network = Network(f"chaos-{options.directory.name}", nodes, self._ledger)
        self._history = options.directory / "history"
        self._disks: dict[int, Disk] = {}
        self._brokers: dict[int, Broker] = {}
        self._servers: dict[int, ZooKeeperServer] = {}
        self._clients: dict[str, subprocess.Popen[bytes]] = {}
        self._stopped: set[str] = set()
        self._begins: dict[int, int] = {}
        self._trimmed: dict[int, int] = {}
        self._starts: dict[int, dict[int, int]] = {}
        self._lives: list[Life] = []
        self._life_id: UUID | None = None
        self._began_s = 0.0
        self._finalized = threading.Event()
        self._ending = threading.Event()
        self._works: dict[Kind, SimpleQueue[Callable[[], None]]] = {}
        self.report = Report(options.seed, options.duration_s, options.world)

    @property
    def _nodes(self) -> Iterator[Node]:
        yield from self._servers.values()
        yield from self._brokers.values()

    def __call__(self) -> Report:
        """Run it from end to end; whatever ends it, nothing is left but the run's directory."""
        try:
            self._set_up()
            self._carry_out()
            self._settle()
        finally:
            self._ending.set()
            left = self._ledger.clean()
        for what in left:
            self._unsettled(f"could not be removed: {what}")
        self._check()
        return self.report

    # -- the cluster ----------------------------------------------------------------------------------------------

    def _set_up(self) -> None:
        self._history.mkdir()
        self._java = JavaClients(self._directory / "classes")
        self._network.make()
        brokers = range(1, self._world.brokers + 1)
        members = range(self._world.brokers + 1, self._world.brokers + self._world.servers + 1)
        for myid, number in enumerate(members, 1):
            prefix = self._network.prefix(number)
            self._servers[myid] = ZooKeeperServer(number, prefix, self._directory, myid, members)
            self._servers[myid].start()
        options = self._options
        for number in brokers:
            disk = Disk(self._directory / "disks" / str(number), _DISK_MB, self._ledger)
            disk.make()
            self._disks[number] = disk
            self._brokers[number] = Broker(
                number,
                self._network.prefix(number),
                self._directory,
                disk.directory,
                options.previous,
                ensemble_hosts(members),
            )
            if not options.world.has_swaps:
                self._brokers[number].run_release(options.current, options.mutant)
        self._network.enter_hub()
        self._operator = Operator([broker.bootstrap for broker in self._brokers.values()])
        for broker in self._brokers.values():
            broker.start()
        for broker in self._brokers.values():
            broker.wait_log(" ready port=")
        for topic in (STEADY, TRIMMED, COMPACTED, AGAIN):
            self._operator.create(topic)
        self._life_id = self._operator.wait_known(AGAIN)
        for topic in (STEADY, TRIMMED, COMPACTED):
            self._operator.wait_known(topic)
        self._start_clients()

    def _start_clients(self) -> None:
        rate = self._options.rate
        self._produce("steady", rate * 4 // 10, STEADY)
        self._produce("others", rate * 3 // 10, TRIMMED, COMPACTED)
        self._produce("java", rate * 2 // 10, STEADY, is_java=True)
        self._produce(_LIVES_THROUGH, rate // 10, AGAIN, is_java=True)
        now = now_ms()
        self._lives.append(Life(0, "again-0", now, now))
        self._produce("again-0", rate // 10, AGAIN)
        self._read(_AGAIN_GROUP, self._lives[-1].member, AGAIN)
        for group, member in _READ_ON.items():
            self._read(group, member, AGAIN)
        for group, members in _GROUPS.items():
            for member in members:
                self._read(group, member, STEADY, TRIMMED)

    def _produce(
        self, name: str, rate: int, *topics: Topic, timeout_s: int = _MESSAGE_S, is_java: bool = False
    ) -> None:
        specs = [topic.spec for topic in topics]
        arguments = [name, self._operator.bootstrap, str(self._file(name)), str(rate), str(timeout_s), *specs]
        python = [*_PYTHON, "tests.chaos.producer", *arguments]
        self._client(name, self._java.command("produce", *arguments) if is_java else python)

    def _read(self, group: str, member: str, *topics: Topic) -> None:
        names = [topic.name for topic in topics]
        arguments = [member, group, self._operator.bootstrap, str(self._file(member)), *names]
        python = [*_PYTHON, "tests.chaos.group", *arguments]
        self._client(member, self._java.command("read", *arguments) if member.startswith("java") else python)

    def _client(self, name: str, command: Sequence[str]) -> None:
        with (self._directory / f"{name}.log").open("ab") as log:
            self._clients[name] = subprocess.Popen(
                command,
                cwd=self._options.current,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C is the run's: it ends its clients itself.
                start_new_session=True,
            )

    def _file(self, client: str) -> Path:
        return self._history / f"{client}.tsv"

    def _stop_client(self, name: str) -> None:
        client = self._clients[name]
        self._stopped.add(name)
        client.send_signal(signal.SIGTERM)
        try:
            status = client.wait(_CLIENT_STOP_S)
        except subprocess.TimeoutExpired:
            self._unsettled(f"client {name} did not end within {_CLIENT_STOP_S:.0f} s")
            client.kill()
            client.wait()
            return
        if status:
            self._tell_end(name, status)

    def _tell_end(self, name: str, status: int) -> None:
        said = (self._directory / f"{name}.log").read_text(errors="replace")[-500:]
        self._unsettled(f"client {name} ended with {status}: {said}")

    # -- the schedule ---------------------------------------------------------------------------------------------

    def _carry_out(self) -> None:
        faults = plan(self._options.seed, self._options.duration_s, self._world)
        self.report.planned.update(fault.kind for fault in faults)
        agenda: list[tuple[float, str, Callable[[], None]]] = []
        for fault in faults:
            begin, end = self._acts(fault)
            agenda.append((fault.at_s, f"{fault.kind} {fault.target} {fault.value}", begin))
            if end is not None:
                agenda.append((fault.ends_s, f"end of {fault.kind} {fault.target}", end))
        last_swap = max((fault.ends_s for fault in faults if fault.kind is Kind.SWAP), default=0.0)
        agenda.append((last_swap, "finalize", lambda: self._work(Kind.SWAP, self._finalize)))
        agenda.sort(key=lambda row: row[0])
        self._began_s = time.monotonic()
        sampled_s = 0.0
        while (passed_s := time.monotonic() - self._began_s) < self._options.duration_s:
            while agenda and agenda[0][0] <= passed_s:
                _, what, act = agenda.pop(0)
                self._say(what)
                act()
            if passed_s >= sampled_s:
                sampled_s += _SAMPLE_S
                self._sample(passed_s)
            for node in self._nodes:
                node.keep()
            time.sleep(_TICK_S)

    def _acts(self, fault: Fault) -> tuple[Callable[[], None], Callable[[], None] | None]:
        """Return what begins a fault and what takes it away."""
        if fault.kind is Kind.ZOOKEEPER:
            return self._process_fault(fault, self._servers[fault.target], kills=fault.value == 1)
        if fault.kind is Kind.RECREATE:
            return self._operation(fault, self._recreate), None
        if fault.kind is Kind.TRIM:
            return self._operation(fault, lambda: self._trim(fault.value)), None
        if fault.kind is Kind.MOVE:
            return self._operation(fault, lambda: self._move(fault.target, fault.value)), None
        broker, disk, number = self._brokers[fault.target], self._disks[fault.target], fault.target
        if fault.kind is Kind.SWAP:
            return self._operation(fault, lambda: self._swap(broker, is_upgrade=fault.value == 1)), None
        if fault.kind in (Kind.KILL, Kind.STOP):
            return self._process_fault(fault, broker, kills=fault.kind is Kind.KILL)
        begin, end = {
            Kind.CUT: (lambda: self._network.cut(number, fault.value), lambda: self._network.heal(number)),
            Kind.CLOG: (lambda: self._network.clog(number, fault.value), lambda: self._network.unclog(number)),
            Kind.DISK: (disk.fill, disk.empty),
            Kind.CLOCK: (lambda: self._set_clock(broker, fault.value), lambda: broker.set_clock(0)),
        }[fault.kind]
        return self._counted(fault, begin), end

    def _set_clock(self, broker: Broker, step_s: int) -> None:
        if self._finalized.is_set():
            broker.set_clock(step_s)
        else:
            self._say(f"the clock of {broker.name} stays: the formats are not finalized")

    def _process_fault(self, fault: Fault, node: Node, *, kills: bool) -> tuple[Callable[[], None], Callable[[], None]]:
        def kill() -> None:
            node.hold()
            node.kill()

        if kills:
            return self._counted(fault, kill), node.release
        return self._counted(fault, lambda: node.signal(signal.SIGSTOP)), lambda: node.signal(signal.SIGCONT)

    def _counted(self, fault: Fault, act: Callable[[], None]) -> Callable[[], None]:
        def begin() -> None:
            act()
            self.report.done[fault.kind] += 1

        return begin

    def _operation(self, fault: Fault, act: Callable[[], None]) -> Callable[[], None]:
        """Return what starts *act* beside the schedule; operations of one kind happen in their order."""

        def work() -> None:
            act()
            self.report.done[fault.kind] += 1

        return lambda: self._work(fault.kind, work)

    def _work(self, kind: Kind, act: Callable[[], None]) -> None:
        works = self._works.get(kind)
        if works is None:
            works = self._works[kind] = SimpleQueue()
            threading.Thread(target=self._work_forever, args=(kind, works), name=str(kind), daemon=True).start()
        works.put(act)

    def _work_forever(self, kind: Kind, works: SimpleQueue[Callable[[], None]]) -> None:
        while not self._ending.is_set():
            try:
                works.get()()
            except NotSettled as error:
                self._say(str(error))
                self.report.notes[f"{kind}: refused or late: {error}"[:200]] += 1
            except Exception as error:  # noqa: BLE001  # the top of a thread, and a fault of the run
                self._unsettled(f"{kind}: {error!r}")

    def _wait_works(self, within_s: float) -> None:
        """Wait until every operation that was begun has ended."""
        ends = {kind: threading.Event() for kind in self._works}
        for kind, end in ends.items():
            self._work(kind, end.set)
        deadline_s = time.monotonic() + within_s
        for kind, end in ends.items():
            if not end.wait(max(deadline_s - time.monotonic(), 0.0)):
                self._unsettled(f"{kind}: not at its end within {within_s:.0f} s")

    def _swap(self, broker: Broker, *, is_upgrade: bool) -> None:
        broker.hold()
        if not broker.stop():
            self.report.notes[f"{broker.name} did not stop on SIGTERM in time and was killed"] += 1
        if is_upgrade:
            broker.run_release(self._options.current, self._options.mutant)
        else:
            broker.run_release(self._options.previous)
        broker.release()
        self._say(f"{broker.name} runs the {'new' if is_upgrade else 'previous'} release")

    def _finalize(self) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        said = "nobody was asked"
        while time.monotonic() < deadline_s:
            for broker in self._brokers.values():
                try:
                    status, answer = ask_admin(broker.admin_socket, "POST", "/finalize", {})
                except OSError as error:
                    said = str(error)
                    continue
                if status == 200:
                    self._say(f"formats of level {answer['level']}")
                    self._finalized.set()
                    return
                said = str(answer)
            time.sleep(1.0)
        self._unsettled(f"the formats could not be finalized: {said}")
        self._finalized.set()

    def _trim(self, thousandths: int) -> None:
        self._finalized.wait(PATIENCE_S)
        for number, offset in self._operator.trim(TRIMMED, thousandths, self._begins).items():
            self._trimmed[number] = max(offset, self._trimmed.get(number, 0))

    def _move(self, partition: int, first: int) -> None:
        self._finalized.wait(PATIENCE_S)
        brokers = [(first + place - 1) % self._world.brokers + 1 for place in range(3)]
        self._operator.move(STEADY, partition, brokers)

    def _recreate(self) -> None:
        self._finalized.wait(PATIENCE_S)
        life = self._lives[-1]
        if life.producer in self._clients:  # else the re-creation before this one did not get that far
            self._stop_client(life.producer)
            read_ms = now_ms()
            self._end_life(life, read_ms, *self._operator.read(AGAIN, {}))
        # A producer of librdkafka meets the deletion: what it sends may end up in either topic.  It does not believe in
        # the new topic's leaders, whose epochs begin at 0 again, so it gives up and another one follows.
        crossing = f"crossing-{life.number}"
        self._produce(crossing, self._options.rate // 10, AGAIN, timeout_s=_CROSSING_S)
        time.sleep(_BEFORE_DELETION_S)
        following = Life(life.number + 1, f"again-{life.number + 1}", now_ms())
        self._lives.append(following)
        self._operator.delete(AGAIN)
        self._operator.create(AGAIN, other_than=self._life_id)
        self._produce(following.producer, self._options.rate // 10, AGAIN)
        self._stop_client(crossing)
        self._life_id = self._operator.wait_known(AGAIN, other_than=self._life_id)
        following.sure_ms = now_ms()
        self._read(_AGAIN_GROUP, following.member, AGAIN)

    def _end_life(self, life: Life, read_ms: int, rows: dict[int, list[Row]], ends: dict[int, int]) -> None:
        """Keep what is in the last incarnation, and let its groups come to the end of it."""
        life.read_ms, life.rows = read_ms, rows
        wanted = {(AGAIN.name, number): end for number, end in ends.items()}
        life.read_on.update(group for group in _READ_ON if self._reaches(group, wanted))
        if life.member not in self._clients:
            return
        life.is_read = self._reaches(_AGAIN_GROUP, wanted)
        self._stop_client(life.member)

    def _reaches(self, group: str, wanted: dict[Partition, int]) -> bool:
        try:
            self._operator.wait_committed(group, wanted, _GROUP_S)
        except NotSettled as error:
            self._say(str(error))
            self.report.notes[f"group {group} did not come to the end of an incarnation"] += 1
            return False
        return True

    # -- the end --------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        self._say("heal")
        patience_s = self._options.patience_s
        for number, broker in self._brokers.items():
            self._network.heal(number)
            self._network.unclog(number)
            self._disks[number].empty()
            broker.set_clock(0)
        for node in self._nodes:
            node.signal(signal.SIGCONT)
        self._wait_works(2 * patience_s)
        for node in self._nodes:
            node.keep()
        if self._lives[-1].sure_ms is None:
            self._work(Kind.RECREATE, self._recreate)
            self._wait_works(2 * patience_s)
        self.report.deaths = {node.name: node.deaths for node in self._nodes if node.deaths}
        try:
            self._operator.wait_in_sync((STEADY, TRIMMED, COMPACTED, AGAIN), patience_s)
        except NotSettled as error:
            self._unsettled(str(error))
        for name, client in self._clients.items():
            if name not in self._stopped and (status := client.poll()) is not None:
                self._tell_end(name, status)
        producers = [name for name in self._clients if "member" not in name and self._lives_on(name)]
        for name in producers:
            self._stop_client(name)
        self._sample(time.monotonic() - self._began_s)
        self._logs: dict[Partition, list[Row]] = {}
        read_ms = now_ms()
        ends: dict[Partition, int] = {}
        try:
            starts = self._operator.starts(TRIMMED)
            for topic, begins in ((STEADY, {}), (TRIMMED, starts), (COMPACTED, {}), (AGAIN, {})):
                rows, reached = self._operator.read(topic, begins, patience_s)
                self._logs.update({(topic.name, number): found for number, found in rows.items()})
                ends.update({(topic.name, number): end for number, end in reached.items()})
            read = {key: end for key, end in ends.items() if key[0] in (STEADY.name, TRIMMED.name)}
            for group in _GROUPS:
                self._operator.wait_committed(group, read, patience_s)
            for group in _READ_ON:
                self._operator.wait_committed(
                    group, {key: end for key, end in ends.items() if key[0] == AGAIN.name}, patience_s
                )
        except NotSettled as error:
            self._unsettled(str(error))
        again = [(number, (AGAIN.name, number)) for number in range(AGAIN.partitions)]
        rows = {number: self._logs.get(key, []) for number, key in again}
        self._end_life(self._lives[-1], read_ms, rows, {number: ends.get(key, 0) for number, key in again})
        for name in (*_MEMBERS, *_READ_ON.values()):
            self._stop_client(name)
        stops = [threading.Thread(target=broker.stop) for broker in self._brokers.values()]
        for thread in stops:
            thread.start()
        for thread in stops:
            thread.join()
        self._compare_replicas(ends)

    def _lives_on(self, name: str) -> bool:
        return self._clients[name].poll() is None

    def _compare_replicas(self, ends: dict[Partition, int]) -> None:
        for (topic, number), end in ends.items():
            if topic == COMPACTED.name:
                continue  # each replica compacts by itself
            begin = self._begins.get(number, 0) if topic == TRIMMED.name else 0
            found = {}
            for broker in self._brokers.values():
                directory = broker.data_dir / f"{topic}-{number}"
                if directory.is_dir():
                    found[broker.number] = replicas.batches(directory, begin, end)
                if directory.is_dir() and topic == TRIMMED.name:
                    starts = self._starts.setdefault(number, {})
                    starts[broker.number] = replicas.log_start(broker.data_dir, topic, number)
            if len(found) != 3:
                self._unsettled(f"{topic}-{number} is on brokers {sorted(found)}, not on three")
            self.report.batches_compared += sum(map(len, found.values()))
            self.report.violations += checker.check_replicas(f"{topic}-{number}", found)

    # -- the checker ----------------------------------------------------------------------------------------------

    def _check(self) -> None:
        self._say("check")
        produced = Produced()
        groups = {group: Grouped() for group in _GROUPS}
        read_on = {member: Grouped() for member in _READ_ON.values()}
        for path in sorted(self._history.glob("*.tsv")):
            if path.stem.startswith("again-member"):
                continue
            if path.stem in _READ_ON.values():
                read_on[path.stem].take(path.stem, whole_lines(path))
            elif path.stem in _MEMBERS:
                groups[_MEMBERS[path.stem]].take(path.stem, whole_lines(path))
            else:
                produced.take(whole_lines(path))
        report = self.report
        for (topic, _), acks in produced.acks.items():
            report.acknowledged[topic] += len(acks)
        for (topic, _), failed in produced.failed.items():
            report.failed[topic] += len(failed)
        for grouped in (*groups.values(), *read_on.values()):
            report.polled += sum(len(one.rows) for readings in grouped.readings.values() for one in readings)
            report.commits += sum(map(len, grouped.commits.values()))
        end_ms, gave_up = now_ms(), produced.gave_up()
        for (topic, number), rows in self._logs.items():
            key, where = (topic, number), f"{topic}-{number}"
            acks = produced.acks[key]
            if topic == AGAIN.name:
                continue
            if topic == COMPACTED.name:
                report.violations += checker.check_compacted(where, acks, rows, COMPACTED.keys, gave_up=gave_up)
            else:
                begin = 0
                if topic == TRIMMED.name:
                    begin = self._begins.get(number, 0)
                    starts, trimmed = self._starts.get(number, {}), self._trimmed.get(number, 0)
                    report.violations += checker.check_trimmed(where, rows, starts, trimmed)
                report.violations += checker.check_log(where, acks, rows, begin=begin, gave_up=gave_up)
                for group, grouped in groups.items():
                    report.violations += checker.check_group(
                        f"{where} group {group}", rows, grouped.readings[key], grouped.commits[key], begin=begin
                    )
            if acks:
                first, last = min(ack.done_ms for ack in acks), max(ack.done_ms for ack in acks)
                report.pauses_ms[key] = checker.longest_pauses_ms(acks, first, min(last, end_ms))
        self._check_lives(produced)
        for group, member in _READ_ON.items():
            self._check_read_on(group, read_on[member])
        self._read_logs()

    def _check_lives(self, produced: Produced) -> None:
        report = self.report
        report.lives = len(self._lives)
        gave_up = produced.gave_up()
        for number in range(AGAIN.partitions):
            acks = produced.acks[AGAIN.name, number]
            for life in self._lives:
                rows = life.rows.get(number, [])
                where = f"{AGAIN.name}-{number} incarnation {life.number}"
                report.violations += checker.check_foreign(where, _before(acks, life), life.made_ms, rows)
                if not life.is_comparable:
                    continue
                sure = [ack for ack in acks if _is_surely_in(ack, life)]
                report.violations += checker.check_log(where, sure, _known(rows, sure), gave_up=gave_up)
            self._check_again_group(number)
        report.sure_lives = sum(life.is_comparable for life in self._lives)

    def _check_again_group(self, number: int) -> None:
        for life in self._lives:
            if not life.is_read:
                continue
            grouped = Grouped()
            grouped.take(life.member, whole_lines(self._file(life.member)))
            key, where = (AGAIN.name, number), f"{AGAIN.name}-{number} incarnation {life.number} group {_AGAIN_GROUP}"
            self.report.violations += checker.check_group(
                where, life.rows.get(number, []), grouped.readings[key], grouped.commits[key]
            )

    def _check_read_on(self, group: str, grouped: Grouped) -> None:
        for life in self._lives:
            if group not in life.read_on:
                continue
            self.report.read_through[group] += 1
            for number, rows in life.rows.items():
                where = f"{AGAIN.name}-{number} incarnation {life.number} group {group}"
                readings = grouped.readings[AGAIN.name, number]
                self.report.violations += checker.check_lived_through(where, rows, readings)

    def _read_logs(self) -> None:
        """Note what the brokers themselves complain about."""
        for broker in self._brokers.values():
            for line in broker.log_path.read_text(errors="replace").splitlines():
                if "Traceback" in line:
                    self.report.notes["Traceback in a broker's log"] += 1
                elif " ERROR " in line:
                    self.report.notes["ERROR: " + _without_details(line)] += 1

    # -- telling --------------------------------------------------------------------------------------------------

    def _sample(self, passed_s: float) -> None:
        for broker in self._brokers.values():
            memory_kb = broker.memory_kb()
            if memory_kb is not None:
                self.report.memory_kb.append((passed_s, broker.number, memory_kb))

    def _unsettled(self, what: str) -> None:
        self._say(what)
        self.report.unsettled.append(what)

    def _say(self, what: str) -> None:
        passed_s = time.monotonic() - self._began_s if self._began_s else 0.0
        with (self._directory / "run.log").open("a") as file:
            file.write(f"{now_ms()} {passed_s:.1f} {what}\n")


def _is_surely_in(ack: Ack, life: Life) -> bool:
    assert life.sure_ms is not None
    assert life.read_ms is not None
    is_its = ack.producer.rpartition(".")[0] in (life.producer, _LIVES_THROUGH)
    return is_its and ack.sent_ms >= life.sure_ms and ack.done_ms < life.read_ms


def _known(rows: Sequence[Row], sure: Sequence[Ack]) -> list[Row]:
    """Return *rows* without what a producer that lives through deletions may have sent to both topics."""
    known = {(ack.producer, ack.number) for ack in sure}
    return [row for row in rows if not _is_living_through(row) or (row.producer, row.number) in known]


def _is_living_through(row: Row) -> bool:
    return row.producer.rpartition(".")[0] == _LIVES_THROUGH


def _before(acks: Sequence[Ack], life: Life) -> list[Ack]:
    return [ack for ack in acks if ack.done_ms < life.made_ms] if life.number else []


def _without_details(line: str) -> str:
    """Return a line of a log without the time and the values, so that equal events count as one."""
    words = line.partition(" ERROR ")[2].split()
    return " ".join(word for word in words if "=" not in word)[:100]


def current_sources(directory: Path) -> Path:
    """Return *directory*, in which a copy of this checkout's package and clients now is."""
    for part in ("pylog", "tests/chaos", "tests/servers", "tests/sim"):
        shutil.copytree(_CHECKOUT / part, directory / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(_CHECKOUT / "tests/__init__.py", directory / "tests")
    compile_sources(directory)
    return directory


def remove_data(directory: Path) -> None:
    """Remove what is large of a run that found nothing; its logs stay.

    So do the histories of producers of which a record failed: the checker does not ask such a producer whether it
    doubled a record, and if one turns out to be there twice, the history tells what was on its way then.
    """
    for name in ("disks", "current"):
        shutil.rmtree(directory / name, ignore_errors=True)
    for path in (directory / "history").glob("*.tsv"):
        if not any(line.startswith("f\t") for line in whole_lines(path)):
            path.unlink()
    for data in directory.glob("zookeeper-*.data"):
        shutil.rmtree(data, ignore_errors=True)
