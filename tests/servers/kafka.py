"""Apache Kafka 3.9 as a test peer: its jars, its command line tools and a real broker.

The jars come through Maven once and stay in a cache; with the cache filled nothing here needs a network.

Usage::

    python -m tests.servers.kafka fetch      # fill the cache
    with KafkaServer(tmp_path) as broker:    # a broker of Kafka's own on free loopback ports
        java_tool(TOPIC_COMMAND, "--bootstrap-server", broker.bootstrap, "--list")
"""

import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType

from tests.servers.jvm import learning
from tests.servers.maven import classpath, jars
from tests.servers.ports import free_ports

KAFKA_VERSION = "3.9.2"
_ARTIFACTS = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
    "org.slf4j:slf4j-reload4j:1.7.36",
)

CONSOLE_PRODUCER = "kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
DUMP_LOG_SEGMENTS = "kafka.tools.DumpLogSegments"
TOPIC_COMMAND = "org.apache.kafka.tools.TopicCommand"
CONFIG_COMMAND = "kafka.admin.ConfigCommand"
ACL_COMMAND = "kafka.admin.AclCommand"
STORAGE_TOOL = "kafka.tools.StorageTool"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
REPLICA_VERIFICATION = "org.apache.kafka.tools.ReplicaVerificationTool"
REASSIGN_PARTITIONS = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"

# Tools live for a second or two: the first compiler tier and the serial collector start fastest.
_TOOL_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
# What Kafka's own start script passes, with the heap it asks for by default.
_BROKER_JVM = (
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 30.0
_LOG4J = """\
log4j.rootLogger={level}, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.target=System.err
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %c %m%n
"""


def fetch() -> Path:
    """Return the directory of Kafka's jars; see `tests.servers.maven`."""
    return jars(f"kafka-{KAFKA_VERSION}", _ARTIFACTS)


def java_command(main_class: str, *args: str, jvm: Sequence[str] = _TOOL_JVM, log_level: str = "ERROR") -> list[str]:
    """Return the command that runs *main_class* of Kafka's jars, fetching them first if need be."""
    properties = fetch() / f"log4j-{log_level.lower()}.properties"
    if not properties.exists():
        properties.write_text(_LOG4J.format(level=log_level))
    return ["java", *jvm, f"-Dlog4j.configuration=file:{properties}", "-cp", _classpath(), main_class, *args]


def _classpath() -> str:
    # It comes along as a dependency of a dependency; with it slf4j would find two backends.
    return classpath(fetch(), without="logback")


def java_tool(
    main_class: str, *args: str, stdin: bytes = b"", timeout_s: float = 60.0, with_stderr: bool = False
) -> bytes:
    """Run one of Kafka's command line tools to its end, with its classes from an archive that its first run leaves.

    Returns:
        What it wrote to standard output, and behind it, if asked for, to standard error.

    Raises:
        RuntimeError: it ended with an error; the message carries both of its outputs.
    """
    with learning(main_class, _classpath()) as flags:
        command = java_command(main_class, *args, jvm=(*_TOOL_JVM, *flags))
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=timeout_s, check=False)
        if done.returncode:
            output = (done.stdout[-2000:] + done.stderr[-4000:]).decode(errors="replace")
            raise RuntimeError(f"{main_class} ended with {done.returncode}:\n{output}")
    return done.stdout + done.stderr if with_stderr else done.stdout


class KafkaServer:
    """One Apache Kafka broker (KRaft, broker and controller in one process) on the loopback.

    Args:
        directory: an empty directory for its data, configuration and log.
        config: broker settings by Kafka's names, over the few set here.
        jvm: flags of its Java machine; Kafka's own by default.
        node_id: its number.
        quorum: the controller port of each broker of a cluster by its number; alone, it is its own quorum.

    Attributes:
        bootstrap: ``host:port`` for clients.
        data_dir: Kafka's log directory, with one directory a partition.
        log_path: what the broker printed.
    """

    def __init__(
        self,
        directory: Path,
        config: Mapping[str, object] | None = None,
        jvm: Sequence[str] = _BROKER_JVM,
        *,
        node_id: int = 1,
        quorum: Mapping[int, int] | None = None,
    ) -> None:
        self.data_dir = directory / "data"
        self.log_path = directory / "broker.log"
        self._properties = directory / "server.properties"
        self._jvm = jvm
        port, controller_port = free_ports(2)
        voters = quorum or {node_id: controller_port}
        controller_port = voters[node_id]
        self.bootstrap = f"127.0.0.1:{port}"
        settings: dict[str, object] = {
            "process.roles": "broker,controller",
            "node.id": node_id,
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(f"{one}@127.0.0.1:{port}" for one, port in voters.items()),
            "log.dirs": self.data_dir,
            "offsets.topic.replication.factor": 1,
            "group.initial.rebalance.delay.ms": 0,
            **(config or {}),
        }
        directory.mkdir(parents=True, exist_ok=True)
        self._properties.write_text("".join(f"{name}={_property(value)}\n" for name, value in settings.items()))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id of the running broker."""
        assert self._process is not None, "the broker was not started"
        return self._process.pid

    def start(self) -> None:
        """Start the broker and wait until it lists itself in a Metadata answer."""
        if not (self.data_dir / "meta.properties").exists():
            java_tool(STORAGE_TOOL, "format", "-t", "cHlsb2ctcGVlci1rYWZrYQ", "-c", str(self._properties))
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                java_command("kafka.Kafka", str(self._properties), jvm=self._jvm, log_level="WARN"),
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        wait_ready(self.bootstrap, self._process)

    def stop(self) -> None:
        """Stop the broker as an operator would, with SIGTERM."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Stop the broker with SIGKILL: nothing is flushed, no marker is written."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop the broker cleanly, if it runs, and start it again over the same data."""
        self.stop()
        self.start()

    def _end(self, signal_number: int) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal_number)
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            self._process = None

    def __enter__(self) -> "KafkaServer":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def _property(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def wait_ready(bootstrap: str, process: subprocess.Popen[bytes] | None = None) -> None:
    """Wait until the broker at *bootstrap* answers Metadata with at least one broker in it.

    Raises:
        RuntimeError: *process* ended, or no answer came in time.
    """
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process is not None and process.poll() is not None:
            raise RuntimeError(f"the broker ended with {process.returncode} while starting")
        try:
            if _count_brokers(bootstrap):
                return
        except (OSError, struct.error):
            pass
        time.sleep(0.02)
    raise RuntimeError(f"no broker at {bootstrap} after {_START_TIMEOUT_S:.0f} s")


def _count_brokers(bootstrap: str) -> int:
    """Ask for Metadata v1 of no topic and return how many brokers the answer lists."""
    host, port = bootstrap.rsplit(":", 1)
    # request => size: int32, key: int16, version: int16, correlation: int32, client: int16 + bytes, topics: int32 (0)
    body = struct.pack(">hhih", 3, 1, 1, 4) + b"wait" + struct.pack(">i", 0)
    with closing(socket.create_connection((host, int(port)), 2)) as connection:
        connection.settimeout(5)
        connection.sendall(struct.pack(">i", len(body)) + body)
        with connection.makefile("rb") as stream:
            _size, _correlation, brokers = struct.unpack(">iii", stream.read(12))
    return int(brokers)


def main(arguments: Sequence[str]) -> int:
    """Run ``fetch`` from a shell."""
    if list(arguments) != ["fetch"]:
        print("usage: python -m tests.servers.kafka fetch", file=sys.stderr)
        return 2
    print(fetch())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
