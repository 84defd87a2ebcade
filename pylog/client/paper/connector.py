"""The paper's consumer: its group needs no coordinator, only the registries in ZooKeeper.

Each consumer registers, watches brokers and consumers, and at each change computes alone which partitions are its own
(`rebalance`), lets the others go and claims what it lacks (`ownership`).  If another consumer has not let go yet, it
lets all go, waits, and tries again.  One thread does this; the application's threads iterate the streams.
"""

import logging
import os
import queue
import random
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, StrEnum
from types import TracebackType
from typing import Any, Self

from pylog.client.admin.cluster import Admin, OffsetRange
from pylog.client.admin.groups import GroupAdmin
from pylog.client.connection import Connection, as_connection
from pylog.client.message import ReceivedMessage
from pylog.client.paper.offsets_topic import OffsetsTopic
from pylog.client.paper.ownership import OffsetRegistry, OwnerConflict, Ownership
from pylog.client.paper.rebalance import assign, stream_name
from pylog.client.paper.registries import (
    STATIC,
    WHITE_LIST,
    Subscription,
    check_group,
    encode_subscription,
    id_path,
    read_snapshot,
)
from pylog.client.paper.stream import MessageStream
from pylog.client.paper.transport import FetchByAssignment, OnGap, Start, log_gap
from pylog.cluster import znodes
from pylog.errors import ApiError, ConfigError, ErrorCode, PylogError, Unreachable
from pylog.model import Offset, TopicPartition
from pylog.store.base import NodeExists, SessionState, Store, StoreError, WatchEvent
from pylog.store.zookeeper import ZooKeeperStore
from pylog.store.zookeeper_security import Part, parse_zookeeper_security

_logger = logging.getLogger(__name__)

MAX_STREAMS = 100
"""Of one consumer: each is a connection to every broker."""

_ERROR = "error"
_NO_MEMBERS = ("Empty", "Dead")
MAX_BACKOFF_S = 2.0
REGISTERED_POLL_S = 0.1


class OffsetsIn(StrEnum):
    """Where committed offsets are kept."""

    ZOOKEEPER = "zookeeper"
    KAFKA = "kafka"


class GroupInUse(PylogError):
    """The group has members that use Kafka's group protocol: the two kinds do not share partitions."""


class ConsumerExists(PylogError):
    """Another consumer has registered under this id."""


class _Wake(Enum):
    CHANGED = "a watch fired"
    CLOSE = "the application wants to end"


class ConsumerConnector:
    """One consumer of a group that coordinates through ZooKeeper.

    Args:
        cluster: the brokers, a `Connection` or just ``host:port``.
        zookeeper: the ensemble that the brokers use, ``host:port,host:port/path``.
        group: each group gets every message, and each consumer of a group its share.
        consumer_id: its name in the group, unique there; by default one that no other consumer ever had.
        start: where a partition begins that the group never read, and where it goes on if retention was faster:
            "smallest" or "largest"; "error" raises `OffsetOutOfRange` in the second case.
        offsets_in: "zookeeper", or "kafka" for the brokers' offsets topic.
        auto_commit_interval_ms: how often that which is done is committed; 0 commits only when told, then also not
            when partitions are handed over.
        session_timeout_ms: silence after which ZooKeeper counts this consumer as dead.
        handover_ms: how long a partition that is to go waits for the message that the application is at.
        backoff_ms: first pause after a partition to claim was still somebody else's; doubles up to two seconds.
        check_crcs: whether every batch is checked against its CRC.
        deserializer: makes what ``payload()`` returns of the bytes.
        on_gap: told when messages were skipped because they are gone.
        zookeeper_security: encryption and identity at ZooKeeper: names of
            `pylog.store.zookeeper_security.ZOOKEEPER_SETTINGS`, where the brokers are the owners.
        properties: librdkafka properties of the transport, with ``__`` for ``.``.
    """

    def __init__(
        self,
        cluster: Connection | str,
        zookeeper: str,
        group: str,
        *,
        consumer_id: str | None = None,
        start: str = Start.LARGEST,
        offsets_in: str = OffsetsIn.ZOOKEEPER,
        auto_commit_interval_ms: int = 5_000,
        session_timeout_ms: int = 6_000,
        handover_ms: int = 2_000,
        backoff_ms: int = 100,
        check_crcs: bool = True,
        deserializer: Callable[[bytes | None], Any] | None = None,
        on_gap: OnGap = log_gap,
        zookeeper_security: Mapping[str, str] | None = None,
        **properties: object,
    ) -> None:
        self._cluster = as_connection(cluster)
        self._group = check_group(group)
        self._id = f"{group}_{check_group(consumer_id) if consumer_id else _unique_name()}"
        self._start = _one_of("start", start, [*Start, _ERROR])
        self._offsets_in = OffsetsIn(_one_of("offsets_in", offsets_in, list(OffsetsIn)))
        self._auto_commit_s = auto_commit_interval_ms / 1000
        self._handover_s = handover_ms / 1000
        self._backoff_s = backoff_ms / 1000
        self._messages = ReceivedMessage if deserializer is None else _decoded(deserializer)
        self._on_gap = on_gap
        self._properties = {"check__crcs": check_crcs} | properties
        self._store: Store = ZooKeeperStore(
            zookeeper,
            session_timeout_ms=session_timeout_ms,
            security=parse_zookeeper_security(zookeeper_security or {}, part=Part.CONSUMER),
        )
        self._offsets_topic = (
            OffsetsTopic(self._cluster, group, self._start_offsets) if self._offsets_in is OffsetsIn.KAFKA else None
        )
        self._ownership = Ownership(
            self._store,
            group,
            self._id,
            self._offsets_topic or OffsetRegistry(self._store, group, self._start_offsets, self._log_starts),
        )
        self._subscription = Subscription({})
        # By topic and name; the streams of a pattern read all its topics.
        self._streams: dict[tuple[str, str], MessageStream] = {}
        self._is_closed = False
        self._closer: threading.Thread | None = None
        self._is_connected = False
        self._connected_lock = threading.Lock()
        self._wakes: queue.SimpleQueue[_Wake | SessionState] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"pylog {self._id}", daemon=True)
        self._retry_s: float | None = None
        self._failed_attempts = 0
        # One callable: a watch armed twice with equal ones fires once.
        self._watch = self._watched

    @property
    def consumer_id(self) -> str:
        """Its name in the registries."""
        return self._id

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(is_hand_done=kind is None)

    # -- the application's side ------------------------------------------------------------------------------------

    def create_message_streams(self, counts: Mapping[str, int]) -> dict[str, list[MessageStream]]:
        """Subscribe: for each topic, return so many streams, over which its messages are spread.

        May be called once.

        Raises:
            GroupInUse, ConsumerExists: somebody else is in the way.
            NotConnected: ZooKeeper does not answer.
        """
        for topic, count in counts.items():
            if not 1 <= count <= MAX_STREAMS:
                raise ConfigError(f"streams of topic {topic!r}: {count}; wanted 1 to {MAX_STREAMS}")
        self._subscribe(Subscription(dict(counts)))
        return {topic: [stream for (of, _), stream in self._streams.items() if of == topic] for topic in counts}

    def create_message_streams_by_filter(self, pattern: str, count: int = 1) -> list[MessageStream]:
        """Subscribe to every topic, present and future, whose whole name matches *pattern*; see above."""
        try:
            re.compile(pattern)
        except re.error as error:
            raise ConfigError(f"pattern {pattern!r}: {error}") from error
        if not 1 <= count <= MAX_STREAMS:
            raise ConfigError(f"streams: {count}; wanted 1 to {MAX_STREAMS}")
        self._subscribe(Subscription({pattern: count}, WHITE_LIST))
        return list(self._streams.values())

    def createMessageStreams(self, topic: str, count: int) -> list[MessageStream]:  # noqa: N802  (the paper's)
        """Subscribe to one topic as the paper writes it; return its streams."""
        return self.create_message_streams({topic: count})[topic]

    def commit(self, offsets: Mapping[TopicPartition, Offset] | None = None) -> dict[TopicPartition, Offset]:
        """Commit, and return when it is done.

        Without *offsets*, all that is done: what the streams handed out, up to the message that each thread is at.
        The message that the calling thread itself is at counts as done.  With *offsets*, exactly those: the smallest
        offset of each partition that the application has not stored yet; everything before it is never read again.
        What is committed never moves back.

        Returns:
            What is committed of each partition now.

        Raises:
            OwnershipLost: one of *offsets* is of a partition that this consumer owns no longer.
            ConfigError: one of *offsets* lies beyond what was handed out.
            NotConnected: ZooKeeper does not answer; it may be committed or not.
        """
        done = self._done(is_hand_done=True)
        if offsets is None:
            return self._ownership.commit_owned(done)
        for partition, offset in offsets.items():
            if partition in done and offset > done[partition]:
                raise ConfigError(f"commit of {partition}: offset {offset}, and only {done[partition]} is handed out")
        return self._ownership.commit(offsets)

    def close(self) -> None:
        """End the streams, commit what is done if that is automatic, and leave the group."""
        self._close(is_hand_done=True)

    def owned(self) -> dict[TopicPartition, str]:
        """Return the partitions that are this consumer's now, and the stream that reads each."""
        return self._ownership.streams()

    commitOffsets = commit  # noqa: N815  (as Kafka 0.8 has it)
    shutdown = close

    def _done(self, *, is_hand_done: bool) -> dict[TopicPartition, Offset]:
        """Return how far all is done; with *is_hand_done* also the message that the calling thread is at."""
        done: dict[TopicPartition, Offset] = {}
        for stream in self._streams.values():
            done |= stream.done(is_hand_done=is_hand_done and stream.is_iterated_by(threading.current_thread()))
        return done

    def _subscribe(self, subscription: Subscription) -> None:
        if self._subscription.counts or self._is_closed:
            raise ConfigError(f"consumer {self._id} has its streams already; a second subscription is another consumer")
        if not subscription.counts:
            raise ConfigError("no topic to subscribe to")
        self._subscription = subscription
        self._store.listen(self._session_changed)
        self._store.connect(self._cluster.timeout_s)
        try:
            self._register()
            self._refuse_other_kind()
            for topic, count in subscription.counts.items():
                for number in range(count):
                    name = stream_name(self._id, number)
                    self._streams[topic, name] = MessageStream(name, self._transport(name), self._messages)
        except BaseException:
            self._store.close()
            raise
        self._wakes.put(_Wake.CHANGED)
        self._thread.start()

    def _transport(self, name: str) -> FetchByAssignment:
        start = None if self._start == _ERROR else Start(self._start)
        return FetchByAssignment(
            self._cluster, start, self._on_gap, client__id=name, group__id=self._group, **self._properties
        )

    def _stream(self, partition: TopicPartition, name: str) -> MessageStream | None:
        """Return our stream that *name* stands for in the assignment of *partition*; None if it is not ours."""
        topic = partition.topic if self._subscription.pattern == STATIC else next(iter(self._subscription.counts))
        return self._streams.get((topic, name))

    def _close(self, *, is_hand_done: bool) -> None:
        if self._is_closed:
            return
        if self._auto_commit_s and self._streams:
            self._commit_quietly(is_hand_done=is_hand_done)
        self._closer = threading.current_thread()
        self._is_closed = True
        self._wakes.put(_Wake.CLOSE)
        if self._thread.ident is not None:
            self._thread.join()
        for stream in self._streams.values():
            stream.close()
        self._store.close()
        if self._offsets_topic is not None:
            self._offsets_topic.close()

    # -- its own thread --------------------------------------------------------------------------------------------

    def _session_changed(self, state: SessionState) -> None:
        """Called from the store's thread: whether the session stands is not known until it says CONNECTED."""
        with self._connected_lock:
            self._is_connected = state is SessionState.CONNECTED
            if not self._is_connected:
                for stream in self._streams.values():
                    stream.hold()
        self._wakes.put(state)

    def _watched(self, _event: WatchEvent) -> None:
        self._wakes.put(_Wake.CHANGED)

    def _run(self) -> None:
        try:
            next_commit_s = time.monotonic() + self._auto_commit_s
            while not self._is_closed:
                wakes = self._wait(next_commit_s)
                for _ in range(wakes.count(SessionState.LOST)):
                    self._session_lost()
                if self._auto_commit_s and time.monotonic() >= next_commit_s:
                    self._commit_quietly(is_hand_done=False)
                    next_commit_s = time.monotonic() + self._auto_commit_s
                is_retry = self._retry_s is not None and time.monotonic() >= self._retry_s
                if (wakes or is_retry) and not self._is_closed:
                    self._rebalance()
            self._let_go_quietly()
        except Exception as error:
            _logger.exception("consumer ended by a bug id=%s", self._id)
            for stream in self._streams.values():
                stream.fail(error if isinstance(error, PylogError) else PylogError(f"consumer ended: {error!r}"))

    def _wait(self, next_commit_s: float) -> list[_Wake | SessionState]:
        """Return everything that happened, waiting for the first of it until something is due."""
        due_s = [one for one in (next_commit_s if self._auto_commit_s else None, self._retry_s) if one is not None]
        try:
            first = self._wakes.get(timeout=max(0.0, min(due_s) - time.monotonic()) if due_s else None)
        except queue.Empty:
            return []
        # A change of many nodes fires many watches; one look at them is enough.
        return [first, *(self._wakes.get() for _ in range(self._wakes.qsize()))]

    def _session_lost(self) -> None:
        _logger.warning("zookeeper session lost id=%s", self._id)
        for stream in self._streams.values():
            stream.hold()
            stream.revoke(self._ownership.streams(), wait_s=0)
        self._ownership.forget()
        self._store.renew()

    def _rebalance(self) -> None:
        """Bring what is owned in line with the registries, or plan the next attempt."""
        self._retry_s = None
        try:
            self._register()
            self._ownership.settle()
            snapshot = read_snapshot(self._store, self._group, self._watch)
            owners = assign(snapshot.partitions, snapshot.members)
            wanted = {one: name for one, name in owners.items() if self._stream(one, name) is not None}
            held = self._ownership.streams()
            former = self._ownership.of_former_topics(snapshot.topic_ids)
            self._let_go({one for one, name in held.items() if wanted.get(one) != name or one in former})
            held = self._ownership.streams()
            self._claim({one: stream for one, stream in wanted.items() if one not in held})
        except OwnerConflict as conflict:
            _logger.info("partition not free id=%s reason=%s", self._id, conflict)
            self._let_go_quietly()
            self._plan_retry()
            self._watch_out_for(conflict.path)
        except PylogError as error:  # ZooKeeper or the brokers are away, or know a new topic only by half yet
            _logger.warning("rebalance failed id=%s reason=%s", self._id, error)
            if isinstance(error, ApiError) and error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                for stream in self._streams.values():
                    stream.report(error)  # nobody else would say why no message comes
            self._plan_retry()
        else:
            self._failed_attempts = 0
            with self._connected_lock:
                if self._is_connected:
                    for stream in self._streams.values():
                        stream.go_on()

    def _claim(self, wanted: Mapping[TopicPartition, str]) -> None:
        if not wanted:
            return
        offsets = self._ownership.claim(wanted)
        for stream in self._streams.values():
            mine = {one: offset for one, offset in offsets.items() if self._stream(one, wanted[one]) is stream}
            if mine:
                stream.assign(mine)
        _logger.info("partitions claimed id=%s count=%d", self._id, len(wanted))

    def _let_go(self, partitions: Iterable[TopicPartition]) -> None:
        going = set(partitions)
        if not going:
            return
        done: dict[TopicPartition, Offset] = {}
        for stream in self._streams.values():
            # Who waits in `close` asks for no next message.
            is_waiting = self._closer is not None and stream.is_iterated_by(self._closer)
            done |= stream.revoke(going, 0.0 if is_waiting else self._handover_s)
        self._ownership.release(going, done if self._auto_commit_s else {})

    def _let_go_quietly(self) -> None:
        try:
            self._let_go(self._ownership.streams())
        except StoreError as error:  # what may be left of it is removed before the next claim
            _logger.warning("release failed id=%s reason=%s", self._id, error)

    def _watch_out_for(self, path: str) -> None:
        """Try again as soon as *path* changes, if that is sooner than planned."""
        try:
            if self._store.exists(path, self._watch) is None:
                self._wakes.put(_Wake.CHANGED)
        except StoreError as error:
            _logger.info("owner not watched id=%s reason=%s", self._id, error)

    def _plan_retry(self) -> None:
        # Consumers that failed together must not try again together.
        pause_s = min(MAX_BACKOFF_S, self._backoff_s * 2 ** min(self._failed_attempts, 10)) * (0.5 + random.random())
        self._failed_attempts += 1
        self._retry_s = time.monotonic() + pause_s

    def _commit_quietly(self, *, is_hand_done: bool) -> None:
        try:
            self._ownership.commit_owned(self._done(is_hand_done=is_hand_done))
        except PylogError as error:  # nothing is lost: they are committed next time, or come again
            _logger.warning("offsets not committed id=%s reason=%s", self._id, error)

    # -- registration ----------------------------------------------------------------------------------------------

    def _register(self) -> None:
        """Be in the registry; a namesake that does not go in time is another consumer.

        Raises:
            ConsumerExists: it is still there after two session time-outs.
        """
        path = id_path(self._group, self._id)
        stat = self._store.exists(path)
        if stat is not None and stat.ephemeral_owner == self._store.session_id:
            return
        self._store.ensure(znodes.consumer_ids_path(self._group), znodes.BROKER_IDS, znodes.TOPICS)
        data = encode_subscription(self._subscription, int(time.time() * 1000))
        # One that was killed and started again finds its own last registration.
        deadline_s = time.monotonic() + 2 * self._store.session_timeout_ms / 1000
        while True:
            try:
                self._store.create(path, data, ephemeral=True)
                return
            except NodeExists as error:
                if time.monotonic() > deadline_s or self._is_closed:
                    raise ConsumerExists(f"{path} is another consumer's; give this one an id of its own") from error
                time.sleep(REGISTERED_POLL_S)

    def _refuse_other_kind(self) -> None:
        try:
            states = {group.group_id: group.state for group in GroupAdmin(self._cluster).groups()}
        except PylogError as error:  # a broker that has no groups has no members either, and one may be away
            _logger.info("not all groups known group=%s reason=%s", self._group, error)
            return
        if states.get(self._group, _NO_MEMBERS[0]) not in _NO_MEMBERS:
            raise GroupInUse(
                f"group {self._group!r} has members that use the brokers' group protocol; "
                "stop them, or take another group"
            )

    def _start_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, Offset]:
        held = self._held(partitions)
        return {one: held[one].end if self._start == Start.LARGEST else held[one].start for one in partitions}

    def _log_starts(self, partitions: list[TopicPartition]) -> dict[TopicPartition, Offset]:
        held = self._held(partitions)
        return {one: held[one].start for one in partitions}

    def _held(self, partitions: list[TopicPartition]) -> dict[TopicPartition, OffsetRange]:
        """Return the offsets of *partitions*.

        Raises:
            ApiError: TOPIC_AUTHORIZATION_FAILED among others; the user lacks a right.
        """
        # A client of some age does not know partitions that were added meanwhile.
        admin = Admin(self._cluster)
        try:
            return admin.offsets(partitions)
        except Unreachable:
            raise
        except PylogError:
            for name in sorted({one.topic for one in partitions}):
                admin.topic(name)  # says so if a right is missing; to librdkafka such topics have no leaders
            raise


def _unique_name() -> str:
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())
    return f"{host}-{os.getpid()}-{int(time.time() * 1000)}-{uuid.uuid4().hex[:8]}"


def _one_of(name: str, found: str, wanted: list[Any]) -> str:
    if found not in wanted:
        raise ConfigError(f"{name}: {found!r}; wanted one of {', '.join(map(str, wanted))}")
    return found


def _decoded(deserializer: Callable[[bytes | None], Any]) -> type[ReceivedMessage]:
    class DecodedMessage(ReceivedMessage):
        __slots__ = ()

        def payload(self) -> Any:  # noqa: ANN401
            return deserializer(super().payload())

    return DecodedMessage
