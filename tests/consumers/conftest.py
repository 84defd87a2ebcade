"""A broker with short sessions, and members of its groups as processes."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pylog.testing import BrokerProcess
from tests.consumers.member import HEARTBEAT_MS, SESSION_MS
from tests.servers.kafka import CONSOLE_CONSUMER, java_command

CONFIG: dict[str, Any] = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 100,
    "offsets.topic.num.partitions": 4,
}
PARTITIONS = 8
WAIT_S = 40.0
"""Far above what a quiet machine takes; only a fault meets it."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A running broker that the tests of one module share."""
    with BrokerProcess(tmp_path_factory.mktemp("broker"), config=CONFIG) as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest, broker: BrokerProcess) -> str:
    """A topic of this test's own."""
    name = "".join(char if char.isalnum() or char in "._-" else "-" for char in request.node.name).strip("-")
    create_topic(broker.bootstrap, name)
    return name


def create_topic(bootstrap: str, name: str, partitions: int = PARTITIONS) -> None:
    """Create a topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)


def produce(bootstrap: str, topic: str, values: Sequence[str], partitions: int = PARTITIONS) -> None:
    """Write one record a value, going round the partitions."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, value in enumerate(values):
        producer.produce(
            topic,
            value,
            partition=number % partitions,
            on_delivery=lambda error, _message: failed.append(error) if error else None,
        )
    assert producer.flush(30) == 0
    assert not failed, failed[:3]


def wait_until(condition: Callable[[], bool], what: Callable[[], str] | str, timeout_s: float = WAIT_S) -> None:
    """Poll *condition* until it holds; clients of others cannot be told to hand over their clock."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what if isinstance(what, str) else what()}"
        time.sleep(0.05)


class MemberProcess:
    """A member of a group; what it says is in a file.

    Args:
        client: of `tests.consumers.member`, or java.
        options: settings by the client's own names.
    """

    def __init__(self, directory: Path, client: str, bootstrap: str, group: str, topic: str, **options: str) -> None:
        self.client = client
        self._path = directory / f"{client}-{time.monotonic_ns()}.out"
        command = (
            _java(bootstrap, group, topic)
            if client == "java"
            else [
                sys.executable,
                "-m",
                "tests.consumers.member",
                client,
                bootstrap,
                group,
                topic,
                *(f"{name.replace('__', '.')}={value}" for name, value in options.items()),
            ]
        )
        with self._path.open("wb") as output, self._path.with_suffix(".err").open("wb") as errors:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors)

    def __repr__(self) -> str:
        return f"{self.client}: {len(self.values)} records, {self._path.with_suffix('.err').read_text()[-2000:]}"

    @property
    def values(self) -> list[str]:
        """Values of the records it was given, in order."""
        return [event["value"] for event in self.events() if "value" in event]

    def events(self) -> list[dict[str, Any]]:
        """Return everything it said in whole lines."""
        lines = self._path.read_text().split("\n")[:-1]
        return [{"value": line} for line in lines] if self.client == "java" else [json.loads(line) for line in lines]

    def kill(self) -> None:
        """Kill it, as a crash would."""
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        """Stop it in the middle of whatever it does."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Have it leave its group and end."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(15)
            except subprocess.TimeoutExpired:
                self.kill()
                raise

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None


def _java(bootstrap: str, group: str, topic: str) -> list[str]:
    settings = {
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "client.id": "java",
        "auto.commit.interval.ms": 200,
        "auto.offset.reset": "earliest",
        "max.poll.interval.ms": 20_000,
    }
    properties = [part for name, value in settings.items() for part in ("--consumer-property", f"{name}={value}")]
    return java_command(
        CONSOLE_CONSUMER, "--bootstrap-server", bootstrap, "--topic", topic, "--group", group, *properties
    )


Start = Callable[..., MemberProcess]


@contextmanager
def run_members(directory: Path, bootstrap: str) -> Iterator[Start]:
    started: list[MemberProcess] = []

    def start(client: str, group: str, topic: str, **options: str) -> MemberProcess:
        started.append(MemberProcess(directory, client, bootstrap, group, topic, **options))
        return started[-1]

    try:
        yield start
    finally:
        for member in started:
            if member.is_running:
                member.kill()


@pytest.fixture
def start(tmp_path: Path, broker: BrokerProcess) -> Iterator[Start]:
    """Starts members; what still runs at the end of the test is killed."""
    with run_members(tmp_path, broker.bootstrap) as start_member:
        yield start_member


class GroupView:
    """A group as DescribeGroups and OffsetFetch show it."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self._group = group
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def clients(self) -> list[str]:
        """Return the client ids of the members that have partitions, if the group is stable; else nothing."""
        found = self._admin.describe_consumer_groups([self._group], request_timeout=10)[self._group].result(15)
        if found.state is not ConsumerGroupState.STABLE:
            return []
        return sorted(one.client_id for one in found.members if one.assignment and one.assignment.topic_partitions)

    def state(self) -> ConsumerGroupState:
        """Return its state."""
        state: ConsumerGroupState = (
            self._admin.describe_consumer_groups([self._group], request_timeout=10)[self._group].result(15).state
        )
        return state

    def wait_stable(self, *clients: str) -> None:
        """Wait until the members are exactly these, each with partitions."""
        wait_until(
            lambda: self._quietly(self.clients) == sorted(clients),
            lambda: f"{self._group} is of {clients}, found {self._quietly(self.clients)}",
        )

    def wait_empty(self, timeout_s: float = WAIT_S) -> None:
        """Wait until nobody is in it."""
        wait_until(lambda: self._quietly(self.state) == ConsumerGroupState.EMPTY, f"{self._group} is empty", timeout_s)

    @staticmethod
    def _quietly(ask: Callable[[], Any]) -> Any:
        from confluent_kafka import KafkaException

        try:
            return ask()
        except KafkaException as error:  # the coordinator is about to be
            return str(error)
