"""Blocking fetches of raw record batches by assignment: the bytes as the brokers store them.

librdkafka hands out records one by one; whoever decodes whole batches (ingestion) or wants the batches themselves (log
tools) fetches them here.  One request at a time, no thread, no group, no fetch session.

Committed records are read unless `RawConfig.isolation_level` says otherwise: an end is then the last stable offset, and
beside the batches, which come as they are stored, stands what was aborted.

fetch v11 request  => replica_id: int32 (-1), max_wait_ms: int32, min_bytes: int32, max_bytes: int32,
                      isolation_level: int8, session_id: int32 (0), session_epoch: int32 (-1: no session),
                      topics: [name: string, [partition: int32, current_leader_epoch: int32, fetch_offset: int64,
                        log_start_offset: int64 (-1), partition_max_bytes: int32]], forgotten: [], rack_id: string
fetch v11 response => throttle_time_ms: int32, error_code: int16, session_id: int32,
                      topics: [name: string, [partition: int32, error_code: int16, high_watermark: int64,
                        last_stable_offset: int64, log_start_offset: int64, aborted: nullable [int64, int64],
                        preferred_read_replica: int32, records: nullable bytes]]

Source: Kafka protocol guide; FetchRequest.json and FetchResponse.json.
"""

import math
import random
import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Self, TypeVar
from uuid import UUID

from pylog.client.security import ClientSecurity, log_in
from pylog.errors import ApiError, ConfigError, ErrorCode, OffsetOutOfRange, ProtocolError, Unreachable
from pylog.model import IsolationLevel, NodeAddress, Offset, TopicPartition
from pylog.wire.api.coordinator import TRANSACTION, FindCoordinatorRequest, FindCoordinatorResponse
from pylog.wire.api.message import Request
from pylog.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from pylog.wire.api.offsets import (
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from pylog.wire.api.table import ApiKey, is_flexible
from pylog.wire.primitives import check_count, skip_tags, take

_K = TypeVar("_K")
_T = TypeVar("_T")

METADATA_VERSION = 12  # with topic ids
LIST_OFFSETS_VERSION = 5  # the last before flexible encoding
FETCH_VERSION = 11
EPOCH_ENDS_VERSION = 3
FIND_COORDINATOR_VERSION = 3

MAX_RESPONSE_BYTES = 256 << 20
"""A reply that claims more is refused: a fetch asks for less, and one batch that overshoots is far smaller."""

RENEW_AFTER = 0.85
"""Share of a session's lifetime after which a connection is replaced, as Kafka's clients renew theirs."""

_FIRST_READ_BYTES = 1 << 20  # grows with the bytes that arrive, never with what the size claims
_CLIENT_ID = b"pylog"
_HEADER = struct.Struct(f">ihhih{len(_CLIENT_ID)}s")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_FETCH_HEAD = struct.Struct(">iiiibii")
_FETCH_PARTITION = struct.Struct(">iiqqi")
_FETCHED_HEAD = struct.Struct(">ihi")
_FETCHED_PARTITION = struct.Struct(">ihqqqi")
_ABORTED = struct.Struct(">qq")


@dataclass(frozen=True, slots=True, kw_only=True)
class RawConfig:
    """How patient a fetcher is and how much it takes at once."""

    request_timeout_ms: int = 30_000
    """From sending a request to the last byte of its reply, on top of the fetch's own wait."""

    retry_ms: int = 60_000
    """How long one call keeps trying while leaders move or brokers restart; above a broker's restart time."""

    backoff_ms: int = 100
    """First pause between tries; doubles up to 20 times this."""

    max_bytes: int = 8 << 20
    """Most bytes of one reply; a single batch larger than this still comes whole."""

    partition_max_bytes: int = 4 << 20
    """Most bytes of one partition in one reply."""

    max_wait_ms: int = 500
    """How long a broker holds a fetch that would be empty."""

    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED
    """Which records of transactions are read."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, int) and value < 0:
                raise ConfigError(f"{name} is {value}; it counts milliseconds or bytes, from 0")


class Topic(NamedTuple):
    """A topic as the metadata shows it: its id and the leader of each partition."""

    topic_id: UUID
    leaders: dict[int, int]


@dataclass(slots=True)
class RawBatches:
    """What one partition gave.

    Attributes:
        records: whole record batches and maybe a part of one more; the first batch may begin below the offset asked
            for, and the bytes stay valid as long as this object.
        high_watermark: first offset that consumers do not see yet.
        log_start_offset: first offset that is still there.
        last_stable_offset: first offset that readers of committed records do not see yet; -1 from a broker that does
            not say.
        aborted: (producer id, first offset) of the aborted transactions that may have batches in *records*; see
            `pylog.wire.markers.without_aborted`.  Empty when uncommitted records are read.
    """

    records: memoryview
    high_watermark: Offset
    log_start_offset: Offset
    last_stable_offset: Offset = -1
    aborted: Sequence[tuple[int, Offset]] = ()


class CoordinatorAnswer(NamedTuple):
    """What a coordinator answered.

    Attributes:
        broker: the coordinator.
        body: of the answer.
        is_repeated: whether the request may have been sent before, and been carried out without an answer.
    """

    broker: NodeAddress
    body: memoryview
    is_repeated: bool


class RawClient:
    """Asks the leaders of partitions; finds them, and finds them again when they move.

    Every call raises `Unreachable` when no broker answered for `RawConfig.retry_ms`, `ApiError` when one refused, and
    `ProtocolError` when one answered nonsense.

    Args:
        bootstrap: ``host:port``, several separated by commas; any one that answers is enough.
        config: limits.
        security: encryption and login; none if left out.
        clock: seconds, for the deadlines.
        sleep: pauses between tries.
    """

    def __init__(
        self,
        bootstrap: str,
        config: RawConfig | None = None,
        security: ClientSecurity | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bootstrap = parse_bootstrap(bootstrap)
        self._config = config or RawConfig()
        self._security = security or ClientSecurity()
        self._clock = clock
        self._sleep = sleep
        self._brokers: dict[int, NodeAddress] = {}
        self._topics: dict[str, Topic] = {}
        self._connections: dict[tuple[str, int], BrokerConnection] = {}
        self._silent: set[tuple[str, int]] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; the client can be used again."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def topics(self, names: Iterable[str] | None = None) -> dict[str, Topic]:
        """Return the named topics, or all; asking never creates one.

        Raises:
            ApiError: UNKNOWN_TOPIC_OR_PARTITION, or another code the brokers give for a name; the message names it.
        """
        wanted = None if names is None else sorted(set(names))
        found = self.retrying(lambda: self._metadata(wanted))
        # A partition that was added since the leaders were looked up is known from here on.
        self._topics.update(found)
        return found

    def present_topics(self, names: Iterable[str], failed: dict[str, ApiError] | None = None) -> dict[str, Topic]:
        """Return those of the named topics that exist, as far as the broker that answers knows.

        Args:
            names: which.
            failed: takes the topics that the brokers answer with another error, and that error; without it the first
                such error is raised.
        """
        wanted = sorted(set(names))
        found: dict[str, Topic] = {}

        def attempt() -> dict[str, ApiError]:
            errors: dict[str, ApiError] = {}
            found.clear()
            found.update(self._metadata(wanted, errors))
            return {name: e for name, e in errors.items() if e.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

        self._retrying_each(attempt, failed)
        self._topics.update(found)
        return found

    def list_offsets(
        self,
        partitions: Iterable[TopicPartition],
        timestamp: int,
        failed: dict[TopicPartition, ApiError] | None = None,
    ) -> dict[TopicPartition, Offset]:
        """Return for each partition the offset at *timestamp*.

        Args:
            partitions: which.
            timestamp: EARLIEST_TIMESTAMP or LATEST_TIMESTAMP of `pylog.wire.api.offsets`, or milliseconds since 1970
                for the first record of that time or later.
            failed: takes the partitions whose leader does not answer with an offset, and its error; without it the
                first error is raised.

        Returns:
            Offsets; -1 where no record is that late.  Of committed records the latest is the last stable offset.
        """
        return self._from_leaders(
            dict.fromkeys(partitions, timestamp), lambda broker, asked: self._list_offsets(broker, asked), failed
        )

    def end_offsets(
        self,
        partitions: Iterable[TopicPartition],
        isolation_level: IsolationLevel | None = None,
        failed: dict[TopicPartition, ApiError] | None = None,
    ) -> dict[TopicPartition, tuple[Offset, int]]:
        """Return for each partition the offset behind the last record that may be read, and the leader epoch there.

        Args:
            partitions: which.
            isolation_level: another one than the client's own.
            failed: as for `list_offsets`.
        """
        level = isolation_level or self._config.isolation_level
        return self._from_leaders(
            dict.fromkeys(partitions, LATEST_TIMESTAMP),
            lambda broker, asked: self._offsets_and_epochs(broker, asked, level),
            failed,
        )

    def epoch_ends(
        self, epochs: Mapping[TopicPartition, int], failed: dict[TopicPartition, ApiError] | None = None
    ) -> dict[TopicPartition, Offset]:
        """Return for each partition where records of its leader epoch, or of the last one before, end; -1 if unknown.

        A reader that stopped behind that offset, at this epoch, has read what was cut off since (KIP-320).

        Args:
            epochs: leader epoch by partition.
            failed: as for `list_offsets`.
        """
        return self._from_leaders(epochs, self._epoch_ends, failed)

    def fetch(self, positions: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, RawBatches]:
        """Return the next batches of every partition in *positions*, from its leader; some may be empty.

        Batches of aborted transactions are among them; `RawBatches.aborted` tells which they are.

        Raises:
            OffsetOutOfRange: a position is below the log start offset or above the end; nothing is reset.
        """
        return self._from_leaders(positions, lambda broker, asked: self._fetch(broker, asked))

    def ask(self, request: Request, version: int) -> memoryview:
        """Return the body of some broker's answer to a request that any of them can answer."""
        return self.retrying(lambda: self._from_anyone(request, version))

    def ask_broker(self, broker: NodeAddress, request: Request, version: int) -> memoryview:
        """Return the body of one broker's answer.

        Raises:
            Unreachable: it does not answer; another is not asked.
        """
        try:
            return self._ask((broker.host, broker.port), request.api_key, version, request.encode(version))
        except OSError as error:
            raise Unreachable(f"broker {broker.node_id} at {broker.host}:{broker.port}: {error}") from error

    def ask_coordinator(
        self, key: str, key_type: int, request: Request, version: int, read: Callable[["CoordinatorAnswer"], _T]
    ) -> _T:
        """Return what *read* makes of the answer of the coordinator of a group or a transactional id.

        A try looks for the coordinator and asks it: a coordinator that moved, is not ready yet or whose connection
        broke is looked for again.

        Args:
            key: group id or transactional id.
            key_type: `GROUP` or `TRANSACTION` of `pylog.wire.api.coordinator`.
            request: to the coordinator.
            version: of the request.
            read: raises what the answer has of errors; one that is retriable begins another try.
        """
        find = FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=[key])
        kind = "transactional id" if key_type == TRANSACTION else "group"
        is_repeated = False

        def attempt() -> _T:
            nonlocal is_repeated
            body = self._from_anyone(find, FIND_COORDINATOR_VERSION)
            [found] = FindCoordinatorResponse.decode(FIND_COORDINATOR_VERSION, body).coordinators
            raise_for(found.error_code, f"coordinator of {kind} {key!r}")
            broker = NodeAddress(found.node_id, found.host, found.port)
            try:
                body = self._ask((broker.host, broker.port), request.api_key, version, request.encode(version))
            except ConnectionRefusedError:
                raise
            except OSError:
                is_repeated = True
                raise
            return read(CoordinatorAnswer(broker, body, is_repeated))

        return self.retrying(attempt)

    def ask_leaders(
        self,
        partitions: Iterable[TopicPartition],
        request: Callable[[Mapping[str, Sequence[int]]], Request],
        version: int,
        rows: Callable[[memoryview], Iterable[tuple[TopicPartition, int, _T]]],
    ) -> dict[TopicPartition, _T]:
        """Return what the leader of each partition answers.

        Args:
            partitions: which.
            request: makes the request to one broker, of partitions by topic.
            version: of the request.
            rows: reads partition, error code and value from the body of an answer.
        """

        def ask(broker: NodeAddress, asked: Mapping[TopicPartition, int]) -> "_Answers[_T]":
            wanted = request({topic: list(numbers) for topic, numbers in _by_topic(asked).items()})
            body = self._ask((broker.host, broker.port), wanted.api_key, version, wanted.encode(version))
            answers: _Answers[_T] = _Answers()
            for where, error_code, value in rows(body):
                answers.add(where, error_code, value, str(where))
            return answers

        return self._from_leaders(dict.fromkeys(partitions, 0), ask)

    def _from_leaders(
        self,
        asked: Mapping[TopicPartition, int],
        ask: Callable[[NodeAddress, Mapping[TopicPartition, int]], "_Answers[_T]"],
        failed: dict[TopicPartition, ApiError] | None = None,
    ) -> dict[TopicPartition, _T]:
        """Ask each partition's leader until all have answered.

        Args:
            asked: partitions, with what is asked of each.
            ask: asks one leader.
            failed: takes the partitions that are refused for good or until time is up; without it the first refusal is
                raised.
        """
        done: dict[TopicPartition, _T] = {}

        def attempt() -> dict[TopicPartition, ApiError]:
            missing = {p: value for p, value in asked.items() if p not in done and p not in (failed or ())}
            errors: dict[TopicPartition, ApiError] = {}
            for broker, part in self._by_leader(missing, errors).items():
                answers = ask(broker, part)
                done.update(answers.good)
                errors.update(answers.errors)
                if left_out := part.keys() - answers.good.keys() - answers.errors.keys():
                    raise ProtocolError(f"{broker.host}:{broker.port} left out {sorted(left_out)}")
            return errors

        self._retrying_each(attempt, failed)
        return done

    def _retrying_each(self, attempt: Callable[[], dict[_K, ApiError]], failed: dict[_K, ApiError] | None) -> None:
        """Call *attempt*, which returns what was refused, until it returns no error that may pass, or time is up.

        Args:
            attempt: asks for all that is not in *failed*.
            failed: takes what is refused for good; without it the first error ends the call.
        """
        errors: dict[_K, ApiError] = {}

        def attempt_all() -> None:
            nonlocal errors
            errors = attempt()
            for key, error in errors.items():
                if not error.retriable:
                    if failed is None:
                        raise error
                    failed[key] = error
            for error in errors.values():
                if error.retriable:
                    raise error

        try:
            self.retrying(attempt_all)
        except ApiError as raised:
            if failed is None or not any(raised is error for error in errors.values()):
                raise
            failed.update(errors)

    def retrying(self, attempt: Callable[[], _T]) -> _T:
        """Return what *attempt* does, which is called until it succeeds, fails for good, or time is up."""
        deadline = self._clock() + self._config.retry_ms / 1000
        pause = self._config.backoff_ms / 1000
        while True:
            try:
                return attempt()
            except ApiError as error:
                if not error.retriable or self._clock() + pause > deadline:
                    raise
            except OSError as error:
                if self._clock() + pause > deadline:
                    raise Unreachable(f"no broker of {self._names()} answers: {error}") from error
            self._topics.clear()  # whatever failed, the leaders may be others now
            self._sleep(pause * random.uniform(0.8, 1.0))  # so that many tasks do not ask in step
            pause = min(pause * 2, 20 * self._config.backoff_ms / 1000)

    def _names(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self._bootstrap)

    def _by_leader(
        self, asked: Mapping[TopicPartition, int], errors: dict[TopicPartition, ApiError]
    ) -> dict[NodeAddress, dict[TopicPartition, int]]:
        """Return what to ask each broker; *errors* takes the partitions without a leader to ask."""
        unknown = {p.topic for p in asked} - self._topics.keys()
        refused: dict[str, ApiError] = {}
        if unknown:
            self._topics.update(self._metadata(sorted(unknown), refused))
        parts: dict[NodeAddress, dict[TopicPartition, int]] = {}
        for partition, value in asked.items():
            if partition.topic in refused:
                errors[partition] = refused[partition.topic]
                continue
            leaders = self._topics[partition.topic].leaders
            leader = self._brokers.get(leaders.get(partition.partition, -1))
            if partition.partition not in leaders:
                errors[partition] = _unknown(f"partition {partition}")
            elif leader is None:
                errors[partition] = ApiError(
                    ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition} has no leader"
                )  # fmt: skip
            else:
                parts.setdefault(leader, {})[partition] = value
        return parts

    def _metadata(self, names: list[str] | None, errors: dict[str, ApiError] | None = None) -> dict[str, Topic]:
        """Ask for topics; *errors* takes those that are refused, without it the first refusal is raised."""
        request = MetadataRequest(
            topics=None if names is None else [MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=False,
        )
        response = MetadataResponse.decode(METADATA_VERSION, self._from_anyone(request, METADATA_VERSION))
        self._brokers = {b.node_id: NodeAddress(b.node_id, b.host, b.port) for b in response.brokers}
        topics = {}
        for topic in response.topics:
            name = topic.name or ""
            error = (
                _unknown(f"topic {name!r}")
                if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                else error_of(topic.error_code, f"topic {name!r}")
            )
            if error is not None:
                if errors is None:
                    raise error
                errors[name] = error
                continue
            topics[name] = Topic(topic.topic_id, {p.partition_index: p.leader_id for p in topic.partitions})
        return topics

    def _from_anyone(self, request: Request, version: int) -> memoryview:
        """Ask the brokers known so far, then the bootstrap addresses, until one answers.

        Those that did not answer last time come last: a host that is off costs the whole time-out at each question.
        """
        addresses = [(broker.host, broker.port) for broker in self._brokers.values()]
        random.shuffle(addresses)
        failed: OSError | None = None
        for address in sorted(dict.fromkeys([*addresses, *self._bootstrap]), key=self._silent.__contains__):
            try:
                answer = self._ask(address, request.api_key, version, request.encode(version))
            except OSError as error:
                self._silent.add(address)
                failed = error
            else:
                self._silent.discard(address)
                return answer
        assert failed is not None, "there is at least one bootstrap address"
        raise failed

    def _list_offsets(self, broker: NodeAddress, asked: Mapping[TopicPartition, int]) -> "_Answers[Offset]":
        answers = self._offsets_and_epochs(broker, asked, self._config.isolation_level)
        return _Answers({where: offset for where, (offset, _) in answers.good.items()}, answers.errors)

    def _offsets_and_epochs(
        self, broker: NodeAddress, asked: Mapping[TopicPartition, int], isolation_level: IsolationLevel
    ) -> "_Answers[tuple[Offset, int]]":
        request = ListOffsetsRequest(
            isolation_level=isolation_level.number,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[ListOffsetsPartition(partition_index=p, timestamp=t) for p, t in partitions.items()],
                )
                for topic, partitions in _by_topic(asked).items()
            ],
        )
        body = self._ask(
            (broker.host, broker.port), ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, request.encode(LIST_OFFSETS_VERSION)
        )
        answers: _Answers[tuple[Offset, int]] = _Answers()
        for topic in ListOffsetsResponse.decode(LIST_OFFSETS_VERSION, body).topics:
            for partition in topic.partitions:
                where = TopicPartition(topic.name, partition.partition_index)
                found = (partition.offset, partition.leader_epoch)
                answers.add(where, partition.error_code, found, f"offsets of {where}")
        return answers

    def _epoch_ends(self, broker: NodeAddress, asked: Mapping[TopicPartition, int]) -> "_Answers[Offset]":
        request = OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderTopic(
                    topic=topic,
                    partitions=[OffsetForLeaderPartition(partition=p, leader_epoch=e) for p, e in partitions.items()],
                )
                for topic, partitions in _by_topic(asked).items()
            ]
        )
        version = EPOCH_ENDS_VERSION
        body = self._ask(
            (broker.host, broker.port), ApiKey.OFFSET_FOR_LEADER_EPOCH, version, request.encode(version)
        )  # fmt: skip
        answers: _Answers[Offset] = _Answers()
        for topic in OffsetForLeaderEpochResponse.decode(version, body).topics:
            for partition in topic.partitions:
                where = TopicPartition(topic.topic, partition.partition)
                answers.add(where, partition.error_code, partition.end_offset, f"epoch of {where}")
        return answers

    def _fetch(self, broker: NodeAddress, asked: Mapping[TopicPartition, Offset]) -> "_Answers[RawBatches]":
        body = self._ask(
            (broker.host, broker.port), ApiKey.FETCH, FETCH_VERSION, encode_fetch(asked, self._config),
            wait_ms=self._config.max_wait_ms,
        )  # fmt: skip
        answers: _Answers[RawBatches] = _Answers()
        for where, (code, batches) in parse_fetched(body).items():
            if code == ErrorCode.OFFSET_OUT_OF_RANGE:
                # Not every broker says the limits here, so they are asked for by whoever needs them.
                raise OffsetOutOfRange(f"{where} does not hold offset {asked.get(where)}")
            answers.add(where, code, batches, f"fetch of {where}")
        return answers

    def _ask(
        self, address: tuple[str, int], api_key: ApiKey, version: int, body: bytes, *, wait_ms: int = 0
    ) -> memoryview:
        """Send one request and return its reply's body; a connection that failed is not used again."""
        deadline = self._clock() + (self._config.request_timeout_ms + wait_ms) / 1000
        connection = self._connections.get(address)
        if connection is not None and self._clock() >= connection.expires_s:
            connection.close()  # logging in anew is simpler than renewing a session, and as good: nothing is in flight
            connection = None
        try:
            if connection is None:
                connection = self._connections[address] = BrokerConnection(
                    address, self._clock, deadline, self._security
                )
                connection.log_in(deadline)
            return connection.ask(api_key, version, body, deadline)
        except (OSError, ProtocolError, ApiError):
            if connection is not None:
                connection.close()
                self._connections.pop(address, None)
            raise


def _unknown(what: str) -> ApiError:
    """Return the answer to a name that does not exist; asking again would not change it, though the code often may."""
    error = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{what} does not exist")
    error.retriable = False
    return error


@dataclass(slots=True)
class _Answers(Generic[_T]):
    """What one broker said about its partitions."""

    good: dict[TopicPartition, _T] = field(default_factory=dict)
    errors: dict[TopicPartition, ApiError] = field(default_factory=dict)

    def add(self, where: TopicPartition, error_code: int, value: _T, what: str) -> None:
        """Take in one partition's answer."""
        error = error_of(error_code, what)
        if error is None:
            self.good[where] = value
        else:
            self.errors[where] = error


class BrokerConnection:
    """One socket, one request at a time.

    Attributes:
        expires_s: when its session should be over, by the clock.
    """

    def __init__(
        self, address: tuple[str, int], clock: Callable[[], float], deadline: float, security: ClientSecurity
    ) -> None:
        self._clock = clock
        self._security = security
        self._correlation_id = 0
        self.expires_s = math.inf
        self._socket = socket.create_connection(address, timeout=max(deadline - clock(), 0.001))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        context = security.context()
        if context is not None:
            try:
                self._socket = context.wrap_socket(self._socket, server_hostname=address[0])
            except OSError:
                self._socket.close()
                raise

    def log_in(self, deadline: float) -> None:
        """Log in, where the protocol has a login; see `pylog.client.security.log_in`."""
        if self._security.protocol.has_sasl:
            began_s = self._clock()
            lifetime_ms = log_in(
                self._security,
                lambda request, version: self.ask(request.api_key, version, request.encode(version), deadline),
            )
            if lifetime_ms:
                self.expires_s = began_s + RENEW_AFTER * lifetime_ms / 1000

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def ask(self, api_key: ApiKey, version: int, body: bytes, deadline: float) -> memoryview:
        """Return the body of the reply to *body*.

        Raises:
            OSError: the broker is gone, or not done by *deadline*.
            ProtocolError: what it sent is no reply to this request.
        """
        self._correlation_id += 1
        self._socket.settimeout(max(deadline - self._clock(), 0.001))
        self._socket.sendall(frame(api_key, version, self._correlation_id, body))
        (size,) = _INT32.unpack(self._receive(4, deadline))
        if not 4 <= size <= MAX_RESPONSE_BYTES:
            raise ProtocolError(f"a reply claims {size} bytes; 4 to {MAX_RESPONSE_BYTES} are believed")
        reply = memoryview(self._receive(size, deadline))
        (correlation_id,) = _INT32.unpack_from(reply)
        if correlation_id != self._correlation_id:
            raise ProtocolError(f"a reply is to request {correlation_id}, {self._correlation_id} was sent")
        return reply[skip_tags(reply, 4) if is_flexible(api_key, version) else 4 :]

    def _receive(self, size: int, deadline: float) -> bytearray:
        buffer = bytearray(min(size, _FIRST_READ_BYTES))
        received = 0
        while received < size:
            if received == len(buffer):
                buffer.extend(bytes(min(len(buffer), size - len(buffer))))
            # Set anew each time: a broker that sends one byte a second must not hold us beyond the deadline.
            self._socket.settimeout(max(deadline - self._clock(), 0.001))
            with memoryview(buffer) as view:
                count = self._socket.recv_into(view[received:])
            if count == 0:
                raise ConnectionResetError(f"the broker closed the connection after {received} of {size} bytes")
            received += count
        return buffer


def topic_ids(
    bootstrap: str, names: Iterable[str], timeout_s: float, security: ClientSecurity | None = None
) -> dict[str, str]:
    """Return the id of each topic, as text: a topic that is deleted and made again has another one.

    Raises:
        ApiError: UNKNOWN_TOPIC_OR_PARTITION; the message names it.
        Unreachable: no broker answers in time.
    """
    timeout_ms = int(timeout_s * 1000)
    with RawClient(bootstrap, RawConfig(retry_ms=timeout_ms, request_timeout_ms=timeout_ms), security) as client:
        return {name: str(topic.topic_id) for name, topic in client.topics(names).items()}


def parse_bootstrap(bootstrap: str) -> list[tuple[str, int]]:
    """Return the (host, port) pairs of ``host:port,host:port``; an IPv6 host stands in brackets.

    Raises:
        ConfigError: an entry is not of this form; the message names it.
    """
    addresses = []
    for entry in filter(None, map(str.strip, bootstrap.split(","))):
        host, colon, port = entry.rpartition(":")
        if not (colon and host and port.isdecimal() and 0 < int(port) < 1 << 16):
            raise ConfigError(f"bootstrap address {entry!r} is not host:port")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise ConfigError("no bootstrap address is given; host:port is wanted")
    return addresses


def error_of(error_code: int, what: str) -> ApiError | None:
    """Return the `ApiError` that *error_code* stands for; None where it stands for none."""
    if error_code == ErrorCode.NONE:
        return None
    if error_code in ErrorCode._value2member_map_:
        code = ErrorCode(error_code)
        return ApiError(code, f"{what}: {code.name}")
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}: error code {error_code}")


def raise_for(error_code: int, what: str) -> None:
    """Raise the `ApiError` that *error_code* stands for, unless it is none."""
    error = error_of(error_code, what)
    if error is not None:
        raise error


def frame(api_key: ApiKey, version: int, correlation_id: int, body: bytes) -> bytes:
    """Return *body* as a whole request: size, header, body."""
    tags = b"\x00" if is_flexible(api_key, version) else b""
    header = _HEADER.pack(
        _HEADER.size - 4 + len(tags) + len(body), api_key, version, correlation_id, len(_CLIENT_ID), _CLIENT_ID
    )
    return header + tags + body


def encode_fetch(positions: Mapping[TopicPartition, Offset], config: RawConfig) -> bytes:
    """Return the body of a fetch request, version 11."""
    level = config.isolation_level.number
    out = bytearray(_FETCH_HEAD.pack(-1, config.max_wait_ms, 1, config.max_bytes, level, 0, -1))
    topics = _by_topic(positions)
    out += _INT32.pack(len(topics))
    for topic, partitions in topics.items():
        name = topic.encode()
        out += _INT16.pack(len(name)) + name + _INT32.pack(len(partitions))
        for partition, offset in partitions.items():
            out += _FETCH_PARTITION.pack(partition, -1, offset, -1, config.partition_max_bytes)
    return bytes(out + _INT32.pack(0) + _INT16.pack(0))  # nothing forgotten, no rack


def parse_fetched(body: memoryview) -> dict[TopicPartition, tuple[int, RawBatches]]:
    """Return (error code, batches) of each partition in the body of a fetch reply, version 11.

    Raises:
        ProtocolError: the bytes are no such reply.
        ApiError: the reply refuses the whole request.
    """
    try:
        return _parse_fetched(body)
    except (struct.error, UnicodeDecodeError) as error:
        raise ProtocolError(f"fetch reply of {len(body)} bytes: {error}") from error


def _parse_fetched(body: memoryview) -> dict[TopicPartition, tuple[int, RawBatches]]:
    _, error_code, _ = _FETCHED_HEAD.unpack_from(body)
    raise_for(error_code, "fetch")
    found: dict[TopicPartition, tuple[int, RawBatches]] = {}
    topic_count, at = _count(body, _FETCHED_HEAD.size)
    for _ in range(topic_count):
        (length,) = _INT16.unpack_from(body, at)
        topic = str(take(body, at + 2, length), "utf-8")
        partition_count, at = _count(body, at + 2 + length)
        for _ in range(partition_count):
            partition, error_code, high_watermark, stable, log_start, count = _FETCHED_PARTITION.unpack_from(body, at)
            at += _FETCHED_PARTITION.size
            aborted = list(_ABORTED.iter_unpack(take(body, at, _ABORTED.size * max(count, 0))))
            at += _ABORTED.size * len(aborted) + 4  # and the preferred read replica
            (size,) = _INT32.unpack_from(body, at)
            records = take(body, at + 4, max(size, 0))
            at += 4 + len(records)
            batches = RawBatches(records, high_watermark, log_start, stable, aborted)
            found[TopicPartition(topic, partition)] = (error_code, batches)
    return found


def _count(body: memoryview, at: int) -> tuple[int, int]:
    (count,) = _INT32.unpack_from(body, at)
    check_count(max(count, 0), len(body) - at - 4)
    return max(count, 0), at + 4


def _by_topic(values: Mapping[TopicPartition, int]) -> dict[str, dict[int, int]]:
    topics: dict[str, dict[int, int]] = {}
    for (topic, partition), value in values.items():
        topics.setdefault(topic, {})[partition] = value
    return topics
