"""Carries out a drill: a topic of its own under load, a fault, the way back, and the proof that nothing is left.

It begins only on a cluster that is well, where every host's inventory says `drills_allowed`.
"""

import shlex
import socket
import struct
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from pylog.client.admin.cluster import Admin
from pylog.client.admin.health import Wanted, judge
from pylog.client.connection import Connection
from pylog.errors import PylogError
from pylog.ops.drills import Drill, Where
from pylog.ops.inventory import Target
from pylog.ops.load import History, Load

PARTITIONS = 6
CLEAN_READINGS = 3
WELL_LIMIT_S = 180.0
WARM_UP_S = 3.0
AFTER_S = 5.0
"""Load goes on so long once all is well: what was taken over must work too."""

HEALER = "pylog-drill-heal"
"""Timer on a host that heals it should whoever rehearses lose the way there."""

GRACE_S = 60

LEFTOVERS = f"""
nft list table inet pylog_drill 2>/dev/null | head -1
find /var/lib/pylog /run -xdev -name 'pylog-drill.*' 2>/dev/null
for disk in $(findmnt --noheadings --output TARGET --types xfs,ext4); do ls "$disk"/pylog-drill.* 2>/dev/null; done
systemctl list-units --all --plain --no-legend '{HEALER}*' | cut -d ' ' -f 1
ls -d /run/systemd/system.control/pylog-* 2>/dev/null
ps -u pylog -o stat=,pid=,args= | grep '^T'
true
"""
"""Shell that prints a line for everything that a drill left on a host."""

Run = Callable[[Target, str], tuple[int, str]]
"""Runs a shell script as root on a host and returns its exit code and output."""


class DrillRefused(PylogError):
    """The drill did not begin; nothing was touched."""

    fault = 214


@dataclass
class Outcome:
    """What came of a drill.

    Attributes:
        faults: why it failed; none means that it passed.
        numbers: of the producer.
        well_after_s: seconds from healing until the cluster was well.
    """

    faults: list[str] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)
    well_after_s: float = 0.0


class Cluster:
    """The brokers of one datacenter."""

    def __init__(self, targets: Sequence[Target], run: Run) -> None:
        self.targets = targets
        self.brokers = [target for target in targets if target.broker_ids]
        self.run = run
        self.bootstrap = ",".join(
            f"{target.address}:{one['port']}"
            for target in self.brokers
            for one in target.variables["pylog_broker_instances"]
        )
        self.broker_count = sum(len(target.broker_ids) for target in self.brokers)

    def problems(self) -> list[str]:
        """Return why the cluster is not well, as its brokers say; none if it is."""
        admin = Admin(Connection(bootstrap=self.bootstrap))
        try:
            view = admin.cluster()
            found = judge(view, admin.answering(view.brokers), Wanted(broker_count=self.broker_count))
        except PylogError as error:
            return [str(error)]
        return [f"{problem.subject}: {problem.detail}" for problem in found]

    def wait_well(self, limit_s: float) -> list[str]:
        """Wait for some good readings in a row; return what is still wrong at the end."""
        deadline_s = time.monotonic() + limit_s
        streak = 0
        while True:
            found = self.problems()
            streak = 0 if found else streak + 1
            if streak >= CLEAN_READINGS or (found and time.monotonic() > deadline_s):
                return found
            time.sleep(1)

    def leader_of(self, topic: str) -> tuple[Target, int]:
        """Return the host and id of the broker that leads the topic's first partition."""
        view = Admin(Connection(bootstrap=self.bootstrap)).cluster()
        leader = view.topics[topic].partitions[0].leader
        return next((target, leader) for target in self.brokers if leader in target.broker_ids)

    def leftovers(self) -> list[str]:
        """Return what drills left on any host."""
        return [
            f"{target.name}: left behind: {line}"
            for target, (_, said) in zip(self.targets, self.run_on(self.targets, LEFTOVERS), strict=True)
            for line in said.splitlines()
        ]

    def run_on(self, targets: Sequence[Target], script: str) -> list[tuple[int, str]]:
        """Run *script* on all *targets* at once; return exit code and output of each."""
        with ThreadPoolExecutor(len(targets)) as pool:
            return list(pool.map(lambda target: self.run(target, script), targets))


def hosts_of(targets: Sequence[Target], name: str) -> list[Target]:
    """Return the hosts of the datacenter *name*, or of the only one that can lose a broker.

    Raises:
        DrillRefused: there is none, several, or one whose inventory does not allow drills.
    """
    by_name: dict[str, list[Target]] = {}
    for target in targets:
        by_name.setdefault(str(target.variables.get("pylog_datacenter", "all")), []).append(target)
    able = {one: found for one, found in by_name.items() if sum(len(target.broker_ids) for target in found) >= 3}
    if name:
        able = {one: found for one, found in able.items() if one == name}
    if len(able) != 1:
        words = ", ".join(able) or "none with three brokers"
        raise DrillRefused(f"datacenter: found {words}, wanted one; name it: --datacenter NAME")
    [(chosen, found)] = able.items()
    forbidden = [target.name for target in found if target.variables.get("drills_allowed") is not True]
    if forbidden:
        raise DrillRefused(
            f"{', '.join(forbidden)}: the inventory does not say drills_allowed: true, so nothing is broken in {chosen}"
        )
    return found


def rehearse(cluster: Cluster, drill: Drill, say: Callable[[str], None]) -> Outcome:
    """Carry out *drill* and return what came of it.

    Raises:
        DrillRefused: the cluster is not well, or the host cannot do it; nothing was broken.
    """
    if problems := cluster.problems():
        raise DrillRefused(f"the cluster is not well before anything was broken: {problems[0]}")
    if left := cluster.leftovers():
        raise DrillRefused(f"an earlier drill left something: {left[0]}")
    topic = f"pylog-drill-{drill.code.lower()}-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    factor = min(3, cluster.broker_count)
    new = NewTopic(topic, PARTITIONS, factor, config={"min.insync.replicas": str(factor - 1)})
    admin.create_topics([new], operation_timeout=20)[topic].result(30)
    outcome = Outcome()
    try:
        _break_and_heal(cluster, drill, topic, outcome, say)
    finally:
        admin.delete_topics([topic], operation_timeout=20)[topic].result(30)
    outcome.faults += cluster.leftovers()
    return outcome


def _break_and_heal(cluster: Cluster, drill: Drill, topic: str, outcome: Outcome, say: Callable[[str], None]) -> None:
    properties: dict[str, Any] = {"acks": drill.acks, "enable.idempotence": drill.acks == "all", "linger.ms": 5}
    if problems := cluster.wait_well(WELL_LIMIT_S):
        raise DrillRefused(f"the drill's topic did not get in sync: {problems[0]}")
    victim, broker_id = cluster.leader_of(topic)
    settings = _settings(cluster, victim, broker_id, topic)
    if drill.needs and cluster.run(victim, settings + drill.needs)[0]:
        raise DrillRefused(f"{drill.code} cannot be done on {victim.name}: {drill.lacking}")
    with Load(cluster.bootstrap, topic, PARTITIONS, properties) as load:
        time.sleep(WARM_UP_S)
        if drill.where is Where.NOWHERE:
            outcome.faults += CLIENT_DRILLS[drill.code](cluster, topic)
        else:
            _on_hosts(cluster, drill, victim, settings, outcome, say)
        began_s = time.monotonic()
        outcome.faults += cluster.wait_well(WELL_LIMIT_S)
        outcome.well_after_s = round(time.monotonic() - began_s, 1)
        say(f"well {outcome.well_after_s} s after healing; the load goes on for {AFTER_S:.0f} s")
        time.sleep(AFTER_S)
    history = load.read_back()
    outcome.numbers = history.report()
    outcome.faults += faults_of(history, drill)


def faults_of(history: History, drill: Drill) -> list[str]:
    """Return what the records themselves say against the cluster."""
    numbers = history.report()
    found = [f"records out of order: {numbers['reordered']}"] if numbers["reordered"] else []
    if not numbers["acknowledged"]:
        found.append("nothing was acknowledged at all")
    if drill.acks == "all":
        found += [f"{what}: {numbers[what]}" for what in ("lost", "doubled", "failed") if numbers[what]]
        found += sorted(set(history.failures))[:3]
    return found


def _settings(cluster: Cluster, victim: Target, broker_id: int, topic: str) -> str:
    [instance] = [one for one in victim.variables["pylog_broker_instances"] if one["id"] == broker_id]
    found = {
        "ID": broker_id,
        "UNIT": f"pylog-broker@{broker_id}.service",
        "DATA": instance["data_dir"],
        "TOPIC": topic,
        "CLIENT_PORT": instance["port"],
        "PEER_PORT": instance["internal_port"],
        "STORE_PORT": victim.variables.get("zookeeper_client_port", 2181),
        "PEERS": " ".join(target.address for target in cluster.brokers if target is not victim),
    }
    lines = [f"{name}={shlex.quote(str(value))}" for name, value in found.items()]
    # On the host of another server there is no such directory.
    return "\n".join(["set -u", *lines, 'DISK=$(findmnt --noheadings --output TARGET --target "$DATA" || true)', ""])


def _on_hosts(
    cluster: Cluster, drill: Drill, victim: Target, settings: str, outcome: Outcome, say: Callable[[str], None]
) -> None:
    stores = [target for target in cluster.targets if "pylog_zookeeper" in target.groups]
    turns: Mapping[Where, list[list[Target]]] = {
        Where.LEADER: [[victim]], Where.STORES: [stores], Where.EACH_STORE: [[one] for one in stores],
    }  # fmt: skip
    for together in turns[drill.where]:
        names = ", ".join(target.name for target in together)
        limit_s = drill.hold_s + GRACE_S
        heal = shlex.quote(settings + drill.heal)
        # First the way back, then the fault.
        armed = f"systemd-run --quiet --collect --unit={HEALER} --on-active={limit_s}s sh -c {heal}"
        disarm = f"systemctl stop {HEALER}.timer 2>/dev/null; systemctl reset-failed {HEALER}.service 2>/dev/null; true"
        say(f"{drill.code} {drill.name} on {names}")
        broken = cluster.run_on(together, f"set -e\n{armed}\n{settings}{drill.inject}")
        outcome.faults += [f"not broken: {said}" for code, said in broken if code]
        time.sleep(drill.hold_s)
        say(f"healing {names}")
        healed = cluster.run_on(together, f"{settings}{drill.heal}\n{disarm}")
        outcome.faults += [f"not healed: {said}" for code, said in healed if code]


def _future_timestamp(cluster: Cluster, topic: str) -> list[str]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    limited = f"{topic}-limited"
    new = NewTopic(limited, 1, 1, config={"message.timestamp.after.max.ms": "1000"})
    admin.create_topics([new], operation_timeout=20)[limited].result(30)
    answers: list[object] = []
    try:
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "message.timeout.ms": 20_000})
        day_ahead_ms = int(time.time() * 1000) + 86_400_000
        producer.produce(
            limited, b"x", timestamp=day_ahead_ms, on_delivery=lambda error, message: answers.append(error)
        )
        producer.flush(30)
    finally:
        admin.delete_topics([limited], operation_timeout=20)[limited].result(30)
    [answer] = answers or ["no answer"]
    return [] if "INVALID_TIMESTAMP" in str(answer) else [f"a record from tomorrow was answered with {answer}"]


def _frame_lengths(cluster: Cluster, topic: str) -> list[str]:
    found = []
    host, _, port = cluster.bootstrap.split(",")[0].rpartition(":")
    for length in (2**31 - 1, -1, 0, -(2**31)):
        with socket.create_connection((host, int(port)), 10) as connection:
            connection.sendall(struct.pack(">i", length))
            try:
                if connection.recv(1):
                    found.append(f"a frame of {length} bytes was answered")
            except ConnectionResetError:
                continue
            except TimeoutError:
                found.append(f"a frame of {length} bytes left the connection open for 10 s")
    return found


def _topic_names(cluster: Cluster, topic: str) -> list[str]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    found = []
    for name in ("../pylog-drill", "a/b", "t" * 250, "..", "white space"):
        try:
            admin.create_topics([NewTopic(name, 1, 1)], operation_timeout=20)[name].result(30)
            found.append(f"topic {name[:20]!r} was made")
        except KafkaException as error:
            # librdkafka itself refuses some.
            if not any(word in str(error) for word in ("TOPIC_EXCEPTION", "_INVALID_ARG")):
                found.append(f"topic {name[:20]!r}: {error}")
    return found


def _secrets_scan(cluster: Cluster, topic: str) -> list[str]:
    script = r"""for secret in $(cat /etc/pylog/*.secret); do
  journalctl --no-pager --unit 'pylog-*' | grep --fixed-strings --count -e "$secret"
  grep --recursive --files-with-matches --fixed-strings -e "$secret" \
    /etc/pylog/*.yml /etc/systemd/system /etc/cron.d /var/log 2>/dev/null
done
true"""
    found = []
    for target in cluster.targets:
        count, *files = cluster.run(target, script)[1].split() or ["0"]
        found += [f"{target.name}: the cluster's secret stands in the journal"] if count != "0" else []
        found += [f"{target.name}: the cluster's secret stands in {file}" for file in files]
    return found


CLIENT_DRILLS: Mapping[str, Callable[[Cluster, str], list[str]]] = {
    "T17": _future_timestamp, "T29": _frame_lengths, "T33": _topic_names, "T35": _secrets_scan,
}  # fmt: skip
"""Drills that need no fault on a host: each returns what was wrong."""
