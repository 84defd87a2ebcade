"""Apache ActiveMQ Classic: the first of the paper's two other systems."""

import subprocess
import time
from pathlib import Path
from types import TracebackType

from bench.harness.peers.ports import stop, wait_port
from tests.servers.maven import classpath, jars
from tests.servers.ports import free_ports

VERSION = "5.17.6"
_ARTIFACTS = (
    f"org.apache.activemq:activemq-broker:{VERSION}",
    f"org.apache.activemq:activemq-kahadb-store:{VERSION}",
    f"org.apache.activemq:activemq-client:{VERSION}",
    "org.slf4j:slf4j-nop:1.7.36",
)
_HERE = Path(__file__).parent


class ActiveMq:
    """One broker with KahaDB on the loopback.

    Attributes:
        address: ``host:port``.
        data_dir: what grows with the messages.
    """

    def __init__(self, directory: Path) -> None:
        self.data_dir = directory / "data"
        self._log = directory / "broker.log"
        (port,) = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        self._classpath = classpath(jars(f"activemq-{VERSION}", _ARTIFACTS))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "ActiveMq":
        self.data_dir.mkdir(parents=True)
        port = self.address.rpartition(":")[2]
        command = [
            "java",
            "-Xmx1g",
            "-cp",
            self._classpath,
            str(_HERE / "ActiveMqBroker.java"),
            str(self.data_dir),
            port,
        ]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        wait_port(int(port), self._process, self._log)
        time.sleep(1)  # the port opens a moment before the queues do
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stop(self._process)

    @property
    def pid(self) -> int:
        """The broker's process."""
        assert self._process is not None
        return self._process.pid

    def command(self, queue: str, verb: str, count: int, size: int, batch: int, acks: int) -> list[str]:
        """Return the client's command line; *verb* is ``produce`` or ``consume``."""
        numbers = map(str, (count, size, batch, acks))
        return [
            "java",
            "-Xmx512m",
            "-cp",
            self._classpath,
            str(_HERE / "ActiveMqClient.java"),
            self.address,
            queue,
            verb,
            *numbers,
        ]
