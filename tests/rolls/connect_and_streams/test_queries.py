"""A query that joins two topics into a third, from the inventory: rolled, killed, compared with the batch, refused."""

import json
import shlex
import time
from collections import Counter
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.rolls.cluster import inside, keep_result, properties, wait_for
from tests.rolls.connect_and_streams.deployed import SCENARIO, given, kill, meanwhile, pid, play, played, pylog, unit

HOST = "live3"
NAME = "orders-paid"
UNIT = f"pylog-stream@{NAME}.service"
GROUP = f"stream-{NAME}"
PYLOG = "/opt/pylog/spark/current/bin/pylog"
PARTITIONS = 3
FIRST = 2_000
CHUNK = 20
MOST_CHUNKS = 5_000
BEGIN_MS = int(time.time() * 1000) - 3_600_000
STEP_MS = 10
"""Between two orders: those of a whole run are within the watermarks, and none comes too late."""

QUERIES: list[dict[str, Any]] = given("pylog_stream")["stream_queries"]
[QUERY] = QUERIES


class Orders:
    """Orders, two of three with their payment a little later, each some seconds apart by their own time."""

    def __init__(self) -> None:
        self.sent = 0
        self._producer = Producer(properties("demo") | {"acks": "all", "linger.ms": 5})
        self._failed: list[object] = []

    @property
    def paid(self) -> int:
        """How many have a payment."""
        return sum(1 for number in range(self.sent) if number % 3)

    def send(self, count: int) -> None:
        """Send the next orders and their payments, and wait until the brokers have them."""
        for number in range(self.sent, self.sent + count):
            time_ms = BEGIN_MS + number * STEP_MS
            self._produce("orders", number, f"goods {number % 7}", time_ms)
            if number % 3:
                self._produce("payments", number, f"{number % 100} EUR", time_ms + 5)
        assert self._producer.flush(60) == 0
        assert self._failed == []
        self.sent += count

    def _produce(self, topic: str, number: int, value: str, time_ms: int) -> None:
        def note(error: object, _: object) -> None:
            if error:
                self._failed.append(error)

        self._producer.produce(topic, value.encode(), str(number).encode(), timestamp=time_ms, on_delivery=note)


def results() -> Counter[tuple[str, str, str]]:
    """Return the rows of the output, with how often each was written."""
    consumer = Consumer(properties("demo") | {
        "group.id": "none", "enable.auto.commit": "false", "enable.partition.eof": "true",
    })  # fmt: skip
    consumer.assign([TopicPartition(NAME, number, 0) for number in range(PARTITIONS)])
    found: Counter[tuple[str, str, str]] = Counter()
    open_ends = PARTITIONS
    while open_ends:
        message = consumer.poll(60)
        assert message is not None, "no broker answered for a minute"
        if message.error() is not None:
            open_ends -= 1
            continue
        row = json.loads(message.value() or b"null")
        assert row["order"] == (message.key() or b"").decode()
        found[row["order"], row["goods"], row["paid"]] += 1
    consumer.close()
    return found


def batch() -> set[tuple[str, str, str]]:
    """Return what the query's own text says of the topics' records, asked once, in batch."""
    sql = QUERY["sql"].replace("FROM orders o", "FROM topic('orders') o")
    sql = sql.replace("JOIN payments p", "JOIN topic('payments') p").replace("SELECT o.key, ", "SELECT ")
    # The block security: of the query's own file, and its brokers.
    script = (
        f"grep -A1 -E '^(bootstrap|security):' /etc/pylog/stream-{NAME}.yml | grep -v -E '^(sql|--)' >/root/batch.yml\n"
        f"cd /root && PYLOG_CONFIG=/root/batch.yml {PYLOG} sql {shlex.quote(sql)} --format json"
    )
    return {(row["order"], row["goods"], row["paid"]) for row in json.loads(inside(HOST, script))}


def lag() -> int:
    """Return how many records the query's consumer group has before it."""
    return sum(row["lag"] or 0 for row in pylog("group", "describe", GROUP)["partitions"])


@pytest.fixture(scope="module")
def orders() -> Orders:
    found = Orders()
    found.send(FIRST)
    wait_for(lambda: len(results()) == found.paid, 240)
    return found


def test_the_query_of_the_inventory_joins_two_topics_into_a_third(orders: Orders) -> None:
    assert set(results()) == batch()
    wait_for(lambda: lag() == 0)
    assert unit(HOST, UNIT, "ActiveState") == "active"


def test_rolled_and_killed_it_writes_what_the_batch_says_of_the_same_records(orders: Orders) -> None:
    before = pid(HOST, UNIT)
    with meanwhile(lambda: orders.send(CHUNK), MOST_CHUNKS):
        began_s = time.monotonic()
        changed = played("streams", {"stream_queries": [{**QUERY, "trigger": "1 second"}]})
        roll_s = time.monotonic() - began_s
        assert changed[HOST] > 0
        rolled = pid(HOST, UNIT)
        assert rolled not in (0, before)
        reached = len(results())
        wait_for(lambda: len(results()) > reached)
        kill(HOST, UNIT)
        began_s = time.monotonic()
        sent = orders.sent
        wait_for(lambda: orders.sent > sent and lag() > 0)
        behind = lag()
        wait_for(lambda: pid(HOST, UNIT) not in (0, rolled) and unit(HOST, UNIT, "ActiveState") == "active", 300)
        reached = len(results())
        wait_for(lambda: len(results()) > reached)
        kill_s = time.monotonic() - began_s
    wait_for(lambda: len(results()) == orders.paid, 240)
    found, expected = results(), batch()
    assert set(found) == expected
    assert len(expected) == orders.paid
    wait_for(lambda: lag() == 0)
    keep_result(SCENARIO, {"query": [{
        "orders": orders.sent, "payments": orders.paid, "rows_of_the_batch": len(expected), "missing": 0, "wrong": 0,
        "twice": found.total() - len(found), "roll_s": round(roll_s), "kill_to_rows_s": round(kill_s),
        "lag_while_away": behind,
    }]})  # fmt: skip


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELEC key FROM orders", "syntax error"),
        ("SELECT o.customer FROM orders o", "customer"),
    ],
    ids=["does not parse", "has no such column"],
)
def test_a_query_that_cannot_be_planned_is_refused_by_name_and_the_other_goes_on(
    sql: str, words: str, orders: Orders
) -> None:
    before = pid(HOST, UNIT)
    wrong = {**QUERY, "name": "orders-wrong", "sql": sql}
    done = play("streams", {"stream_queries": [QUERY_NOW, wrong]})
    assert done.returncode != 0
    failure = done.stdout[done.stdout.index("fatal:") :]
    assert "orders-wrong" in failure
    assert words in failure.lower()
    assert pid(HOST, UNIT) == before
    assert inside(HOST, "ls /etc/pylog/stream-orders-wrong.yml 2>&1 || true").endswith("No such file or directory\n")


QUERY_NOW = {**QUERY, "trigger": "1 second"}
"""As the roll has left it."""


def test_a_checkpoint_of_another_query_is_refused_by_name(orders: Orders) -> None:
    place = "/var/lib/pylog-stream"
    inside(HOST, f"cp --archive {place}/{NAME} {place}/orders-twice")
    done = play("streams", {"stream_queries": [QUERY_NOW, {**QUERY, "name": "orders-twice"}]})
    assert done.returncode != 0
    failure = done.stdout[done.stdout.index("fatal:") :]
    assert f"checkpoint {place}/orders-twice belongs to query '{NAME}', not to 'orders-twice'" in failure
    inside(HOST, f"rm -r {place}/orders-twice")


def test_a_changed_query_is_refused_until_it_is_said_how_it_goes_on(orders: Orders) -> None:
    before, rows = pid(HOST, UNIT), len(results())
    other = {**QUERY_NOW, "sql": QUERY["sql"].replace("AS paid", "AS paid, 1 AS changed")}
    done = play("streams", {"stream_queries": [other]})
    assert done.returncode != 0
    assert f"query '{NAME}' or its inputs changed" in done.stdout
    assert pid(HOST, UNIT) == before
    played("streams", {"stream_queries": [other], "rebase_query": NAME})
    orders.send(300)
    wait_for(lambda: len(results()) == orders.paid, 240)
    assert len(results()) > rows
    played("streams", {"rebase_query": NAME})


def test_a_query_that_is_taken_out_stops_and_leaves_no_group(orders: Orders) -> None:
    more = {**QUERY, "name": "orders-again"}
    played("streams", {"stream_queries": [QUERY, more]})
    wait_for(lambda: "stream-orders-again" in {row["group"] for row in pylog("group", "list")})
    assert sum(played("streams").values()) > 0
    assert unit(HOST, "pylog-stream@orders-again.service", "ActiveState") == "inactive"
    assert "stream-orders-again" not in {row["group"] for row in pylog("group", "list")}
    assert set(played("streams").values()) == {0}
