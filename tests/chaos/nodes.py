"""Brokers and ZooKeeper's servers as processes, each in its namespace, that are killed, stopped and started again."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from tests.chaos.network import address
from tests.servers.zookeeper import java_command

CLIENT_PORT, INTERNAL_PORT = 9092, 9093
_ZOOKEEPER_PORT = 2181
_SESSION_MS = 4000
_STOP_TIMEOUT_S = 25.0
_START_TIMEOUT_S = 60.0
_POLL_S = 0.1
_FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"
_BROKER_SETTINGS: Mapping[str, object] = {
    "auto.create.topics.enable": False,
    "min.insync.replicas": 2,
    "default.replication.factor": 3,
    "offsets.topic.replication.factor": 3,
    "offsets.topic.num.partitions": 6,
    "replica.lag.time.max.ms": 4000,
    "group.initial.rebalance.delay.ms": 0,
    "log.cleaner.backoff.ms": 5000,
    # A leader whose clock was set back refuses no record because of its time.
    "log.message.timestamp.after.max.ms": 1 << 62,
}


class Node:
    """A process that a fault may hold down.

    Attributes:
        number: of its namespace and address.
        deaths: how often it ended although nobody ended it, with its exit codes.
        starts: how often it was started.
    """

    def __init__(self, number: int, prefix: Sequence[str], directory: Path) -> None:
        self.number = number
        self.deaths: list[int] = []
        self.starts = 0
        self.log_path = directory / f"{self.name}.log"
        self._prefix = list(prefix)
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._held = 0
        # The schedule and operations beside it start and end the same process.
        self._lock = threading.RLock()

    @property
    def name(self) -> str:
        """How the run calls it."""
        raise NotImplementedError

    @property
    def pid(self) -> int | None:
        """The process, None while there is none."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def runs(self) -> bool:
        """Whether the process lives, stopped or not."""
        return self.pid is not None

    def command(self) -> list[str]:
        """Return what runs in the namespace."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        """Return what its process sees besides this one's environment."""
        return {}

    def directory(self) -> Path:
        """Return where its process works."""
        return self._directory

    def start(self) -> None:
        """Start the process, unless it runs."""
        if self.runs:
            return
        self.starts += 1
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._prefix, *self.command()],
                cwd=self.directory(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment()},
            )

    def keep(self) -> None:
        """Start it again if it ended by itself, as its service manager would."""
        with self._lock:
            if self._process is None or self._held or self._process.poll() is None:
                return
            self.deaths.append(self._process.returncode)
            self.start()

    def hold(self) -> None:
        """From now on it stays down when it ends; every call needs its `release`."""
        with self._lock:
            self._held += 1

    def release(self) -> None:
        """Let it run again, unless another fault holds it."""
        with self._lock:
            self._held -= 1
            if not self._held:
                self.start()

    def kill(self) -> None:
        """End it with SIGKILL."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def stop(self) -> bool:
        """End it as an operator would; False if it had to be killed."""
        if self._process is None or self._process.poll() is not None:
            return True
        self._process.send_signal(signal.SIGCONT)
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        return True

    def memory_kb(self) -> int | None:
        """Return its resident memory, None while it does not run."""
        pid = self.pid
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            return None
        return next((int(line.split()[1]) for line in lines if line.startswith("VmRSS:")), None)

    def wait_log(self, text: str, timeout_s: float = _START_TIMEOUT_S) -> None:
        """Wait until its log has *text*.

        Raises:
            RuntimeError: it took too long; the message has the end of the log.
        """
        deadline_s = time.monotonic() + timeout_s
        while text not in (log := self.log_path.read_text(errors="replace") if self.log_path.exists() else ""):
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"{self.name} did not say {text!r} in {timeout_s:.0f} s:\n{log[-3000:]}")
            time.sleep(_POLL_S)


class Broker(Node):
    """A broker of one of two releases, with a clock of its own and its data on a disk of its own.

    Attributes:
        data_dir: its data.
    """

    def __init__(
        self,
        number: int,
        prefix: Sequence[str],
        directory: Path,
        disk: Path,
        release: Path,
        hosts: str,
    ) -> None:
        super().__init__(number, prefix, directory)
        self._release = release
        self.data_dir = disk / "data"
        self._module = ["pylog"]
        # libfaketime refuses the absolute times that Python's own sleep waits for.
        self._site = directory / "site"
        self._site.mkdir(exist_ok=True)
        (self._site / "sitecustomize.py").write_text(_SITE)
        self._clock = directory / f"{self.name}.clock"
        self._config = directory / f"{self.name}.yml"
        secret = directory / "secret"
        secret.write_bytes(b"chaos")
        self.set_clock(0)
        host = address(number)
        config = {
            "version": 1,
            "broker_id": number,
            "listeners": {
                "client": {"host": host, "port": CLIENT_PORT},
                "internal": {"host": host, "port": INTERNAL_PORT},
            },
            "data_dir": str(self.data_dir),
            "admin_socket": str(self.admin_socket),
            "store": {"kind": "zookeeper", "hosts": hosts, "session_timeout_ms": _SESSION_MS},
            "cluster_secret_file": str(secret),
            "config": dict(_BROKER_SETTINGS),
        }
        self._config.write_text(yaml.safe_dump(config))

    @property
    def name(self) -> str:
        """See `Node`."""
        return f"broker-{self.number}"

    @property
    def admin_socket(self) -> Path:
        """The admin socket; not on the disk that is filled."""
        return self._directory / f"{self.name}.sock"

    @property
    def bootstrap(self) -> str:
        """Where its clients connect."""
        return f"{address(self.number)}:{CLIENT_PORT}"

    def command(self) -> list[str]:
        """See `Node`."""
        return [sys.executable, "-m", *self._module, "broker", f"--config={self._config}"]

    def environment(self) -> dict[str, str]:
        """See `Node`: its clock is one file, and time that only goes forward is not touched."""
        return {
            "LD_PRELOAD": _FAKETIME,
            "FAKETIME_TIMESTAMP_FILE": str(self._clock),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
            "PYTHONPATH": f"{self._release}:{self._site}",
        }

    def directory(self) -> Path:
        """See `Node`: Python finds the release there."""
        return self._release

    def start(self) -> None:
        """See `Node`."""
        self.data_dir.mkdir(exist_ok=True)
        super().start()

    def run_release(self, release: Path, mutant: str = "") -> None:
        """From its next start on, run this release, with a fault of `tests.chaos.planted` in it if one is named."""
        self._release = release
        self._module = ["tests.chaos.planted", mutant] if mutant else ["pylog"]

    def set_clock(self, seconds: int) -> None:
        """Set its clock so far from the machine's."""
        fresh = self._clock.with_suffix(".new")
        fresh.write_text(f"{seconds:+d}\n")
        fresh.replace(self._clock)


class ZooKeeperServer(Node):
    """One server of the ensemble, number *myid* in it."""

    def __init__(self, number: int, prefix: Sequence[str], directory: Path, myid: int, members: Sequence[int]) -> None:
        self._myid = myid
        super().__init__(number, prefix, directory)
        data = directory / f"{self.name}.data"
        data.mkdir()
        (data / "myid").write_text(f"{myid}\n")
        self._config = directory / f"{self.name}.cfg"
        settings = [
            f"dataDir={data}",
            f"clientPort={_ZOOKEEPER_PORT}",
            "tickTime=500",
            "initLimit=20",
            "syncLimit=10",
            "maxClientCnxns=0",
            "admin.enableServer=false",
            "4lw.commands.whitelist=srvr",
            *(f"server.{place}={address(member)}:2888:3888" for place, member in enumerate(members, 1)),
        ]
        self._config.write_text("\n".join(settings) + "\n")
        self._log4j = directory / "log4j.properties"
        self._log4j.write_text(_LOG4J)

    @property
    def name(self) -> str:
        """See `Node`."""
        return f"zookeeper-{self._myid}"

    def command(self) -> list[str]:
        """See `Node`."""
        jvm = ["-Xmx96m", f"-Dlog4j.configuration=file:{self._log4j}"]
        return java_command("org.apache.zookeeper.server.quorum.QuorumPeerMain", str(self._config), jvm=jvm)


def ensemble_hosts(members: Sequence[int]) -> str:
    """Return the connect string of the servers in these namespaces."""
    return ",".join(f"{address(member)}:{_ZOOKEEPER_PORT}" for member in members)


_SITE = """\
import select
import time


def sleep(seconds):
    select.select((), (), (), seconds)


time.sleep = sleep
"""

_LOG4J = """\
log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %p %c{1} %m%n
"""
