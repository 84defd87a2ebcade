"""Testing a program against a real broker, ready in half a second: `pytest examples/test_with_a_broker.py`."""

from pylog.client import Consumer, Producer
from pylog.testing import BrokerProcess

pytest_plugins = ["pylog.testing"]  # in a project of several test files: in its topmost conftest.py


def test_what_was_sent_comes_back(pylog_broker: BrokerProcess) -> None:
    """A broker of this test's own, which nobody else writes to."""
    with Producer(pylog_broker.bootstrap) as producer:
        producer.send("mine", b"value", key=b"key")
    with Consumer(pylog_broker.bootstrap) as consumer:
        consumer.assign_topic("mine")
        assert [(one.key, one.value) for one in consumer.records_to_end()] == [(b"key", b"value")]


def test_a_restart_loses_nothing(pylog_broker: BrokerProcess) -> None:
    """A broker can be stopped, killed and started again."""
    with Producer(pylog_broker.bootstrap) as producer:
        producer.send("mine", b"value")
    pylog_broker.restart()
    with Consumer(pylog_broker.bootstrap) as consumer:
        consumer.assign_topic("mine")
        assert [one.value for one in consumer.records_to_end()] == [b"value"]
