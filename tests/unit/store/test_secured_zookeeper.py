"""A real ZooKeeper that takes TLS, identities and ACLs: what strangers cannot do, and what owners and consumers can."""

import io
import logging
import queue
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cryptography.x509.oid import NameOID

from pylog.cli.app import run
from pylog.cluster import znodes
from pylog.daemon.notices import Notices
from pylog.daemon.stop import Stop
from pylog.metrics import Metrics
from pylog.probe.zookeeper import ZooKeeperReader
from pylog.registry.election import PRIMARY_PATH
from pylog.store.base import Create, NotAllowed, NotConnected, SessionState
from pylog.store.node_rights import EVERYBODY, NodeRights, Right, digest_identity
from pylog.store.tree import ClusterTree
from pylog.store.tree_rights import open_tree, secure_tree
from pylog.store.users import set_password
from pylog.store.zookeeper import ZooKeeperStore
from pylog.store.zookeeper_handler import MAX_HANDSHAKE_S, ConnectionHandler, client_context
from pylog.store.zookeeper_security import ZooKeeperSecurity
from tests.servers.certificates import HOUR, Authority
from tests.servers.ports import free_ports
from tests.servers.stores import Events
from tests.servers.zookeeper import DEBIAN_13, ZooKeeper

BROKER = digest_identity("pylog", "broker's secret")
READER = digest_identity("reader", "reader's secret")
REGISTRY = digest_identity("registry", "its secret")
RIGHTS = NodeRights(frozenset({BROKER}), frozenset({READER}))

Open = Callable[..., ZooKeeperStore]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module", params=["", DEBIAN_13], ids=["debian-12", "debian-13"])
def zookeeper(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority, request: pytest.FixtureRequest
) -> Iterator[ZooKeeper]:
    home = tmp_path_factory.mktemp("secured")
    with ZooKeeper(home, authority=authority, tick_ms=2_000, version=request.param) as running:
        yield running


@pytest.fixture(scope="module")
def keys(authority: Authority) -> Path:
    return authority.issue("broker.pem", (NameOID.COMMON_NAME, "broker"))


@pytest.fixture
def session(zookeeper: ZooKeeper, authority: Authority, keys: Path, request: pytest.FixtureRequest) -> Iterator[Open]:
    opened: list[ZooKeeperStore] = []
    root = f"/{request.node.name.partition('[')[0]}"

    def connect(
        user: str = "", secret: str = "", *, rights: NodeRights | None = None, tls: bool = True
    ) -> ZooKeeperStore:
        security = ZooKeeperSecurity(
            is_encrypted=tls,
            trust_store=authority.trusted if tls else None,
            key_store=keys if tls else None,
            user=user,
            password=secret,
            rights=rights,
        )
        hosts = zookeeper.secure_hosts if tls else zookeeper.hosts
        store = ZooKeeperStore(hosts + root, session_timeout_ms=15_000, security=security)
        opened.append(store)
        store.connect()
        return store

    yield connect
    for one in opened:
        one.close()


@pytest.fixture
def broker(session: Open) -> ZooKeeperStore:
    store = session("pylog", "broker's secret", rights=RIGHTS)
    ClusterTree(store).prepare()
    return store


def test_a_broker_makes_every_node_with_the_rights_of_its_path(broker: ZooKeeperStore) -> None:
    set_password(broker, "alice", "secret of alice")
    broker.create("/brokers/ids/1", b"{}", ephemeral=True)
    notice = broker.create("/isr_change_notification/change_", sequence=True)
    broker.multi([Create("/brokers/topics/t"), Create("/brokers/topics/t/partitions")])
    paths = ["/", "/brokers/ids/1", notice, "/brokers/topics/t/partitions", "/consumers", "/config/users/alice"]
    paths += [*znodes.BASE_PATHS, *broker_paths(broker)]
    assert broker.rights_many(paths) == [RIGHTS.of(path) for path in paths]


def broker_paths(store: ZooKeeperStore) -> list[str]:
    return [f"/config/changes/{name}" for name in store.children("/config/changes")]


@pytest.mark.parametrize("tls", [True, False])
def test_a_stranger_may_neither_read_nor_write_nor_delete(broker: ZooKeeperStore, session: Open, tls: bool) -> None:
    set_password(broker, "alice", "secret of alice")
    broker.create("/controller", b"{}", ephemeral=True)
    stranger = session(tls=tls)
    for attempt in (
        lambda: stranger.get("/config/users/alice"),
        lambda: stranger.get_many(["/brokers/topics"]),
        lambda: stranger.children("/brokers/ids"),
        lambda: stranger.children_many(["/"]),
        lambda: stranger.create("/consumers/g"),
        lambda: stranger.create("/strange"),
        lambda: stranger.set("/config/users/alice", b"{}"),
        lambda: stranger.delete("/controller"),
        lambda: stranger.rights_many(["/config/users/alice"]),
        lambda: stranger.set_rights({"/": {EVERYBODY: Right.ALL}}),
    ):
        with pytest.raises(NotAllowed, match=r"ZooKeeper refuses this to .*zookeeper\.auth"):
            attempt()
    assert broker.exists("/controller") is not None


def test_a_wrong_password_is_another_identity(broker: ZooKeeperStore, session: Open) -> None:
    with pytest.raises(NotAllowed, match=r"/brokers/ids: .* refuses this to digest:pylog"):
        session("pylog", "wrong").children("/brokers/ids")


def test_a_consumer_of_the_paper_s_kind_writes_below_consumers_only(broker: ZooKeeperStore, session: Open) -> None:
    broker.create("/brokers/topics/t", b"{}")
    reader = session("reader", "reader's secret", rights=RIGHTS)
    reader.create("/consumers/g/ids/c1", b"{}", ephemeral=True, make_parents=True)
    reader.create("/consumers/g/offsets/t/0", b"7", make_parents=True)
    reader.set("/consumers/g/offsets/t/0", b"8")
    assert reader.children("/brokers/topics") == ["t"]
    assert reader.get("/brokers/topics/t")[0] == b"{}"
    # The brokers see and remove groups, whoever made them.
    assert broker.get("/consumers/g/offsets/t/0")[0] == b"8"
    broker.delete("/consumers/g/offsets/t/0")
    for path in ("/brokers/ids/9", "/brokers/topics/u", "/admin/delete_topics/t", "/new"):
        with pytest.raises(NotAllowed, match=f"{path}: .*digest:reader"):
            reader.create(path)
    for path in ("/config/users", "/kafka-acl", "/controller_epoch"):
        with pytest.raises(NotAllowed):
            reader.get(path) if reader.exists(path) else reader.create(path)
    with pytest.raises(NotAllowed):
        reader.set("/brokers/topics/t", b"mine")


def test_an_open_tree_is_closed_and_opened_again(session: Open) -> None:
    before = session()
    tree = ClusterTree(before)
    tree.prepare()
    tree.prepare_acls()
    set_password(before, "alice", "secret of alice")
    before.create("/brokers/ids/1", b"{}", ephemeral=True)
    broker = session("pylog", "broker's secret", rights=RIGHTS)
    closed = secure_tree(broker, RIGHTS)
    assert closed.changed[-1] == "/"
    assert len(closed.changed) == closed.seen
    assert not closed.foreign
    with pytest.raises(NotAllowed):
        before.get("/config/users/alice")
    assert secure_tree(broker, RIGHTS).changed == []
    # An identity without rights cannot open it; the brokers' can.
    with pytest.raises(NotAllowed):
        open_tree(before)
    opened = open_tree(broker)
    assert sorted(opened.changed) == sorted(closed.changed)
    assert before.get("/config/users/alice")[0]


def test_a_session_goes_on_with_its_identity_after_a_restart_of_the_server(
    zookeeper: ZooKeeper, broker: ZooKeeperStore
) -> None:
    states = Events()
    broker.listen(states.listen)
    server = zookeeper.servers[0]
    server.kill()
    assert states.next_state() is SessionState.SUSPENDED
    server.start()
    server.wait_serving()
    assert states.next_state() is SessionState.CONNECTED
    broker.create("/brokers/ids/2", b"{}", ephemeral=True)


@pytest.mark.parametrize("case", ["foreign server", "expired client", "wrong name", "plain port", "no certificate"])
def test_a_connection_that_is_not_safe_is_none(
    case: str, zookeeper: ZooKeeper, authority: Authority, keys: Path, tmp_path: Path
) -> None:
    trusted, hosts = authority.trusted, zookeeper.secure_hosts
    own: Path | None = keys
    if case == "foreign server":
        trusted = Authority(tmp_path, "another authority").trusted
    elif case == "expired client":
        own = authority.issue("expired.pem", (NameOID.COMMON_NAME, "old"), valid_from=-2 * HOUR, valid_to=-HOUR)
    elif case == "wrong name":
        hosts = hosts.replace("127.0.0.1", "127.0.0.2")  # the server listens everywhere
    elif case == "plain port":
        hosts = zookeeper.hosts
    else:
        own = None
    security = ZooKeeperSecurity(is_encrypted=True, trust_store=trusted, key_store=own)
    store = ZooKeeperStore(hosts, security=security)
    reason = {
        "foreign server": "certificate of the server is not accepted: ",
        "wrong name": "certificate of the server is not accepted: IP address mismatch",
    }.get(case, "no session")
    with pytest.raises(NotConnected, match=reason):
        store.connect(timeout_s=3.0)
    store.close()


def test_a_certificate_that_is_renewed_wrongly_leaves_the_one_before(
    zookeeper: ZooKeeper, authority: Authority, tmp_path: Path
) -> None:
    own = tmp_path / "own.pem"
    own.write_bytes(authority.issue("renewed.pem", (NameOID.COMMON_NAME, "renewed")).read_bytes())
    security = ZooKeeperSecurity(is_encrypted=True, trust_store=authority.trusted, key_store=own)
    store = ZooKeeperStore(zookeeper.secure_hosts, session_timeout_ms=40_000, security=security)
    states = Events()
    store.listen(states.listen)
    store.connect()
    assert states.next_state() is SessionState.CONNECTED
    own.write_text("no certificate")
    server = zookeeper.servers[0]
    server.kill()
    server.start()
    server.wait_serving()
    assert [states.next_state(), states.next_state()] == [SessionState.SUSPENDED, SessionState.CONNECTED]
    assert store.exists("/") is not None
    store.close()


def test_bytes_that_openssl_has_decrypted_already_are_ready(authority: Authority, keys: Path) -> None:
    """No poll sees them, so the second of two answers in one record would wait for the next ping."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(authority.server("one-record.pem"))
    ours, theirs = socket.socketpair()
    done: queue.SimpleQueue[ssl.SSLSocket] = queue.SimpleQueue()
    thread = threading.Thread(target=lambda: done.put(server.wrap_socket(theirs, server_side=True)))
    thread.start()
    with client_context(authority.trusted, keys).wrap_socket(ours, server_hostname="localhost") as near:
        thread.join()
        with done.get() as far:
            far.sendall(b"one answer, and another")
            assert near.recv(3) == b"one"
            handler = ConnectionHandler(ZooKeeperSecurity(), 1.0)
            assert near in handler.select([near], [], [], 0)[0]
            near.recv(100)
            assert handler.select([near], [], [], 0)[0] == []


def test_a_handshake_that_took_too_long_may_take_longer_the_next_time(
    zookeeper: ZooKeeper, authority: Authority, keys: Path
) -> None:
    security = ZooKeeperSecurity(is_encrypted=True, trust_store=authority.trusted, key_store=keys)
    handler = ConnectionHandler(security, 0.01)
    allowed = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for _ in range(3):
            allowed.append(handler.handshake_timeout_s)
            with pytest.raises(TimeoutError):
                handler.create_connection(silent.getsockname(), hostname="127.0.0.1")
    assert allowed == [0.01, 0.02, 0.04]
    handler.handshake_timeout_s = MAX_HANDSHAKE_S
    host, _, port = zookeeper.secure_hosts.rpartition(":")
    with handler.create_connection((host, int(port)), hostname=host) as connection:
        assert connection.gettimeout() == 0.01
    assert handler.handshake_timeout_s == 0.01, "one that was in time ends it"


def test_a_server_that_wants_an_identity_says_so_and_is_not_flooded(tmp_path: Path) -> None:
    only_digest = ["enforce.auth.enabled=true", "enforce.auth.schemes=digest"]
    with ZooKeeper(tmp_path, more=only_digest) as server:
        stranger = ZooKeeperStore(server.hosts, session_timeout_ms=4_000)
        states = Events()
        stranger.listen(states.listen)
        stranger.connect()
        with pytest.raises(NotAllowed, match="refuses this to nobody"):
            stranger.get_many(["/"])
        # The server ends the connection, and kazoo opens the next one: all of it without giving up.
        heard = [states.next_state() for _ in range(3)]
        assert heard == [SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.CONNECTED]
        stranger.close()


def test_a_client_that_kazoo_gave_up_is_replaced(
    zookeeper: ZooKeeper, broker: ZooKeeperStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when servers stop taking an identity, and take it again later."""
    monkeypatch.setattr("pylog.store.zookeeper.RESTART_S", 0.1)
    assert broker._client is not None
    broker._client.auth_data = {("nosuch", "scheme")}
    states = Events()
    broker.listen(states.listen)
    server = zookeeper.servers[0]
    server.kill()
    server.start()
    server.wait_serving()
    heard = []
    while SessionState.LOST not in heard:
        heard.append(states.next_state())
    broker.renew()
    assert states.next_state() is SessionState.CONNECTED
    assert broker.children("/brokers/ids") == []


def test_the_password_is_in_no_log(session: Open, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        session("pylog", "broker's secret", rights=RIGHTS)
    assert "Sending request(xid=-4): Auth" in caplog.text
    assert "broker's secret" not in caplog.text


_BROKER = """\
version: 1
broker_id: 1
listeners:
  client: {{host: 127.0.0.1, port: 9092}}
  internal: {{host: 127.0.0.1, port: 9093}}
data_dir: {directory}
admin_socket: {directory}/admin.sock
cluster_secret_file: {password}
store:
  kind: zookeeper
  hosts: {hosts}
  zookeeper.ssl.client.enable: true
  zookeeper.ssl.truststore.location: {trusted}
  zookeeper.ssl.keystore.location: {keys}
  zookeeper.auth.user: pylog
  zookeeper.auth.password.file: {password}
  zookeeper.set.acl: true
"""


def test_commands_close_a_tree_show_it_and_open_it(
    zookeeper: ZooKeeper, authority: Authority, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    password, file = tmp_path / "zookeeper.password", tmp_path / "broker.yml"
    password.write_text("broker's secret\n")
    password.chmod(0o600)
    hosts = f"{zookeeper.secure_hosts}/commands"
    paths = {"directory": tmp_path, "password": password, "trusted": authority.trusted, "keys": keys}
    file.write_text(_BROKER.format(hosts=hosts, **paths))
    config = ["--config", str(file)]
    plain = ["--zookeeper", f"{zookeeper.hosts}/commands"]
    # Nothing is made by commands that only look.
    assert run(["zk", "show", "/", *config]) == 1
    with closing(ZooKeeperStore(f"{zookeeper.hosts}/commands")) as before:
        before.connect()
        ClusterTree(before).prepare()
        set_password(before, "alice", "secret of alice")
    assert run(["zk", "secure", "--unless-closed", *config]) == 0
    said = capsys.readouterr()
    assert "closed /config/users/alice" in said.err
    assert run(["zk", "secure", *config]) == 0
    assert "closed 0 of" in capsys.readouterr().err
    assert run(["zk", "secure", "--unless-closed", *config]) == 0
    assert "closed 0 of 1 nodes" in capsys.readouterr().err
    assert run(["zk", "show", "/config/users", "--depth", "1", *config]) == 0
    shown = capsys.readouterr().out
    assert '"SCRAM-SHA-256": "***"' in shown
    assert "stored_key" not in shown
    assert run(["zk", "show", "/config/users", *plain]) == 1
    assert "PYLOG-0106" in capsys.readouterr().err
    assert run(["zk", "open", *config]) == 1
    assert run(["zk", "open", *config, "--yes"]) == 0
    assert run(["zk", "show", "/config/users", *plain]) == 0
    assert "stored_key" not in capsys.readouterr().out
    assert run(["zk", "identity", "pylog", "--password-file", str(password)]) == 0
    assert capsys.readouterr().out == f"{BROKER.scheme}:{BROKER.id}\n"


def test_the_probe_reads_counters_of_a_server_that_takes_tls_alone(
    zookeeper: ZooKeeper, authority: Authority, keys: Path
) -> None:
    security = ZooKeeperSecurity(is_encrypted=True, trust_store=authority.trusted, key_store=keys)
    metrics, lines = Metrics(), io.StringIO()
    silent = f"127.0.0.1:{free_ports(1)[0]}"
    servers = (zookeeper.secure_hosts, silent)
    reader = ZooKeeperReader(servers, 15.0, metrics, Stop(), Notices(lines), security)
    reader.ask_all()
    assert f'pylog_zookeeper_up{{server="{silent}"}} 0' in metrics.render()
    assert "pylog_zookeeper_unasked_servers 0" in metrics.render()
    up = f'pylog_zookeeper_up{{server="{zookeeper.secure_hosts}"}}'
    assert f"{up} 1" in metrics.render()
    authority.trusted.rename(authority.trusted.with_suffix(".away"))
    try:
        reader.ask_all()
    finally:
        authority.trusted.with_suffix(".away").rename(authority.trusted)
    page = metrics.render()
    assert "pylog_zookeeper_up{" not in page, "nothing is known: the servers may be well"
    assert "pylog_zookeeper_unasked_servers 2" in page
    assert "zookeeper_unasked" in lines.getvalue()
    assert authority.trusted.name in lines.getvalue()


def test_a_server_that_the_probe_does_not_trust_is_not_taken_for_one_that_is_down(
    zookeeper: ZooKeeper, authority: Authority, keys: Path, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path)
    security = ZooKeeperSecurity(is_encrypted=True, trust_store=stranger.trusted, key_store=keys)
    metrics, lines = Metrics(), io.StringIO()
    servers = (zookeeper.secure_hosts, f"127.0.0.1:{free_ports(1)[0]}")
    ZooKeeperReader(servers, 15.0, metrics, Stop(), Notices(lines), security).ask_all()
    page = metrics.render()
    assert f'pylog_zookeeper_up{{server="{servers[0]}"}}' not in page
    assert f'pylog_zookeeper_up{{server="{servers[1]}"}} 0' in page, "nobody listens there"
    assert "pylog_zookeeper_unasked_servers 1" in page
    assert zookeeper.secure_hosts in lines.getvalue()


def test_a_server_that_refuses_the_probe_s_certificate_is_not_taken_for_one_that_is_down(
    zookeeper: ZooKeeper, authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path)
    security = ZooKeeperSecurity(
        is_encrypted=True, trust_store=authority.trusted, key_store=stranger.issue("probe.pem")
    )
    metrics = Metrics()
    reader = ZooKeeperReader((zookeeper.secure_hosts,), 15.0, metrics, Stop(), Notices(io.StringIO()), security)
    reader.ask_all()
    assert "pylog_zookeeper_unasked_servers 1" in metrics.render()


def test_a_registry_elects_its_primary_in_a_tree_that_is_closed_to_it(
    zookeeper: ZooKeeper, authority: Authority, keys: Path
) -> None:
    hosts = f"{zookeeper.secure_hosts}/registry"
    rights = NodeRights(frozenset({BROKER}), registries=frozenset({REGISTRY}))

    def store(user: str, secret: str) -> ZooKeeperStore:
        security = ZooKeeperSecurity(
            is_encrypted=True, trust_store=authority.trusted, user=user, password=secret, rights=rights, key_store=keys
        )
        return ZooKeeperStore(hosts, session_timeout_ms=15_000, security=security)

    with closing(store("pylog", "broker's secret")) as broker, closing(store("registry", "its secret")) as registry:
        broker.connect()
        ClusterTree(broker).prepare()
        set_password(broker, "alice", "secret of alice")
        registry.connect()
        registry.create(PRIMARY_PATH, b"me", ephemeral=True, make_parents=True)
        assert broker.get_many([PRIMARY_PATH])[0] is not None
        for refused in (
            lambda: registry.get_many(["/config/users/alice"]),
            lambda: registry.create("/controller", b"me", ephemeral=True),
            lambda: registry.delete("/controller_epoch"),
        ):
            with pytest.raises(NotAllowed):
                refused()
