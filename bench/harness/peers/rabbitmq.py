"""RabbitMQ: the second of the paper's two other systems, driven by its own PerfTest."""

import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType

from bench.harness.peers.ports import stop, wait_port
from tests.servers.maven import classpath, jars
from tests.servers.ports import free_ports

_PERF_TEST = ("com.rabbitmq:perf-test:2.22.1",)
_SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_CONFIRMS_IN_FLIGHT = 1_000


class RabbitMq:
    """One broker of Debian's package on the loopback, under the caller's user.

    Attributes:
        address: ``host:port``.
        data_dir: what grows with the messages.
    """

    def __init__(self, directory: Path) -> None:
        if not _SERVER.exists():
            raise RuntimeError(f"{_SERVER} is missing: apt-get install rabbitmq-server")
        self.data_dir = directory / "data"
        self._log = directory / "broker.log"
        self._pid_file = directory / "pid"
        port, distribution_port, epmd_port = free_ports(3)
        self.address = f"127.0.0.1:{port}"
        self._environment = {
            **os.environ,
            "HOME": str(directory),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(epmd_port),
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(distribution_port),
            "RABBITMQ_MNESIA_BASE": str(self.data_dir),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_PID_FILE": str(self._pid_file),
            "RABBITMQ_CONFIG_FILE": str(directory / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }
        self._classpath = classpath(jars("rabbitmq-perf-test", _PERF_TEST))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "RabbitMq":
        self.data_dir.mkdir(parents=True)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(_SERVER)], env=self._environment, stdout=log, stderr=subprocess.STDOUT
            )
        wait_port(int(self.address.rpartition(":")[2]), self._process, self._log)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stop(self._process)
        # The name server that the broker started; it listens on a port of its own, so nobody else's is meant.
        if epmd := shutil.which("epmd"):
            subprocess.run([epmd, "-kill"], env=self._environment, capture_output=True, check=False)

    @property
    def pid(self) -> int:
        """The broker's process: the Erlang machine, not the script that started it."""
        return int(self._pid_file.read_text())

    def command(self, queue: str, verb: str, count: int, size: int, batch: int, acks: int) -> list[str]:
        """Return the client's command line; *verb* is ``produce`` or ``consume``.

        RabbitMQ has no batches: *batch* must be 1. With *acks* a thousand confirmations may be outstanding.
        """
        assert batch == 1, "RabbitMQ sends messages one by one"
        command = [
            "java",
            "-Xmx512m",
            "-cp",
            self._classpath,
            "com.rabbitmq.perf.PerfTest",
            "--uri",
            f"amqp://guest:guest@{self.address}",
            "--auto-delete",
            "false",
            "--flag",
            "persistent",
            "--size",
            str(size),
            "--queue",
            queue,
        ]
        if verb == "consume":
            return [*command, "--producers", "0", "--consumers", "1", "--cmessages", str(count), "--autoack"]
        confirms = ["--confirm", str(_CONFIRMS_IN_FLIGHT)] if acks else []
        return [*command, "--producers", "1", "--consumers", "0", "--pmessages", str(count), *confirms]
