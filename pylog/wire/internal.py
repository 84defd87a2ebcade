"""What brokers ask each other, on their own listener: our requests, in Kafka's frames, never in ApiVersions.

request  => api_key: int16, format: int16, correlation_id: int32, body
response => correlation_id: int32, error_code: int16, body

HELLO      => broker_id: int32, nonce: 32 bytes         <= nonce: 32 bytes, proof: 32 bytes
PROVE      => proof: 32 bytes                           <=
PULL_IMAGE => JSON, see `encode_pull`                    <= cluster image in the request's format, or nothing if there
                                                            is no newer one
FORWARD    => a client's request without its size       <= the reply without its size
TAKE_IDS   => broker_id: int32                          <= first: int64, count: int32     (producer ids)
ALTER_ISR  => JSON, see `encode_isr_wishes`             <= JSON, a list of [error, [isr], partition epoch]
RECOVERED  => JSON, see `encode_recovery`               <=
SHUT_DOWN  => broker_id: int32, broker_epoch: int64     <= partitions: int32     (that others took over)
FINALIZE   =>                                           <= level: int32          (see docs/design/formats.md)
BEGIN_ANEW => topic_id: uuid, partition: int32,         <= log_start_offset: int64, removed_tombstone: int64,
              leader_epoch: int32                          removing_pass: int32, snapshot of producers (see `Beginning`)
WRITE_MARKERS      => (topic_id: uuid, partition: int32, leader_epoch: int32, producer_id: int64,
                      producer_epoch: int16, coordinator_epoch: int32, is_commit: int8)*     <= error_code: int16*
VERIFY_TRANSACTION => JSON, see `encode_verification`                                        <= error_code: int16*
ADD_TO_TRANSACTION => as VERIFY_TRANSACTION                                                  <= error_code: int16*

BEGIN_ANEW and WRITE_MARKERS are for leaders, VERIFY_TRANSACTION and ADD_TO_TRANSACTION are for the coordinator of a
transactional id, all others but HELLO and PROVE are for the controller.  Release 0.1.0 does not know BEGIN_ANEW; its
fetch answers name no topic ids, and nobody asks it.  Those about transactions are sent from format level 4 on,
ADD_TO_TRANSACTION for clients that were told of level 5.

Followers also send Kafka's own Fetch (API key 1, version 12) here, in Kafka's frames.

A proof is HMAC-SHA256 over role, the caller's nonce and the callee's nonce, under the cluster secret: both sides show
that they know it, neither can replay the other's.  Over TLS the SHA-256 of the callee's certificate follows the nonces
(RFC 5929, tls-server-end-point): a proof that somebody between them passes on is worth nothing.
"""

import hashlib
import hmac
import json
import struct
import uuid
from collections.abc import Collection, Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from pylog.errors import ErrorCode, ProtocolError
from pylog.wire.markers import NOT_DECIDED

FORMATS = (1, 2)
"""Versions of the messages here that are read and answered (rule 15).

1: what brokers of release 0.1.0 write until they know the cluster's level.
2: a pull names single replicas that were deleted, and may be answered with what changed since the puller's image.
"""

FIRST_FORMAT = FORMATS[0]

NONCE_BYTES = 32
PROOF_BYTES = 32

_REQUEST = struct.Struct(">hhi")
_RESPONSE = struct.Struct(">ih")
_BROKER_ID = struct.Struct(">i")
_ID_BLOCK = struct.Struct(">qi")
_PROCESS = struct.Struct(">iq")
_COUNT = struct.Struct(">i")
_REPLICA = struct.Struct(">16sii")
_BEGINNING = struct.Struct(">qqi")
_MARKER_WISH = struct.Struct(">16siiqhibqb")
_CODE = struct.Struct(">h")

_RESTORED, _OWN_EPOCH = 1, 2
"""Flags of a `MarkerWish`."""


IsrWish: TypeAlias = tuple[uuid.UUID, int, int, int, tuple[tuple[int, int], ...]]
"""Topic id, partition, leader epoch, partition epoch, members with their broker epochs."""

IsrAnswer: TypeAlias = tuple[int, tuple[int, ...], int]
"""Error code, the ISR that holds, its partition epoch."""


LogEnds: TypeAlias = dict[tuple[uuid.UUID, int], tuple[int, int]]
"""(Last leader epoch, log end offset) by topic id and partition."""


class InternalKey(IntEnum):
    """Request kinds; from 10000 on, where Kafka has none."""

    HELLO = 10000
    PROVE = 10001
    PULL_IMAGE = 10002
    FORWARD = 10003
    TAKE_IDS = 10004
    ALTER_ISR = 10005
    RECOVERED = 10006
    SHUT_DOWN = 10007
    FINALIZE = 10008
    BEGIN_ANEW = 10009
    WRITE_MARKERS = 10010
    VERIFY_TRANSACTION = 10011
    ADD_TO_TRANSACTION = 10012


class InternalRequest(NamedTuple):
    """A request as it came."""

    key: InternalKey
    correlation_id: int
    body: bytes
    format: int = FIRST_FORMAT


def encode_request(key: InternalKey, correlation_id: int, body: bytes, format_version: int = FIRST_FORMAT) -> bytes:
    """Return the frame, size included."""
    head = _REQUEST.pack(key, format_version, correlation_id)
    return (len(head) + len(body)).to_bytes(4, "big") + head + body


def parse_request(frame: memoryview) -> InternalRequest:
    """Return the request in *frame*, a frame without its size.

    Raises:
        ProtocolError: it is none of ours, or of another format.
    """
    try:
        key, found, correlation_id = _REQUEST.unpack_from(frame)
        kind = InternalKey(key)
    except (struct.error, ValueError) as error:
        raise ProtocolError(f"not a broker's request: {error}") from error
    if found not in FORMATS:
        raise ProtocolError(f"{kind.name} of format {found}; this release speaks {FORMATS[0]} to {FORMATS[-1]}")
    return InternalRequest(kind, correlation_id, bytes(frame[_REQUEST.size :]), found)


def named_broker(request: InternalRequest) -> int | None:
    """Return the broker that a request speaks for, None where it names none.

    Raises:
        ProtocolError: its body is not one of its kind.
    """
    if request.key is InternalKey.PULL_IMAGE:
        return parse_pull(request.body).broker_id
    if request.key is InternalKey.ALTER_ISR:
        return parse_isr_wishes(request.body)[0]
    if request.key is InternalKey.RECOVERED:
        return parse_recovery(request.body)[0]
    if request.key is InternalKey.SHUT_DOWN:
        return parse_process(request.body)[0]
    if request.key is InternalKey.TAKE_IDS:
        return parse_broker_id(request.body)
    return None


def encode_response(correlation_id: int, error: ErrorCode, body: bytes = b"") -> bytes:
    """Return the frame, size included."""
    return (_RESPONSE.size + len(body)).to_bytes(4, "big") + _RESPONSE.pack(correlation_id, error) + body


def parse_response(frame: bytes, correlation_id: int) -> tuple[ErrorCode, bytes]:
    """Return error and body of a response.

    Raises:
        ProtocolError: it is too short or answers something else.
    """
    try:
        found, code = _RESPONSE.unpack_from(frame)
        error = ErrorCode(code)
    except (struct.error, ValueError) as fault:
        raise ProtocolError(f"not a broker's response: {fault}") from fault
    if found != correlation_id:
        raise ProtocolError(f"response to {found} where {correlation_id} was asked")
    return error, frame[_RESPONSE.size :]


def encode_hello(broker_id: int, nonce: bytes) -> bytes:
    """Return the body of HELLO."""
    return _BROKER_ID.pack(broker_id) + nonce


def parse_hello(body: bytes) -> tuple[int, bytes]:
    """Return (broker id, nonce).

    Raises:
        ProtocolError: wrong size.
    """
    if len(body) != _BROKER_ID.size + NONCE_BYTES:
        raise ProtocolError(f"HELLO of {len(body)} bytes")
    return _BROKER_ID.unpack_from(body)[0], body[_BROKER_ID.size :]


class Pull(NamedTuple):
    """What a broker asks for when it pulls.

    Attributes:
        broker_id: who asks.
        epoch: controller epoch of the image it has; with *version* the order of images.
        version: that image's version.
        max_wait_ms: how long it will wait for a newer one.
        cleaned: ids of deleted topics whose data it no longer has.
        removed: partitions by topic id that were moved away from it and whose data it no longer has; format 2.
    """

    broker_id: int
    epoch: int
    version: int
    max_wait_ms: int
    cleaned: Collection[uuid.UUID] = ()
    removed: Collection[tuple[uuid.UUID, int]] = ()


def encode_pull(pull: Pull, format_version: int) -> bytes:
    """Return the body of PULL_IMAGE: the fields of `Pull` by name; without `removed` in format 1."""
    document = pull._asdict() | {"cleaned": [one.hex for one in pull.cleaned]}
    del document["removed"]
    if format_version > 1:
        document["removed"] = [[topic.hex, partition] for topic, partition in pull.removed]
    return json.dumps(document).encode()


def parse_pull(body: bytes) -> Pull:
    """Return what `encode_pull` wrote.

    Raises:
        ProtocolError: it is something else.
    """
    try:
        asked = json.loads(body)
        broker_id, epoch, version, max_wait_ms = (int(asked[name]) for name in Pull._fields[:4])
        cleaned = frozenset(uuid.UUID(hex=one) for one in asked["cleaned"])
        removed = frozenset((uuid.UUID(hex=topic), int(partition)) for topic, partition in asked.get("removed", ()))
        return Pull(broker_id, epoch, version, max_wait_ms, cleaned, removed)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProtocolError(f"not a pull: {error}") from error


def encode_isr_wishes(broker_id: int, broker_epoch: int, wishes: Sequence[IsrWish]) -> bytes:
    """Return the body of ALTER_ISR."""
    rows = [[wish[0].hex, *wish[1:]] for wish in wishes]
    return json.dumps({"broker_id": broker_id, "broker_epoch": broker_epoch, "changes": rows}).encode()


def parse_isr_wishes(body: bytes) -> tuple[int, int, list[IsrWish]]:
    """Return (broker id, broker epoch, wishes).

    Raises:
        ProtocolError: it is something else.
    """
    try:
        asked = json.loads(body)
        wishes: list[IsrWish] = [
            (uuid.UUID(hex=topic), int(partition), int(leader_epoch), int(epoch), _pairs(isr))
            for topic, partition, leader_epoch, epoch, isr in asked["changes"]
        ]
        return int(asked["broker_id"]), int(asked["broker_epoch"]), wishes
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProtocolError(f"not an ISR change: {error}") from error


def _pairs(rows: Iterable[Sequence[int]]) -> tuple[tuple[int, int], ...]:
    return tuple((int(first), int(second)) for first, second in rows)


def encode_isr_answers(answers: Sequence[IsrAnswer]) -> bytes:
    """Return the answer to ALTER_ISR."""
    return json.dumps(answers).encode()


def parse_isr_answers(body: bytes) -> list[IsrAnswer]:
    """Return (error, ISR, partition epoch) of each wish, in order.

    Raises:
        ProtocolError: it is something else.
    """
    try:
        return [(int(error), tuple(map(int, isr)), int(epoch)) for error, isr, epoch in json.loads(body)]
    except (ValueError, TypeError) as error:
        raise ProtocolError(f"not an answer to an ISR change: {error}") from error


def encode_recovery(broker_id: int, broker_epoch: int, ends: LogEnds) -> bytes:
    """Return the body of RECOVERED: what a broker found on its disk after an unclean stop."""
    rows = [[topic_id.hex, partition, *end] for (topic_id, partition), end in ends.items()]
    return json.dumps({"broker_id": broker_id, "broker_epoch": broker_epoch, "ends": rows}).encode()


def parse_recovery(body: bytes) -> tuple[int, int, LogEnds]:
    """Return (broker id, broker epoch, log ends).

    Raises:
        ProtocolError: it is something else.
    """
    try:
        said = json.loads(body)
        ends: LogEnds = {
            (uuid.UUID(hex=topic), int(partition)): (int(epoch), int(end))
            for topic, partition, epoch, end in said["ends"]
        }
        return int(said["broker_id"]), int(said["broker_epoch"]), ends
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProtocolError(f"not a recovery: {error}") from error


def encode_broker_id(broker_id: int) -> bytes:
    """Return the body of TAKE_IDS."""
    return _BROKER_ID.pack(broker_id)


def parse_broker_id(body: bytes) -> int:
    """Return the broker of TAKE_IDS.

    Raises:
        ProtocolError: wrong size.
    """
    if len(body) != _BROKER_ID.size:
        raise ProtocolError(f"TAKE_IDS of {len(body)} bytes")
    return int(_BROKER_ID.unpack(body)[0])


def encode_id_block(first: int, count: int) -> bytes:
    """Return the answer to TAKE_IDS."""
    return _ID_BLOCK.pack(first, count)


def parse_id_block(body: bytes) -> tuple[int, int]:
    """Return (first id, count).

    Raises:
        ProtocolError: wrong size.
    """
    if len(body) != _ID_BLOCK.size:
        raise ProtocolError(f"id block of {len(body)} bytes")
    first, count = _ID_BLOCK.unpack(body)
    return first, count


def encode_process(broker_id: int, broker_epoch: int) -> bytes:
    """Return the body of SHUT_DOWN."""
    return _PROCESS.pack(broker_id, broker_epoch)


def parse_process(body: bytes) -> tuple[int, int]:
    """Return (broker id, broker epoch) of SHUT_DOWN.

    Raises:
        ProtocolError: wrong size.
    """
    if len(body) != _PROCESS.size:
        raise ProtocolError(f"SHUT_DOWN of {len(body)} bytes")
    broker_id, epoch = _PROCESS.unpack(body)
    return broker_id, epoch


class Beginning(NamedTuple):
    """What a follower takes over that begins anew, beside the records that it copies from then on.

    Attributes:
        log_start_offset: where the leader's log begins.
        removed_tombstone: see `pylog.log.tombstones`; the leader's.
        removing_pass: the last pass that removed any there.
        producers: what idempotent producers wrote below `log_start_offset`, as `pylog.log.producers` writes snapshots.
    """

    log_start_offset: int
    removed_tombstone: int
    removing_pass: int
    producers: bytes


def encode_replica(topic_id: uuid.UUID, partition: int, leader_epoch: int) -> bytes:
    """Return the body of BEGIN_ANEW."""
    return _REPLICA.pack(topic_id.bytes, partition, leader_epoch)


def parse_replica(body: bytes) -> tuple[uuid.UUID, int, int]:
    """Return (topic id, partition, leader epoch) of BEGIN_ANEW.

    Raises:
        ProtocolError: wrong size.
    """
    if len(body) != _REPLICA.size:
        raise ProtocolError(f"BEGIN_ANEW of {len(body)} bytes")
    topic_id, partition, leader_epoch = _REPLICA.unpack(body)
    return uuid.UUID(bytes=topic_id), partition, leader_epoch


def encode_beginning(beginning: Beginning) -> bytes:
    """Return the answer to BEGIN_ANEW."""
    return _BEGINNING.pack(*beginning[:-1]) + beginning.producers


def parse_beginning(body: bytes) -> Beginning:
    """Return what `encode_beginning` wrote.

    Raises:
        ProtocolError: it is too short.
    """
    if len(body) < _BEGINNING.size:
        raise ProtocolError(f"answer of {len(body)} bytes to BEGIN_ANEW")
    start, removed, last_pass = _BEGINNING.unpack_from(body)
    return Beginning(start, removed, last_pass, body[_BEGINNING.size :])


class MarkerWish(NamedTuple):
    """The end of a transaction that a coordinator wants the leader of a partition to write.

    Attributes:
        leader_epoch: under which that broker leads the partition, as the coordinator knows it; another one refuses.
        coordinator_epoch: under which the coordinator leads the partition of its transactional id.
        decided_ms: see `pylog.wire.markers.Marker`.
        is_restored: whether the coordinator's log may lack what came after the decision, so that the partition may
            have a later transaction of the producer by now.
        has_own_epoch: whether the transaction was of an earlier epoch (KIP-890), so that what is open under this one is
            not meant.
    """

    topic_id: uuid.UUID
    partition: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    decided_ms: int = NOT_DECIDED
    is_restored: bool = False
    has_own_epoch: bool = False


def encode_marker_wishes(wishes: Iterable[MarkerWish]) -> bytes:
    """Return the body of WRITE_MARKERS."""
    return b"".join(_MARKER_WISH.pack(wish.topic_id.bytes, *wish[1:8], _flags(wish)) for wish in wishes)


def _flags(wish: MarkerWish) -> int:
    return _RESTORED * wish.is_restored | _OWN_EPOCH * wish.has_own_epoch


def parse_marker_wishes(body: bytes) -> list[MarkerWish]:
    """Return what `encode_marker_wishes` wrote.

    Raises:
        ProtocolError: wrong size.
    """
    if len(body) % _MARKER_WISH.size:
        raise ProtocolError(f"WRITE_MARKERS of {len(body)} bytes")
    return [
        MarkerWish(
            *(uuid.UUID(bytes=row[0]), row[1], row[2], row[3], row[4], row[5], bool(row[6]), row[7]),
            is_restored=bool(row[8] & _RESTORED),
            has_own_epoch=bool(row[8] & _OWN_EPOCH),
        )
        for row in _MARKER_WISH.iter_unpack(body)
    ]


class Verification(NamedTuple):
    """What the leader of partitions asks the coordinator of a transactional id: whether they are in it, or to add them.

    Attributes:
        partitions: topic, partition, and id of the topic.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: list[tuple[str, int, uuid.UUID]]


def encode_verification(asked: Verification) -> bytes:
    """Return the body of VERIFY_TRANSACTION: the fields of `Verification` by name, ids of topics in hex."""
    rows = [[topic, number, topic_id.hex] for topic, number, topic_id in asked.partitions]
    return json.dumps(asked._asdict() | {"partitions": rows}).encode()


def parse_verification(body: bytes) -> Verification:
    """Return what `encode_verification` wrote.

    Raises:
        ProtocolError: it is something else.
    """
    try:
        asked = json.loads(body)
        rows = [(str(topic), int(number), uuid.UUID(hex=found)) for topic, number, found in asked["partitions"]]
        return Verification(
            str(asked["transactional_id"]), int(asked["producer_id"]), int(asked["producer_epoch"]), rows
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProtocolError(f"not a question about a transaction: {error}") from error


def encode_codes(codes: Iterable[ErrorCode]) -> bytes:
    """Return the answer to WRITE_MARKERS, VERIFY_TRANSACTION or ADD_TO_TRANSACTION."""
    return b"".join(map(_CODE.pack, codes))


def parse_codes(body: bytes, count: int) -> list[ErrorCode]:
    """Return what `encode_codes` wrote of *count* codes.

    Raises:
        ProtocolError: it is something else.
    """
    try:
        codes = [ErrorCode(code) for (code,) in _CODE.iter_unpack(body)]
    except (struct.error, ValueError) as error:
        raise ProtocolError(f"not an answer about transactions: {error}") from error
    if len(codes) != count:
        raise ProtocolError(f"{len(codes)} answers to {count} questions")
    return codes


def encode_count(count: int) -> bytes:
    """Return the answer to SHUT_DOWN."""
    return _COUNT.pack(count)


def parse_count(body: bytes) -> int:
    """Return the number in the answer to SHUT_DOWN.

    Raises:
        ProtocolError: wrong size.
    """
    if len(body) != _COUNT.size:
        raise ProtocolError(f"count of {len(body)} bytes")
    return int(_COUNT.unpack(body)[0])


def secrets_of(text: bytes) -> tuple[bytes, ...]:
    """Return the secrets of a file with one a line: the first is a broker's own, the others it knows as a caller.

    While a cluster changes its secret, some brokers have the new one as their own and others still the former one.  A
    caller shows the secret that the callee has shown, so it reaches both, and a callee only ever takes its own.
    """
    return tuple(line for line in map(bytes.strip, text.splitlines()) if line) or (b"",)


def caller_proof(secret: bytes, caller_nonce: bytes, callee_nonce: bytes, binding: bytes = b"") -> bytes:
    """Return what shows that the caller knows *secret*."""
    return hmac.digest(secret, b"pylog caller" + caller_nonce + callee_nonce + binding, hashlib.sha256)


def callee_proof(secret: bytes, caller_nonce: bytes, callee_nonce: bytes, binding: bytes = b"") -> bytes:
    """Return what shows that the callee knows *secret*."""
    return hmac.digest(secret, b"pylog callee" + caller_nonce + callee_nonce + binding, hashlib.sha256)


def is_same(proof: bytes, wanted: bytes) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(proof, wanted)
