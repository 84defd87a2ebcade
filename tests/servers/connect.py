"""A worker of Apache Kafka Connect as a process of its own, from the jars that the repository locks."""

import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from pylog.connect.workers import Refused, WorkerAway, Workers
from pylog.ops.jars import fetch, pack, read_lock
from tests.servers.maven import cache_dir
from tests.servers.ports import free_ports

LOCKS = Path(__file__).resolve().parents[2] / "requirements" / "connect"
_INSTALL = LOCKS.parents[1] / "roles" / "connect" / "files" / "install.sh"
_START_TIMEOUT_S = 180.0
_STOP_TIMEOUT_S = 60.0
# It starts often and lives for a minute: the first compiler tier and the serial collector start fastest.
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_LOG4J = """\
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %c %m%n
"""


def unpacked(directory: Path) -> Path:
    """Return a directory with the jars of the worker and of each plugin, packed and unpacked as on a host."""
    locks = {path.stem: path for path in LOCKS.glob("*.txt")}
    jars = cache_dir() / "jars"
    fetch([jar for path in locks.values() for jar in read_lock(path.read_text(), str(path))], jars)
    packed = pack(locks, jars, directory)
    script = _INSTALL.read_text().replace("/opt/pylog/connect", str(directory))
    target = directory / packed["name"]
    subprocess.run(["sh", "-s", packed["archive"], str(target)], input=script, text=True, check=True)
    return target


class ConnectWorker:
    """One distributed worker on the loopback.

    Args:
        directory: an empty directory for its configuration and log.
        jars: what `unpacked` returned.
        bootstrap: brokers, HOST:PORT separated by commas.
        config: settings over the few set here.
        file: its settings, in place of all those.
        port: of its REST API; a free one unless given.
        workers: its REST API, where that asks for more than an address.

    Attributes:
        url: of its REST API.
        id: as it advertises itself, HOST:PORT.
        workers: its REST API.
    """

    def __init__(
        self,
        directory: Path,
        jars: Path,
        bootstrap: str,
        config: Mapping[str, object] | None = None,
        *,
        file: Path | None = None,
        port: int = 0,
        workers: Workers | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.id = f"127.0.0.1:{port or free_ports(1)[0]}"
        self.workers = workers or Workers(f"http://{self.id}")
        self.url = self.workers.url
        self.log_path = directory / "worker.log"
        settings: dict[str, object] = {
            "bootstrap.servers": bootstrap,
            "group.id": "connect",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "config.storage.topic": "connect-configs",
            "offset.storage.topic": "connect-offsets",
            "status.storage.topic": "connect-status",
            **{f"{one}.storage.replication.factor": 1 for one in ("config", "offset", "status")},
            "offset.storage.partitions": 4,
            "offset.flush.interval.ms": 500,
            "scheduled.rebalance.max.delay.ms": 2000,
            "listeners": self.url,
            "plugin.path": f"{jars}/plugins",
            "plugin.discovery": "service_load",
            **(config or {}),
        }
        if file is None:
            file = directory / "worker.properties"
            file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        log4j = directory / "log4j.properties"
        log4j.write_text(_LOG4J)
        main = ("org.apache.kafka.connect.cli.ConnectDistributed", str(file))
        self._command = ["java", *_JVM, f"-Dlog4j.configuration=file:{log4j}", "-cp", f"{jars}/worker/*", *main]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()

    def start(self) -> None:
        """Start it and wait until it answers.

        Raises:
            RuntimeError: it ended or did not answer in time; the message has its log.
        """
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + _START_TIMEOUT_S
        while True:
            try:
                self.workers.statuses()
                return
            except (WorkerAway, Refused):  # it listens before it knows its resources
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.kill()
                    raise RuntimeError(f"no worker:\n{self.log_path.read_text()[-3000:]}") from None
            time.sleep(0.2)

    def kill(self) -> None:
        """End it at once, as a lost host would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
