"""A store in a ZooKeeper ensemble; with `zookeeper_handler` the only module of the store that knows kazoo."""

import contextlib
import logging
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import read_buffer, read_string, stat_struct
from kazoo.protocol.states import EventType, KeeperState, WatchedEvent, ZnodeStat
from kazoo.security import ACL, Id

from pylog.store.base import (
    BadVersion,
    Check,
    Create,
    Delete,
    EventKind,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotAllowed,
    NotConnected,
    NotEmpty,
    Operation,
    Result,
    SessionListener,
    SessionLost,
    SessionState,
    Set,
    Stat,
    Store,
    StoreError,
    Watch,
    WatchEvent,
    check_path,
)
from pylog.store.node_rights import Identity, NodeRights, Right, Rights
from pylog.store.zookeeper_handler import ConnectionHandler
from pylog.store.zookeeper_security import PLAIN, ZooKeeperSecurity

log = logging.getLogger(__name__)

MIN_HOST_ENTRIES = 3
"""kazoo gives each entry of the list its share of the session time-out to answer a connection.  A server that is just
starting may accept one and never answer, so a single entry would use up the whole session."""

MAX_READS = 500
"""Reads in one request of `get_many`: few enough for the server to answer other sessions in between."""

MAX_READ_BYTES = 256 << 10
"""Paths in one such request, of which the servers take one megabyte; names of clients may be long."""

RESTART_S = 2.0
"""Pause before a client is replaced that kazoo has given up, as it does when ZooKeeper refuses our identity."""

SHORT_CONNECTION_S = 1.0
"""A connection that the server ends before that is followed by a pause: kazoo would try 30 in a second."""

_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}

_KINDS = {
    EventType.CREATED: EventKind.CREATED,
    EventType.CHANGED: EventKind.CHANGED,
    EventType.DELETED: EventKind.DELETED,
    EventType.CHILD: EventKind.CHILDREN,
}

_ERRORS: tuple[tuple[type[Exception], type[StoreError]], ...] = (
    (kazoo_errors.NoNodeError, NoNode),
    (kazoo_errors.NodeExistsError, NodeExists),
    (kazoo_errors.BadVersionError, BadVersion),
    (kazoo_errors.NotEmptyError, NotEmpty),
    (kazoo_errors.NoChildrenForEphemeralsError, NoChildrenForEphemerals),
    (kazoo_errors.SessionExpiredError, SessionLost),
    (kazoo_errors.ConnectionLoss, NotConnected),
    (kazoo_errors.ConnectionClosedError, NotConnected),
    (kazoo_errors.OperationTimeoutError, NotConnected),
    (KazooTimeoutError, NotConnected),
)

_REFUSALS = (
    kazoo_errors.NoAuthError,
    kazoo_errors.AuthFailedError,
    kazoo_errors.InvalidACLError,
    kazoo_errors.SessionClosedRequireSaslError,
)

# What kazoo puts in a failed multi's answer for the operations before and after the one that failed.
_NOT_THE_CAUSE = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)


_GET_DATA, _GET_CHILDREN = 4, 8
_HEADER = struct.Struct(">i?i")
_INT = struct.Struct(">i")


class ZooKeeperStore(Store):
    """One session with a ZooKeeper ensemble.

    kazoo reconnects by itself, and after an expired session begins a new one.  While it does, verbs fail at once with
    NotConnected instead of waiting: an ensemble may be away for hours, and the caller's thread has other work.
    """

    def __init__(
        self,
        hosts: str,
        *,
        session_timeout_ms: int = 6_000,
        security: ZooKeeperSecurity = PLAIN,
        makes_root: bool = True,
    ) -> None:
        """Take the ensemble, connect later.

        Args:
            hosts: ``host:port,host:port/path``; all nodes are then below *path*.
            session_timeout_ms: silence after which the servers end the session; they bound it to 2-20 of their ticks.
            security: encryption, identity, and the rights of nodes that are made.
            makes_root: whether *path* is made if it is missing.
        """
        self._hosts = hosts
        self._security = security
        self._makes_root = makes_root
        self._session_timeout_ms = session_timeout_ms
        self._listeners: list[SessionListener] = []
        self._client: KazooClient | None = None
        self._state = SessionState.LOST
        self._session_id = 0
        self._closing = threading.Event()
        self._connected_s = 0.0
        self._unaccepted_losses = 0
        # Held while a request is handed to kazoo: none slips in between the end of a session and the next.
        self._lock = threading.Lock()

    @property
    def session_id(self) -> int:
        """The session's number; 0 without a session."""
        return self._session_id

    @property
    def session_timeout_ms(self) -> int:
        """What was asked for; the servers may have agreed to less or more."""
        return self._session_timeout_ms

    def connect(self, timeout_s: float = 15.0) -> None:
        """Open the session; raise NotConnected if there is none within *timeout_s*."""
        servers, slash, chroot = self._hosts.partition("/")
        if slash and self._makes_root:
            self._make_chroot(servers, f"/{chroot}", timeout_s)
        client = self._new_session()
        try:
            self._start(client, timeout_s)
        except NotConnected:
            with self._lock:
                self._client = None
            raise

    def close(self) -> None:
        """End the session now; without a connection it ends by its time-out."""
        self._closing.set()
        self._listeners.clear()
        with self._lock:
            client, self._client = self._client, None
            self._state, self._session_id = SessionState.LOST, 0
        if client is not None:
            _stop(client)

    def renew(self) -> None:
        """Accept one loss."""
        with self._lock:
            self._unaccepted_losses -= 1
            assert self._unaccepted_losses >= 0, "renewed more often than lost"

    def listen(self, listener: SessionListener) -> None:
        """Tell *listener* every later change."""
        self._listeners.append(listener)

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """Return data and stat."""
        check_path(path)
        data, stat = self._ask(path, lambda client: client.get_async(path, _adapt(path, watch)))
        return data, _stat(stat)

    def get_many(self, paths: Iterable[str]) -> list[tuple[bytes, Stat] | None]:
        """Return data and stat of each, None where missing."""
        return self._read_many(paths, _GET_DATA)

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Return the stat or None."""
        check_path(path)
        stat = self._ask(path, lambda client: client.exists_async(path, _adapt(path, watch)))
        return None if stat is None else _stat(stat)

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names below *path*, sorted."""
        check_path(path)
        return sorted(self._ask(path, lambda client: client.get_children_async(path, _adapt(path, watch))))

    def children_many(self, paths: Iterable[str]) -> list[list[str]]:
        """Return the names below each path, [] where missing."""
        return [sorted(names or ()) for names in self._read_many(paths, _GET_CHILDREN)]

    def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """Do all or nothing."""
        return self.multis([operations])[0]

    def multis(self, groups: Sequence[Sequence[Operation]]) -> list[list[Result]]:
        """Do each all or nothing, pipelined."""
        sent = [(group, self._send(partial(self._commit, operations=group)) if group else None) for group in groups]
        results: list[list[Result]] = []
        failure: StoreError | None = None
        for group, answer in sent:
            try:
                results.append([] if answer is None else self._results(group, self._await("", answer)))
            except StoreError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return results

    def rights_many(self, paths: Iterable[str]) -> list[Rights | None]:
        """Return what each node's ACL says, None where there is no node.

        Raises:
            NotAllowed: we may not see it.
        """
        found: list[Rights | None] = []
        for part in _parts(paths):
            answers = [self._send(partial(_get_acl, path=check_path(path))) for path in part]
            for path, answer in zip(part, answers, strict=True):
                try:
                    found.append(_rights(self._await(path, answer)[0]))
                except NoNode:
                    found.append(None)
        return found

    def set_rights(self, wanted: Mapping[str, Rights]) -> None:
        """Replace the ACL of each path; a node that is gone is passed over.

        Raises:
            NotAllowed: we lack the right ADMIN on a node; those before it are done.
        """
        for part in _parts(wanted):
            answers = [self._send(partial(_set_acl, path=check_path(path), rights=wanted[path])) for path in part]
            for path, answer in zip(part, answers, strict=True):
                with contextlib.suppress(NoNode):
                    self._await(path, answer)

    def _ask(self, path: str, request: Callable[[KazooClient], Any]) -> Any:  # noqa: ANN401  (kazoo has no types)
        return self._await(path, self._send(request))

    def _send(self, request: Callable[[KazooClient], Any]) -> Any:  # noqa: ANN401
        with self._lock:
            return request(self._connected())

    def _await(self, path: str, answer: Any) -> Any:  # noqa: ANN401
        try:
            # A server that is silent for that long has lost the session or will: the answer would be too late.
            return answer.get(timeout=self._session_timeout_ms / 1000)
        except (KazooException, KazooTimeoutError) as error:
            raise self._translate(error, path) from error

    def _read_many(self, paths: Iterable[str], opcode: int) -> list[Any]:
        """Return what each path has, None where there is no node."""
        answers: list[Any] = []
        for part in _parts(check_path(path) for path in paths):
            results = self._ask("", partial(_MultiRead.send, paths=part, opcode=opcode))
            for path, result in zip(part, results, strict=True):
                if isinstance(result, Exception) and not isinstance(result, kazoo_errors.NoNodeError):
                    raise self._translate(result, path)
                answers.append(None if isinstance(result, Exception) else result)
        return answers

    def _connected(self) -> KazooClient:
        if self._state is SessionState.LOST or self._client is None or self._unaccepted_losses:
            raise SessionLost(message="there is no session")
        if self._state is SessionState.SUSPENDED:
            raise NotConnected(message="the session is suspended")
        return self._client

    def _state_changed(self, client: KazooClient, state: str) -> None:
        """Called in kazoo's connection thread."""
        is_current = client is self._client
        if self._closing.is_set() or not is_current:
            return
        now = _STATES[state]
        with self._lock:
            if now is SessionState.CONNECTED:
                self._session_id = client.client_id[0]
                self._connected_s = time.monotonic()
            elif now is SessionState.LOST:
                self._session_id = 0
                self._unaccepted_losses += 1
            self._state = now
        for listener in list(self._listeners):
            listener(now)
        if now is SessionState.SUSPENDED and time.monotonic() - self._connected_s < SHORT_CONNECTION_S:
            self._closing.wait(SHORT_CONNECTION_S)
        if now is SessionState.LOST and client._state in (KeeperState.AUTH_FAILED, KeeperState.CLOSED):
            # kazoo's loop has ended and never begins again by itself.
            log.error("zookeeper_session_given_up identity=%s retry_s=%g", self._security, RESTART_S)
            threading.Thread(target=self._replace, args=(client,), name="zookeeper-restart", daemon=True).start()

    def _replace(self, former: KazooClient) -> None:
        """Begin anew with another client after a pause; the servers may accept our identity by then."""
        self._closing.wait(RESTART_S)
        with self._lock:
            is_current = self._client is former
        if not is_current:
            return  # closed, or connected anew by its owner
        _stop(former)
        client = self._new_session()
        client.start_async()
        if self._closing.is_set():
            _stop(client)

    def _new_session(self) -> KazooClient:
        client = self._new_client(self._hosts)
        client.add_listener(partial(self._state_changed, client))
        with self._lock:
            self._client = client
        return client

    def _new_client(self, hosts: str) -> KazooClient:
        servers, slash, chroot = hosts.partition("/")
        repeats = -(-MIN_HOST_ENTRIES // (servers.count(",") + 1))
        timeout_s = self._session_timeout_ms / 1000
        security = self._security
        return KazooClient(
            hosts=",".join([servers] * repeats) + slash + chroot,
            timeout=timeout_s,
            # By default the pauses between attempts grow to an hour.
            connection_retry={"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 2.0},
            handler=ConnectionHandler(security, timeout_s / MIN_HOST_ENTRIES),
            auth_data=[("digest", _Secret(f"{security.user}:{security.password}"))] if security.user else None,
        )

    def _start(self, client: KazooClient, timeout_s: float) -> None:
        try:
            client.start(timeout=timeout_s)
        except kazoo_errors.NoAuthError:
            return  # the session is open; kazoo has looked for its root, see `_exists`
        except KazooTimeoutError as error:
            reason = client.handler.failure
            if client._state == KeeperState.AUTH_FAILED:
                reason = f"ZooKeeper refuses the identity {self._security}"
            message = f"no session with {self._hosts} within {timeout_s:g} s"
            raise NotConnected(message=f"{message}: {reason}" if reason else message) from error

    def _make_chroot(self, servers: str, chroot: str, timeout_s: float) -> None:
        client = self._new_client(servers)
        self._start(client, timeout_s)
        rights = self._security.rights
        try:
            if not _exists(client, chroot):
                client.ensure_path(chroot, None if rights is None else _acl(rights.of("/")))
        except KazooException as error:
            raise self._translate(error, chroot) from error
        finally:
            _stop(client)

    def _commit(self, client: KazooClient, *, operations: Sequence[Operation]) -> Any:  # noqa: ANN401
        return _transaction(client, operations, self._security.rights).commit_async()

    def _results(self, operations: Sequence[Operation], answers: Sequence[Any]) -> list[Result]:
        for index, (operation, answer) in enumerate(zip(operations, answers, strict=True)):
            if isinstance(answer, Exception) and not isinstance(answer, _NOT_THE_CAUSE):
                raise self._translate(answer, operation.path, index)
        return [_result(operation, answer) for operation, answer in zip(operations, answers, strict=True)]

    def _translate(self, error: Exception, path: str, operation_index: int | None = None) -> StoreError:
        if isinstance(error, _REFUSALS):
            return NotAllowed(
                path,
                operation_index,
                f"{path or 'the session'}: {type(error).__name__}: ZooKeeper refuses this to {self._security}; "
                "check the settings zookeeper.auth.*, zookeeper.ssl.* and zookeeper.acl.* of this program, "
                "or repair the tree by `pylog zk secure`",
            )
        for theirs, ours in _ERRORS:
            if isinstance(error, theirs):
                return ours(path, operation_index, f"{path} {error}".strip())
        return StoreError(path, operation_index, f"{path} {type(error).__name__} {error}".strip())


class _Secret(str):
    """A text that kazoo sends and does not show where it logs requests."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


@dataclass(frozen=True, slots=True)
class _MultiRead:
    """Many reads in one request, which ZooKeeper has since 3.6 and kazoo lacks.

    One by one, kazoo takes 200 us of CPU for each read, so a new controller of 5,000 partitions was blind for 1.4 s.

    request  => [header, path: string, watch: bool], end: header
    response => [header, data: bytes, stat | names: [string] | error: int32], end: header
    header   => opcode: int32, is_end: bool, error: int32
    """

    paths: Sequence[str]
    opcode: int

    type = 22

    @classmethod
    def send(cls, client: KazooClient, *, paths: Sequence[str], opcode: int) -> Any:  # noqa: ANN401
        result = client.handler.async_result()
        root = client.chroot
        # The same way in that kazoo's own requests take.
        client._call(cls([(root + path).rstrip("/") or "/" for path in paths], opcode), result)
        return result

    def serialize(self) -> bytes:
        header = _HEADER.pack(self.opcode, False, -1)
        parts: list[bytes] = []
        for path in self.paths:
            name = path.encode()
            parts += [header, _INT.pack(len(name)), name, b"\0"]
        return b"".join([*parts, _HEADER.pack(-1, True, -1)])

    def deserialize(self, content: bytes, offset: int) -> list[Any]:
        results: list[Any] = []
        opcode, is_end, _ = _HEADER.unpack_from(content, offset)
        while not is_end:
            offset += _HEADER.size
            if opcode == _GET_DATA:
                data, offset = read_buffer(content, offset)
                stat = ZnodeStat._make(stat_struct.unpack_from(content, offset))
                offset += stat_struct.size
                results.append((data, _stat(stat)))
            elif opcode == _GET_CHILDREN:
                count = _INT.unpack_from(content, offset)[0]
                offset += _INT.size
                names: list[str] = []
                for _ in range(count):
                    name, offset = read_string(content, offset)
                    names.append(name)
                results.append(names)
            else:
                results.append(kazoo_errors.EXCEPTIONS[_INT.unpack_from(content, offset)[0]]())
                offset += _INT.size
            opcode, is_end, _ = _HEADER.unpack_from(content, offset)
        return results


@dataclass(frozen=True, slots=True)
class _Adapter:
    """A watch as kazoo calls it; equal ones are one, so that arming twice calls once."""

    path: str
    watch: Watch

    def __call__(self, event: WatchedEvent) -> None:
        self.watch(WatchEvent(_KINDS.get(event.type, EventKind.DISCONNECTED), self.path))


def _adapt(path: str, watch: Watch | None) -> _Adapter | None:
    return None if watch is None else _Adapter(path, watch)


def _stat(stat: ZnodeStat) -> Stat:
    return Stat(stat.version, stat.czxid, stat.mzxid, stat.ephemeralOwner, stat.ctime)


def _transaction(client: KazooClient, operations: Sequence[Operation], rights: NodeRights | None) -> Any:  # noqa: ANN401  (kazoo has no types)
    transaction = client.transaction()
    for operation in operations:
        check_path(operation.path)
        match operation:
            case Check(path, version):
                transaction.check(path, version)
            case Create(path, data, ephemeral, sequence):
                acl = None if rights is None else _acl(rights.of(path))
                transaction.create(path, data, acl=acl, ephemeral=ephemeral, sequence=sequence)
            case Set(path, data, version):
                transaction.set_data(path, data, version)
            case Delete(path, version):
                transaction.delete(path, version)
    return transaction


def _result(operation: Operation, result: Any) -> Result:  # noqa: ANN401  (kazoo has no types)
    match operation:
        case Create():
            assert isinstance(result, str), result
            return result
        case Set():
            return _stat(result)
    return None


def _parts(paths: Iterable[str]) -> Iterator[list[str]]:
    part: list[str] = []
    size_bytes = 0
    for path in paths:
        path_bytes = len(path.encode())
        if part and (len(part) == MAX_READS or size_bytes + path_bytes > MAX_READ_BYTES):
            yield part
            part, size_bytes = [], 0
        part.append(path)
        size_bytes += path_bytes
    if part:
        yield part


def _get_acl(client: KazooClient, *, path: str) -> Any:  # noqa: ANN401  (kazoo has no types)
    return client.get_acls_async(path)


def _set_acl(client: KazooClient, *, path: str, rights: Rights) -> Any:  # noqa: ANN401  (kazoo has no types)
    return client.set_acls_async(path, _acl(rights))


def _acl(rights: Rights) -> list[ACL]:
    return [ACL(int(right), Id(identity.scheme, identity.id)) for identity, right in rights.items()]


def _rights(acl: Iterable[ACL]) -> dict[Identity, Right]:
    """Return what *acl* gives; several entries of one identity add up."""
    found: dict[Identity, Right] = {}
    for perms, (scheme, name) in acl:
        identity = Identity(scheme, name)
        found[identity] = found.get(identity, Right(0)) | Right(perms & Right.ALL)
    return found


def _exists(client: KazooClient, path: str) -> bool:
    """Return whether there is a node; who may not read it is refused by servers from 3.9 on, and so told that it is."""
    try:
        return client.exists(path) is not None
    except kazoo_errors.NoAuthError:
        return True


def _stop(client: KazooClient) -> None:
    try:
        client.stop()
        client.close()
    except KazooException as error:
        log.warning("zookeeper_client_not_stopped reason=%s", error)
