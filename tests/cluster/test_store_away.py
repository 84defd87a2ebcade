"""Rule 1: without ZooKeeper the data plane goes on, and with it back no broker leads on what it knew before."""

import signal
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from pylog.testing import BrokerProcess
from tests.cluster.conftest import bootstrap, create, running, wait_for
from tests.cluster.history import Load
from tests.cluster.test_replication import all_in_sync, check
from tests.servers.zookeeper import ZooKeeper

AWAY_S = 12.0
"""Six session time-outs: to the brokers as good as ten minutes."""


def _store_connected(broker: BrokerProcess) -> str:
    [line] = [
        one for one in broker.admin("GET", "/metrics")[1].splitlines() if one.startswith("pylog_store_connected ")
    ]
    return str(line.split()[1])


def test_t20_zk_rolling_restart(tmp_path: Path) -> None:
    """Servers of an ensemble are killed and started one after the other: no session ends, no write waits for it."""
    with (
        ZooKeeper(tmp_path / "zookeeper", servers=3) as zookeeper,
        running(tmp_path / "brokers", zookeeper, session_timeout_ms=6000) as brokers,
    ):
        create(brokers[1], "rolling", 3, 3, min_insync_replicas="2")
        wait_for(all_in_sync(brokers, "rolling"), "all replicas are in sync")
        with Load(bootstrap(brokers), "rolling", 3, **{"enable.idempotence": True}) as load:
            wait_for(lambda: load.acknowledged > 300, "some records")
            for server in zookeeper.servers:
                server.kill()
                before = load.acknowledged
                wait_for(lambda before=before: load.acknowledged > before + 300, "writes go on")
                server.start()
                server.wait_serving()
            wait_for(all_in_sync(brokers, "rolling"), "all replicas are in sync")
        create(brokers[2], "afterwards", 1, 3)
        history = load.read_back()
        check(history)
        assert not any(history.failed.values())
        assert not history.doubled(), "the producer is idempotent"


def test_t19_zookeeper_gone_for_six_session_timeouts(tmp_path: Path) -> None:
    with ZooKeeper(tmp_path / "zookeeper") as zookeeper, running(tmp_path / "brokers", zookeeper) as brokers:
        create(brokers[1], "away", 3, 3, min_insync_replicas="2")
        wait_for(all_in_sync(brokers, "away"), "all replicas are in sync")
        with Load(bootstrap(brokers), "away", 3, **{"enable.idempotence": True}) as load:
            wait_for(lambda: load.acknowledged > 300, "some records")
            for server in zookeeper.servers:
                server.signal(signal.SIGSTOP)
            try:
                before, until_s = load.acknowledged, time.monotonic() + AWAY_S
                refused = AdminClient({"bootstrap.servers": bootstrap(brokers)}).create_topics(
                    [NewTopic("refused", 1, 1)], operation_timeout=2, request_timeout=4
                )
                while time.monotonic() < until_s:
                    seen = load.acknowledged
                    wait_for(lambda seen=seen: load.acknowledged > seen + 50, "writes go on without ZooKeeper")
                assert load.acknowledged > before + 500
                assert {_store_connected(one) for one in brokers.values()} == {"0"}
                pause_s = load.history.longest_pause_s
                print(f"longest pause without ZooKeeper: {pause_s * 1000:.0f} ms")
                with pytest.raises(KafkaException):
                    refused["refused"].result(20)
            finally:
                for server in zookeeper.servers:
                    server.signal(signal.SIGCONT)
            assert pause_s < AWAY_S / 2
            wait_for(
                lambda: all(one.admin("GET", "/status")[1]["is_registered"] for one in brokers.values()),
                "every broker is registered again",
            )
            assert {_store_connected(one) for one in brokers.values()} == {"1"}
            before = load.acknowledged
            wait_for(lambda: load.acknowledged > before + 300, "writes go on")
            wait_for(all_in_sync(brokers, "away"), "all replicas are in sync")
        history = load.read_back()
        check(history)
        assert not any(history.failed.values())
        assert not history.doubled(), "the producer is idempotent"
