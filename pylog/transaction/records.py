"""What `__transaction_state` holds, in Kafka's own record format, so that Kafka's tools and brokers read it too.

key   => version: int16 = 0, transactional_id: string
value => version: int16 = 1, rest          null: the id is deleted

The ids of the topics of an open transaction stand in a record header; see `pylog.wire.internal_topics`.

Source: Kafka's TransactionLogKey and TransactionLogValue message definitions; version 1 as Kafka 4.3 writes it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated

from pylog.errors import ProtocolError
from pylog.model import TRANSACTIONS_TOPIC
from pylog.transaction.state import (
    MAX_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    TransactionMetadata,
    TransactionState,
)
from pylog.wire.api import codec
from pylog.wire.api.schema import Int8, Int16, Int32, Int64, Versions
from pylog.wire.internal_topics import encode_versioned, find_topic_ids, split_version, topic_ids_header
from pylog.wire.records import Record

TOPIC = TRANSACTIONS_TOPIC

KEY_VERSION = 0
VALUE_VERSION = 1

PER_EPOCH_VERSION = 2
"""Kafka's `transaction.version` of a client for which each transaction has an epoch of its own."""

MAX_ELEMENTS = 1 << 20
"""Topics or partitions of one transaction that a record may claim."""


@dataclass(slots=True, kw_only=True)
class _Key:
    transactional_id: str


@dataclass(slots=True, kw_only=True)
class _Topic:
    topic: str
    partition_ids: list[Int32] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class _Value:
    producer_id: Int64
    previous_producer_id: Annotated[Int64, Versions(1, tag=0)] = NO_PRODUCER_ID
    next_producer_id: Annotated[Int64, Versions(1, tag=1)] = NO_PRODUCER_ID
    producer_epoch: Int16
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: list[_Topic] | None
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Annotated[Int16, Versions(1, tag=2)] = 0


def encode_transaction(transactional_id: str, metadata: TransactionMetadata | None, now_ms: int) -> Record:
    """Return the record that says *metadata* of an id, or with None that the id is deleted."""
    key = encode_versioned(KEY_VERSION, _Key(transactional_id=transactional_id))
    if metadata is None:
        return Record(0, now_ms, key, None)
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(metadata.partitions):
        by_topic.setdefault(topic, []).append(partition)
    is_empty = metadata.state is TransactionState.EMPTY
    value = _Value(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state,
        transaction_partitions=None
        if is_empty
        else [_Topic(topic=name, partition_ids=rows) for name, rows in by_topic.items()],
        transaction_last_update_timestamp_ms=metadata.update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
        client_transaction_version=PER_EPOCH_VERSION if metadata.is_per_epoch else 0,
    )
    headers: list[tuple[str, bytes | None]] = []
    if metadata.topic_ids:
        headers.append(topic_ids_header(metadata.topic_ids))
    return Record(0, now_ms, key, encode_versioned(VALUE_VERSION, value, is_flexible=True), headers)


def decode_key(raw: bytes) -> str | None:
    """Return the transactional id that a record is about; None for a key of a version that is not known.

    Raises:
        ProtocolError: the key contradicts itself.
    """
    version, body = split_version(raw)
    if version != KEY_VERSION:
        return None
    return str(codec.decode(_Key, 0, False, body, MAX_ELEMENTS).transactional_id)


def decode_transaction(raw: bytes, headers: Iterable[tuple[str, bytes | None]] = ()) -> TransactionMetadata:
    """Return what `encode_transaction` wrote, or Kafka did.

    Args:
        raw: the record's value.
        headers: the record's headers.

    Raises:
        ProtocolError: the value contradicts itself or is of a version or state that is not known.
    """
    version, body = split_version(raw)
    if not 0 <= version <= VALUE_VERSION:
        raise ProtocolError(f"transaction of version {version}")
    value = codec.decode(_Value, version, version >= 1, body, MAX_ELEMENTS)
    try:
        state = TransactionState(value.transaction_status)
    except ValueError:
        raise ProtocolError(f"transaction in state {value.transaction_status}") from None
    if value.producer_id < 0 or not 0 <= value.producer_epoch <= MAX_EPOCH:
        raise ProtocolError(f"transaction of producer {value.producer_id} epoch {value.producer_epoch}")
    has_partitions = state is TransactionState.ONGOING or state.is_ending
    topics = value.transaction_partitions or []
    return TransactionMetadata(
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        # Kafka leaves the partitions in place when a transaction is complete; nobody reads them then.
        partitions=frozenset((row.topic, number) for row in topics for number in row.partition_ids)
        if has_partitions
        else frozenset(),
        topic_ids=MappingProxyType(find_topic_ids(headers) or {}) if has_partitions else MappingProxyType({}),
        start_ms=value.transaction_start_timestamp_ms if has_partitions else NO_TIME,
        update_ms=value.transaction_last_update_timestamp_ms,
        is_per_epoch=value.client_transaction_version >= PER_EPOCH_VERSION,
    )
