"""The records of `__transaction_state`, beside bytes that Apache Kafka 3.9 wrote."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.errors import ProtocolError
from pylog.transaction.records import (
    decode_key,
    decode_transaction,
    encode_transaction,
)
from pylog.transaction.state import MAX_EPOCH, NO_TIME, TransactionMetadata, TransactionState
from pylog.wire.internal_topics import TOPIC_IDS_HEADER

OPEN = (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
INT64 = st.integers(-1, 2**63 - 1)


@st.composite
def metadata_of_any_kind(draw: st.DrawFn) -> TransactionMetadata:
    state = draw(st.sampled_from(TransactionState))
    partitions: frozenset[tuple[str, int]] = frozenset()
    topic_ids: dict[str, UUID] = {}
    if state in OPEN:
        partitions = draw(st.frozensets(st.tuples(st.text(max_size=10), st.integers(0, 2**31 - 1)), max_size=5))
        topic_ids = {name: draw(st.uuids()) for name, _ in partitions}
    return TransactionMetadata(
        producer_id=draw(st.integers(0, 2**63 - 1)),
        producer_epoch=draw(st.integers(0, MAX_EPOCH)),
        previous_producer_id=draw(INT64),
        next_producer_id=draw(INT64),
        timeout_ms=draw(st.integers(1, 2**31 - 1)),
        state=state,
        partitions=partitions,
        topic_ids=topic_ids,
        start_ms=draw(INT64) if state in OPEN else NO_TIME,
        update_ms=draw(INT64),
        is_per_epoch=draw(st.booleans()),
    )


@given(transactional_id=st.text(min_size=1, max_size=20), metadata=metadata_of_any_kind())
def test_what_is_written_is_read(transactional_id: str, metadata: TransactionMetadata) -> None:
    record = encode_transaction(transactional_id, metadata, 5)
    assert record.key is not None
    assert record.value is not None
    assert decode_key(record.key) == transactional_id
    assert decode_transaction(record.value, record.headers) == metadata


def test_a_deleted_id_has_a_tombstone() -> None:
    record = encode_transaction("till-1", None, 5)
    assert decode_key(record.key or b"") == "till-1"
    assert record.value is None


# What Apache Kafka 3.9 wrote for one producer: it began, committed two partitions, and aborted a third.
KAFKA_KEY = bytes.fromhex("0000000674696c6c2d31")
KAFKA_PRODUCER = "000000000000000000000000afc8"
ORDERS_0_AND_2 = "0000000100066f7264657273000000020000000000000002"
ORDERS_1 = "0000000100066f72646572730000000100000001"
NO_PARTITIONS = "00000000"
NONE = "ffffffff"


@pytest.mark.parametrize(
    ("status", "partitions", "update_ms", "start_ms"),
    [
        (TransactionState.EMPTY, NONE, 0x1A209351ED8, -1),
        (TransactionState.ONGOING, ORDERS_0_AND_2, 0x1A209351F91, 0x1A209351F91),
        (TransactionState.PREPARE_COMMIT, ORDERS_0_AND_2, 0x1A209352061, 0x1A209351F91),
        (TransactionState.COMPLETE_COMMIT, NO_PARTITIONS, 0x1A20935207E, 0x1A209351F91),
        (TransactionState.ONGOING, ORDERS_1, 0x1A2093520C6, 0x1A2093520C6),
        (TransactionState.PREPARE_ABORT, ORDERS_1, 0x1A2093520EE, 0x1A2093520C6),
        (TransactionState.COMPLETE_ABORT, NO_PARTITIONS, 0x1A2093520EF, 0x1A2093520C6),
    ],
)
def test_what_kafka_wrote_is_read(status: TransactionState, partitions: str, update_ms: int, start_ms: int) -> None:
    times = update_ms.to_bytes(8, "big") + start_ms.to_bytes(8, "big", signed=True)
    raw = bytes.fromhex(f"0000{KAFKA_PRODUCER}{status:02x}{partitions}") + times

    expected = {ORDERS_0_AND_2: {("orders", 0), ("orders", 2)}, ORDERS_1: {("orders", 1)}}.get(partitions, set())
    assert decode_transaction(raw) == TransactionMetadata(
        producer_id=0,
        producer_epoch=0,
        timeout_ms=45_000,
        state=status,
        partitions=frozenset(expected),
        start_ms=start_ms if status in OPEN else NO_TIME,
        update_ms=update_ms,
    )


def test_keys_are_those_of_kafka() -> None:
    assert decode_key(KAFKA_KEY) == "till-1"
    assert encode_transaction("till-1", None, 5).key == KAFKA_KEY


def test_keys_of_other_versions_are_left_alone() -> None:
    assert decode_key(b"\x00\x07whatever") is None


@pytest.mark.parametrize(
    "raw",
    [b"", b"\x00", b"\x00\x00\x00\x09abc"],
    ids=["nothing", "half-a-version", "longer-than-the-key"],
)
def test_a_key_that_contradicts_itself(raw: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_key(raw)


def _value(**changes: int) -> bytes:
    fields = {"version": 1, "producer_id": 5, "epoch": 2, "state": 0, **changes}
    return b"".join(
        (
            fields["version"].to_bytes(2, "big"),
            fields["producer_id"].to_bytes(8, "big", signed=True),
            fields["epoch"].to_bytes(2, "big", signed=True),
            (1000).to_bytes(4, "big"),
            fields["state"].to_bytes(1, "big", signed=True),
            b"\x00" + bytes(16) + b"\x00",
        )
    )


def test_the_value_that_the_next_test_spoils_is_good() -> None:
    assert decode_transaction(_value()).producer_id == 5


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00",
        _value(version=2),
        _value(state=6),
        _value(state=-1),
        _value(producer_id=-1),
        _value(epoch=-1),
        _value()[:-1],
    ],
    ids=["short", "version", "dead", "negative-state", "no-producer", "no-epoch", "cut"],
)
def test_a_value_that_contradicts_itself(raw: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_transaction(raw)


@pytest.mark.parametrize(
    "content", [b"\x00", b"\x00\x01a" + bytes(15), b"\xff\xff" + bytes(16), b"\x00\x01\xff" + bytes(16)]
)
def test_topic_ids_that_contradict_themselves(content: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_transaction(_value(state=1), [(TOPIC_IDS_HEADER, content)])
