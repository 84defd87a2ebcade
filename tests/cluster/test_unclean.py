"""Rule 3: brokers that stopped uncleanly may lack the ends of their logs, and do not lead over those that have them."""

import pytest

from pylog.log.checkpoint import BOOT_ID
from tests.cluster.conftest import Brokers, bootstrap, create, isrs, leaders, wait_for
from tests.cluster.history import Load
from tests.cluster.test_replication import all_in_sync, check

TORN_BYTES = 700


@pytest.fixture(autouse=True)
def all_run(brokers: Brokers) -> None:
    for broker in brokers.values():
        if broker.has_ended:
            broker.start()


def tear(brokers: Brokers, broker_id: int, topic: str) -> None:
    """Take the end of a log away, as a power cut does that the page cache did not survive."""
    (brokers[broker_id].data_dir / BOOT_ID).unlink()
    [log] = (brokers[broker_id].data_dir / f"{topic}-0").glob("*.log")
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - TORN_BYTES)


def test_rule_3_after_all_lost_power_the_longest_log_leads(brokers: Brokers) -> None:
    create(brokers[1], "power", 1, 3, min_insync_replicas="2")
    wait_for(all_in_sync(brokers, "power"), "all replicas are in sync")
    with Load(bootstrap(brokers), "power", 1) as load:
        wait_for(lambda: load.acknowledged > 500, "some records")
    wait_for(all_in_sync(brokers, "power"), "all replicas are in sync")
    [leader] = leaders(brokers, "power").values()
    first, second = (one for one in brokers if one != leader)
    # At once, so that nobody is left to take the others out of the ISR.
    for broker in brokers.values():
        broker.kill()
    tear(brokers, first, "power")
    tear(brokers, leader, "power")
    brokers[first].start()
    alone = {first: brokers[first]}
    wait_for(lambda: leaders(alone, "power") == {0: -1}, "nobody leads while others may have more")
    brokers[leader].start()
    brokers[second].start()
    wait_for(lambda: leaders(brokers, "power") == {0: second}, "the longest log leads")
    wait_for(all_in_sync(brokers, "power"), "the others are in sync again")
    check(load.read_back())
    assert "possible loss after unclean stops partition=power-0" in "".join(one.log for one in brokers.values())


def test_rule_3_a_clean_replica_leads_over_one_that_was_killed(brokers: Brokers) -> None:
    create(brokers[1], "mixed", 1, 2)
    wait_for(lambda: len(isrs(brokers, "mixed").get(0, ())) == 2, "both replicas are in sync")
    replicas = isrs(brokers, "mixed")[0]
    with Load(bootstrap(brokers), "mixed", 1) as load:
        wait_for(lambda: load.acknowledged > 300, "some records")
    [leader] = leaders(brokers, "mixed").values()
    [follower] = replicas - {leader}
    for broker in brokers.values():
        broker.kill()
    # What the follower would have left behind had it stopped cleanly.
    (brokers[follower].data_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    tear(brokers, leader, "mixed")
    for one in sorted(brokers, key=lambda one: one == follower):
        brokers[one].start()
    wait_for(lambda: leaders(brokers, "mixed") == {0: follower}, "the clean one leads")
    wait_for(lambda: isrs(brokers, "mixed")[0] == replicas, "the other is in sync again")
    check(load.read_back())


def test_a_last_replica_that_loses_power_loses_what_it_had_not_synced(brokers: Brokers) -> None:
    """What docs/guarantees.md warns of: one that left the ISR may have it still, and is not asked."""
    create(brokers[1], "last", 1, 2)
    wait_for(lambda: len(isrs(brokers, "last").get(0, ())) == 2, "both replicas are in sync")
    with Load(bootstrap(brokers), "last", 1, **{"enable.idempotence": True}) as load:
        wait_for(lambda: load.acknowledged > 300, "some records")
    [leader] = leaders(brokers, "last").values()
    [follower] = isrs(brokers, "last")[0] - {leader}
    # Everything that is acknowledged it has, on its disk.
    brokers[follower].stop()
    wait_for(lambda: isrs({leader: brokers[leader]}, "last")[0] == {leader}, "the leader is left alone")
    brokers[leader].kill()
    tear(brokers, leader, "last")
    brokers[leader].start()
    brokers[follower].start()
    wait_for(lambda: isrs(brokers, "last")[0] == {leader, follower}, "both replicas are in sync again")
    lost = load.read_back().lost()[0]
    assert lost == load.history.acknowledged[0][-len(lost) :], "the end of the log, and nothing else"
    assert not load.history.reordered()
