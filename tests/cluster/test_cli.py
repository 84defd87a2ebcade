"""Commands that need more than one broker, or ZooKeeper."""

import json
from pathlib import Path

import pytest

from pylog.client.admin.cluster import Admin
from tests.cluster.conftest import Brokers, bootstrap, create, wait_for
from tests.command import Command
from tests.servers.zookeeper import ZooKeeper


@pytest.fixture
def pylog(brokers: Brokers) -> Command:
    return Command(bootstrap(brokers))


def test_zookeeper_is_shown(pylog: Command, brokers: Brokers, zookeeper: ZooKeeper) -> None:
    create(brokers[1], "kept", 2)
    show = ["zk", "show", "--zookeeper", zookeeper.hosts, "--format", "json"]
    nodes = {node["path"]: node for node in pylog(*show, "/brokers/ids").json}
    assert nodes.keys() == {"/brokers/ids", *(f"/brokers/ids/{broker_id}" for broker_id in brokers)}
    assert nodes["/brokers/ids/2"]["data"]["host"] == "127.0.0.1"
    assert nodes["/brokers/ids/2"]["ephemeral"] is True
    [topic] = pylog(*show, "/brokers/topics/kept", "--depth", "0").json
    assert topic["data"]["partitions"].keys() == {"0", "1"}
    text = pylog("zk", "show", "/controller", environment={"PYLOG_ZOOKEEPER": zookeeper.hosts}).text
    assert text.startswith("/controller  {")
    assert text.rstrip().endswith("(ephemeral)")
    wide = pylog("zk", "show", "/controller", "--zookeeper", zookeeper.hosts, "--format", "wide").text
    assert "(ephemeral, session 0x" in wide
    gone = pylog("zk", "show", "/does/not/exist", "--zookeeper", zookeeper.hosts, exit_code=1)
    assert "[PYLOG-0207]" in gone.notes


def test_the_preferred_replica_is_given_its_partitions_back(pylog: Command, brokers: Brokers) -> None:
    create(brokers[1], "given", 6, replicas=3)
    wait_for(lambda: is_in_sync(brokers, "given"), "all in sync")
    brokers[2].restart()
    wait_for(lambda: is_in_sync(brokers, "given"), "all in sync")
    assert led_by(pylog, 2) == []
    rows = pylog("partition", "elect", "--topic", "given", "--format", "json").json
    assert [(row["leader"], row["problem"]) for row in rows] == [(2, None)] * len(rows)
    assert sorted(row["partition"] for row in rows) == led_by(pylog, 2) != []


def test_partitions_are_spread_drained_and_multiplied(pylog: Command, brokers: Brokers, tmp_path: Path) -> None:
    create(brokers[1], "spread", 6)
    wait_for(lambda: is_in_sync(brokers, "spread"), "all in sync")
    pylog("produce", "spread", stdin=b"x\n" * 3000)
    reassign = ["partition", "reassign", "--topic", "spread"]
    pylog(*reassign, "--to", "1", "--execute")
    wait_held(pylog, "spread", [[1]] * 6)
    shown = pylog(*reassign, "--to", "all", "--format", "json")
    assert shown.notes == "nothing was moved: add --execute to do it\n"
    assert held(pylog, "spread") == [[1]] * 6
    assert len(shown.json["partitions"]) == 4
    plan = tmp_path / "plan.json"
    plan.write_bytes(shown.output)
    ended = pylog("partition", "reassign", "--plan", str(plan), "--throttle", "100000000", "--execute")
    assert ended.text.splitlines()[0].split() == ["TOPIC", "PARTITION", "FROM", "REPLICAS"]
    assert ended.notes.endswith("4 partitions are where they should be\n")
    wait_held(pylog, "spread", [[1], [1], [2], [2], [3], [3]])
    wait_for(lambda: throttles(pylog, "spread") == {}, "the throttle is off")
    assert pylog(*reassign, "--to", "all", "--execute").notes == "everything is where it should be\n"

    pylog(*reassign, "--drain", "3", "--execute")
    wait_held(pylog, "spread", [[1], [1], [1], [2], [2], [2]])
    pylog(*reassign, "-r", "2", "--execute")
    wait_for(lambda: {len(replicas) for replicas in held(pylog, "spread")} == {2}, "two replicas each")
    assert len(pylog("consume", "spread", "-e").text) == 6000


def test_a_move_is_shown_and_called_off(pylog: Command, brokers: Brokers, tmp_path: Path) -> None:
    create(brokers[1], "slow", 1)
    wait_for(lambda: is_in_sync(brokers, "slow"), "all in sync")
    pylog("produce", "slow", stdin=(b"x" * 100_000 + b"\n") * 200)
    [[here]] = held(pylog, "slow")
    there = here % 3 + 1
    reassign = ["partition", "reassign", "--topic", "slow"]
    ended = pylog(*reassign, "--to", str(there), "--throttle", "100000", "--no-wait", "--execute")
    assert ended.notes == "1 of 1 moves began\n"
    wait_for(lambda: len(throttles(pylog, "slow")) == 2, "the throttle is on")
    again = pylog(*reassign, "--to", str(there), "--throttle", "200000", "--execute")
    assert again.notes == "1 partitions are on their way there\n", "replicas that go are not counted as wanted"
    wait_for(lambda: "200000" in pylog("config", "describe", "broker", "1").text, "the rate has changed")
    plan = tmp_path / "plan.json"
    rows = [{"topic": "slow", "partition": 0, "replicas": [there]}]
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    ordered_anew = pylog("partition", "reassign", "--plan", str(plan), "--no-wait", "--execute")
    assert ordered_anew.notes == "1 of 1 moves began\n"
    status = pylog(*reassign, "--status", "--unthrottle", "--format", "json")
    assert len(throttles(pylog, "slow")) == 2, "not while it is on the move"
    assert status.json["partitions"] == [
        {"topic": "slow", "partition": 0, "replicas": [there], "adding": [there], "removing": [here]}
    ]
    assert "1 moves were called off" in pylog(*reassign, "--cancel").notes
    wait_held(pylog, "slow", [[here]])
    wait_for(lambda: throttles(pylog, "slow") == {}, "the throttle is off")
    assert pylog(*reassign, "--status").notes == "0 partitions are on the move\n"
    wait_for(lambda: "throttled.rate" not in pylog("config", "describe", "broker", "1").text, "the rate is off")
    assert pylog("partition", "reassign", "--drain", "9").notes == (
        "broker 9 is not registered and holds nothing\neverything is where it should be\n"
    )


def test_a_throttle_that_an_interrupted_command_left_is_taken_off(pylog: Command, brokers: Brokers) -> None:
    create(brokers[1], "left", 1)
    wait_for(lambda: is_in_sync(brokers, "left"), "all in sync")
    [[here]] = held(pylog, "left")
    reassign = ["partition", "reassign", "--topic", "left"]
    pylog(*reassign, "--to", str(here % 3 + 1), "--throttle", "100000", "--no-wait", "--execute")
    wait_held(pylog, "left", [[here % 3 + 1]])
    wait_for(lambda: len(throttles(pylog, "left")) == 2, "the throttle is on")
    pylog("partition", "reassign", "--status", "--unthrottle")
    wait_for(lambda: throttles(pylog, "left") == {}, "the throttle is off")
    wait_for(lambda: "throttled.rate" not in pylog("config", "describe", "broker", "1").text, "the rate is off")


def test_leaders_that_change_between_two_requests_are_no_error(pylog: Command, brokers: Brokers) -> None:
    create(brokers[1], "roams", 12)
    wait_for(lambda: is_in_sync(brokers, "roams"), "all in sync")
    for turn in range(8):
        pylog("partition", "reassign", "--topic", "roams", "--to", str(turn % 3 + 1), "--no-wait", "--execute")
        for _ in range(4):
            rows = pylog("topic", "describe", "roams", "--format", "json").json["partitions"]
            assert [row["end_offset"] for row in rows] == [0] * 12


def test_the_end_of_a_log_is_told_by_who_leads_next_where_its_leader_just_died(
    pylog: Command, brokers: Brokers
) -> None:
    create(brokers[1], "outlives", 3, replicas=3)
    wait_for(lambda: is_in_sync(brokers, "outlives"), "all in sync")
    pylog("produce", "outlives", stdin=b"x\n" * 30)
    brokers[2].kill()
    rows = pylog("topic", "describe", "outlives", "--format", "json").json["partitions"]
    brokers[2].start()
    assert sum(row["end_offset"] for row in rows) == 30
    wait_for(lambda: is_in_sync(brokers, "outlives"), "all in sync")


@pytest.mark.parametrize(
    ("arguments", "exit_code", "told"),
    [
        ([], 2, "PYLOG-0012"),
        (["--to", "1", "--drain", "2"], 2, "PYLOG-0012"),
        (["-r", "1", "--cancel"], 2, "PYLOG-0012"),
        (["--to", "all", "--unthrottle"], 2, "PYLOG-0012"),
        (["--to", "one"], 2, "PYLOG-0011"),
        (["--to", "9"], 1, "PYLOG-0204"),
        (["-r", "4"], 1, "4 replicas on 3 brokers"),
        (["--plan", "/does/not/exist"], 1, "PYLOG-0304"),
        (["--plan", "/etc/hostname"], 2, "this is no plan"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(
    pylog: Command, brokers: Brokers, arguments: list[str], exit_code: int, told: str
) -> None:
    assert told in pylog("partition", "reassign", *arguments, exit_code=exit_code).notes


def held(pylog: Command, topic: str) -> list[list[int]]:
    rows = pylog("topic", "describe", topic, "--format", "json").json["partitions"]
    return [row["replicas"] for row in rows]


def wait_held(pylog: Command, topic: str, wanted: list[list[int]]) -> None:
    """Wait until replicas are so; the broker that is asked may hear of it a bit later."""
    wait_for(lambda: sorted(held(pylog, topic)) == wanted, f"{topic} is on {wanted}")


def throttles(pylog: Command, topic: str) -> dict[str, str]:
    found = pylog("topic", "describe", topic, "--format", "json").json
    return {name: found["config"][name] for name in found["own_config"] if "throttled" in name}


def is_in_sync(brokers: Brokers, name: str) -> bool:
    views = [Admin(broker.bootstrap).cluster() for broker in brokers.values()]
    topics = [view.topics.get(name) for view in views]
    return all(topic is not None and all(one.is_in_sync for one in topic.partitions) for topic in topics)


def led_by(pylog: Command, broker: int) -> list[int]:
    rows = pylog("topic", "describe", "given", "--format", "json").json["partitions"]
    return [row["partition"] for row in rows if row["leader"] == broker]
