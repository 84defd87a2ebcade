"""A real ZooKeeper for tests: the servers of Debian's package, one or three, on free loopback ports.

Usage::

    with ZooKeeper(tmp_path) as zookeeper:
        store = ZooKeeperStore(zookeeper.hosts)
        zk_cli(zookeeper.hosts, "get", "/controller")

Java or the package missing is an error with the command that installs it.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType

from tests.servers.certificates import Authority
from tests.servers.jvm import shared_classes
from tests.servers.maven import classpath, jars
from tests.servers.ports import free_ports

_JAR = Path("/usr/share/java/zookeeper.jar")
# The package's jar names its other jars, but no backend for its log.
_CLASSPATH = f"{_JAR}:/usr/share/java/slf4j-log4j12.jar:/usr/share/java/log4j-1.2.jar"
# The jars of Netty that the package's jar does not name; without them each connection by TLS is dropped.
_NETTY = ("netty-codec", "netty-resolver", "netty-transport-native-unix-common")
_SERVER_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_CLI_MAIN = "org.apache.zookeeper.ZooKeeperMain"
JARS = ":".join([_CLASSPATH, *(f"/usr/share/java/{name}.jar" for name in _NETTY)])
DEBIAN_13 = "3.9.3"
"""The version of Debian 13's package; it comes through Maven, with what it does not name itself."""
_BESIDE = (
    "io.dropwizard.metrics:metrics-core:4.1.12.1",
    "org.xerial.snappy:snappy-java:1.1.10.5",
    "org.slf4j:slf4j-reload4j:1.7.36",
)
_JVM = ("-Xms32m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:-UsePerfData")
SETTINGS = (
    "initLimit=20",
    "syncLimit=10",
    "maxClientCnxns=0",
    "admin.enableServer=false",
    "4lw.commands.whitelist=srvr,ruok,mntr,cons,wchp,dump",
    "standaloneEnabled=true",
)
_START_TIMEOUT_S = 60.0
_POLL_S = 0.05
_LOG4J = """\
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %p %c{1} %m%n
"""


def java_command(main_class: str, *args: str, jvm: Sequence[str] = (), class_path: str = JARS) -> list[str]:
    """Return the command that runs *main_class* of Debian's ZooKeeper, or of another one.

    Raises:
        RuntimeError: Java or ZooKeeper is not installed.
    """
    if shutil.which("java") is None or not _JAR.exists():
        raise RuntimeError(
            "tests need a real ZooKeeper: apt-get install --no-install-recommends zookeeper default-jre-headless"
        )
    return ["java", *_JVM, *jvm, "-cp", class_path, main_class, *args]


def _shell_command(hosts: str) -> list[str]:
    # What it says of its connection comes from another thread, else in the middle of an answer; so does its log.
    return java_command(_CLI_MAIN, "-waitforconnection", "-server", hosts, jvm=["-Dlog4j.rootLogger=OFF"])


def zk_cli(hosts: str, *command: str, timeout_s: float = 30.0) -> str:
    """Run one command of ZooKeeper's own shell and return what it printed to standard output."""
    done = subprocess.run(
        [*_shell_command(hosts), *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"zkCli {' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def zk_shell(hosts: str, *commands: str, timeout_s: float = 30.0) -> list[str]:
    """Run commands in one of ZooKeeper's own shells, which take a second to start; return the answers' lines."""
    done = subprocess.run(
        _shell_command(hosts),
        input="\n".join([*commands, ""]),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    greeting, greeted, answers = done.stdout.partition("JLine support is disabled\n")
    if done.returncode or not greeted:
        raise RuntimeError(f"zkCli ended with {done.returncode}:\n{greeting}{answers}{done.stderr}")
    return answers.splitlines()


class ZooKeeperServer:
    """One server of an ensemble.

    Attributes:
        port: where clients connect.
        log_path: what the server printed.
        data: its directory.
    """

    def __init__(
        self,
        directory: Path,
        port: int,
        settings: Sequence[str],
        myid: int | None,
        heap_mb: int,
        host: str,
        version: str = "",
    ) -> None:
        self.port = port
        self._version = version
        self._host = host
        self.log_path = directory / "server.log"
        self._config = directory / "zoo.cfg"
        self._heap_mb = heap_mb
        self._joins = False
        self._log4j = directory / "log4j.properties"
        self._process: subprocess.Popen[bytes] | None = None
        self.data = data = directory / "data"
        data.mkdir(parents=True)
        if myid is not None:
            (data / "myid").write_text(f"{myid}\n")
        self._log4j.write_text(_LOG4J)
        own = [f"dataDir={data}", f"clientPort={port}", f"clientPortAddress={host}"]
        self._config.write_text("\n".join([*own, *settings]) + "\n")

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        assert self._process is not None, "the server was not started"
        return self._process.pid

    def join(self, members: Sequence[str], *, may_begin: bool = False) -> None:
        """From the next start on, be one of the servers that these lines of its configuration name.

        Args:
            members: as `ZooKeeper.members` gives them; none for a server that stands alone.
            may_begin: whether it votes at its next start without data, as the servers of a new ensemble must.
        """
        kept = [line for line in self._config.read_text().splitlines() if not line.startswith("server.")]
        self._config.write_text("\n".join([*kept, *members]) + "\n")
        self._joins = True
        if may_begin:
            (self._config.parent / "data" / "initialize").touch()

    def configure(self, text: str) -> None:
        """Have another configuration from the next start on."""
        self._config.write_text(text)

    def start(self, jvm: Sequence[str] | None = None) -> None:
        """Start the process, by default with its classes from an archive; `wait_serving` waits for it."""
        class_path, more = JARS, jvm or ()
        if self._version:
            artifacts = (f"org.apache.zookeeper:zookeeper:{self._version}", *_BESIDE)
            class_path = classpath(jars(f"zookeeper-{self._version}", artifacts))
        elif jvm is None:
            more = shared_classes("zookeeper", JARS, serve_once)
        jvm = [f"-Xmx{self._heap_mb}m", f"-Dlog4j.configuration=file:{self._log4j}", *more]
        if self._joins:
            jvm.append("-Dzookeeper.db.autocreate=false")
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                java_command(_SERVER_MAIN, str(self._config), jvm=jvm, class_path=class_path),
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def wait_serving(self) -> None:
        """Wait until the server answers as a part of a working ensemble.

        Raises:
            RuntimeError: it ended, or took longer than a minute; the message carries the end of its log.
        """
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while "Mode:" not in self.four_letters("srvr"):
            assert self._process is not None, "the server was not started"
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(
                    f"ZooKeeper on port {self.port} does not serve:\n"
                    f"{self.log_path.read_text(errors='replace')[-3000:]}"
                )
            time.sleep(_POLL_S)

    def four_letters(self, word: str) -> str:
        """Return the answer to a four-letter command, "" while nobody listens."""
        try:
            with closing(socket.create_connection((self._host, self.port), timeout=2.0)) as connection:
                connection.sendall(word.encode())
                parts = iter(lambda: connection.recv(4096), b"")
                return b"".join(parts).decode(errors="replace")
        except OSError:
            return ""

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server's process, for instance SIGSTOP, which has stopped it on return, and SIGCONT."""
        assert self._process is not None, "the server was not started"
        self._process.send_signal(number)
        if number is signal.SIGSTOP:
            # One thread takes the signal and stops the others: until it has its turn on a busy machine, they answer.
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def stop(self) -> None:
        """End the server with SIGTERM, and wait until it has ended."""
        self.signal(signal.SIGTERM)
        assert self._process is not None
        self._process.wait(_START_TIMEOUT_S)
        self._process = None

    def kill(self) -> None:
        """End the server with SIGKILL, if it runs; `start` begins again over the same data."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def serve_once(jvm: Sequence[str]) -> None:
    """Run a server with these flags of Java for one session."""
    with tempfile.TemporaryDirectory() as directory:
        server = ZooKeeperServer(Path(directory), free_ports(1)[0], SETTINGS, None, 96, "127.0.0.1")
        server.start(jvm)
        try:
            server.wait_serving()
            zk_cli(f"127.0.0.1:{server.port}", "ls", "/")
            server.stop()
        finally:
            server.kill()


class ZooKeeper:
    """An ensemble of servers with its data in *directory*.

    Attributes:
        members: the line of the configuration for each server, in the order of their ids from 1.

    Args:
        directory: an empty directory.
        servers: 1, or as many as vote.
        tick_ms: the servers' clock; sessions last 2 to 20 ticks, whatever a client asks for.
        heap_mb: of each server.
        host: where clients reach them.
        authority: opens a second port, by TLS alone; it signs the server's certificate and those of clients.
        more: further lines of the configuration.
        version: of the servers; empty for Debian's.
    """

    def __init__(
        self,
        directory: Path,
        *,
        servers: int = 1,
        tick_ms: int = 500,
        heap_mb: int = 96,
        host: str = "127.0.0.1",
        authority: Authority | None = None,
        more: Sequence[str] = (),
        version: str = "",
    ) -> None:
        assert authority is None or servers == 1, "a port by TLS is for a single server"
        self._host = host
        ports = free_ports(3 * servers)
        self._secure_port = free_ports(1)[0]
        client_ports, peer_ports = ports[:servers], ports[servers:]
        settings = [f"tickTime={tick_ms}", *SETTINGS, *more]
        if authority is not None:
            settings += [
                f"secureClientPort={self._secure_port}",
                "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
                f"ssl.keyStore.location={authority.server()}",
                "ssl.keyStore.type=PEM",
                f"ssl.trustStore.location={authority.trusted}",
                "ssl.trustStore.type=PEM",
                "ssl.enabledProtocols=TLSv1.2,TLSv1.3",
                "ssl.clientAuth=need",
            ]
        self.members = [
            f"server.{1 + index}=127.0.0.1:{peer_ports[2 * index]}:{peer_ports[2 * index + 1]}"
            for index in range(servers)
        ]
        if servers > 1:
            settings += self.members
        self.servers = [
            ZooKeeperServer(
                directory / f"zk{1 + index}",
                port,
                settings,
                1 + index if servers > 1 else None,
                heap_mb,
                host,
                version,
            )
            for index, port in enumerate(client_ports)
        ]

    @property
    def hosts(self) -> str:
        """Connect string with every server."""
        return ",".join(f"{self._host}:{server.port}" for server in self.servers)

    @property
    def secure_hosts(self) -> str:
        """Connect string of the port by TLS."""
        return f"{self._host}:{self._secure_port}"

    def start(self) -> None:
        """Start all servers and wait until each serves."""
        for server in self.servers:
            server.start()
        for server in self.servers:
            server.wait_serving()

    def stop(self) -> None:
        """End all servers; their data stays."""
        for server in self.servers:
            server.kill()

    def __enter__(self) -> "ZooKeeper":
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
