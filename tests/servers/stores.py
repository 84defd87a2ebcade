"""Sessions with a store for tests, of either kind, and a way to end one as a network does."""

import queue
import socket
import struct
from collections.abc import Callable
from contextlib import closing
from functools import partial
from itertools import count

from pylog.store.base import SessionState, Store, Watch, WatchEvent
from pylog.store.embedded import EmbeddedStore, EmbeddedTree
from pylog.store.zookeeper import ZooKeeperStore

EVENT_TIMEOUT_S = 30.0
MAX_TAKE_OVERS = 20


class Events:
    """Collects watch events and session states, whichever thread they come from."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[WatchEvent | SessionState] = queue.SimpleQueue()
        # One callable, because a bound method is a new object each time it is asked for.
        self.watch: Watch = self._queue.put
        self.listen = self._queue.put

    def next(self) -> WatchEvent | SessionState:
        return self._queue.get(timeout=EVENT_TIMEOUT_S)

    def next_state(self) -> SessionState:
        while not isinstance(event := self.next(), SessionState):
            pass
        return event

    def none_came(self) -> bool:
        return self._queue.empty()


class Backend:
    """One tree, in which a test opens as many sessions as it likes."""

    def __init__(self, make: Callable[[], Store], expire: Callable[[Store], None]) -> None:
        self._make = make
        self.expire = expire
        self._open: list[Store] = []

    def connect(self) -> Store:
        store = self._make()
        self._open.append(store)
        store.connect()
        return store

    def close(self) -> None:
        for store in self._open:
            store.close()


_chroots = count()


def embedded_backend(tree: EmbeddedTree) -> Backend:
    """Return sessions with one embedded tree."""
    return Backend(tree.session, expire_embedded)


def zookeeper_backend(hosts: str) -> Backend:
    chroot = f"/test-{next(_chroots)}"
    """Return sessions with a tree of their own in the ensemble *hosts*."""
    return Backend(lambda: ZooKeeperStore(hosts + chroot, session_timeout_ms=4_000), expire_zookeeper)


def expire_zookeeper(store: Store) -> None:
    """Take the session over on another connection and close it there: the server then tells its owner."""
    assert isinstance(store, ZooKeeperStore)
    assert store._client is not None
    session_id, password = store._client.client_id
    host, port = store._client.hosts[0]
    take_over = struct.pack(">iqiqi16s?", 0, 0, 10_000, session_id, len(password), password, False)
    close = struct.pack(">ii", 1, -11)
    packets = b"".join(struct.pack(">i", len(each)) + each for each in (take_over, close))
    # The owner may take its session back before the close is read; so until the server knows no such session.
    for _ in range(MAX_TAKE_OVERS):
        with closing(socket.create_connection((host, port), timeout=EVENT_TIMEOUT_S)) as connection:
            connection.sendall(packets)
            answer = b"".join(iter(partial(connection.recv, 4096), b""))
        if answer and struct.unpack_from(">iii", answer)[2] <= 0:
            return
    raise AssertionError(f"the session was taken back {MAX_TAKE_OVERS} times")


def expire_embedded(store: Store) -> None:
    assert isinstance(store, EmbeddedStore)
    store.expire()
    store.connect()
