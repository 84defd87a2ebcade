"""The mirror against Kafka's MirrorMaker 2: messages a CPU second, the same topic, the same two brokers, by turns.

python -m bench.pipeline.mirror [--rounds 3] [--messages 1000000] [--size 200] [--partitions 8] [--only pylog|mm2]

Two brokers of pylog; the source is filled once.  A turn starts a mirror with a group of its own and an empty target,
and waits until everything has arrived.  CPU seconds are the mirror's process alone, from its start, so that starting
counts for both; the rate runs from the first record in the target to the last.  MirrorMaker's jars come through Maven.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from pylog.client.admin.cluster import Admin
from pylog.client.producer import Producer
from pylog.model import TopicPartition
from pylog.testing import BrokerProcess
from tests.servers.kafka import KAFKA_VERSION
from tests.servers.maven import classpath, jars

TOPIC = "mirrored"
_POLL_S = 0.05
_TIMEOUT_S = 600.0
_ARTIFACTS = (f"org.apache.kafka:connect-mirror:{KAFKA_VERSION}", "org.slf4j:slf4j-reload4j:1.7.36")
# As connect-mirror-maker.sh starts it, but for the heap, which is half as large.
_JVM = ("-Xms256m", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")


@dataclass(frozen=True, slots=True)
class Sample:
    """One turn."""

    records: int
    cpu_s: float
    wall_s: float

    @property
    def per_cpu_s(self) -> float:
        return self.records / self.cpu_s


def fill(bootstrap: str, partitions: int, count: int, size: int) -> None:
    """Write the messages into the source."""
    Admin(bootstrap).create_topic(TOPIC, partitions=partitions, replication_factor=1)
    payload = os.urandom(size)
    with Producer(bootstrap, linger_ms=20) as producer:
        for first in range(0, count, 1_000):
            producer.send_many(TOPIC, [(None, payload)] * min(1_000, count - first))


def arrived(admin: Admin, topic: str, partitions: int) -> int:
    """Return how many records the target has."""
    if topic not in admin.cluster().topics:
        return 0
    return sum(admin.ends([TopicPartition(topic, number) for number in range(partitions)]).values())


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(command: Sequence[str], log: Path, target: str, topic: str, partitions: int, count: int) -> Sample:
    """Run a mirror until the target has everything."""
    admin = Admin(target)
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            deadline = time.monotonic() + _TIMEOUT_S
            began = 0.0
            while (there := arrived(admin, topic, partitions)) < count:
                if there and not began:
                    began = time.monotonic()
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{there} of {count} records arrived:\n{log.read_text()[-3000:]}")
                time.sleep(_POLL_S)
            return Sample(count, cpu_s(process.pid), time.monotonic() - (began or time.monotonic()))
        finally:
            process.kill()


def pylog_command(directory: Path, source: str, target: str, turn: int) -> list[str]:
    """Return the command of our mirror."""
    path = directory / "mirror.yml"
    path.write_text(
        yaml.safe_dump(
            {
                "version": 1,
                "source": {"name": "live", "bootstrap": source},
                "target": {"name": "offline", "bootstrap": target},
                "topics": [TOPIC],
                "group": f"bench-{turn}",
                "internal_replication_factor": 1,
            }
        )
    )
    return [sys.executable, "-m", "pylog", "mirror", "run", "--config", str(path)]


def mm2_command(directory: Path, source: str, target: str) -> list[str]:
    """Return the command of MirrorMaker 2, with topics under their own names."""
    settings = {
        "clusters": "live,offline",
        "live.bootstrap.servers": source,
        "offline.bootstrap.servers": target,
        "live->offline.enabled": "true",
        "live->offline.topics": TOPIC,
        "offline->live.enabled": "false",
        "replication.factor": 1,
        "checkpoints.topic.replication.factor": 1,
        "heartbeats.topic.replication.factor": 1,
        "offset-syncs.topic.replication.factor": 1,
        "offset.storage.replication.factor": 1,
        "status.storage.replication.factor": 1,
        "config.storage.replication.factor": 1,
        "tasks.max": 2,
        "emit.heartbeats.enabled": "false",
        "emit.checkpoints.enabled": "false",
        "sync.topic.acls.enabled": "false",
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "live->offline.consumer.auto.offset.reset": "earliest",
        "offset.flush.interval.ms": 5000,
    }
    path = directory / "mm2.properties"
    path.write_text("".join(f"{name} = {value}\n" for name, value in settings.items()))
    log4j = directory / "log4j.properties"
    log4j.write_text(
        "log4j.rootLogger=WARN, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n"
        "log4j.appender.out.layout=org.apache.log4j.SimpleLayout\n"
    )
    found = jars(f"connect-mirror-{KAFKA_VERSION}", _ARTIFACTS)
    return [
        "java",
        *_JVM,
        f"-Dlog4j.configuration=file:{log4j}",
        "-cp",
        classpath(found, without="logback"),
        "org.apache.kafka.connect.mirror.MirrorMaker",
        str(path),
    ]


def main() -> int:
    """Measure by turns and print the medians."""
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline.mirror")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--only", choices=("pylog", "mm2"))
    given = parser.parse_args()
    samples: dict[str, list[Sample]] = {name: [] for name in ("pylog", "mm2") if given.only in (None, name)}
    with tempfile.TemporaryDirectory() as text:
        directory = Path(text)
        config = {"log.retention.ms": "-1"}
        with BrokerProcess(directory / "live", config=config) as live:
            fill(live.bootstrap, given.partitions, given.messages, given.size)
            for turn in range(given.rounds):
                for name, found in samples.items():
                    with BrokerProcess(directory / f"{name}-{turn}", config=config) as offline:
                        command = (
                            pylog_command(directory, live.bootstrap, offline.bootstrap, turn)
                            if name == "pylog"
                            else mm2_command(directory, live.bootstrap, offline.bootstrap)
                        )
                        found.append(
                            measure(
                                command, directory / "log", offline.bootstrap, TOPIC, given.partitions, given.messages
                            )
                        )
                    print(
                        f"{name}: {found[-1].per_cpu_s:,.0f} records per CPU second, "
                        f"{found[-1].cpu_s:.1f} s CPU, {found[-1].wall_s:.1f} s, load {os.getloadavg()[0]:.1f}",
                        flush=True,
                    )
    for name, found in samples.items():
        print(f"{name}: median {statistics.median(one.per_cpu_s for one in found):,.0f} records per CPU second")
    return 0


if __name__ == "__main__":
    sys.exit(main())
