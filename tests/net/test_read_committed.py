"""Our own readers of a log with committed, aborted and open transactions, on a real broker."""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from pylog.client.admin.cluster import Admin
from pylog.client.consumer import Consumer, GroupConsumer
from pylog.client.raw import RawClient, RawConfig
from pylog.ingest.decode import decode
from pylog.ingest.fetch import DeadLetter, UndecidedRecords, decoded, positions, read_range, with_read_uncommitted
from pylog.ingest.plan import Position, Range
from pylog.model import IsolationLevel, TopicPartition
from pylog.testing import BrokerProcess
from pylog.wire.api.offsets import LATEST_TIMESTAMP
from pylog.wire.records import iter_batches
from tests.command import Command
from tests.servers.transactions import History, create, write_all_kinds, write_undecided

READ_COMMITTED, READ_UNCOMMITTED = IsolationLevel
LEVELS = pytest.mark.parametrize("level", IsolationLevel)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    config = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1, "log.retention.ms": "-1"}
    with BrokerProcess(tmp_path_factory.mktemp("broker"), config=config) as running:
        yield running


@pytest.fixture(scope="module")
def ended(broker: BrokerProcess) -> History:
    """The history of the topic `ended`, in which every transaction has ended."""
    return create(broker, "ended", write_all_kinds)


@pytest.fixture(scope="module")
def undecided(broker: BrokerProcess) -> History:
    """The history of the topic `undecided`, which ends with an open transaction and records behind its beginning."""
    return create(broker, "undecided", write_undecided)


def read(bootstrap: str, topic: str, start: int = 0, end: int | None = None, **limits: object) -> list[bytes]:
    """Read as the load job and queries of Spark do."""
    partition = TopicPartition(topic, 0)
    config = RawConfig(**limits)  # type: ignore[arg-type]
    with RawClient(bootstrap, config) as client:
        if end is None:
            end = client.list_offsets([partition], LATEST_TIMESTAMP)[partition]
        found = []
        for one in read_range(client, Range(partition, start, end), config):
            for rows in decode(one.records, one.batches, start=one.start, end=end):
                found += rows["value"].to_pylist()
        return found


def expected(history: History, level: IsolationLevel) -> list[bytes]:
    return history.committed if level is READ_COMMITTED else history.written


def test_the_test_has_what_it_is_about(ended: History, undecided: History) -> None:
    assert ended.stable == ended.end > len(ended.written) > len(ended.committed) > 4
    assert undecided.stable < undecided.end - 3
    assert set(undecided.committed) == set(ended.committed)


@LEVELS
def test_ranges_hold_what_their_level_gives_however_small_the_fetches_are(
    broker: BrokerProcess, ended: History, undecided: History, level: IsolationLevel
) -> None:
    for topic, made in (("ended", ended), ("undecided", undecided)):
        for size in (1, 100, 300, 1 << 20):
            found = read(broker.bootstrap, topic, isolation_level=level, partition_max_bytes=size)
            assert found == expected(made, level), (topic, size)


def test_a_range_may_begin_and_end_inside_transactions(broker: BrokerProcess, ended: History) -> None:
    whole = {offset: read(broker.bootstrap, "ended", offset, offset + 1) for offset in range(ended.end)}
    assert [value for values in whole.values() for value in values] == ended.committed
    for start in range(ended.end):
        found = read(broker.bootstrap, "ended", start)
        assert found == [value for offset, values in whole.items() if offset >= start for value in values], start


def test_a_range_that_ends_behind_an_open_transaction_says_where_it_began(
    broker: BrokerProcess, undecided: History
) -> None:
    with pytest.raises(UndecidedRecords, match=f"a transaction is open since offset {undecided.stable}, "):
        read(broker.bootstrap, "undecided", 0, undecided.end, retry_ms=200, max_wait_ms=50)


def test_the_end_is_before_an_open_transaction(broker: BrokerProcess, undecided: History) -> None:
    partition = TopicPartition("undecided", 0)
    for level, end in ((READ_COMMITTED, undecided.stable), (READ_UNCOMMITTED, undecided.end)):
        with RawClient(broker.bootstrap, RawConfig(isolation_level=level)) as client:
            assert positions(client, ["undecided"], LATEST_TIMESTAMP).offsets == {partition: end}
        assert Admin(broker.bootstrap).ends([partition], level) == {partition: end}
    assert Admin(broker.bootstrap).offsets([partition])[partition].end == undecided.end


def test_a_run_that_read_uncommitted_records_before_was_not_cut(broker: BrokerProcess, undecided: History) -> None:
    partition = TopicPartition("undecided", 0)
    with RawClient(broker.bootstrap) as client:
        latest = positions(client, ["undecided"], LATEST_TIMESTAMP)
        beyond = Position({partition: undecided.stable + 1}, latest.topic_ids)
        assert with_read_uncommitted(client, beyond, latest).offsets == beyond.offsets
        cut = Position({partition: undecided.end + 1}, latest.topic_ids)
        assert with_read_uncommitted(client, cut, latest) == latest, "the log is shorter than that"
        other = Position({partition: undecided.stable + 1}, {"undecided": "another"})
        assert with_read_uncommitted(client, other, latest) == latest


def test_a_damaged_marker_costs_no_record_of_the_next_transaction(broker: BrokerProcess) -> None:
    made = create(
        broker,
        "damaged",
        lambda it: it.send(1, b"aborted").abort(1).send(1, b"committed").commit(1).send(1, b"aborted too").abort(1),
    )
    path = broker.data_dir / "damaged-0" / f"{0:020d}.log"
    [_, (position, marker), *_] = iter_batches(path.read_bytes())
    assert marker.is_control
    with path.open("r+b") as file:
        os.pwrite(file.fileno(), b"\xff", position + marker.size_bytes - 1)
    partition = TopicPartition("damaged", 0)
    config = RawConfig()
    found: list[bytes] = []
    dead: list[DeadLetter] = []
    with RawClient(broker.bootstrap, config) as client:
        for one in read_range(client, Range(partition, 0, made.end), config):
            for rows in decoded(one, made.end, with_headers=False):
                if isinstance(rows, DeadLetter):
                    dead.append(rows)
                else:
                    found += rows["value"].to_pylist()
    assert found == made.committed == [b"committed"]
    assert [(one.first_offset, one.last_offset) for one in dead] == [(1, 1)]


@LEVELS
def test_a_consumer_reads_to_the_end_of_its_level(
    broker: BrokerProcess, ended: History, undecided: History, level: IsolationLevel
) -> None:
    own: dict[str, Any] = {} if level is READ_COMMITTED else {"isolation__level": level.value}
    for topic, made in (("ended", ended), ("undecided", undecided)):
        with Consumer(broker.bootstrap, **own) as consumer:
            consumer.assign_topic(topic)
            assert [one.value for one in consumer.records_to_end()] == expected(made, level)


def test_a_consumer_at_its_end_says_where_that_is(broker: BrokerProcess, ended: History, undecided: History) -> None:
    for topic, made in (("ended", ended), ("undecided", undecided)):
        partition = TopicPartition(topic, 0)
        with Consumer(broker.bootstrap) as consumer:
            consumer.assign_topic(topic)
            while partition not in consumer.at_end or consumer.at_end[partition] < made.stable:
                consumer.read(5)
            assert consumer.at_end == {partition: made.stable}


def test_a_member_of_a_group_reads_committed_records(broker: BrokerProcess, undecided: History) -> None:
    with GroupConsumer(broker.bootstrap, "members", ["undecided"]) as consumer:
        found: list[bytes | None] = []
        while not consumer.is_at_end:
            found += [one.value for one in consumer.read(5)]
        assert found == undecided.committed


def test_consume_writes_what_its_level_gives(broker: BrokerProcess, undecided: History) -> None:
    pylog = Command(broker.bootstrap)
    written = pylog("consume", "undecided", "-e").output.splitlines()
    assert written == undecided.committed
    for arguments in (["--isolation-level", "read_uncommitted"], ["-X", "isolation.level=read_uncommitted"]):
        assert pylog("consume", "undecided", "-e", *arguments).output.splitlines() == undecided.written
    assert pylog("consume", "undecided", "-e", "--group", "g").output.splitlines() == undecided.committed
    last = pylog("consume", "undecided", "-e", "--from", "-3").output.splitlines()
    assert last == [], "the last three offsets before the open transaction hold markers and what was aborted"


def test_dump_shows_transactions_and_their_markers(broker: BrokerProcess, ended: History) -> None:
    pylog = Command("nowhere:1")
    file = str(broker.data_dir / "ended-0" / f"{0:020d}.log")
    lines = pylog("log", "dump", file).text.splitlines()
    assert sum(" marker=commit coordinator_epoch=0" in line for line in lines) == 3
    assert sum(" marker=abort coordinator_epoch=0" in line for line in lines) == 3
    assert [line.split("transaction_of=")[1].split()[0] for line in lines if "transaction_of" in line][:3] == [
        "1", "2", "1",
    ]  # fmt: skip
    assert "transaction_of" not in lines[0]
    found = [json.loads(line) for line in pylog("log", "dump", file, "--format", "json").text.splitlines()]
    assert [one["marker"] for one in found if one["is_control"]] == [
        "commit", "abort", "abort", "commit", "commit", "abort",
    ]  # fmt: skip
    assert all("marker" not in one for one in found if not one["is_control"])
