"""Incremental fetch sessions on the wire, read back with kio's definitions, and with Kafka's own consumer (trap 31)."""

import struct
import subprocess
from typing import Any

from kio.index import load_response_schema
from kio.serial import entity_reader

from tests.interop import frames
from tests.interop.batches import Batch
from tests.interop.conftest import Broker, create_topic
from tests.interop.frames import Connection
from tests.servers.kafka import CONSOLE_CONSUMER, REPLICA_VERIFICATION, java_command, java_tool

PARTITIONS = 5
UNKNOWN_SESSION, WRONG_EPOCH = 70, 71


def fetch(
    connection: Connection,
    session_id: int,
    epoch: int,
    offsets: dict[int, int],
    topic: str = "sessions",
    wait_ms: int = 0,
) -> Any:
    """Send Fetch v7 for the partitions of *offsets* and return the answer."""
    parts = b"".join(struct.pack(">iqqi", number, offset, -1, 1 << 20) for number, offset in offsets.items())
    topics = struct.pack(">i", 1) + frames.string(topic.encode()) + struct.pack(">i", len(offsets)) + parts
    head = struct.pack(">iiiibii", -1, wait_ms, 1, 1 << 20, 0, session_id, epoch)
    body = head + (topics if offsets else struct.pack(">i", 0)) + struct.pack(">i", 0)
    found, _ = entity_reader(load_response_schema(frames.FETCH, 7))(
        connection.ask(frames.frame(frames.FETCH, 7, body)), 0
    )
    return found


def told(answer: Any) -> list[int]:
    """Return the partitions that an answer speaks of."""
    return [row.partition_index for topic in answer.responses for row in topic.partitions]


def test_a_session_speaks_only_of_what_changed(broker: Broker) -> None:
    create_topic(broker.bootstrap, "sessions", partitions=PARTITIONS)
    batch = Batch(values=(b"value",)).encode()
    with Connection(broker.bootstrap) as connection:
        first = fetch(connection, 0, 0, dict.fromkeys(range(PARTITIONS), 0))
        assert first.session_id > 0
        assert told(first) == list(range(PARTITIONS))
        assert told(fetch(connection, first.session_id, 1, {})) == []
        connection.ask(frames.produce("sessions", batch))  # to partition 0
        assert told(fetch(connection, first.session_id, 2, {})) == [0]
        after = fetch(connection, first.session_id, 3, {0: 1})
        assert (told(after), after.error_code.value) == ([], 0)


def test_a_waiting_session_is_answered_with_what_came(broker: Broker) -> None:
    create_topic(broker.bootstrap, "waiting", partitions=2)
    with Connection(broker.bootstrap) as reader, Connection(broker.bootstrap) as writer:
        session_id = fetch(reader, 0, 0, {0: 0, 1: 0}, "waiting").session_id
        writer.send(frames.produce("waiting", Batch(values=(b"value",)).encode()))
        answer = fetch(reader, session_id, 1, {}, "waiting", wait_ms=20_000)
        assert told(answer) == [0]
        writer.answer()


def test_wrong_sessions_and_epochs_are_named(broker: Broker) -> None:
    create_topic(broker.bootstrap, "named")
    with Connection(broker.bootstrap) as connection:
        session_id = fetch(connection, 0, 0, {0: 0}, "named").session_id
        assert fetch(connection, session_id, 7, {}, "named").error_code.value == WRONG_EPOCH
        unknown = session_id % 1_000_000 + 1
        assert fetch(connection, unknown, 1, {}, "named").error_code.value == UNKNOWN_SESSION
        assert fetch(connection, session_id, -1, {0: 0}, "named").session_id == 0
        assert fetch(connection, session_id, 1, {}, "named").error_code.value == UNKNOWN_SESSION


def test_kafka_s_verification_tool_reads_by_topic_id(broker: Broker) -> None:
    """It sends Fetch v17 without asking for versions, as a debugging consumer."""
    create_topic(broker.bootstrap, "verified")
    with Connection(broker.bootstrap) as connection:
        connection.ask(frames.produce("verified", Batch(values=(b"value",)).encode()))
    command = java_command(
        REPLICA_VERIFICATION, "--broker-list", broker.bootstrap, "--topics-include", "verified", "--time", "-2",
        "--report-interval-ms", "100",
    )  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE) as tool:
        assert tool.stdout is not None
        try:
            said = next(line for line in tool.stdout if b"max lag" in line)
        finally:
            tool.kill()
    assert b"max lag is 0 for partition verified-0 at offset 1 among 1 partitions" in said


def test_kafka_s_consumer_reads_many_partitions_in_one_session(broker: Broker) -> None:
    create_topic(broker.bootstrap, "many", partitions=20)
    with Connection(broker.bootstrap) as connection:
        for number in range(20):
            values = tuple(b"%d-%d" % (number, row) for row in range(5))
            request = frames.produce("many", Batch(values=values).encode(), partition=number)
            assert frames.produce_result(connection.ask(request))[0] == frames.NONE
    # Few bytes at a time, so that it takes many requests of one session.
    said = java_tool(
        CONSOLE_CONSUMER, "--bootstrap-server", broker.bootstrap, "--topic", "many", "--from-beginning",
        "--max-messages", "100", "--timeout-ms", "30000", "--consumer-property", "fetch.max.bytes=200",
    )  # fmt: skip
    assert sorted(said.split()) == sorted(b"%d-%d" % (number, row) for number in range(20) for row in range(5))
