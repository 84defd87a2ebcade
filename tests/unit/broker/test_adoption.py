"""What a standalone broker does with logs whose cluster is gone."""

import uuid
from pathlib import Path

import pytest

from pylog.broker.adoption import adopt
from pylog.broker.config import STANDALONE_ID, STORE
from pylog.cluster import znodes
from pylog.cluster.restore import EPOCH_MARGIN, PRODUCER_ID_MARGIN
from pylog.group.records import TOPIC as OFFSETS_TOPIC
from pylog.group.records import CommittedOffset, OffsetKey, encode_offset, partition_for
from pylog.log.config import LogConfig
from pylog.log.directory import LogDirectory
from pylog.log.log import Log
from pylog.model import TRANSACTIONS_TOPIC, TopicPartition
from pylog.store.embedded import EmbeddedStore
from pylog.transaction.records import encode_transaction
from pylog.transaction.state import TransactionMetadata, TransactionState
from pylog.wire.markers import decode_marker
from pylog.wire.records import TRANSACTIONAL, Record, check_stored_batch, encode_batch
from tests.unit.log.batches import batch

KEY = TopicPartition("t", 0)
TOPIC_ID = uuid.UUID(int=5)


def open_log(path: Path, topic_id: uuid.UUID = TOPIC_ID) -> tuple[LogDirectory, Log]:
    directory = LogDirectory.open(path, broker_id=STANDALONE_ID)
    directory.join("c")
    log = directory.get_or_create(KEY, topic_id, LogConfig(), now_ms=0)
    log.high_watermark = log.log_end_offset
    return directory, log


def store_of(path: Path) -> EmbeddedStore:
    store = EmbeddedStore.open(path / STORE)
    store.connect()
    return store


def test_open_transactions_are_aborted_since_nobody_else_can_end_them(tmp_path: Path) -> None:
    directory, log = open_log(tmp_path)
    view = batch(producer_id=9, producer_epoch=4, base_sequence=0, attributes=TRANSACTIONAL)
    log.append_as_leader(view, check_stored_batch(view), 2, 0)
    directory.close()
    told: list[tuple[int, int]] = []
    adopt(tmp_path, now_ms=5_000, on_progress=lambda *topics: told.append(topics))
    assert told == [(1, 1)]
    directory, log = open_log(tmp_path)
    assert (log.log_end_offset, log.last_stable_offset) == (2, 2)
    found = log.read(0, 1 << 20, upper_bound_offset=2, min_one_batch=True)
    assert found is not None
    assert log.aborted_transactions(0, found) == [(9, 0)]
    assert log.epochs.latest == 2
    directory.close()


def test_transactions_that_the_adopted_coordinator_will_end_are_left_to_it(tmp_path: Path) -> None:
    directory, log = open_log(tmp_path)
    for producer_id in (7, 8, 9):
        view = batch(producer_id=producer_id, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)
        log.append_as_leader(view, check_stored_batch(view), 2, 0)
    ids = directory.get_or_create(TopicPartition(TRANSACTIONS_TOPIC, 0), uuid.UUID(int=6), LogConfig(), now_ms=0)
    # Of 9 the coordinator knows that the transaction has ended: what is open hangs.
    states = {7: TransactionState.PREPARE_COMMIT, 8: TransactionState.ONGOING, 9: TransactionState.COMPLETE_COMMIT}
    for producer_id, state in states.items():
        partitions = frozenset() if state is TransactionState.COMPLETE_COMMIT else frozenset({(KEY.topic, 0)})
        metadata = TransactionMetadata(
            producer_id=producer_id, producer_epoch=0, timeout_ms=1, state=state, partitions=partitions, update_ms=0
        )
        view = memoryview(bytearray(encode_batch([encode_transaction(f"id {producer_id}", metadata, 0)])))
        ids.append_as_leader(view, check_stored_batch(view), 0, 0)
    directory.close()
    [topic, _] = sorted(adopt(tmp_path, now_ms=5_000), key=lambda one: one.name)
    assert (topic.name, topic.configs["cleanup.policy"]) == (TRANSACTIONS_TOPIC, "compact")
    directory, log = open_log(tmp_path)
    assert {one.producer_id for one in log.producers.facts() if one.transaction_start >= 0} == {7, 8}
    directory.close()


def write(log: Log, *rows: Record) -> None:
    for row in rows:
        view = memoryview(bytearray(encode_batch([row])))
        log.append_as_leader(view, check_stored_batch(view), 0, 0)


def transaction(producer_id: int, state: TransactionState, topic_id: uuid.UUID | None) -> Record:
    metadata = TransactionMetadata(
        producer_id=producer_id, producer_epoch=0, timeout_ms=1, state=state, update_ms=0,
        partitions=frozenset({(KEY.topic, 0)}), topic_ids={} if topic_id is None else {KEY.topic: topic_id},
    )  # fmt: skip
    return encode_transaction(f"id {producer_id}", metadata, 0)


def begin(log: Log, *producer_ids: int) -> None:
    for producer_id in producer_ids:
        view = batch(producer_id=producer_id, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)
        log.append_as_leader(view, check_stored_batch(view), 2, 0)


def ends(path: Path, topic_id: uuid.UUID = TOPIC_ID) -> dict[int, str]:
    """Return by producer how its transaction stands."""
    directory, log = open_log(path, topic_id)
    found = dict.fromkeys((one.producer_id for one in log.producers.facts() if one.transaction_start >= 0), "open")
    for segment in log.segments:
        for position, header in segment.batches():
            if header.is_control:
                marker = decode_marker(segment.read_batch(position, header.size_bytes), header)
                assert marker is not None
                found[header.producer_id] = "committed" if marker.is_commit else "aborted"
    directory.close()
    return found


@pytest.mark.parametrize(
    "damaged",
    [
        Record(0, 0, b"\0\0\0\4id x", b"\0\7"),  # a later version
        Record(0, 0, b"\0\0\0\4id x", b""),
        Record(0, 0, b"\0\0\0\4i", b""),
    ],
)
def test_a_record_of_ids_that_does_not_decode_costs_its_partition_alone(tmp_path: Path, damaged: Record) -> None:
    directory, log = open_log(tmp_path)
    begin(log, 5, 6, 7, 8)
    for number, producer_ids in ((0, (5, 6)), (1, (7, 8))):
        key = TopicPartition(TRANSACTIONS_TOPIC, number)
        ids = directory.get_or_create(key, uuid.UUID(int=6), LogConfig(), now_ms=0)
        states = TransactionState.PREPARE_COMMIT, TransactionState.ONGOING
        for producer_id, state in zip(producer_ids, states, strict=True):
            write(ids, transaction(producer_id, state, TOPIC_ID))
        if number == 0:
            write(ids, damaged)
    directory.close()
    adopt(tmp_path, now_ms=5_000)
    assert ends(tmp_path) == {5: "committed", 6: "aborted", 7: "open", 8: "open"}


def test_transactions_of_a_partition_that_lost_its_topic_id_are_ended_since_no_coordinator_finds_it(
    tmp_path: Path,
) -> None:
    directory, log = open_log(tmp_path)
    begin(log, 7, 8, 9)
    ids = directory.get_or_create(TopicPartition(TRANSACTIONS_TOPIC, 0), uuid.UUID(int=6), LogConfig(), now_ms=0)
    write(ids, transaction(7, TransactionState.PREPARE_COMMIT, TOPIC_ID))
    write(ids, transaction(8, TransactionState.ONGOING, TOPIC_ID))
    write(ids, transaction(9, TransactionState.PREPARE_COMMIT, None))  # as Apache Kafka writes it: found by name
    directory.close()
    (tmp_path / str(KEY) / "partition.metadata").unlink()
    [_, topic] = sorted(adopt(tmp_path, now_ms=5_000), key=lambda one: one.name)
    assert topic.topic_id not in (None, TOPIC_ID)
    assert ends(tmp_path, topic.topic_id) == {7: "committed", 8: "aborted", 9: "open"}


def test_producer_ids_and_leader_epochs_go_on_far_above_what_the_logs_have(tmp_path: Path) -> None:
    directory, log = open_log(tmp_path)
    view = batch(producer_id=41_500, producer_epoch=0, base_sequence=0)
    log.append_as_leader(view, check_stored_batch(view), 7, 0)
    # Forgotten for its age, as after a quiet day; the producer that took an id after it may be there still.
    log.producers.expire(1 << 60, 1)
    log.producers.delete_snapshots()
    directory.close()
    adopt(tmp_path, now_ms=5_000)
    store = store_of(tmp_path)
    assert znodes.next_producer_id(store.get(znodes.PRODUCER_ID_BLOCK)[0]) >= 41_501 + PRODUCER_ID_MARGIN
    state = znodes.decode_state(store.get(znodes.state_path(KEY.topic, 0))[0], 0, (STANDALONE_ID,))
    assert state.leader_epoch == 7 + EPOCH_MARGIN
    store.close()


def test_ids_of_producers_that_have_written_nothing_are_not_handed_out_again(tmp_path: Path) -> None:
    directory, _ = open_log(tmp_path)
    directory.close()
    adopt(tmp_path, now_ms=5_000)
    store = store_of(tmp_path)
    assert znodes.next_producer_id(store.get(znodes.PRODUCER_ID_BLOCK)[0]) >= PRODUCER_ID_MARGIN
    store.close()


def test_groups_keep_their_partition_where_the_highest_ones_have_no_directory(tmp_path: Path) -> None:
    directory = LogDirectory.open(tmp_path, broker_id=STANDALONE_ID)
    directory.join("c")
    groups = [f"group-{number}" for number in range(40)]
    placed = {group: partition_for(group, 50) for group in groups if partition_for(group, 50) < 40}
    for group, number in placed.items():
        log = directory.get_or_create(TopicPartition(OFFSETS_TOPIC, number), TOPIC_ID, LogConfig(), now_ms=0)
        record = encode_offset(OffsetKey(group, "t", 0), CommittedOffset(3), 0)
        view = memoryview(bytearray(encode_batch([record])))
        log.append_as_leader(view, check_stored_batch(view), 0, 0)
    directory.close()
    (topic,) = adopt(tmp_path, now_ms=5_000)
    count = len({*topic.partitions, *topic.missing})
    assert {group: partition_for(group, count) for group in placed} == placed
    store = store_of(tmp_path)
    assert len(znodes.decode_assignment(store.get(znodes.topic_path(OFFSETS_TOPIC))[0]).replicas) == count
    store.close()
