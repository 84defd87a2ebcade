"""The records of `__consumer_offsets`, beside bytes that Apache Kafka 3.9 wrote."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.errors import ProtocolError
from pylog.group.records import (
    TOPIC_ID_HEADER,
    CommittedOffset,
    OffsetKey,
    decode_group,
    decode_key,
    decode_offset,
    encode_group,
    encode_group_end,
    encode_offset,
    partition_for,
)
from pylog.group.state import Group, GroupConfig, Member, State
from pylog.wire.internal_topics import TOPIC_IDS_HEADER
from tests.unit.group.members import group_of

KAFKA_OFFSET_KEY = bytes.fromhex("00010006676f6c64656e00017400000000")
KAFKA_OFFSET_VALUE = bytes.fromhex("000300000000000000070000000000056e6f746500000001a1fec4aaa9")
KAFKA_GROUP_KEY = bytes.fromhex("00020006676f6c64656e")
KAFKA_GROUP_VALUE = bytes.fromhex(
    "00030008636f6e73756d657200000001000572616e676500286f6e652d61393662623864352d343938352d343963392d613337612d"
    "34623835616238663639636300000"
    "1a1fec4ace70000000100286f6e652d61393662623864352d343938352d343963392d6133376"
    "12d34623835616238663639636300036f6e6500026d65000a2f3132372e302e302e310000ea600000753000000017000300000001000"
    "1740000000000000000ffffffff000000000015000000000001000174000000010000000000000000"
)
KAFKA_GROUP_TIME_MS = 0x1A1FEC4ACE7
NOTE = "note\0"  # librdkafka sends the end of its C string along
MEMBER_ID = "one-a96bb8d5-4985-49c9-a37a-4b85ab8f69cc"

TEXT = st.text(max_size=20)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(
    ("group_id", "partition"),
    [
        ("golden", 43),
        ("Kunden-ä", 6),
        ("日本", 47),
        ("gr😀up", 29),
        ("console-consumer-12345", 6),
        ("a" * 100, 40),
    ],
)
def test_a_group_lives_where_kafka_keeps_it(group_id: str, partition: int) -> None:
    assert partition_for(group_id, 50) == partition


def test_a_hash_that_is_negative_in_java_still_names_a_partition() -> None:
    # Its hash is Integer.MIN_VALUE, whose absolute value Java cannot represent.
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("", 50) == 0


def test_an_offset_is_written_as_kafka_writes_it() -> None:
    record = encode_offset(OffsetKey("golden", "t", 0), CommittedOffset(7, 0, NOTE, 0x1A1FEC4AAA9), 5)
    assert (record.key, record.value, record.timestamp) == (KAFKA_OFFSET_KEY, KAFKA_OFFSET_VALUE, 5)


def test_kafkas_offset_is_read() -> None:
    assert decode_key(KAFKA_OFFSET_KEY) == OffsetKey("golden", "t", 0)
    assert decode_offset(KAFKA_OFFSET_VALUE) == CommittedOffset(7, 0, NOTE, 0x1A1FEC4AAA9)


def test_kafkas_group_is_read_and_written_back_the_same() -> None:
    assert decode_key(KAFKA_GROUP_KEY) == "golden"
    group = decode_group("golden", KAFKA_GROUP_VALUE, GroupConfig())
    group.restore(0)
    assert (group.state, group.generation, group.protocol_type, group.protocol) == (
        State.STABLE,
        1,
        "consumer",
        "range",
    )
    assert group.leader_id == MEMBER_ID
    assert group.instances == {"one": MEMBER_ID}
    member = group.members[MEMBER_ID]
    assert (member.client_id, member.client_host) == ("me", "/127.0.0.1")
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (30_000, 60_000)
    record = encode_group(group, KAFKA_GROUP_TIME_MS)
    assert (record.key, record.value) == (KAFKA_GROUP_KEY, KAFKA_GROUP_VALUE)


def test_what_is_gone_has_no_value() -> None:
    assert encode_offset(OffsetKey("golden", "t", 0), None, 5).key == KAFKA_OFFSET_KEY
    assert encode_offset(OffsetKey("golden", "t", 0), None, 5).value is None
    assert (encode_group_end("golden", 5).key, encode_group_end("golden", 5).value) == (KAFKA_GROUP_KEY, None)


@given(key=st.builds(OffsetKey, TEXT, TEXT, INT32), committed=st.builds(CommittedOffset, INT64, INT32, TEXT, INT64))
def test_offsets_round_trip(key: OffsetKey, committed: CommittedOffset) -> None:
    record = encode_offset(key, committed, 0)
    assert record.key is not None
    assert record.value is not None
    assert decode_key(record.key) == key
    assert decode_offset(record.value) == committed


def test_a_topic_id_travels_in_a_header_and_leaves_key_and_value_as_kafka_writes_them() -> None:
    committed = CommittedOffset(7, 0, NOTE, 0x1A1FEC4AAA9, UUID(int=6))
    record = encode_offset(OffsetKey("golden", "t", 0), committed, 5, with_topic_id=True)
    assert (record.key, record.value) == (KAFKA_OFFSET_KEY, KAFKA_OFFSET_VALUE)
    assert record.headers == [(TOPIC_ID_HEADER, UUID(int=6).bytes)]
    other = ("traced", b"1")
    assert decode_offset(KAFKA_OFFSET_VALUE, [other, *record.headers]) == committed
    assert encode_offset(OffsetKey("golden", "t", 0), committed, 5).headers == [], "rule 15: level 2 has none"


@pytest.mark.parametrize("content", [None, b"", bytes(15), bytes(17)])
def test_a_topic_id_of_another_size_is_refused(content: bytes | None) -> None:
    with pytest.raises(ProtocolError, match="topic id of"):
        decode_offset(KAFKA_OFFSET_VALUE, [(TOPIC_ID_HEADER, content)])


def test_groups_round_trip() -> None:
    group = group_of(10_000, 20_000, 30_000, instances=("a",)).group
    record = encode_group(group, 9)
    assert record.value is not None
    found = decode_group("g", record.value, group.config)
    found.restore(0)
    assert (found.generation, found.leader_id, found.instances) == (group.generation, "m1", {"a": "m1"})
    assert [_told(member) for member in found.members.values()] == [_told(one) for one in group.members.values()]


@pytest.mark.parametrize("topic_ids", [None, {}, {"u": UUID(int=7), "t": UUID(int=6)}], ids=["level 2", "none", "two"])
def test_the_ids_of_a_groups_topics_travel_in_a_header(topic_ids: dict[str, UUID] | None) -> None:
    group = group_of(10_000).group
    record = encode_group(group, 9, topic_ids)
    assert record.value is not None
    assert (record.key, record.value) == (encode_group(group, 9).key, encode_group(group, 9).value)
    assert [name for name, _ in record.headers] == ([] if topic_ids is None else [TOPIC_IDS_HEADER])
    found = decode_group("g", record.value, group.config, [("traced", b"1"), *record.headers])
    assert found.topic_ids == topic_ids


@pytest.mark.parametrize(
    "content", [b"\0", b"\0\1t", b"\0\1t" + bytes(15), b"\0\1\xff" + bytes(16), b"\xff\xff" + bytes(15)]
)
def test_false_topic_ids_of_a_group_are_refused(content: bytes) -> None:
    with pytest.raises(ProtocolError, match="topic ids of"):
        decode_group("golden", KAFKA_GROUP_VALUE, GroupConfig(), [(TOPIC_IDS_HEADER, content)])


def test_an_empty_group_round_trips() -> None:
    group = group_of(10_000).group
    group.leave("m1", None, 0)
    record = encode_group(group, 9)
    assert record.value is not None
    found = decode_group("g", record.value, group.config)
    found.restore(0)
    assert (found.state, found.generation, found.protocol, found.leader_id) == (State.EMPTY, 2, None, None)


@pytest.mark.parametrize(
    ("version", "value", "committed"),
    [
        (0, "0000000000000007 0004 6e6f7465 0000000000000009", CommittedOffset(7, -1, "note", 9)),
        (1, "0000000000000007 0000 0000000000000009 00000000000000ff", CommittedOffset(7, -1, "", 9)),
        (2, "0000000000000007 0000 0000000000000009", CommittedOffset(7, -1, "", 9)),
    ],
)
def test_older_brokers_offsets_are_read(version: int, value: str, committed: CommittedOffset) -> None:
    assert decode_offset(version.to_bytes(2, "big") + bytes.fromhex(value)) == committed
    assert decode_key(b"\0\0" + KAFKA_OFFSET_KEY[2:]) == OffsetKey("golden", "t", 0)


def test_a_group_of_version_0_waits_as_long_as_a_session() -> None:
    strings = b"\0\1p" + b"\0\0\0\5" + b"\0\1r" + b"\0\1m"
    member = b"\0\1m" + b"\0\1c" + b"\0\1h" + b"\0\0\x27\x10" + b"\0\0\0\1s" + b"\0\0\0\1a"
    group = decode_group("g", b"\0\0" + strings + b"\0\0\0\1" + member, GroupConfig())
    only = group.members["m"]
    assert (only.session_timeout_ms, only.rebalance_timeout_ms, only.assignment) == (10_000, 10_000, b"a")


def test_kinds_of_keys_that_are_not_known_are_passed_over() -> None:
    assert decode_key(b"\0\7whatever") is None


@pytest.mark.parametrize("raw", [b"", b"\0", b"\0\4" + bytes(20), b"\xff\xff" + bytes(20), KAFKA_OFFSET_VALUE[:-1]])
def test_a_value_that_cannot_be_is_refused(raw: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_offset(raw)


@given(raw=st.binary(max_size=60), cut=st.integers(0, len(KAFKA_GROUP_VALUE)))
def test_damaged_records_are_read_or_refused(raw: bytes, cut: int) -> None:
    for damaged in (raw, KAFKA_GROUP_VALUE[:cut] + raw, b"\0\3" + raw, b"\0\1" + raw):
        for read in (decode_key, decode_offset, lambda data: decode_group("g", data, GroupConfig())):
            try:
                found = read(damaged)
            except ProtocolError:
                continue
            assert isinstance(found, OffsetKey | str | CommittedOffset | Group | None)


def _told(member: Member) -> tuple[object, ...]:
    return (
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.session_timeout_ms,
        member.rebalance_timeout_ms,
        member.protocols,
        member.assignment,
    )
