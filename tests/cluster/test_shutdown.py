"""A broker that is told to stop hands over first: a restart of all three is a pause, not a fault."""

import json
import subprocess
import sys
import time
from pathlib import Path

from confluent_kafka import ElectionType, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from pylog.testing import BrokerProcess
from tests.cluster.conftest import Brokers, bootstrap, create, isrs, leaders, wait_for
from tests.cluster.history import Load
from tests.cluster.test_replication import all_in_sync, check

SESSION_S = 2.0
"""Of `write_config`: a leader that just vanishes is followed by another only after it."""

STOP_S = 5.0
"""Far above a stop, far below the waits that might hold one up: ten seconds for a controller, seven for a pull."""


def test_a_rolling_restart_loses_nothing_and_fails_no_send(brokers: Brokers) -> None:
    create(brokers[1], "rolling", 3, 3, min_insync_replicas="2")
    wait_for(all_in_sync(brokers, "rolling"), "all replicas are in sync")
    with Load(bootstrap(brokers), "rolling", 3, **{"enable.idempotence": True}) as load:
        wait_for(lambda: load.acknowledged > 300, "some records")
        for one, broker in brokers.items():
            began_s = time.monotonic()
            assert broker.stop() == 0
            took_s = time.monotonic() - began_s
            print(f"broker {one} stopped in {took_s:.2f} s")
            assert took_s < STOP_S
            before = load.acknowledged
            wait_for(lambda before=before: load.acknowledged > before + 100, "writes go on")
            broker.start()
            wait_for(all_in_sync(brokers, "rolling"), "the restarted broker is in sync again")
    history = load.read_back()
    check(history)
    print(f"longest pause of a partition: {history.longest_pause_s * 1000:.0f} ms")
    assert not any(history.failed.values())
    assert not history.doubled(), "the producer is idempotent"
    assert history.longest_pause_s < SESSION_S


def test_f5_the_cluster_secret_changes_while_clients_write(brokers: Brokers) -> None:
    """In three rolls: each broker knows the next secret, then has it, then forgets the former one."""
    create(brokers[1], "secret", 3, 3, min_insync_replicas="2")
    wait_for(all_in_sync(brokers, "secret"), "all replicas are in sync")
    with Load(bootstrap(brokers), "secret", 3, **{"enable.idempotence": True}) as load:
        for content in (b"hush\nhash\n", b"hash\nhush\n", b"hash\n"):
            for broker in brokers.values():
                assert broker.stop() == 0
                secret_of(broker).write_bytes(content)
                broker.start()
                before = load.acknowledged
                wait_for(all_in_sync(brokers, "secret"), "the restarted broker is in sync again")
                wait_for(lambda before=before: load.acknowledged > before + 100, "writes go on")
    history = load.read_back()
    check(history)
    assert not any(history.failed.values())
    assert not history.doubled(), "the producer is idempotent"


def secret_of(broker: BrokerProcess) -> Path:
    """Return the file of the secret that other brokers know this one by."""
    return broker.data_dir.parent / "secret"


def test_preferred_leaders_are_elected_on_request_and_only_then(brokers: Brokers) -> None:
    create(brokers[1], "preferred", 3, 3)
    wait_for(all_in_sync(brokers, "preferred"), "all replicas are in sync")
    before = leaders(brokers, "preferred")
    admin = AdminClient({"bootstrap.servers": bootstrap(brokers)})
    rows = admin.list_topics("preferred", timeout=10).topics["preferred"].partitions
    preferred = {number: row.replicas[0] for number, row in rows.items()}
    assert before == preferred
    victim = preferred[0]
    brokers[victim].stop()
    brokers[victim].start()
    wait_for(all_in_sync(brokers, "preferred"), "the restarted broker is in sync again")
    assert victim not in leaders(brokers, "preferred").values(), "nothing is re-balanced by itself"
    asked = [TopicPartition("preferred", 0), TopicPartition("preferred", 1), TopicPartition("missing", 0)]
    results = admin.elect_leaders(ElectionType.PREFERRED, asked).result(20)
    assert [results[one].code() if results[one] else 0 for one in asked] == [
        0,
        KafkaError.ELECTION_NOT_NEEDED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    ]
    wait_for(lambda: leaders(brokers, "preferred") == preferred, "what was asked for is heard of")


def test_what_nobody_else_has_stays_with_the_broker_that_stops(brokers: Brokers) -> None:
    create(brokers[1], "lonely", 1, 1)
    wait_for(lambda: all(leaders({one: brokers[one]}, "lonely") for one in brokers), "every broker has heard of it")
    [owner] = leaders(brokers, "lonely").values()
    brokers[owner].stop()
    alive = {one: broker for one, broker in brokers.items() if one != owner}
    wait_for(lambda: leaders(alive, "lonely") == {0: -1}, "nobody leads")
    assert isrs(alive, "lonely") == {0: {owner}}
    brokers[owner].start()
    wait_for(lambda: leaders(brokers, "lonely") == {0: owner}, "it leads again")


def test_the_gate_gives_a_restarted_broker_its_leaderships_back(brokers: Brokers) -> None:
    create(brokers[1], "given-back", 3, 3)
    wait_for(all_in_sync(brokers, "given-back"), "all replicas are in sync")
    before = leaders(brokers, "given-back")
    victim = before[0]
    brokers[victim].stop()
    brokers[victim].start()
    command = [sys.executable, "-m", "pylog", "cluster", "health", "--bootstrap", bootstrap(brokers)]
    command += ["--brokers", "3", "--broker", str(victim), "--wait", "40", "--format", "json"]
    gate = subprocess.run([*command, "--elect"], capture_output=True, text=True, check=False)
    assert (gate.returncode, json.loads(gate.stdout)["problems"]) == (0, []), gate.stderr
    wait_for(lambda: leaders(brokers, "given-back") == before, "the leaders are those of before")
