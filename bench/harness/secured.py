"""Brokers with encryption, logins and ACLs for benchmarks, and what their clients need.

python -m bench.harness.secured HOST:PORT PROTOCOL AUTHORITY RATE SECONDS     log in at a rate, as a process of its own
"""

import functools
import json
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pylog.client.security import ClientSecurity, log_in
from pylog.security import scram
from pylog.security.principal import SecurityProtocol
from pylog.testing import BrokerProcess
from pylog.wire.api.message import Request
from tests.interop import frames
from tests.interop.frames import Connection
from tests.servers.certificates import Authority
from tests.servers.kafka import KafkaServer
from tests.servers.ports import free_ports

MECHANISM = "SCRAM-SHA-256"
ADMIN, USER = "admin", "alice"
PREFIX = "secured-"
"""Topics that `USER` may use begin so."""

_THREADS = 16
"""Clients at once of the process that logs in; each is one login at a time."""

_HEAD = struct.Struct(">hhih")
_PASSWORDS = {name: f"{name}-password" for name in (ADMIN, USER)}
_ACLS = [
    {"resource": "topic", "name": PREFIX, "pattern": "prefixed", "operations": ["Read", "Write"]},
    {"resource": "group", "name": "rdk_client", "operations": ["Read"]},
]


def broker_file(directory: Path, protocol: str, authority: Authority, port: int) -> Path:
    """Write the file of a broker with one listener of *protocol*, and its users and ACLs where it has logins."""
    listener: dict[str, object] = {"host": "127.0.0.1", "port": port, "security.protocol": protocol}
    if "SSL" in protocol:
        listener["ssl.keystore.location"] = str(authority.server())
    config: dict[str, object] = {"offsets.topic.replication.factor": 1, "group.initial.rebalance.delay.ms": 0}
    if "SASL" in protocol:
        config |= {
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": f"User:{ADMIN}",
        }
    data = directory / "data"
    (data / "store").mkdir(parents=True)
    file = directory / "broker.json"
    document = {
        "version": 1,
        "broker_id": 0,
        "data_dir": str(data),
        "admin_socket": str(data / "admin.sock"),
        "listeners": {"client": listener},
        "store": {"kind": "embedded"},
        "config": config,
    }
    file.write_text(json.dumps(document))  # which YAML is too
    if "SASL" in protocol:
        users = [{"name": name, "password": password} for name, password in _PASSWORDS.items()]
        users[-1] |= {"acls": _ACLS}  # type: ignore[dict-item]  # a list beside texts
        command = [sys.executable, "-m", "pylog", "user", "apply", "-", f"--config={file}"]
        subprocess.run(command, input=json.dumps({"users": users}).encode(), check=True, stdout=subprocess.DEVNULL)
    return file


def pylog_broker(directory: Path, protocol: str, authority: Authority) -> BrokerProcess:
    """Return a broker with one listener of *protocol*, not started."""
    [port] = free_ports(1)
    return BrokerProcess(directory, port=port, config_file=broker_file(directory, protocol, authority, port))


@dataclass(frozen=True, slots=True)
class KafkaByTls:
    """Apache Kafka whose clients come by TLS; see `bench.harness.brokers.Broker`."""

    server: KafkaServer
    bootstrap: str

    @property
    def pid(self) -> int:
        """Its process."""
        return self.server.pid

    @property
    def data_dir(self) -> Path:
        """What grows with the messages."""
        return self.server.data_dir


@contextmanager
def kafka_by_tls(directory: Path, authority: Authority) -> Iterator[KafkaByTls]:
    """Run Apache Kafka with a listener with TLS, beside the plain one by which it is found ready."""
    plain, encrypted, controller = free_ports(3)
    addresses = f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{encrypted}"
    config = {
        "listeners": f"{addresses},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": addresses,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.server(),
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
    }
    server = KafkaServer(directory, config)
    server.bootstrap = f"127.0.0.1:{plain}"
    with server:
        yield KafkaByTls(server, f"127.0.0.1:{encrypted}")


def client(protocol: str, authority: Path, user: str = USER) -> dict[str, str]:
    """Return librdkafka's properties for a listener of *protocol*."""
    properties = {"security.protocol": protocol}
    if "SSL" in protocol:
        properties["ssl.ca.location"] = str(authority)
    if "SASL" in protocol:
        properties |= {"sasl.mechanism": MECHANISM, "sasl.username": user, "sasl.password": _PASSWORDS[user]}
    return properties


@contextmanager
def connected(bootstrap: str, context: ssl.SSLContext | None) -> Iterator[Connection]:
    """Connect by hand, with TLS if there is a *context*."""
    connection = Connection(bootstrap)
    with connection:
        if context is not None:
            connection.socket = context.wrap_socket(connection.socket, server_hostname="127.0.0.1")
        yield connection


def log_in_at_a_rate(bootstrap: str, properties: Mapping[str, str], rate: float, seconds: float) -> tuple[int, float]:
    """Connect and log in *rate* times a second; return how often that succeeded, and in how many seconds.

    The keys of the password are prepared: they are derived at the first login alone.
    """
    scram.salt_password = functools.lru_cache(scram.salt_password)
    security = ClientSecurity.from_properties(properties)
    context = security.context()
    wanted = int(rate * seconds)
    number, done, lock = iter(range(wanted)), [0], threading.Lock()

    def once() -> None:
        with connected(bootstrap, context) as connection:
            connection.ask(frames.api_versions())
            log_in(security, functools.partial(_ask, connection))

    once()
    began = time.monotonic()

    def work() -> None:
        while True:
            with lock:
                mine = next(number, None)
            if mine is None:
                return
            time.sleep(max(0.0, began + mine / rate - time.monotonic()))
            once()
            with lock:
                done[0] += 1

    threads = [threading.Thread(target=work) for _ in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done[0], time.monotonic() - began


def _ask(connection: Connection, request: Request, version: int) -> memoryview:
    frame = request.encode(version, _HEAD.pack(request.api_key, version, 1, -1))
    return memoryview(connection.ask(struct.pack(">i", len(frame)) + frame))


def main(arguments: Sequence[str]) -> int:
    """Log in at a rate and print how often it succeeded, and the seconds."""
    bootstrap, protocol, authority, rate, seconds = arguments
    properties = client(SecurityProtocol(protocol), Path(authority))
    print(*log_in_at_a_rate(bootstrap, properties, float(rate), float(seconds)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
