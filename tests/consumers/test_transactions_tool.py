"""Kafka's own command for transactions: list, describe, find what hangs, abort it."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from pylog.client.consumer import Consumer
from pylog.testing import BrokerProcess
from tests.servers.kafka import java_tool
from tests.servers.transactions import create

TRANSACTIONS_COMMAND = "org.apache.kafka.tools.TransactionsCommand"


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    config = {"transaction.state.log.num.partitions": 2, "log.retention.ms": "-1"}
    with BrokerProcess(tmp_path_factory.mktemp("broker"), config=config) as running:
        yield running


def transactions_command(broker: BrokerProcess, *arguments: str) -> list[list[str]]:
    """Run ``kafka-transactions`` and return the words of each line below the headings."""
    found = java_tool(TRANSACTIONS_COMMAND, "--bootstrap-server", broker.bootstrap, *arguments).decode()
    rows = [line.split() for line in found.splitlines() if line.strip()]
    return [
        row
        for row in rows
        if not row[0][0].isalpha() or row[0] not in ("TransactionalId", "CoordinatorId", "Topic", "ProducerId")
    ]


def test_from_list_to_abort(own_broker: BrokerProcess) -> None:
    made = create(own_broker, "hangs", lambda it: it.plain(b"before").send(4_711_000, b"late").plain(b"behind"))
    # A JVM on a busy machine takes a minute to start.
    properties = {"transactional.id": "payments-7", "transaction.timeout.ms": 600_000, "linger.ms": 0, "log_level": 0}
    producer = Producer({"bootstrap.servers": own_broker.bootstrap, **properties})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("hangs", b"mine")
    producer.flush(60)
    [listed] = transactions_command(own_broker, "list")
    assert (listed[0], listed[-1]) == ("payments-7", "Ongoing")
    [described] = transactions_command(own_broker, "describe", "--transactional-id", "payments-7")
    assert "Ongoing" in described
    assert described[-1] == "hangs-0"
    producers = transactions_command(own_broker, "describe-producers", "--topic", "hangs", "--partition", "0")
    assert {row[0]: row[-1] for row in producers} == {"4711000": str(made.stable), listed[2]: str(made.end)}
    abort = ("abort", "--topic", "hangs", "--partition", "0", "--start-offset", str(made.stable))
    transactions_command(own_broker, *abort)
    producer.commit_transaction(60)
    with Consumer(own_broker.bootstrap) as consumer:
        consumer.assign_topic("hangs")
        assert [one.value for one in consumer.records_to_end()] == [b"before", b"behind", b"mine"]
