"""A restart, clean or not, keeps every acknowledged record, every topic, and what producers were told."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop import frames
from tests.interop.admins import ConfluentAdmin
from tests.interop.batches import Batch
from tests.interop.clients import Confluent, Record
from tests.interop.conftest import Broker, create_topic, run_broker
from tests.interop.frames import Connection
from tests.servers.dump import check_all

SEGMENT_BYTES = 64 << 10
RECORDS = [
    Record(b"%d" % number, b"record %d " % number * 20, (("n", b"%d" % number),), 1_500_000_000_000 + number)
    for number in range(2_000)
]


def _restart(broker: Broker) -> None:
    broker.restart()


def _crash(broker: Broker) -> None:
    broker.kill()
    broker.start()


@pytest.mark.parametrize("again", [_restart, _crash], ids=["clean", "kill -9"])
def test_everything_is_still_there(tmp_path: Path, again: Callable[[Broker], None]) -> None:
    # Of now: a producer whose last batch is older than producer.id.expiration.ms is forgotten by a restart.
    now_ms = time.time_ns() // 1_000_000
    batch = Batch(producer_id=4_711, producer_epoch=0, base_sequence=0, timestamp_ms=now_ms).encode()
    client = Confluent()
    with run_broker(tmp_path, {"log.segment.bytes": SEGMENT_BYTES}) as broker:
        create_topic(broker.bootstrap, "kept", partitions=1, retention_ms="-1", cleanup_policy="delete")
        create_topic(broker.bootstrap, "empty", partitions=3)
        create_topic(broker.bootstrap, "deduplicated")
        for first in range(0, len(RECORDS), 100):
            client.produce(broker.bootstrap, "kept", RECORDS[first : first + 100])
        with Connection(broker.bootstrap) as connection:
            assert frames.produce_result(connection.ask(frames.produce("deduplicated", batch))) == (frames.NONE, 0)
        before = client.consume(broker.bootstrap, "kept", len(RECORDS))
        assert len(list((broker.data_dir / "kept-0").glob("*.log"))) > 2, "the test wants several segments"

        for round_number in (1, 2):
            again(broker)
            assert {"kept", "empty", "deduplicated"} <= ConfluentAdmin().topics(broker.bootstrap)
            assert ConfluentAdmin().partitions(broker.bootstrap, "empty") == 3
            assert ConfluentAdmin().config(broker.bootstrap, "kept")["retention.ms"] == "-1"
            assert client.consume(broker.bootstrap, "kept", len(RECORDS)) == before
            with Connection(broker.bootstrap) as connection:
                end = frames.listed_offset(connection.ask(frames.list_offsets("kept")))
                assert end == len(RECORDS) + round_number - 1
                # A producer that did not hear the answer sends again: still a duplicate after the restart.
                assert frames.produce_result(connection.ask(frames.produce("deduplicated", batch))) == (frames.NONE, 0)
                more = frames.produce("kept", Batch(values=(b"after",)).encode())
                assert frames.produce_result(connection.ask(more)) == (frames.NONE, end)
        broker.stop()
        check_all(broker.data_dir)
