"""What only a store over a network has: servers that stop, hang, and come back."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pylog.store.base import EventKind, NotConnected, SessionState, WatchEvent
from pylog.store.zookeeper import ZooKeeperStore
from tests.servers.ports import free_ports
from tests.servers.stores import Events
from tests.servers.zookeeper import ZooKeeper, zk_cli


@pytest.fixture(scope="module")
def own_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """A server that these tests may stop."""
    with ZooKeeper(tmp_path_factory.mktemp("own"), tick_ms=2_000) as running:
        yield running


@pytest.fixture
def store(own_zookeeper: ZooKeeper) -> Iterator[ZooKeeperStore]:
    # Long enough that a slow machine does not end the session after a restart.
    store = ZooKeeperStore(own_zookeeper.hosts, session_timeout_ms=15_000)
    store.connect()
    yield store
    store.close()


def test_nobody_listening_is_told_in_time() -> None:
    store = ZooKeeperStore(f"127.0.0.1:{free_ports(1)[0]}")
    with pytest.raises(NotConnected, match="no session with"):
        store.connect(timeout_s=0.3)
    store.close()


def test_a_restarted_server_finds_the_session_again(
    own_zookeeper: ZooKeeper, store: ZooKeeperStore, events: Events
) -> None:
    server = own_zookeeper.servers[0]
    store.create("/stays", ephemeral=True)
    store.get("/stays", events.watch)
    session_id = store.session_id
    states = Events()
    store.listen(states.listen)
    server.kill()
    assert states.next_state() is SessionState.SUSPENDED
    with pytest.raises(NotConnected):
        store.exists("/stays")
    assert events.next() == WatchEvent(EventKind.DISCONNECTED, "/stays")
    server.start()
    server.wait_serving()
    assert states.next_state() is SessionState.CONNECTED
    assert store.session_id == session_id
    assert store.exists("/stays") is not None


def test_a_hung_server_gives_no_answer_but_an_error(own_zookeeper: ZooKeeper) -> None:
    store = ZooKeeperStore(own_zookeeper.hosts, session_timeout_ms=1_000)
    store.connect()
    server = own_zookeeper.servers[0]
    server.signal(signal.SIGSTOP)
    try:
        with pytest.raises(NotConnected):
            store.exists("/")
    finally:
        server.signal(signal.SIGCONT)
    server.wait_serving()
    store.close()


def test_a_path_after_the_hosts_is_the_root(own_zookeeper: ZooKeeper, store: ZooKeeperStore) -> None:
    below = ZooKeeperStore(f"{own_zookeeper.hosts}/clusters/one")
    below.connect()
    below.create("/a", b"x")
    below.close()
    assert store.get("/clusters/one/a")[0] == b"x"


def test_zookeepers_own_shell_sees_our_nodes(own_zookeeper: ZooKeeper, store: ZooKeeperStore) -> None:
    store.create("/seen", b"by others")
    assert "by others" in zk_cli(own_zookeeper.hosts, "get", "/seen").splitlines()


def test_an_ensemble_of_three_survives_one(tmp_path: Path) -> None:
    with ZooKeeper(tmp_path, servers=3, tick_ms=1_000) as ensemble:
        modes = sorted(server.four_letters("srvr").partition("Mode: ")[2].split()[0] for server in ensemble.servers)
        assert modes == ["follower", "follower", "leader"]
        store = ZooKeeperStore(ensemble.hosts, session_timeout_ms=20_000)
        store.connect()
        store.create("/e", b"x", ephemeral=True)
        session_id = store.session_id
        states = Events()
        store.listen(states.listen)
        leader = next(server for server in ensemble.servers if "leader" in server.four_letters("srvr"))
        leader.kill()
        # Electing a new leader drops every client for a moment.
        assert states.next_state() is SessionState.SUSPENDED
        assert states.next_state() is SessionState.CONNECTED
        assert store.session_id == session_id
        assert store.get("/e")[0] == b"x"
        store.close()
