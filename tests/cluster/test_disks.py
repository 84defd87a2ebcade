"""Disks of one broker that fail or lie: the other instances serve, and what was lost there comes back from them."""

import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pylog.testing import BrokerProcess
from tests.cluster.conftest import Brokers, bootstrap, create, isrs, leaders, running, wait_for, write_config
from tests.cluster.history import Load
from tests.servers.zookeeper import ZooKeeper

FAILING = 2
ALL, OTHERS = {1, 2, 3}, {1, 3}


def all_are(brokers: Brokers, topic: str, wanted: set[int]) -> Callable[[], bool]:
    return lambda: all(isr == wanted for isr in isrs(brokers, topic).values())


def check(load: Load) -> None:
    history = load.read_back()
    assert not history.lost()
    assert not history.invented()
    assert not history.reordered()


def flip_a_bit(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        [found] = file.read(1)
        file.seek(position)
        file.write(bytes([found ^ 1]))


@pytest.fixture
def trigger(tmp_path: Path) -> Path:
    """A file whose presence makes the disk of broker 2 fail."""
    return tmp_path / "fail"


@pytest.fixture
def three(tmp_path: Path, zookeeper: ZooKeeper, trigger: Path) -> Iterator[Brokers]:
    with ExitStack() as stack:
        found: Brokers = {}
        for number in sorted(ALL):
            home = tmp_path / str(number)
            config = write_config(home, number, zookeeper, chroot="/disks")
            module = "tests.servers.bad_disk" if number == FAILING else "pylog"
            broker = BrokerProcess(home, config_file=config, module=module, env={"FAIL_WHEN": str(trigger)})
            found[number] = stack.enter_context(broker)
        yield found


def test_t15_one_log_dir_fails(three: Brokers, trigger: Path) -> None:
    """Instances have a disk each; that of one fails, and an empty one takes its place."""
    create(three[1], "kept", 6, 3, min_insync_replicas="2")
    wait_for(all_are(three, "kept", ALL), "all replicas are in sync")
    with Load(bootstrap(three), "kept", 6, **{"enable.idempotence": True}) as load:
        wait_for(lambda: load.acknowledged > 500, "writes")
        trigger.touch()
        wait_for(all_are(three, "kept", OTHERS), "the instance on the failed disk is in no ISR")
        wait_for(lambda: set(leaders(three, "kept").values()) <= OTHERS, "it leads nothing")
        count = load.acknowledged
        wait_for(lambda: load.acknowledged > count + 500, "the others take writes")
        for number in OTHERS:
            assert three[number].admin("GET", "/ready")[0] == 200
        three[FAILING].kill()
        shutil.rmtree(three[FAILING].data_dir)
        trigger.unlink()
        three[FAILING].start()
        wait_for(all_are(three, "kept", ALL), "on an empty disk it has fetched everything")
    check(load)


def test_rule_7_a_follower_whose_disk_is_full_leaves_the_isr_long_before_it_lags(
    tmp_path: Path, zookeeper: ZooKeeper
) -> None:
    settings: dict[str, Any] = {"chroot": "/full", "replica.lag.time.max.ms": 600_000}
    with running(tmp_path, zookeeper, **settings) as brokers:
        create(brokers[1], "unwritable", 1, 3, min_insync_replicas="2")
        wait_for(all_are(brokers, "unwritable", ALL), "all replicas are in sync")
        [leader] = leaders(brokers, "unwritable").values()
        full = min(ALL - {leader})
        pid = brokers[full].pid
        with Load(bootstrap(brokers), "unwritable", 1, **{"enable.idempotence": True}) as load:
            wait_for(lambda: load.acknowledged > 3000, "a segment larger than any other file that is written")
            [segment] = (brokers[full].data_dir / "unwritable-0").glob("*.log")
            before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (segment.stat().st_size, before[1]))
            wait_for(all_are(brokers, "unwritable", ALL - {full}), "it says itself that it cannot follow")
            count = load.acknowledged
            wait_for(lambda: load.acknowledged > count + 300, "writes go on without it")
            resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
            wait_for(all_are(brokers, "unwritable", ALL), "with room on the disk it is in sync again")
        check(load)


def test_t9_a_damaged_replica_is_taken_out_and_filled_again_from_a_good_one(
    tmp_path: Path, zookeeper: ZooKeeper
) -> None:
    settings: dict[str, Any] = {"chroot": "/scrub", "log.segment.bytes": 65536, "log.scrub.interval.ms": 0}
    with running(tmp_path, zookeeper, **settings) as brokers:
        create(brokers[1], "scrubbed", 1, 3, min_insync_replicas="2")
        wait_for(all_are(brokers, "scrubbed", ALL), "all replicas are in sync")
        with Load(bootstrap(brokers), "scrubbed", 1, **{"enable.idempotence": True}) as load:
            [leader] = leaders(brokers, "scrubbed").values()
            replica = brokers[leader].data_dir / "scrubbed-0"
            wait_for(lambda: len(list(replica.glob("*.log"))) > 2, "closed segments")
            # All of them: one that was just looked at is looked at again when all others have been.
            closed = sorted(replica.glob("*.log"))[:-1]
            for segment in closed:
                flip_a_bit(segment, 1000)
            others = ALL - {leader}
            wait_for(all_are(brokers, "scrubbed", others), "the damaged replica is out of the ISR")
            assert "damage found partition=scrubbed-0" in brokers[leader].log
            assert any(str(segment) in brokers[leader].log for segment in closed)
            wait_for(lambda: set(leaders(brokers, "scrubbed").values()) <= others, "it leads nothing")
            # What PYLOG-0302 tells the operator to do.
            brokers[leader].stop()
            replica.rename(tmp_path / "damaged")
            brokers[leader].start()
            wait_for(all_are(brokers, "scrubbed", ALL), "a good copy was fetched")
        check(load)
        copies = [(broker.data_dir / "scrubbed-0" / closed[0].name).read_bytes() for broker in brokers.values()]
        size = min(map(len, copies))
        assert len({copy[:size] for copy in copies}) == 1, "bytes differ between replicas"
        assert size > 1000
