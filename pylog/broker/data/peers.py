"""Brokers talking to each other: the listener's handler, and the client that calls it.

Nothing is answered before both sides have shown that they know the cluster secret (rule 14).
"""

import asyncio
import contextlib
import hashlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import cast

from pylog.broker.clock import steady_ms
from pylog.broker.data.fetch import FetchHandler
from pylog.broker.data.peer_keys import PeerKeys
from pylog.broker.tasks import Tasks
from pylog.errors import ApiError, ErrorCode, ProtocolError
from pylog.model import NodeAddress
from pylog.net.connection import Connection, Part, Slot
from pylog.wire import internal
from pylog.wire.api import parse_request_header
from pylog.wire.fetch import FetchRequest, FetchResult, encode_replica_request, parse_replica_response
from pylog.wire.internal import InternalKey, InternalRequest

_logger = logging.getLogger(__name__)

MAX_IMAGE_BYTES = 256 << 20
"""Most a response among brokers may claim; an image of 100,000 partitions has about 6 MB."""

CONNECT_TIMEOUT_S = 5.0

SIZE_BYTES = 4
"""Of what stands before each frame."""

_FETCH_KEY = b"\x00\x01"
_ABOUT_TRANSACTIONS = (
    InternalKey.WRITE_MARKERS,
    InternalKey.VERIFY_TRANSACTION,
    InternalKey.ADD_TO_TRANSACTION,
)


MAX_UNPROVEN_REQUESTS = 8
"""On one connection, where a broker proves the secret by its second.  Answers that nobody reads pile up."""


@dataclass(slots=True)
class _Caller:
    """What is known of the broker at the other end.

    Attributes:
        number: orders connections by when their proofs came.
        unproven_requests: that came without a valid proof.
        secret: that its proof is made with.
        proven_ms: when the broker was told that its proof is right.
    """

    broker_id: int = -1
    number: int = 0
    unproven_requests: int = 0
    secret: bytes = b""
    wanted_proof: bytes = b""
    is_proven: bool = False
    proven_ms: int = 0


Answerer = Callable[[InternalRequest], Awaitable[bytes]]


class PeerRequests:
    """The `FrameHandler` of the brokers' own listener.

    A request that got no answer in time is sent again on a new connection, and the first one may still be on its way.
    Had the second been refused and the first were carried out then, a refusal would mean nothing (rule 4).  So a broker
    has one connection for pulls, one for markers and one for all else: once a request has come on a newer one, those on
    older ones are closed unread.  A marker that comes late would end the producer's next transaction.
    """

    def __init__(self, keys: PeerKeys, fetch: FetchHandler, answer: Answerer, answer_transactions: Answerer) -> None:
        """Make it; *answer* gets proven callers' requests and returns the response's body, or raises ApiError.

        *answer_transactions* gets those about transactions, which are not for the controller.  The first secret of
        *keys* counts here for a proof, and each of them for a connection whose proof came before.
        """
        self._keys = keys
        self._fetch = fetch
        self._answer = answer
        self._answer_transactions = answer_transactions
        self._tasks = Tasks()
        self._proof_count = 0
        self._oldest_valid = 0
        self._newest: dict[tuple[int, str], int] = {}  # connection by broker and what it is for

    def on_frame(self, connection: Connection, frame: memoryview) -> list[Part] | None:
        """Handle one request; see `FrameHandler`."""
        if connection.state is None:
            connection.state = _Caller()
        caller = connection.state
        assert isinstance(caller, _Caller)
        if caller.is_proven and caller.secret not in self._keys.secrets:
            # Else whoever learned the former secret would stay for as long as its connection does.
            raise ProtocolError("the caller has proved a cluster secret that is not valid any more")
        if not caller.is_proven:
            caller.unproven_requests += 1
            if caller.unproven_requests > MAX_UNPROVEN_REQUESTS:
                raise ProtocolError("no proof of the cluster secret after several requests")
        if frame[:2] == _FETCH_KEY:
            if not caller.is_proven:
                raise ProtocolError("a fetch before the proof")
            return self._fetch.handle(
                connection, parse_request_header(frame), frame, caller.broker_id, proven_ms=caller.proven_ms
            )
        request = internal.parse_request(frame)
        if request.key is InternalKey.HELLO:
            return self._hello(caller, request, connection.session.binding)
        if request.key is InternalKey.PROVE:
            answer = self._prove(caller, request)
            connection.admit()
            return answer
        if not caller.is_proven:
            return [internal.encode_response(request.correlation_id, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]
        if request.key is InternalKey.BEGIN_ANEW:
            return [self._begin_anew(request)]
        if request.key is InternalKey.WRITE_MARKERS:
            self._check_newest(caller, "markers")
        if request.key in _ABOUT_TRANSACTIONS:
            self._tasks.spawn(self._answer_later(connection.open_slot(), request, self._answer_transactions))
            return None
        named = internal.named_broker(request)
        if named not in (None, caller.broker_id):
            message = "request refused key=%s caller=%d reason=it speaks for broker %d"
            _logger.warning(message, request.key.name, caller.broker_id, named)
            return [internal.encode_response(request.correlation_id, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]
        self._check_newest(caller, "pulls" if request.key is InternalKey.PULL_IMAGE else "")
        self._tasks.spawn(self._answer_later(connection.open_slot(), request, self._answer))
        return None

    def expire_connections(self) -> None:
        """Close connections of now at their next request: this broker is the controller no more.

        What another controller refused meanwhile must not be carried out when this one is elected again.
        """
        self._oldest_valid = self._proof_count + 1

    def _check_newest(self, caller: _Caller, use: str) -> None:
        """Refuse a request that may have been sent again on another connection.

        Raises:
            ProtocolError: the connection is not the newest one of its broker.
        """
        role = (caller.broker_id, use)
        oldest_valid = 0 if use == "markers" else self._oldest_valid
        if caller.number < max(self._newest.get(role, 0), oldest_valid):
            raise ProtocolError(f"broker {caller.broker_id} has a newer connection, or had another controller since")
        self._newest[role] = caller.number

    def on_closed(self, connection: Connection) -> None:
        """Forget what the connection waited for."""
        self._fetch.forget(connection)

    async def close(self) -> None:
        """End what is still being answered."""
        await self._tasks.stop()

    def _hello(self, caller: _Caller, request: InternalRequest, binding: bytes) -> list[Part]:
        caller.broker_id, caller_nonce = internal.parse_hello(request.body)
        caller.is_proven = False
        nonce = os.urandom(internal.NONCE_BYTES)
        secret = caller.secret = self._keys.secrets[0]
        caller.wanted_proof = internal.caller_proof(secret, caller_nonce, nonce, binding)
        proof = internal.callee_proof(secret, caller_nonce, nonce, binding)
        return [internal.encode_response(request.correlation_id, ErrorCode.NONE, nonce + proof)]

    def _prove(self, caller: _Caller, request: InternalRequest) -> list[Part]:
        if not caller.wanted_proof or not internal.is_same(request.body, caller.wanted_proof):
            raise ProtocolError("the caller does not know the cluster secret")
        caller.wanted_proof = b""  # one proof, one use
        self._proof_count += 1
        caller.number = self._proof_count
        caller.is_proven, caller.proven_ms = True, steady_ms()
        return [internal.encode_response(request.correlation_id, ErrorCode.NONE)]

    def _begin_anew(self, request: InternalRequest) -> bytes:
        """Answer a follower at once, as its fetches are: it changes nothing here, so it may come on any connection."""
        try:
            beginning = self._fetch.reader.beginning(*internal.parse_replica(request.body))
        except ApiError as error:
            return internal.encode_response(request.correlation_id, error.code)
        return internal.encode_response(request.correlation_id, ErrorCode.NONE, internal.encode_beginning(beginning))

    async def _answer_later(self, slot: Slot, request: InternalRequest, answer: Answerer) -> None:
        try:
            reply = internal.encode_response(request.correlation_id, ErrorCode.NONE, await answer(request))
        except ApiError as error:
            reply = internal.encode_response(request.correlation_id, error.code)
        except Exception:
            _logger.exception("bug in a broker's request key=%s", request.key.name)
            reply = internal.encode_response(request.correlation_id, ErrorCode.UNKNOWN_SERVER_ERROR)
        slot.complete([reply])


class _Answers(asyncio.Protocol):
    """The answering half of a connection on which one call at a time is made.

    Not asyncio's streams: a follower fetches once for each batch that is written with acks=all, and two reads of a
    stream cost more than all else that it does for one, and a second copy of every byte.
    """

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[memoryview] | None = None
        self._received = bytearray()  # of an answer that came in pieces
        self._fault: Exception | None = None

    async def call(self, frame: bytes) -> memoryview:
        """Send a request and return the frame that answers it, without its size.

        Raises:
            OSError: the connection is gone.
            ProtocolError: what came is no answer.
        """
        assert self._waiting is None, "one call at a time"
        if self._fault is not None:
            raise self._fault
        assert self._transport is not None
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(frame)
        try:
            return await self._waiting
        finally:
            self._waiting = None

    def close(self) -> None:
        """Close the connection; a call that waits ends."""
        if self._transport is not None:
            self._transport.close()
        self._end(ConnectionError("closed here"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        received: bytes | bytearray = data
        if self._received:
            self._received += data
            received = self._received
        if len(received) >= SIZE_BYTES:
            size = int.from_bytes(received[:SIZE_BYTES], "big", signed=True)
            if not 0 < size <= MAX_IMAGE_BYTES:
                self._end(ProtocolError(f"response claims {size} bytes"))
                return
            if len(received) >= SIZE_BYTES + size:
                self._answered(memoryview(received)[SIZE_BYTES:], size)
                return
        if received is data:
            self._received += data

    def _answered(self, frame: memoryview, size: int) -> None:
        self._received = bytearray()
        if self._waiting is None or len(frame) != size:
            self._end(ProtocolError(f"{len(frame)} bytes came where {size} were due"))
        elif not self._waiting.done():
            self._waiting.set_result(frame)

    def connection_lost(self, error: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._end(error or ConnectionError("closed by the other broker"))

    def _end(self, fault: Exception) -> None:
        self._fault = self._fault or fault
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(self._fault)


class PeerClient:
    """One connection to another broker; one call at a time."""

    def __init__(self, broker_id: int, keys: PeerKeys, format_version: Callable[[], int]) -> None:
        """Make it; *format_version* is what the cluster allows to be written now (rule 15).

        Any secret of *keys* may be the other broker's.
        """
        self._format_version = format_version
        self._broker_id = broker_id
        self._keys = keys
        self._address: NodeAddress | None = None
        self._answers: _Answers | None = None
        self._secret = b""  # that the other broker has proved
        self._correlation_id = 0
        self._lock = asyncio.Lock()

    async def call(self, address: NodeAddress, key: InternalKey, body: bytes, timeout_s: float) -> bytes:
        """Return the response's body.

        Raises:
            ApiError: the broker's own error, or NETWORK_EXCEPTION when it cannot be reached in *timeout_s*.
        """
        async with self._reaching(address, timeout_s):
            error, answer = await self._exchange(key, body)
        if error is not ErrorCode.NONE:
            raise ApiError(error, f"broker {address.node_id} answers {error.name}")
        return answer

    async def reach(self, address: NodeAddress, timeout_s: float) -> bool:
        """Be connected; return whether that took a new connection, on which the other side knows nothing yet.

        Raises:
            ApiError: NETWORK_EXCEPTION when it cannot be reached in *timeout_s*.
        """
        before = self._answers
        async with self._reaching(address, timeout_s):
            return self._answers is not before

    async def fetch(
        self, address: NodeAddress, broker_epoch: int, request: FetchRequest, timeout_s: float
    ) -> tuple[list[FetchResult[memoryview]], bool]:
        """Fetch as a follower; see `parse_replica_response` for what is returned.

        Raises:
            ApiError: NETWORK_EXCEPTION when the leader cannot be reached in *timeout_s*.
        """
        async with self._reaching(address, timeout_s):
            self._correlation_id += 1
            frame = encode_replica_request(self._correlation_id, self._broker_id, broker_epoch, request)
            answer = await self._call(frame)
            return parse_replica_response(answer, self._correlation_id)

    @contextlib.asynccontextmanager
    async def _reaching(self, address: NodeAddress, timeout_s: float) -> AsyncIterator[None]:
        """Hold the connection for one exchange; any fault closes it, since an answer may still be on its way.

        The time counts from now, while another call holds the connection also: a broker that does not answer would
        else keep each call for as long as all before it together.
        """
        try:
            async with asyncio.timeout(timeout_s), self._lock:
                try:
                    is_outdated = self._secret not in self._keys.secrets
                    if address != self._address or self._answers is None or is_outdated:
                        await self._connect(address)
                    yield
                except (OSError, TimeoutError, EOFError, ProtocolError, asyncio.CancelledError):
                    self.close()
                    raise
        except (OSError, TimeoutError, EOFError, ProtocolError) as fault:
            where = f"broker {address.node_id} at {address.host}:{address.port}"
            reason = str(fault) or "no answer in time"
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, f"{where}: {reason}") from fault

    def close(self) -> None:
        """Close the connection; the next call opens a new one."""
        if self._answers is not None:
            self._answers.close()
            self._answers = None

    async def _connect(self, address: NodeAddress) -> None:
        self.close()
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            loop = asyncio.get_running_loop()
            context, binding = self._keys.context(), b""
            if context is None:
                _, self._answers = await loop.create_connection(_Answers, address.host, address.port)
            else:
                transport, self._answers = await loop.create_connection(
                    _Answers, address.host, address.port, ssl=context, server_hostname=address.host
                )
                certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
                binding = hashlib.sha256(certificate).digest()
            self._address = address
            nonce = os.urandom(internal.NONCE_BYTES)
            _, answer = await self._exchange(InternalKey.HELLO, internal.encode_hello(self._broker_id, nonce))
            if len(answer) != internal.NONCE_BYTES + internal.PROOF_BYTES:
                raise ProtocolError(f"answer of {len(answer)} bytes to HELLO")
            callee_nonce, proof = answer[: internal.NONCE_BYTES], answer[internal.NONCE_BYTES :]
            for secret in self._keys.secrets:
                if internal.is_same(proof, internal.callee_proof(secret, nonce, callee_nonce, binding)):
                    self._secret = secret
                    break
            else:
                raise ProtocolError("it does not know the cluster secret")
            await self._exchange(InternalKey.PROVE, internal.caller_proof(secret, nonce, callee_nonce, binding))

    async def _exchange(self, key: InternalKey, body: bytes) -> tuple[ErrorCode, bytes]:
        self._correlation_id += 1
        answer = await self._call(internal.encode_request(key, self._correlation_id, body, self._format_version()))
        return internal.parse_response(bytes(answer), self._correlation_id)

    async def _call(self, frame: bytes) -> memoryview:
        if self._answers is None:
            raise ProtocolError("the connection was closed")
        return await self._answers.call(frame)
