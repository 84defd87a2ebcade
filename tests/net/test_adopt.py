"""A standalone broker that lost its store stops, names the way out, and goes on after it with all it had."""

import json
import shutil
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from pylog.cli.app import run
from pylog.log import layout
from pylog.log.config import LogConfig
from pylog.log.log import Log
from pylog.testing import USERS, BrokerProcess, SecuredBroker
from pylog.transaction.records import TOPIC as STATE_TOPIC
from pylog.transaction.records import decode_key, decode_transaction, encode_transaction
from pylog.transaction.state import TransactionState
from pylog.wire.records import check_stored_batch, decode_records, encode_batch
from tests.command import Command
from tests.interop import frames
from tests.interop.frames import Connection


def produce(broker: BrokerProcess, topic: str, values: list[bytes], partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(30) == 0


def read(broker: BrokerProcess, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[bytes] = []
    while len(found) < count:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        value = message.value()
        assert isinstance(value, bytes)
        found.append(value)
    consumer.commit(offsets=[TopicPartition(topic, 0, count)], asynchronous=False)
    consumer.close()
    return found


def new_producer_id(broker: BrokerProcess) -> int:
    with Connection(broker.bootstrap) as connection:
        body = connection.ask(frames.frame(22, 0, struct.pack(">hi", -1, 60_000)))
    return int(struct.unpack_from(">q", body, 6)[0])


def topics(broker: BrokerProcess) -> set[tuple[str, int, int]]:
    rows = broker.admin("GET", "/status")[1]["partitions"]
    return {(row["topic"], row["partition"], row["log_end_offset"]) for row in rows}


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_lost_store_is_built_again_from_the_directories(tmp_path: Path, is_killed: bool) -> None:
    with BrokerProcess(tmp_path, config={"num.partitions": 2}) as broker:
        assert (
            run(
                [
                    "topic",
                    "create",
                    "kept",
                    "--partitions",
                    "2",
                    "--config",
                    "cleanup.policy=compact",
                    "--config",
                    "retention.ms=-1",
                    "--bootstrap",
                    broker.bootstrap,
                ]
            )
            == 0
        )
        produce(broker, "clicks", [b"one", b"two"])
        produce(broker, "clicks", [b"other"], partition=1)
        assert read(broker, "clicks", 2) == [b"one", b"two"]
        last_id = new_producer_id(broker)
        before = topics(broker)
        if is_killed:
            broker.kill()
        else:
            broker.stop()
        shutil.rmtree(broker.data_dir / "store")
        with pytest.raises(RuntimeError, match="pylog cluster adopt --data"):
            broker.start()
        assert run(["cluster", "adopt", "--data", str(broker.data_dir)]) == 0
        with pytest.raises(RuntimeError, match="pylog cluster adopt --data"):
            broker.start()  # it was only named
        assert run(["cluster", "adopt", "--data", str(broker.data_dir), "--yes"]) == 0
        broker.start()
        assert topics(broker) == before
        assert new_producer_id(broker) // 1000 > last_id // 1000  # as a producer may have the whole block
        produce(broker, "clicks", [b"three"])
        assert read(broker, "clicks", 3) == [b"one", b"two", b"three"]
        broker.stop()
        assert run(["cluster", "adopt", "--data", str(broker.data_dir), "--yes"]) == 1  # there is a store


def test_what_retention_and_compaction_go_by_is_adopted_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with BrokerProcess(tmp_path) as broker:
        assert (
            run(
                [
                    "topic",
                    "create",
                    "kept",
                    "--partitions",
                    "1",
                    "--config",
                    "cleanup.policy=compact",
                    "--config",
                    "retention.ms=-1",
                    "--bootstrap",
                    broker.bootstrap,
                ]
            )
            == 0
        )
        produce(broker, "plain", [b"one"])
        broker.stop()
        shutil.rmtree(broker.data_dir / "store")
        assert run(["cluster", "adopt", "--data", str(broker.data_dir), "--yes"]) == 0
        broker.start()
        capsys.readouterr()
        assert run(["topic", "describe", "kept", "--bootstrap", broker.bootstrap, "--format", "json"]) == 0
        said = capsys.readouterr().out
    assert '"cleanup.policy": "compact"' in said
    assert '"retention.ms": "-1"' in said


def test_a_running_broker_s_directory_is_not_adopted(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        assert run(["cluster", "adopt", "--data", str(broker.data_dir), "--yes"]) == 1
        assert broker.admin("GET", "/ready")[0] == 200


def test_directories_of_two_topics_of_one_name_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with BrokerProcess(tmp_path, config={"num.partitions": 2}) as broker:
        produce(broker, "clicks", [b"one"])
        broker.stop()
        file = broker.data_dir / "clicks-1" / "partition.metadata"
        file.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
        shutil.rmtree(broker.data_dir / "store")
        assert run(["cluster", "adopt", "--data", str(broker.data_dir), "--yes"]) == 1
    assert "directories of clicks are of different topics" in capsys.readouterr().err


def test_a_directory_without_topic_id_and_a_missing_partition_are_adopted(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, config={"num.partitions": 3}) as broker:
        produce(broker, "clicks", [b"one"])
        broker.stop()
        (broker.data_dir / "clicks-0" / "partition.metadata").unlink()
        shutil.rmtree(broker.data_dir / "clicks-1")
        shutil.rmtree(broker.data_dir / "store")
        assert run(["cluster", "adopt", "--data", str(broker.data_dir), "--yes"]) == 0
        broker.start()
        assert {("clicks", 0, 1), ("clicks", 1, 0), ("clicks", 2, 0)} <= topics(broker)


def open_transaction(broker: BrokerProcess, transactional_id: str, value: bytes) -> Producer:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("clicks", value)
    assert producer.flush(30) == 0
    return producer


def decide_to_commit(data_dir: Path, transactional_id: str) -> None:
    """Write down that the open transaction of an id is to be committed, as its coordinator does before it ends."""
    for key, directory in layout.partitions_in(data_dir).items():
        if key.topic != STATE_TOPIC:
            continue
        log = Log.open(directory, key, LogConfig(), now_ms=0, clean=True, recovery_point=0)
        found = None
        for segment in log.segments:
            for position, header in segment.batches(0):
                for row in decode_records(segment.read_batch(position, header.size_bytes), header):
                    if decode_key(row.key or b"") == transactional_id and row.value is not None:
                        found = decode_transaction(row.value, row.headers)
        if found is not None:
            decided = replace(found, state=TransactionState.PREPARE_COMMIT)
            batch = memoryview(bytearray(encode_batch([encode_transaction(transactional_id, decided, 0)])))
            log.append_as_leader(batch, check_stored_batch(batch), log.epochs.latest, 0)
        log.high_watermark = log.log_end_offset
        log.close()


def test_what_an_adopted_coordinator_had_decided_stays_decided_and_its_producers_are_fenced(tmp_path: Path) -> None:
    settings = {"num.partitions": 1, "transaction.state.log.num.partitions": 3}
    with BrokerProcess(tmp_path, config=settings) as broker:
        opened = open_transaction(broker, "opened", b"aborted")
        open_transaction(broker, "decided", b"committed")
        broker.stop()
        decide_to_commit(broker.data_dir, "decided")
        shutil.rmtree(broker.data_dir / "store")
        assert run(["cluster", "adopt", "--data", str(broker.data_dir), "--yes"]) == 0
        broker.start()
        assert read(broker, "clicks", 1) == [b"committed"]
        with pytest.raises(KafkaException):
            opened.commit_transaction(30)
        open_transaction(broker, "opened", b"later").commit_transaction(30)
        assert read(broker, "clicks", 2) == [b"committed", b"later"]


def test_users_and_rights_of_a_lost_store_are_made_again_as_adopt_says(tmp_path: Path) -> None:
    reads = {"resource": "topic", "name": "clicks", "operations": ["Read"]}
    users = [*USERS, {"name": "bob", "password": "bob-password", "acls": [reads]}]
    with SecuredBroker(tmp_path, users=users) as broker:
        producer = Producer(broker.client())
        producer.produce("clicks", b"one")
        assert producer.flush(30) == 0
        broker.stop()
        shutil.rmtree(broker.data_dir / "store")
        pylog = Command(broker.bootstrap)
        said = pylog("cluster", "adopt", "--data", str(broker.data_dir), "--yes").notes
        assert "users and ACLs are lost with the store: make them again" in said
        assert "by pylog user apply" in said
        document = tmp_path / "users.json"
        document.write_text(json.dumps({"users": users}))
        document.chmod(0o600)
        apply = ["user", "apply", str(document), "--config", str(tmp_path / "broker.json")]
        subprocess.run([sys.executable, "-m", "pylog", *apply], check=True, capture_output=True)  # ends with its lock
        broker.start()
        found = AdminClient(broker.client("bob")).list_topics(timeout=30).topics
        assert set(found) == {"clicks"}
