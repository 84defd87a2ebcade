"""A broker's page of metrics stays one that Prometheus reads, whatever clients call themselves and their groups."""

import subprocess

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from pylog.metrics import escape
from pylog.testing import BrokerProcess

pytest_plugins = ["pylog.testing"]

GROUP = 'odd "group"\\ \n{}\t\r\u2028\U0001f600'
LONG = "x" * 8_000


def test_groups_and_clients_with_odd_names_make_a_page_that_prometheus_reads(pylog_broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": pylog_broker.bootstrap})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(30)
    for group in (GROUP, LONG):
        settings = {"bootstrap.servers": pylog_broker.bootstrap, "group.id": group, "client.id": GROUP}
        consumer = Consumer(settings | {"client.software.name": 'a"b\\', "client.software.version": "\n"})
        consumer.subscribe(["t"])
        for _ in range(300):
            consumer.poll(0.1)
            if consumer.assignment():
                break
        assert consumer.assignment()
        consumer.close()
    page = pylog_broker.admin("GET", "/metrics")[1]
    rows = [line for line in page.split("\n") if line.startswith("pylog_group_rebalances_total{")]
    assert sum(escape(GROUP) in row for row in rows) == 1
    assert max(map(len, page.split("\n"))) < 500
    done = subprocess.run(["promtool", "check", "metrics"], input=page.encode(), capture_output=True, check=False)
    assert b"error while" not in done.stderr, done.stderr
    assert done.returncode in (0, 3), done.stderr  # 3: it has advice on names
