"""`pylog txn` against a real broker: transactions of clients, and one that hangs."""

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer

from pylog.client.admin.cluster import Admin
from pylog.testing import BrokerProcess
from tests.command import Command
from tests.servers.transactions import create

FROM_START = ("consume", "--exit", "--from", "beginning")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    config = {
        "transaction.state.log.num.partitions": 3,
        "offsets.topic.num.partitions": 1,
        "log.retention.ms": "-1",
    }
    with BrokerProcess(tmp_path_factory.mktemp("broker"), config=config) as running:
        yield running


@pytest.fixture(scope="module")
def pylog(broker: BrokerProcess) -> Command:
    return Command(broker.bootstrap)


def transactional(broker: BrokerProcess, transactional_id: str) -> Producer:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id, "linger.ms": 0, "log_level": 0}
    )
    producer.init_transactions(60)
    return producer


def test_an_open_transaction_is_listed_described_and_aborted(broker: BrokerProcess, pylog: Command) -> None:
    for topic in ("payments", "audited"):
        Admin(broker.bootstrap).create_topic(topic, partitions=2, replication_factor=1, config={})
    producer = transactional(broker, "payments-7")
    transactional(broker, "idle")
    producer.begin_transaction()
    producer.produce("payments", b"given up", partition=1)
    producer.produce("audited", b"given up too", partition=0)
    producer.flush(60)
    rows = {row["transactional_id"]: row for row in pylog("txn", "list", "--format", "json").json}
    assert {name: row["state"] for name, row in rows.items()} == {"idle": "Empty", "payments-7": "Ongoing"}
    assert (rows["payments-7"]["partition_count"], rows["idle"]["partition_count"]) == (2, 0)
    assert rows["payments-7"]["open_s"] >= 0
    assert rows["idle"]["open_s"] is None
    only = pylog("txn", "list", "--state", "Ongoing", "--format", "json").json
    assert [row["transactional_id"] for row in only] == ["payments-7"]
    described = pylog("txn", "describe", "payments-7", "--format", "json").json
    assert described["partitions"] == ["audited-0", "payments-1"]
    assert described["producer_id"] == rows["payments-7"]["producer_id"]
    assert "payments-1" in pylog("txn", "describe", "payments-7").text
    assert pylog("txn", "hanging", "--older-than", "0s", "--format", "json").json == [], "its coordinator will end it"
    pylog("txn", "abort", "payments-7")
    assert pylog("txn", "describe", "payments-7", "--format", "json").json["state"] == "Empty"
    assert pylog(*FROM_START, "payments").output == b""
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(60)
    assert caught.value.args[0].fatal(), "another producer may have its id by now"
    ended = pylog("txn", "abort", "payments-7", exit_code=1)
    assert "PYLOG-0217" in ended.notes
    assert "Empty" in ended.notes


def test_a_transactional_id_that_nobody_uses_is_not_there(pylog: Command) -> None:
    for command in ("describe", "abort"):
        assert "PYLOG-1105" in pylog("txn", command, "nobody-s", exit_code=1).notes


def test_a_state_that_does_not_exist_is_named(pylog: Command) -> None:
    assert "Open" in pylog("txn", "list", "--state", "Open", exit_code=1).notes


@pytest.mark.parametrize(
    "arguments",
    [(), ("id", "--hanging", "t:0", "--start-offset", "1"), ("--hanging", "t:0"), ("id", "--start-offset", "1")],
)
def test_what_to_abort_is_said_in_one_way(pylog: Command, arguments: tuple[str, ...]) -> None:
    assert "PYLOG-0012" in pylog("txn", "abort", *arguments, exit_code=2).notes


def test_a_transaction_that_hangs_is_found_and_ended(broker: BrokerProcess, pylog: Command) -> None:
    # A late batch of a producer that no coordinator knows, as releases without verification left them.
    made = create(broker, "hangs", lambda it: it.plain(b"before").send(4_711_000, b"late").plain(b"behind"))
    assert pylog(*FROM_START, "hangs").output.splitlines() == [b"before"]
    assert pylog("txn", "hanging", "--format", "json").json == [], "it has not been silent for long"
    ended = pylog("txn", "hanging", "--older-than", "0s", "--format", "json", exit_code=1)
    [row] = ended.json
    assert (row["topic"], row["partition"], row["start_offset"], row["producer_id"]) == (
        "hangs",
        0,
        made.stable,
        4_711_000,
    )
    assert row["transactional_id"] is None
    assert f"pylog txn abort --hanging hangs:0 --start-offset {made.stable}" in ended.notes
    wrong = pylog("txn", "abort", "--hanging", "hangs:0", "--start-offset", "0", exit_code=1)
    assert "PYLOG-0217" in wrong.notes
    assert pylog(*FROM_START, "hangs").output.splitlines() == [b"before"]
    pylog("txn", "abort", "--hanging", "hangs:0", "--start-offset", str(made.stable))
    assert pylog(*FROM_START, "hangs").output.splitlines() == [b"before", b"behind"]
    assert pylog("txn", "hanging", "--older-than", "0s", "--format", "json").json == []


def test_a_transaction_that_its_coordinator_will_end_does_not_hang(broker: BrokerProcess, pylog: Command) -> None:
    Admin(broker.bootstrap).create_topic("lives", partitions=1, replication_factor=1, config={})
    producer = transactional(broker, "lives-1")
    producer.begin_transaction()
    producer.produce("lives", b"value")
    producer.flush(60)
    refused = pylog("txn", "abort", "--hanging", "lives:0", "--start-offset", "0", exit_code=1)
    assert "no transaction hangs" in refused.notes
    producer.commit_transaction(60)
    assert pylog(*FROM_START, "lives").output.splitlines() == [b"value"]
