"""Transactions at rest: what Kafka leaves in a log with transactions, beside what pylog makes of the same batches."""

import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from pylog.log.config import LogConfig
from pylog.log.log import Log
from pylog.log.producers import ProducerFacts
from pylog.model import TopicPartition
from pylog.wire.markers import Marker, encode_marker
from pylog.wire.records import parse_header
from tests.interop.conftest import create_topic
from tests.servers.dump import COMPLAINT, dump
from tests.servers.kafka import KafkaServer

PARTITION = TopicPartition("moved", 0)
CONFIG = LogConfig(segment_bytes=1 << 20)


def transactional(bootstrap: str, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(30)
    return producer


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A partition's directory as Kafka leaves it: transactions beside each other, over several segments, one open."""
    settings = {
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    with KafkaServer(tmp_path_factory.mktemp("kafka"), settings) as server:
        create_topic(server.bootstrap, "moved", segment_bytes="1000")
        producers = [transactional(server.bootstrap, f"id {number}") for number in range(3)]
        for number in range(12):
            for producer in producers:
                producer.begin_transaction()
                producer.produce("moved", b"value %d" % number, b"key")
                producer.flush(30)
            # In another order than they began, so that some abort while others are open.
            for place, producer in enumerate(reversed(producers)):
                if (number + place) % 2:
                    producer.abort_transaction(30)
                else:
                    producer.commit_transaction(30)
        producers[1].begin_transaction()
        producers[1].produce("moved", b"open", b"key")
        producers[1].flush(30)
        server.stop()
        yield server.data_dir / "moved-0"


def open_log(directory: Path, *, is_clean: bool) -> Log:
    log = Log.open(directory, PARTITION, CONFIG, now_ms=0, clean=is_clean, recovery_point=0)
    log.high_watermark = log.log_end_offset
    return log


def indexes(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("*.txnindex") if path.stat().st_size}


def producers(log: Log) -> list[ProducerFacts]:
    """Return what is known of producers, but for the time, which a log that is read again does not know."""
    return sorted(facts._replace(timestamp=0) for facts in log.producers.facts())


def entries(path: Path) -> list[tuple[int, ...]]:
    """Return the entries of a snapshot as Kafka has them, sorted, without timestamps."""
    data = path.read_bytes()
    (count,) = struct.unpack_from(">i", data, 6)
    rows = struct.Struct(">qhiqiqiq").iter_unpack(data[10 : 10 + count * 46])
    return sorted((*row[:5], *row[6:]) for row in rows)


def test_the_test_has_what_it_is_about(theirs: Path) -> None:
    assert len(indexes(theirs)) > 2, "aborts in several segments"
    [*_, last] = sorted(theirs.glob("*.snapshot"))
    assert [row[-1] >= 0 for row in entries(last)].count(True) == 1, "one transaction is open"


def test_the_same_index_and_snapshot_are_made_from_the_same_batches(theirs: Path, tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    ours.mkdir()
    for path in theirs.glob("*.log"):
        shutil.copy(path, ours)
    log = open_log(ours, is_clean=False)
    log.close()
    assert indexes(ours) == indexes(theirs)
    name = f"{log.log_end_offset:020d}.snapshot"
    assert entries(ours / name) == entries(theirs / name)


def test_a_directory_of_kafka_is_taken_over(theirs: Path, tmp_path: Path) -> None:
    adopted, read_again = tmp_path / "adopted", tmp_path / "read_again"
    shutil.copytree(theirs, adopted)
    shutil.copytree(theirs, read_again, ignore=shutil.ignore_patterns("*.snapshot", "*index"))
    log, other = open_log(adopted, is_clean=True), open_log(read_again, is_clean=False)
    assert producers(log) == producers(other)
    assert log.last_stable_offset == other.last_stable_offset == log.log_end_offset - 1
    found = log.read(0, 1 << 20, upper_bound_offset=log.last_stable_offset, min_one_batch=True)
    assert found is not None
    assert log.aborted_transactions(0, found)
    [writer] = [facts for facts in log.producers.facts() if facts.transaction_start >= 0]
    marker = Marker(False, writer.coordinator_epoch)
    batch = memoryview(bytearray(encode_marker(writer.producer_id, writer.epoch, marker, 1)))
    log.append_as_leader(batch, parse_header(batch), 0, 0, marker)
    log.high_watermark = log.log_end_offset
    assert log.last_stable_offset == log.log_end_offset
    log.close()
    other.close()


def test_kafkas_tool_reads_what_pylog_wrote(theirs: Path, tmp_path: Path) -> None:
    ours = tmp_path / "moved-0"
    shutil.copytree(theirs, ours, ignore=shutil.ignore_patterns("*.snapshot", "*index"))
    open_log(ours, is_clean=False).close()
    files = [*sorted(ours.glob("*.txnindex")), *sorted(ours.glob("*.snapshot"))[-1:]]
    output = dump(files)
    assert not COMPLAINT.search(output), output[-3000:]
    rows = sum(len(data) // 34 for data in indexes(theirs).values())
    assert output.count("version: 0 producerId:") == rows
    assert output.count("coordinatorEpoch: 0") == 3
