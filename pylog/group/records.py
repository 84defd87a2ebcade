"""What `__consumer_offsets` holds, in Kafka's own record format, so that Kafka's tools read it too.

key   => version: int16, rest          0 and 1: a committed offset; 2: a group
value => version: int16, rest          null: it is no more

From format level 3 on both have a header, which Kafka ignores.  A committed offset has `TOPIC_ID_HEADER` with the id of
its topic; a group has the ids of the topics that its members read; see `pylog.wire.internal_topics`.

Source: Kafka's OffsetCommitKey/Value and GroupMetadataKey/Value message definitions; versions as Kafka 3.9 writes them.
"""

import functools
import struct
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

from pylog.errors import ProtocolError
from pylog.group.state import Group, GroupConfig, Member
from pylog.wire.api import codec
from pylog.wire.api.schema import Int32, Int64, Versions
from pylog.wire.internal_topics import TOPIC_ID_BYTES, encode_versioned, find_topic_ids, split_version, topic_ids_header
from pylog.wire.records import Record

TOPIC = "__consumer_offsets"

OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
OFFSET_VALUE_VERSION = 3
GROUP_VALUE_VERSION = 3

TOPIC_ID_HEADER = "pylog.topic_id"
"""Name of the header with the id, 16 bytes, of the topic that an offset was committed for."""

MAX_MEMBERS = 1 << 18
"""Members one stored group may claim."""

_LENGTH = struct.Struct(">h")
_VERSION_AND_LENGTH = struct.Struct(">hh")
_PARTITION = struct.Struct(">i")
_OFFSET_HEAD = struct.Struct(">hqih")
_TIMESTAMP = struct.Struct(">q")


class OffsetKey(NamedTuple):
    """Whose offset of what."""

    group_id: str
    topic: str
    partition: int


@dataclass(slots=True)
class CommittedOffset:
    """The next offset a group reads, and what it noted beside it.

    Attributes:
        commit_timestamp: when, in milliseconds by the coordinator's wall clock.
        topic_id: of the topic that it was committed for; None if the record does not say.
        record_offset: where its record is in the log of the coordinator; the higher one of two counts, whenever the
            transactions that they belong to end.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp: int = -1
    topic_id: uuid.UUID | None = None
    record_offset: int = field(default=-1, compare=False)


@dataclass(slots=True, kw_only=True)
class _OffsetKey:
    group: str
    topic: str
    partition: Int32


@dataclass(slots=True, kw_only=True)
class _OffsetValue:
    offset: Int64
    leader_epoch: Annotated[Int32, Versions(3)] = -1
    metadata: str
    commit_timestamp: Int64
    expire_timestamp: Annotated[Int64, Versions(1, 1)] = -1


@dataclass(slots=True, kw_only=True)
class _GroupKey:
    group: str


@dataclass(slots=True, kw_only=True)
class _MemberValue:
    member_id: str
    group_instance_id: Annotated[str | None, Versions(3)] = None
    client_id: str
    client_host: str
    rebalance_timeout: Annotated[Int32, Versions(1)] = -1
    session_timeout: Int32
    subscription: bytes
    assignment: bytes


@dataclass(slots=True, kw_only=True)
class _GroupValue:
    protocol_type: str
    generation: Int32
    protocol: str | None
    leader: str | None
    current_state_timestamp: Annotated[Int64, Versions(2)] = -1
    members: list[_MemberValue] = field(default_factory=list)


@functools.lru_cache(maxsize=10_000)
def partition_for(group_id: str, partition_count: int) -> int:
    """Return which partition of the topic keeps *group_id*, as Kafka and its tools compute it.

    Source: Kafka's Utils.abs(String.hashCode), whose result for Integer.MIN_VALUE is 0; `& 0x7fffffff` is another hash.
    """
    code = 0
    units = group_id.encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (code * 31 + (high << 8 | low)) & 0xFFFF_FFFF
    signed = code - (1 << 32) if code >= 1 << 31 else code
    return 0 if signed == -(1 << 31) else abs(signed) % partition_count


def encode_offset(
    key: OffsetKey, committed: CommittedOffset | None, now_ms: int, *, with_topic_id: bool = False
) -> Record:
    """Return the record that says *committed*, or with None that there is no such offset any more.

    Args:
        key: whose offset of what.
        committed: the offset.
        now_ms: the record's time.
        with_topic_id: write the id of its topic, if it is known; formats of level 3 have it.
    """
    # By hand: commits are most of what a coordinator does, and the codec of messages takes four times as long.
    group_id, topic = key.group_id.encode(), key.topic.encode()
    raw_key = b"".join(
        (
            _VERSION_AND_LENGTH.pack(OFFSET_KEY_VERSION, len(group_id)),
            group_id,
            _LENGTH.pack(len(topic)),
            topic,
            _PARTITION.pack(key.partition),
        )
    )
    if committed is None:
        return Record(0, now_ms, raw_key, None)
    metadata = committed.metadata.encode()
    value = b"".join(
        (
            _OFFSET_HEAD.pack(OFFSET_VALUE_VERSION, committed.offset, committed.leader_epoch, len(metadata)),
            metadata,
            _TIMESTAMP.pack(committed.commit_timestamp),
        )
    )
    if with_topic_id and committed.topic_id is not None:
        return Record(0, now_ms, raw_key, value, [(TOPIC_ID_HEADER, committed.topic_id.bytes)])
    return Record(0, now_ms, raw_key, value)


def encode_group(group: Group, now_ms: int, topic_ids: Mapping[str, uuid.UUID] | None = None) -> Record:
    """Return the record that describes *group* and its members.

    Args:
        group: to write down.
        now_ms: the record's time.
        topic_ids: of the topics that its members read, by name; None in formats below level 3.
    """
    value = _GroupValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader_id,
        current_state_timestamp=now_ms,
        members=[
            _MemberValue(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol),
                assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
    headers: list[tuple[str, bytes | None]] = []
    if topic_ids is not None:
        headers.append(topic_ids_header(topic_ids))
    return Record(0, now_ms, _group_key(group.group_id), encode_versioned(GROUP_VALUE_VERSION, value), headers)


def encode_group_end(group_id: str, now_ms: int) -> Record:
    """Return the record that says there is no such group any more."""
    return Record(0, now_ms, _group_key(group_id), None)


def decode_key(raw: bytes) -> OffsetKey | str | None:
    """Return whose offset a record has, or the id of the group it describes; None for what we do not know.

    Raises:
        ProtocolError: the key contradicts itself.
    """
    version, body = split_version(raw)
    if version in (0, OFFSET_KEY_VERSION):
        key = codec.decode(_OffsetKey, 1, False, body, MAX_MEMBERS)
        return OffsetKey(key.group, key.topic, key.partition)
    if version == GROUP_KEY_VERSION:
        return str(codec.decode(_GroupKey, 0, False, body, MAX_MEMBERS).group)
    return None


def decode_offset(raw: bytes, headers: Iterable[tuple[str, bytes | None]] = ()) -> CommittedOffset:
    """Return what `encode_offset` wrote.

    Args:
        raw: the record's value.
        headers: the record's headers.

    Raises:
        ProtocolError: the value contradicts itself or is of a version that is not known, or the topic id is none.
    """
    version, body = split_version(raw)
    if not 0 <= version <= OFFSET_VALUE_VERSION:
        raise ProtocolError(f"committed offset of version {version}")
    value = codec.decode(_OffsetValue, version, False, body, MAX_MEMBERS)
    topic_id = None
    for name, content in headers:
        if name == TOPIC_ID_HEADER:
            if content is None or len(content) != TOPIC_ID_BYTES:
                raise ProtocolError(f"topic id of {len(content or b'')} bytes beside a committed offset")
            topic_id = uuid.UUID(bytes=content)
    return CommittedOffset(value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, topic_id)


def decode_group(
    group_id: str, raw: bytes, config: GroupConfig, headers: Iterable[tuple[str, bytes | None]] = ()
) -> Group:
    """Return what `encode_group` wrote; the caller restores it.

    Args:
        group_id: of the record's key.
        raw: the record's value.
        config: bounds of the group.
        headers: the record's headers.

    Raises:
        ProtocolError: the value contradicts itself or is of a version that is not known, or the topic ids are none.
    """
    version, body = split_version(raw)
    if not 0 <= version <= GROUP_VALUE_VERSION:
        raise ProtocolError(f"group {group_id} of version {version}")
    value = codec.decode(_GroupValue, version, False, body, MAX_MEMBERS)
    group = Group(group_id, config)
    group.generation, group.written_ms = value.generation, value.current_state_timestamp
    group.protocol_type = value.protocol_type or None
    group.protocol = value.protocol
    group.leader_id = value.leader
    group.topic_ids = find_topic_ids(headers)
    for row in value.members:
        group.members[row.member_id] = Member(
            row.member_id,
            row.group_instance_id,
            row.client_id,
            row.client_host,
            row.session_timeout,
            row.rebalance_timeout if version >= 1 else row.session_timeout,
            [(value.protocol or "", row.subscription)],
            assignment=row.assignment,
        )
    return group


def _group_key(group_id: str) -> bytes:
    return encode_versioned(GROUP_KEY_VERSION, _GroupKey(group=group_id), layout=0)
