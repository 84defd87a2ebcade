"""Three replicas: any broker may die, pause or restart, and nothing acknowledged is lost or reordered."""

import os
import resource
import signal
import time
from collections.abc import Callable

import pytest
from confluent_kafka import ElectionType, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.conftest import Brokers, bootstrap, controller_of, create, isrs, leaders, wait_for
from tests.cluster.history import History, Load

ALL = {1, 2, 3}


def check(history: History) -> None:
    assert not history.lost()
    assert not history.invented()
    assert not history.reordered()


def all_in_sync(brokers: Brokers, topic: str) -> Callable[[], bool]:
    return lambda: all(isr == ALL for isr in isrs(brokers, topic).values())


def give_back_leaders(brokers: Brokers, topic: str) -> None:
    """Have every broker lead its share again: a session that expired on a busy machine takes a broker's away."""
    partitions = [TopicPartition(topic, number) for number in leaders(brokers, topic)]
    admin = AdminClient({"bootstrap.servers": bootstrap(brokers)})
    admin.elect_leaders(ElectionType.PREFERRED, partitions).result(20)


@pytest.mark.parametrize("is_controller", [False, True], ids=["leader", "leader_and_controller"])
def test_t1_kill9_leader_acks_all(brokers: Brokers, is_controller: bool) -> None:
    topic = f"kill-{is_controller}"
    create(brokers[1], topic, 3, 3, min_insync_replicas="2")
    wait_for(all_in_sync(brokers, topic), "all replicas are in sync")
    give_back_leaders(brokers, topic)
    controller = controller_of(brokers[1])
    victim = next(one for one in leaders(brokers, topic).values() if (one == controller) is is_controller)
    with Load(bootstrap(brokers), topic, 3, **{"enable.idempotence": True}) as load:
        time.sleep(1)
        brokers[victim].kill()
        before = load.acknowledged
        wait_for(lambda: load.acknowledged > before + 300, "writes go on without the killed leader")
        brokers[victim].start()
        wait_for(all_in_sync(brokers, topic), "the killed broker is in sync again")
    history = load.read_back()
    check(history)
    assert not history.doubled(), "the producer is idempotent"
    assert not any(history.failed.values())


@pytest.mark.parametrize("acks", [1, 0])
def test_t2_kill9_acks1_acks0(brokers: Brokers, acks: int) -> None:
    """What only the dead leader had may be lost, and can be told by number; nothing else is, nor turned round."""
    topic = f"kill-acks{acks}"
    create(brokers[1], topic, 3, 3)
    wait_for(all_in_sync(brokers, topic), "all replicas are in sync")
    give_back_leaders(brokers, topic)
    led = leaders(brokers, topic)
    victim = min(led.values(), key=lambda one: one == controller_of(brokers[1]))
    with Load(bootstrap(brokers), topic, 3, acks=acks) as load:
        time.sleep(1)
        brokers[victim].kill()
        survivors = {one: broker for one, broker in brokers.items() if one != victim}
        wait_for(lambda: victim not in leaders(survivors, topic).values(), "others lead")
        before = load.acknowledged
        wait_for(lambda: load.acknowledged > before + 300, "writes go on without the killed leader")
        brokers[victim].start()
        wait_for(all_in_sync(brokers, topic), "the killed broker is in sync again")
    history = load.read_back()
    assert not history.invented()
    assert not history.reordered()
    lost = history.lost()
    print(f"acks={acks}: lost { ({number: len(rows) for number, rows in lost.items()}) }")
    assert all(led[number] == victim for number in lost), "other leaders lose nothing"
    for number, rows in lost.items():
        acknowledged = history.acknowledged[number]
        where = [acknowledged.index(row) for row in rows]
        assert where[-1] - where[0] + 1 == len(where), "one gap: what was under way when the leader died"


def test_t3_pause_leader_sigstop(brokers: Brokers) -> None:
    create(brokers[1], "pause", 3, 3, min_insync_replicas="2")
    wait_for(all_in_sync(brokers, "pause"), "all replicas are in sync")
    # Any leader will do; one that is not the controller too shows that nothing else has to move.
    victim = min(leaders(brokers, "pause").values(), key=lambda one: one == controller_of(brokers[1]))
    with Load(bootstrap(brokers), "pause", 3, **{"enable.idempotence": True, "socket.timeout.ms": 5000}) as load:
        time.sleep(1)
        os.kill(brokers[victim].pid, signal.SIGSTOP)
        survivors = {one: broker for one, broker in brokers.items() if one != victim}
        try:
            wait_for(lambda: victim not in leaders(survivors, "pause").values(), "others lead")
            before = load.acknowledged
            wait_for(lambda: load.acknowledged > before + 300, "writes go on without the paused leader")
        finally:
            os.kill(brokers[victim].pid, signal.SIGCONT)
        if brokers[victim].has_ended:
            brokers[victim].start()
        wait_for(all_in_sync(brokers, "pause"), "the paused broker is in sync again")
    check(load.read_back())


def test_t5_without_enough_replicas_writes_are_refused_and_no_unclean_leader_is_elected(brokers: Brokers) -> None:
    create(brokers[1], "few", 1, 3, min_insync_replicas="2")
    wait_for(all_in_sync(brokers, "few"), "all replicas are in sync")
    with Load(bootstrap(brokers), "few", 1) as load:
        wait_for(lambda: load.acknowledged > 200, "some records")
    [leader] = leaders(brokers, "few").values()
    followers = [one for one in brokers if one != leader]
    for one in followers:
        brokers[one].kill()
    alive = {leader: brokers[leader]}
    wait_for(lambda: isrs(alive, "few")[0] == {leader}, "only the leader is in sync")
    errors: list[str] = []
    producer = Producer({"bootstrap.servers": bootstrap(alive), "acks": "all", "message.timeout.ms": 2500})
    producer.produce("few", "refused", on_delivery=lambda error, message: errors.append(error.name() if error else ""))
    producer.flush(20)
    assert errors in (["NOT_ENOUGH_REPLICAS"], ["_MSG_TIMED_OUT"]), errors
    brokers[leader].kill()
    for one in followers:
        brokers[one].start()
    survivors = {one: brokers[one] for one in followers}
    time.sleep(1)  # nothing may happen; there is no event to wait for
    assert leaders(survivors, "few") == {0: -1}, "only the dead leader has everything, so nobody leads"
    brokers[leader].start()
    wait_for(lambda: leaders(brokers, "few") == {0: leader}, "the one in sync leads again")
    wait_for(all_in_sync(brokers, "few"), "all are in sync again")
    check(load.read_back())


def test_a_follower_that_was_away_catches_up_and_joins(brokers: Brokers) -> None:
    create(brokers[1], "away", 1, 3)
    wait_for(all_in_sync(brokers, "away"), "all replicas are in sync")
    [leader] = leaders(brokers, "away").values()
    follower = next(one for one in brokers if one not in (leader, controller_of(brokers[leader])))
    brokers[follower].stop()
    with Load(bootstrap(brokers), "away", 1, rate=2000) as load:
        wait_for(lambda: load.acknowledged > 2000, "records it has not seen")
    brokers[follower].start()
    wait_for(all_in_sync(brokers, "away"), "it is in sync again")
    check(load.read_back())
    sizes = {
        (one, row["log_end_offset"], row["size_bytes"])
        for one, broker in brokers.items()
        for row in broker.admin("GET", "/status")[1]["partitions"]
        if row["topic"] == "away"
    }
    assert len({row[1:] for row in sizes}) == 1, f"replicas are equal byte for byte: {sizes}"


def test_more_replicas_than_brokers_are_refused(brokers: Brokers) -> None:
    admin = AdminClient({"bootstrap.servers": brokers[1].bootstrap})
    with pytest.raises(KafkaException, match="INVALID_REPLICATION_FACTOR"):
        admin.create_topics([NewTopic("four", 1, 4)])["four"].result(20)


def test_rule_7_a_leader_whose_disk_is_full_gives_up_to_a_follower(brokers: Brokers) -> None:
    create(brokers[1], "unwritable", 1, 3, min_insync_replicas="2")
    wait_for(all_in_sync(brokers, "unwritable"), "all replicas are in sync")
    [leader] = leaders(brokers, "unwritable").values()
    [segment] = (brokers[leader].data_dir / "unwritable-0").glob("*.log")
    with Load(bootstrap(brokers), "unwritable", 1, **{"enable.idempotence": True}) as load:
        wait_for(lambda: load.acknowledged > 3000, "a segment larger than any other file that is written")
        before = resource.prlimit(brokers[leader].pid, resource.RLIMIT_FSIZE)
        resource.prlimit(brokers[leader].pid, resource.RLIMIT_FSIZE, (segment.stat().st_size, before[1]))
        wait_for(lambda: leader not in isrs(brokers, "unwritable")[0], "another leads, and this one is out")
        resource.prlimit(brokers[leader].pid, resource.RLIMIT_FSIZE, before)
        count = load.acknowledged
        wait_for(lambda: load.acknowledged > count + 300, "writes go on")
        wait_for(all_in_sync(brokers, "unwritable"), "with room on the disk it is in sync again")
    history = load.read_back()
    check(history)
    assert not any(history.failed.values())
