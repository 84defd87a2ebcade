"""ZooKeeper's servers go from open to secured and back by the steps and the files of the bundle, and stay one."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cryptography.x509.oid import NameOID

from pylog.ops import host
from pylog.ops.migration import BOTH, OPEN, STEPS, TLS, Kind, Stage, stage_at
from pylog.store.base import NotConnected
from pylog.store.zookeeper import ZooKeeperStore
from pylog.store.zookeeper_security import PLAIN, ZooKeeperSecurity
from tests.cluster.conftest import wait_for
from tests.securing import server_file
from tests.servers.certificates import Authority
from tests.servers.zookeeper import ZooKeeper, ZooKeeperServer

ENSEMBLE = [number for number, step in enumerate(STEPS) if step.kind is Kind.ENSEMBLE]


class Ensemble:
    """Three servers, whose files are those of a stage."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._authority = Authority(home / "ca")
        self._keys = self._authority.issue("tls.pem", (NameOID.COMMON_NAME, "pylog-zookeeper"))
        (home / "ca" / "ca.pem").write_bytes(self._authority.trusted.read_bytes())
        self.made = ZooKeeper(home / "zk", servers=3, heap_mb=64)
        self.secured = ZooKeeperSecurity(is_encrypted=True, trust_store=self._authority.trusted, key_store=self._keys)
        for server in self.made.servers:
            server.join(self.made.members, may_begin=True)
            self._write(server, Stage())

    @property
    def keys(self) -> Path:
        return self._keys

    def _write(self, server: ZooKeeperServer, stage: Stage) -> None:
        text = server_file(
            stage, zookeeper_data_dir=server.data, zookeeper_client_port=server.port, zookeeper_tick_ms=500,
            zookeeper_init_ticks=60, zookeeper_sync_ticks=30,
            zookeeper_four_letter_words=["srvr"], __zookeeper_keys=self._keys,
            __zookeeper_authorities=self._authority.trusted,
        )  # fmt: skip
        server.configure("\n".join([text, *self.made.members, ""]))

    def roll(self, stage: Stage) -> None:
        """Restart the servers with the files of *stage*, the leader last, each once all are well."""
        for server in sorted(self.made.servers, key=mode):
            self._write(server, stage)
            server.kill()
            server.start()
            wait_for(self.is_well, f"all three serve: {stage}, {server.log_path}")

    def is_well(self) -> bool:
        return sorted(map(mode, self.made.servers)) == ["follower", "follower", "leader"]

    def is_encrypted_between(self) -> bool:
        """Say whether the votes' port of a server takes TLS."""
        context = ssl.create_default_context(cafile=str(self._authority.trusted))
        context.load_cert_chain(self._keys)
        port = int(self.made.members[0].rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port), 5) as connection:
            try:
                context.wrap_socket(connection, server_hostname="127.0.0.1").close()
            except OSError:
                return False
        return True

    def takes(self, security: ZooKeeperSecurity, path: str) -> bool:
        """Say whether a client gets a node made."""
        with closing(ZooKeeperStore(self.made.hosts, security=security)) as store:
            try:
                store.connect(5.0)
            except NotConnected:
                return False
            store.create(path, b"x", make_parents=True)
        return True


def mode(server: ZooKeeperServer) -> str:
    """As gates of the bundle read it, by TLS or plainly."""
    lines = [line for line in host.four_letters("srvr", server.port, "127.0.0.1").splitlines() if "Mode: " in line]
    return lines[0].removeprefix("Mode: ") if lines else ""


@pytest.fixture
def ensemble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ensemble]:
    found = Ensemble(tmp_path)
    monkeypatch.setattr(host, "ZOOKEEPER_KEYS", found.keys)
    try:
        for server in found.made.servers:
            server.start()
        wait_for(found.is_well, "three are one")
        yield found
    finally:
        found.made.stop()


def test_servers_stay_one_and_serve_whom_each_stage_serves(ensemble: Ensemble) -> None:
    there = [number + 1 for number in ENSEMBLE]
    assert len(there) == 5
    for turn, done in enumerate([*there, *reversed([0, *there][:-1])]):
        stage = stage_at(STEPS, done)
        ensemble.roll(stage)
        assert ensemble.is_encrypted_between() is (stage.quorum != OPEN), stage
        assert ensemble.takes(PLAIN, f"/{turn}/plain") is (stage.ensemble in (OPEN, BOTH)), stage
        assert ensemble.takes(ensemble.secured, f"/{turn}/secured") is (stage.ensemble in (BOTH, TLS)), stage
