"""A real broker for tests: one process, its own store, a free port, ready in a fraction of a second.

In a project's `conftest.py`: ``pytest_plugins = ["pylog.testing"]``; a test that takes `pylog_broker` then gets one,
and one that takes `pylog_secured_broker` one with encryption, logins and rights.
"""

import contextlib
import datetime
import http.client
import ipaddress
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

READY_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 20.0
_POLL_S = 0.01
_LOOPBACK = "127.0.0.1"
_CERTIFICATE_BEFORE, _CERTIFICATE_AFTER = datetime.timedelta(hours=1), datetime.timedelta(days=1)

ADMIN = "admin"
"""Super user of a `SecuredBroker`, unless told otherwise."""

USERS: Sequence[Mapping[str, object]] = (
    {"name": ADMIN, "password": "admin-password"},
    {"name": "alice", "password": "alice-password", "acls": []},
)
"""Users of a `SecuredBroker`, unless told otherwise: the super user, and alice, who may do nothing yet."""


class BrokerProcess:
    """A broker in a process of its own, standalone or of a cluster, stopped with the context.

    Attributes:
        data_dir: its data.
        log_path: what it wrote to stderr.
    """

    def __init__(
        self,
        directory: Path,
        *,
        config: Mapping[str, object] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        config_file: Path | None = None,
        env: Mapping[str, str] | None = None,
        module: str = "pylog",
        prefix: Sequence[str] = (),
        is_open: bool = False,
    ) -> None:
        """Describe a broker; entering the context starts it.

        Args:
            directory: where data and log go; made if missing.
            config: settings under Kafka's names.
            host: address to listen on.
            port: port to listen on; 0 takes a free one, which a restart keeps.
            config_file: start it as one of a cluster, from this file, which then says address and settings.
            env: added to the environment.
            module: what Python runs; one of a test's own may change what the broker does.
            prefix: command that runs the broker's own, such as ``ip netns exec NAME``.
            is_open: allow a *host* that other machines reach, to whom a standalone broker is open.
        """
        self.data_dir = directory / "data"
        self.log_path = directory / "broker.log"
        self._config = dict(config or {})
        self._config_file = config_file
        self._host = host
        self._port = port
        self._env = dict(env or {})
        self._module = module
        self._prefix = list(prefix)
        self._is_open = is_open
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            if self._process.poll() is None:
                self.stop()
            self._process = None

    @property
    def bootstrap(self) -> str:
        """The address clients connect to, HOST:PORT."""
        return f"{self._host}:{self._port}"

    @property
    def pid(self) -> int:
        """The process."""
        assert self._process is not None, "the broker is not started"
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone, by itself or killed."""
        return self._process is None or self._process.poll() is not None

    @property
    def admin_socket(self) -> Path:
        """The admin socket."""
        return self.data_dir / "admin.sock"

    @property
    def log(self) -> str:
        """Everything the broker said so far."""
        return self.log_path.read_text() if self.log_path.exists() else ""

    def start(self) -> None:
        """Start it and wait until it is ready.

        Raises:
            RuntimeError: it ended or was not ready in time; the message has its log.
        """
        self.data_dir.mkdir(parents=True, exist_ok=True)
        said = len(self.log)
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._prefix, sys.executable, "-m", self._module, "broker", *self._options()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self._env},
            )
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while (port := _ready_port(self.log[said:])) is None:
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                self.kill()
                raise RuntimeError(f"broker not ready, exit {self._process.poll()}:\n{self.log[said:]}")
            time.sleep(_POLL_S)
        self._port = port

    def _options(self) -> list[str]:
        if self._config_file is not None:
            return [f"--config={self._config_file}"]
        settings = [f"--set={name}={value}" for name, value in self._config.items()]
        listen = [f"--host={self._host}", f"--port={self._port}", *(["--open"] if self._is_open else [])]
        return ["--standalone", f"--data={self.data_dir}", *listen, *settings]

    def stop(self) -> int:
        """Stop it as an operator would and return its exit code.

        Raises:
            RuntimeError: it did not end in time and was killed.
        """
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"broker did not stop in {STOP_TIMEOUT_S} s:\n{self.log}") from None

    def kill(self) -> None:
        """Kill it, as a crash would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        """Stop and start it on the same port."""
        self.stop()
        self.start()

    def admin(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Ask the admin socket; return the status and the answer, decoded if it is JSON."""
        return ask_admin(self.admin_socket, method, path, body)


class SecuredBroker(BrokerProcess):
    """A broker on loopback that encrypts, asks for a login by SCRAM and lets users do what ACLs allow.

    Its certificate is for localhost and 127.0.0.1, by an authority of its own, and both last a day.

    Attributes:
        authority: the authority's certificate, in PEM: what clients trust.
        key_store: the broker's key and certificate, in PEM; other servers of a test on loopback may have them too.
    """

    def __init__(
        self,
        directory: Path,
        *,
        users: Sequence[Mapping[str, object]] = USERS,
        admin: str = ADMIN,
        config: Mapping[str, object] | None = None,
        port: int = 0,
    ) -> None:
        """Describe a broker; entering the context starts it.

        Args:
            directory: where data, log, keys and passwords go; made if missing.
            users: ``name``, ``password`` and ``acls`` of each, as ``pylog user apply`` takes them.
            admin: which of them is a super user, who may do everything.
            config: settings under Kafka's names.
            port: port to listen on; 0 takes a free one, which a restart keeps.

        Raises:
            ValueError: *admin* is none of the users.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self.authority = directory / "authority.pem"
        self._users = [dict(user) for user in users]
        self._passwords = {str(user["name"]): str(user["password"]) for user in users}
        self._is_new = True
        if admin not in self._passwords:
            raise ValueError(f"admin: {admin!r} is none of the users {sorted(self._passwords)}")
        self._admin = admin
        super().__init__(directory, host=_LOOPBACK, port=port, config_file=directory / "broker.json")
        (self.data_dir / "store").mkdir(parents=True, exist_ok=True)
        self.key_store = directory / "server.pem"
        _write_secret(self.key_store, _certificates(self.authority))
        self._settings = {
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
            **(config or {}),
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": f"User:{admin}",
        }

    # Any, because confluent-kafka's stubs want a dictionary of plain values, and others take texts.
    def client(self, user: str | None = None, mechanism: str = "SCRAM-SHA-256") -> dict[str, Any]:
        """Return librdkafka's properties, under which *user* logs in; None for the super user.

        Raises:
            KeyError: there is no such user.
        """
        name = user or self._admin
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority),
            "sasl.mechanism": mechanism,
            "sasl.username": name,
            "sasl.password": self._passwords[name],
        }

    def start(self) -> None:
        """Write users and ACLs, the first time, and start it; see `BrokerProcess.start`.

        Raises:
            RuntimeError: a user or an ACL is wrong, or the broker was not ready in time; the message says why.
        """
        assert self._config_file is not None
        listener = {
            "host": self._host,
            "port": self._port,
            "security.protocol": "SASL_SSL",
            "ssl.keystore.location": str(self.key_store),
        }
        document = {
            "version": 1,
            "broker_id": 0,
            "data_dir": str(self.data_dir),
            "admin_socket": str(self.admin_socket),
            "listeners": {"client": listener},
            "store": {"kind": "embedded"},
            "config": self._settings,
        }
        self._config_file.write_text(json.dumps(document))  # which YAML is too
        if self._is_new:
            self._apply()
            self._is_new = False
        super().start()

    def _apply(self) -> None:
        command = [sys.executable, "-m", "pylog", "user", "apply", "-", f"--config={self._config_file}"]
        document = json.dumps({"users": self._users}).encode()
        done = subprocess.run(command, input=document, capture_output=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"users were not written:\n{done.stderr.decode()}")


def _write_secret(path: Path, data: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(data)


def _certificates(authority: Path) -> bytes:
    """Write the certificate of a new authority, and return key and certificate of a server on loopback, in PEM."""
    # Only who wants a secured broker waits for this library.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    now = datetime.datetime.now(datetime.UTC)
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pylog.testing")])
    issuer_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(_LOOPBACK))]
    subjects: list[tuple[x509.Name, ec.EllipticCurvePrivateKey, x509.ExtensionType]] = [
        (issuer, issuer_key, x509.BasicConstraints(ca=True, path_length=0)),
        (x509.Name([]), key, x509.SubjectAlternativeName(names)),
    ]
    issued, served = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(one.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CERTIFICATE_BEFORE)
        .not_valid_after(now + _CERTIFICATE_AFTER)
        .add_extension(extension, critical=True)
        .sign(issuer_key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
        for subject, one, extension in subjects
    )
    authority.write_bytes(issued)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private + served


def ask_admin(path: Path, method: str, url: str, body: object = None) -> tuple[int, Any]:
    """Ask the admin socket at *path*; see `BrokerProcess.admin`."""
    connection = http.client.HTTPConnection("localhost")
    with contextlib.closing(connection), socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(READY_TIMEOUT_S)
        sock.connect(str(path))
        connection.sock = sock
        connection.request(method, url, json.dumps(body) if body is not None else None)
        response = connection.getresponse()
        text = response.read().decode()
        is_json = response.headers.get_content_type() == "application/json"
        return response.status, json.loads(text) if is_json else text


def _ready_port(log: str) -> int | None:
    for line in log.splitlines():
        if " ready port=" in line:
            return int(line.rpartition("port=")[2].split()[0])
    return None


@pytest.fixture
def pylog_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker of this test's own."""
    with BrokerProcess(tmp_path) as broker:
        yield broker


@pytest.fixture
def pylog_secured_broker(tmp_path: Path) -> Iterator[SecuredBroker]:
    """A broker of this test's own that asks for a login over TLS; its users are `USERS`."""
    with SecuredBroker(tmp_path) as broker:
        yield broker
