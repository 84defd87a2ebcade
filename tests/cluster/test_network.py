"""Links that are cut, one way too, that lose packets or fail one by one: nothing acknowledged is lost."""

import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from pylog.cluster.topics import UNCLEAN_ELECTION
from pylog.store.zookeeper import ZooKeeperStore
from pylog.testing import BrokerProcess
from tests.cluster.conftest import DEADLINE_S, bootstrap, controller_of, create, isrs, leaders, wait_for
from tests.cluster.history import History, Load, read
from tests.cluster.network import Spread, cluster
from tests.cluster.test_reassignment import create_on, fill
from tests.cluster.test_replication import all_in_sync, check, give_back_leaders
from tests.interop import frames
from tests.interop.batches import Batch
from tests.interop.frames import Connection

__all__ = ["cluster"]

SETTINGS = {"enable.idempotence": True, "socket.timeout.ms": 5000, "message.timeout.ms": 120_000}


@pytest.fixture(autouse=True)
def healed(cluster: Spread) -> Iterator[None]:
    yield
    cluster.network.heal()
    for broker in cluster.brokers.values():
        if broker.has_ended:
            broker.start()


def ready(cluster: Spread, topic: str, partitions: int = 3) -> None:
    create(cluster.brokers[1], topic, partitions, 3, min_insync_replicas="2")
    wait_for(all_in_sync(cluster.brokers, topic), "all replicas are in sync")
    give_back_leaders(cluster.brokers, topic)


def leader_beside_controller(cluster: Spread, topic: str) -> int:
    controller = controller_of(cluster.brokers[1])
    return next(one for one in leaders(cluster.brokers, topic).values() if one != controller)


def goes_on(load: Load, what: str, count: int = 300) -> None:
    before = load.acknowledged
    wait_for(lambda: load.acknowledged > before + count, what)


def settled(cluster: Spread, topic: str, load: Load) -> History:
    wait_for(all_in_sync(cluster.brokers, topic), "all replicas are in sync again")
    goes_on(load, "writes go on")
    return load.history


def test_t4_partition_leader_from_zk(cluster: Spread) -> None:
    """The leader hears nothing of its end; what it acknowledges until it does, its successors have."""
    ready(cluster, "t4")
    victim = leader_beside_controller(cluster, "t4")
    others = cluster.without(victim)
    epochs = led_epochs(cluster, "t4")
    with Load(bootstrap(cluster.brokers), "t4", 3, **SETTINGS) as load:
        goes_on(load, "some records")
        cluster.cut_store(victim)
        wait_for(lambda: victim not in leaders(others, "t4").values(), "others lead")
        wait_for(lambda: not led_epochs(cluster, "t4").get(victim), "it has learned that it leads nothing")
        goes_on(load, "writes go on without it")
        cluster.network.heal()
        settled(cluster, "t4", load)
    history = load.read_back()
    check(history)
    assert not history.doubled()
    for partition, epoch in led_epochs(cluster, "t4").get(victim, {}).items():
        assert epoch > epochs[victim].get(partition, -1), "nobody leads twice in one epoch"


def test_a_leader_cut_from_all_but_clients_serves_what_is_old_and_loses_what_it_takes_without_all(
    cluster: Spread,
) -> None:
    """What docs/guarantees.md warns of: nobody can tell it of its end, and acks=all alone protects a write."""
    ready(cluster, "deposed", 1)
    [victim] = leaders(cluster.brokers, "deposed").values()
    others = cluster.without(victim)
    write(cluster.brokers[victim], "deposed", b"before")
    wait_for(lambda: shown(cluster.brokers[victim], "deposed") == 1, "all have the record of before")
    cluster.cut_store(victim)
    for one in others:
        cluster.network.cut(victim, cluster.network.address(one))
    alone = [{one: broker} for one, broker in others.items()]
    wait_for(lambda: all(leaders(one, "deposed")[0] in others for one in alone), "another leads, and both know it")
    successor = others[leaders(others, "deposed")[0]]
    write(successor, "deposed", b"successor's")
    wait_for(lambda: shown(successor, "deposed") == 2, "the record is safe")
    with Connection(cluster.brokers[victim].bootstrap) as connection:
        connection.send(frames.produce("deposed", Batch(values=[b"acks=0"]).encode(), acks=0))
        answer = connection.ask(frames.produce("deposed", Batch(values=[b"acks=1"]).encode(), acks=1))
        assert frames.produce_result(answer) == (frames.NONE, 2), "it took both behind the record of before"
        served = connection.ask(frames.fetch("deposed"))
        assert b"before" in served
        assert b"successor's" not in served, "what it serves is out of date"
    assert shown(cluster.brokers[victim], "deposed") == 1
    cluster.network.heal()
    wait_for(all_in_sync(cluster.brokers, "deposed"), "all replicas are in sync again")
    kept = [message.value() for message in read(bootstrap(cluster.brokers), "deposed", 1)]
    assert kept == [b"before", b"successor's"]


def write(broker: BrokerProcess, topic: str, value: bytes) -> None:
    """Write one record to this broker and no other, as soon as it leads; a client would ask whoever it reaches."""

    def is_taken() -> bool:
        with Connection(broker.bootstrap) as connection:
            answer = connection.ask(frames.produce(topic, Batch(values=[value]).encode()))
        return frames.produce_result(answer)[0] == frames.NONE

    wait_for(is_taken, f"{value!r} is taken")


def shown(broker: BrokerProcess, topic: str) -> int | None:
    """Return the end of partition 0 that this broker shows to consumers; None while it does not know."""
    with Connection(broker.bootstrap) as connection:
        answer = connection.ask(frames.list_offsets(topic))
    return None if frames.listed_error(answer) else frames.listed_offset(answer)


def test_t18_zk_session_expired(cluster: Spread) -> None:
    """The controller's session ends: another is elected, the old one registers anew, and no ISR stays small."""
    ready(cluster, "t18")
    controller = controller_of(cluster.brokers[1])
    others = cluster.without(controller)
    before = registrations(cluster)
    with Load(bootstrap(cluster.brokers), "t18", 3, **SETTINGS) as load:
        goes_on(load, "some records")
        cluster.cut_store(controller)
        wait_for(lambda: all(controller_of(one) in others for one in others.values()), "another is controller")
        goes_on(load, "writes go on")
        cluster.network.heal()
        wait_for(lambda: registrations(cluster).get(controller, 0) > before[controller], "it has registered anew")
        settled(cluster, "t18", load)
    assert {one: epoch for one, epoch in registrations(cluster).items() if one != controller} == {
        one: epoch for one, epoch in before.items() if one != controller
    }, "nobody else had to"
    history = load.read_back()
    check(history)
    assert not history.doubled()


def registrations(cluster: Spread) -> dict[int, int]:
    """Return the epoch of each registration."""
    with closing(ZooKeeperStore(cluster.zookeeper.hosts)) as store:
        store.connect()
        paths = {int(name): f"/brokers/ids/{name}" for name in store.children("/brokers/ids")}
        nodes = store.get_many(paths.values())
        return {one: node[1].czxid for one, node in zip(paths, nodes, strict=True) if node is not None}


def led_epochs(cluster: Spread, topic: str) -> dict[int, dict[int, int]]:
    """Return the leader epoch of each partition by the broker that says it leads."""
    return {
        one: {
            row["partition"]: row["leader_epoch"]
            for row in broker.admin("GET", "/status")[1]["partitions"]
            if row["topic"] == topic and row["role"] == "leader"
        }
        for one, broker in cluster.brokers.items()
    }


def test_t5_partition_isr_then_kill_leader(cluster: Spread) -> None:
    """The followers are cut off, then the leader dies: nobody who lacks anything leads."""
    # A leader that does not reach the controller cannot shrink its ISR; so it is the controller itself.
    leader = controller_of(cluster.brokers[1])
    followers = [one for one in cluster.brokers if one != leader]
    create_on(cluster.brokers, "t5", [[leader, *followers]])
    wait_for(all_in_sync(cluster.brokers, "t5"), "all replicas are in sync")
    with Load(bootstrap(cluster.brokers), "t5", 1, **{"acks": 1}) as load:
        goes_on(load, "some records")
        for one in followers:
            cluster.network.cut(one, cluster.network.address(leader))
        alone = {leader: cluster.brokers[leader]}
        wait_for(lambda: isrs(alone, "t5")[0] == {leader}, "the followers left the ISR")
        goes_on(load, "records that they do not have")
        cluster.brokers[leader].kill()
        survivors = cluster.without(leader)
        wait_for(lambda: leaders(survivors, "t5") == {0: -1}, "nobody leads, rather than one that lacks records")
        for broker in survivors.values():
            wait_for(
                lambda broker=broker: not broker.admin("GET", "/ready")[1]["ready"], "without a leader nobody is ready"
            )
        assert isrs(survivors, "t5") == {0: {leader}}
        cluster.network.heal()
        cluster.brokers[leader].start()
        wait_for(lambda: leaders(cluster.brokers, "t5") == {0: leader}, "the one in sync leads again")
        settled(cluster, "t5", load)
    check(load.read_back())


def test_an_unclean_leader_is_elected_only_where_the_topic_says_so(cluster: Spread) -> None:
    leader = controller_of(cluster.brokers[1])
    other = next(one for one in cluster.brokers if one != leader)
    for topic in ("waits", "loses"):
        create_on(cluster.brokers, topic, [[leader, other]])
    with Load(bootstrap(cluster.brokers), "loses", 1, **{"acks": 1}) as load:
        goes_on(load, "some records")
        cluster.network.cut(other, cluster.network.address(leader))
        fill(cluster.brokers, "waits", 5000)  # whoever has everything stays in the ISR, however long it is silent
        alone = {leader: cluster.brokers[leader]}
        wait_for(lambda: isrs(alone, "loses")[0] == {leader} == isrs(alone, "waits")[0], "the follower left the ISR")
        cluster.brokers[leader].kill()
        survivors = cluster.without(leader)
        for one, broker in survivors.items():
            wait_for(lambda one=one, broker=broker: leaders({one: broker}, "loses") == {0: -1}, "nobody leads")
        admin = AdminClient({"bootstrap.servers": bootstrap(survivors)})
        entry = ConfigEntry(UNCLEAN_ELECTION, "true", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, "loses", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(20)
        for one, broker in survivors.items():
            wait_for(
                lambda one=one, broker=broker: leaders({one: broker}, "loses") == {0: other}, "who lacks records leads"
            )
            assert leaders({one: broker}, "waits") == {0: -1}
        goes_on(load, "writes go on")
        cluster.network.heal()
        cluster.brokers[leader].start()
        wait_for(lambda: isrs(cluster.brokers, "loses")[0] == {leader, other}, "the old leader follows")
    history = load.read_back()
    assert not history.reordered()
    assert not history.invented()


@pytest.mark.parametrize("side", ["what the leader sends", "what a follower sends"])
def test_t24_asymmetric_cut(cluster: Spread, side: str) -> None:
    topic = "t24-leader" if "leader" in side else "t24-follower"
    ready(cluster, topic)
    leader = leader_beside_controller(cluster, topic)
    follower = next(one for one in cluster.brokers if one not in (leader, controller_of(cluster.brokers[1])))
    silent, deaf = (leader, follower) if "leader" in side else (follower, leader)
    with Load(bootstrap(cluster.brokers), topic, 3, **SETTINGS) as load:
        goes_on(load, "some records")
        cluster.network.cut(silent, cluster.network.address(deaf), both_ways=False)
        goes_on(load, "writes go on with two of three", 1000)
        cluster.network.heal()
        settled(cluster, topic, load)
    history = load.read_back()
    check(history)
    assert not any(history.failed.values())


def test_t24_flaky_net_loses_five_of_a_hundred_packets(cluster: Spread) -> None:
    ready(cluster, "flaky")
    with Load(bootstrap(cluster.brokers), "flaky", 3, **SETTINGS) as load:
        goes_on(load, "some records")
        before = isr_changes(cluster)
        began_s = time.monotonic()
        for one in cluster.brokers:
            cluster.network.lose(one, 5)
        goes_on(load, "writes go on over a bad network", 3000)
        took_min = (time.monotonic() - began_s) / 60
        changes = isr_changes(cluster) - before
        cluster.network.heal()
        settled(cluster, "flaky", load)
    print(f"{changes} ISR changes in {took_min:.1f} min, longest pause {load.history.longest_pause_s * 1000:.0f} ms")
    history = load.read_back()
    check(history)
    assert not any(history.failed.values())
    assert not history.doubled()


def isr_changes(cluster: Spread) -> int:
    found = 0
    for broker in cluster.brokers.values():
        text = str(broker.admin("GET", "/metrics")[1])
        [line] = [line for line in text.splitlines() if line.startswith("pylog_isr_changes_total ")]
        found += int(float(line.split()[1]))
    return found


def test_t25_swizzle_clog(cluster: Spread) -> None:
    """Every broker loses its links to all others, one after the other, and gets them back in another order."""
    ready(cluster, "swizzle")
    with Load(bootstrap(cluster.brokers), "swizzle", 3, **SETTINGS) as load:
        goes_on(load, "some records")
        for healed_first in ((1, 2, 3), (3, 1, 2)):
            for one in cluster.brokers:
                for other in cluster.brokers:
                    if other != one:
                        cluster.network.cut(one, cluster.network.address(other))
                time.sleep(0.5)  # the state between is what is tested; nothing says when it is there
            for one in healed_first:
                cluster.network.heal(one)
                time.sleep(0.5)
            settled(cluster, "swizzle", load)
    history = load.read_back()
    check(history)
    assert not history.doubled()
    assert history.longest_pause_s < DEADLINE_S
