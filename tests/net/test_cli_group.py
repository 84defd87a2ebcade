"""`pylog group` against a real broker and a real consumer."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pylog.client.admin.cluster import Admin
from pylog.client.admin.groups import GroupAdmin
from pylog.client.admin.lag import Status
from pylog.client.commits import CommitHistory
from pylog.client.connection import Connection
from pylog.model import TopicPartition as Partition
from pylog.testing import BrokerProcess
from tests.command import Command, Ended

OLD_MS = 1_700_000_000_000
NOW_MS = 0  # librdkafka takes the time of the call


class GroupCommand(Command):
    """Runs `pylog group`."""

    def __call__(
        self, *arguments: str, stdin: bytes = b"", exit_code: int = 0, environment: dict[str, str] | None = None
    ) -> Ended:
        """Run one to its end, which must be *exit_code*."""
        return super().__call__("group", *arguments, stdin=stdin, exit_code=exit_code, environment=environment)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    config = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 2, "log.retention.ms": -1}
    with BrokerProcess(tmp_path_factory.mktemp("broker"), config=config) as running:
        yield running


@pytest.fixture(scope="module")
def group(broker: BrokerProcess) -> GroupCommand:
    return GroupCommand(broker.bootstrap)


@pytest.fixture(scope="module")
def topic(broker: BrokerProcess) -> str:
    """Two partitions of ten records each, five old and five new."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("clicks", 2, 1)])["clicks"].result(30)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(20):
        producer.produce("clicks", b"x", partition=number % 2, timestamp=OLD_MS if number < 10 else NOW_MS)
        assert producer.flush(30) == 0
    return "clicks"


def commit(bootstrap: str, group_id: str, topic: str, *offsets: int) -> None:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group_id, "enable.auto.commit": False, "log_level": 0}
    )
    consumer.commit(offsets=[TopicPartition(topic, *row) for row in enumerate(offsets)], asynchronous=False)
    consumer.close()


@contextmanager
def member(bootstrap: str, group_id: str, topic: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group_id,
            "enable.auto.commit": False,
            "client.id": "me",
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    deadline = time.monotonic() + 30
    while not consumer.assignment():
        consumer.poll(0.1)
        assert time.monotonic() < deadline
    yield consumer
    consumer.close()


def test_a_group_from_list_to_delete(broker: BrokerProcess, group: GroupCommand, topic: str) -> None:
    commit(broker.bootstrap, "life", topic, 4)
    assert {"group": "life", "state": "Empty"} in group("list", "--format", "json").json
    assert group("list").text.splitlines()[0].split() == ["GROUP", "STATE"]
    found = group("describe", "life", "--format", "json").json
    found["partitions"][0]["silent_s"] = 0  # seconds since the commit
    assert found["partitions"] == [
        {
            "topic": "clicks",
            "partition": 0,
            "committed_offset": 4,
            "end_offset": 10,
            "lag": 6,
            "status": "OK",
            "silent_s": 0,
            "client": None,
            "host": None,
            "member": None,
        }
    ]
    assert (found["state"], found["lag"], found["members"], found["coordinator"]) == ("Empty", 6, [], 0)
    assert "nothing was deleted" in group("delete", "life", stdin=b"n\n", exit_code=1).notes
    assert group("delete", "life", "--yes").notes == "deleted group life\n"
    assert "life" not in group("list").text
    for verb in (("describe", "life"), ("delete", "life", "--yes")):
        ended = group(*verb, exit_code=1)
        assert "GROUP_ID_NOT_FOUND" in ended.notes
        assert "next:   pylog group list" in ended.notes


def test_members_are_shown_and_protect_their_group(broker: BrokerProcess, group: GroupCommand, topic: str) -> None:
    with member(broker.bootstrap, "alive", topic) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 1, 10)], asynchronous=False)
        found = group("describe", "alive", "--format", "json").json
        assert (found["state"], found["assignor"], found["lag"]) == ("Stable", "range", 0)
        assert [row["partition_count"] for row in found["members"]] == [2]
        assert [(row["committed_offset"], row["lag"], row["client"]) for row in found["partitions"]] == [
            (None, None, "me"),
            (10, 0, "me"),
        ]
        text = group("describe", "alive").text
        assert text.splitlines()[0].split() == ["state", "Stable"]
        assert text.splitlines()[-1].split() == ["clicks", "1", "10", "10", "0", "OK", "me"]
        assert "127.0.0.1" in group("describe", "alive", "--format", "wide").text
        refused = group("reset-offsets", "alive", "--to", "earliest", "--execute", exit_code=1)
        assert "the group has members" in refused.notes
        assert "NON_EMPTY_GROUP" in group("delete", "alive", "--yes", exit_code=1).notes
    assert group("describe", "alive", "--format", "json").json["state"] == "Empty"


@pytest.mark.parametrize(
    ("target", "offsets"),
    [
        (("--to", "earliest"), [0, 0]),
        (("--to", "latest"), [10, 10]),
        (("--to", "7"), [7, 7]),
        (("--to", "99"), [10, 10]),
        (("--to", f"@{OLD_MS + 1}"), [5, 5]),
        (("--to", "2023-11-14T22:13:20Z"), [0, 0]),
        (("--to", "2099-01-01"), [10, 10]),
        (("--by", "1h"), [5, 5]),
    ],
)
def test_offsets_are_moved(
    broker: BrokerProcess, group: GroupCommand, topic: str, target: tuple[str, str], offsets: list[int]
) -> None:
    commit(broker.bootstrap, "moved", topic, 3, 4)
    shown = group("reset-offsets", "moved", *target, "--format", "json")
    assert [(row["committed_offset"], row["new_offset"]) for row in shown.json] == [(3, offsets[0]), (4, offsets[1])]
    assert shown.notes == "nothing was changed: add --execute to do it\n"
    assert committed(group, "moved") == [3, 4]
    assert group("reset-offsets", "moved", *target, "--execute").notes == "moved group moved\n"
    assert committed(group, "moved") == offsets


def test_only_the_named_partitions_move(broker: BrokerProcess, group: GroupCommand, topic: str) -> None:
    commit(broker.bootstrap, "named", topic, 3, 4)
    group("reset-offsets", "named", "--topic", "clicks:1", "--to", "8", "--execute")
    assert committed(group, "named") == [3, 8]
    group("reset-offsets", "named", "--topic", "clicks", "--to", "2", "--execute")
    assert committed(group, "named") == [2, 2]


def test_a_group_is_made_by_moving_it(group: GroupCommand, topic: str) -> None:
    assert "has read nothing" in group("reset-offsets", "new", "--to", "latest", exit_code=1).notes
    group("reset-offsets", "new", "--topic", topic, "--to", "latest", "--execute")
    assert committed(group, "new") == [10, 10]


def produce(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(count):
        producer.produce(topic, b"x", partition=0)
    assert producer.flush(30) == 0


def statuses(group: GroupCommand, group_id: str, *options: str) -> tuple[str, list[str]]:
    found = group("describe", group_id, "--format", "json", *options).json
    return found["status"], [row["status"] for row in found["partitions"]]


def test_a_group_that_falls_behind_is_warned_of_and_one_that_hangs_is_stalled(
    broker: BrokerProcess, group: GroupCommand
) -> None:
    Admin(broker.bootstrap).create_topic("trend", partitions=1)
    produce(broker.bootstrap, "trend", 50)
    for offset in (10, 11, 12):
        commit(broker.bootstrap, "slow", "trend", offset)
        commit(broker.bootstrap, "hangs", "trend", 20)
        commit(broker.bootstrap, "rereads", "trend", 30 - offset)
        produce(broker.bootstrap, "trend", 10)
    commit(broker.bootstrap, "done", "trend", 80)
    assert statuses(group, "slow") == ("WARN", ["WARN"])
    assert statuses(group, "hangs") == ("STALL", ["STALL"])
    assert statuses(group, "rereads") == ("OK", ["OK"])
    assert statuses(group, "done") == ("OK", ["OK"])
    assert "status       WARN" in group("describe", "slow").text


def test_a_group_that_no_longer_commits_has_stopped(broker: BrokerProcess, group: GroupCommand) -> None:
    admin = GroupAdmin(broker.bootstrap)
    Admin(broker.bootstrap).create_topic("quiet", partitions=1)
    produce(broker.bootstrap, "quiet", 5)
    commit(broker.bootstrap, "gone", "quiet", 2)
    history, [partition] = CommitHistory(Connection(bootstrap=broker.bootstrap)), [Partition("quiet", 0)]
    progress = admin.progress(admin.group("gone"))
    now_ms = time.time_ns() // 1_000_000

    def status_after(seconds: int) -> Status:
        return history.verdicts("gone", progress, now_ms + seconds * 1000, 600_000)[partition].status

    assert [status_after(seconds) for seconds in (0, 20, 40, 3600)] == [Status.OK, Status.OK, Status.STOP, Status.STOP]


@pytest.mark.parametrize(
    ("arguments", "exit_code", "told"),
    [
        ((), 2, "wanted: one of them"),
        (("--to", "latest", "--by", "1h"), 2, "found:  both"),
        (("--to", "soon"), 2, "found:  soon"),
        (("--by", "soon"), 2, "found:  soon"),
        (("--to", "latest", "--topic", "nowhere"), 1, "does not exist"),
        (("--to", "latest", "--topic", "clicks:7"), 1, "no such partition"),
        (("--to", "latest", "--topic", "clicks:"), 1, "no such partition"),
    ],
)
def test_what_cannot_be_is_refused(
    group: GroupCommand, topic: str, arguments: tuple[str, ...], exit_code: int, told: str
) -> None:
    ended = group("reset-offsets", "any", *arguments, exit_code=exit_code)
    assert told in ended.notes
    assert ended.text == ""


def test_a_dead_cluster_is_unreachable(tmp_path: Path) -> None:
    assert "nobody answers" in GroupCommand("127.0.0.1:1")("list", "--timeout", "0.5", exit_code=3).notes


def committed(group: GroupCommand, group_id: str) -> list[int]:
    return [row["committed_offset"] for row in group("describe", group_id, "--format", "json").json["partitions"]]
