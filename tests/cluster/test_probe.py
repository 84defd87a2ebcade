"""A probe over a real cluster: what its page says while all is well, and when a broker or ZooKeeper is not."""

from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from pylog.client.producer import Producer
from pylog.probe.zookeeper import COUNTERS, KEYS
from tests.cluster.conftest import Brokers, bootstrap, create
from tests.programs.program import Program, scrape, wait_until
from tests.servers.ports import free_ports
from tests.servers.zookeeper import ZooKeeper

TOPIC = "pageviews"
LEADER_ONLY = {"zk_synced_followers", "zk_pending_syncs"}


def _commit(addresses: str, group: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": addresses, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
    consumer.close()


def test_a_probe_tells_what_clients_feel(brokers: Brokers, zookeeper: ZooKeeper, tmp_path: Path) -> None:
    addresses = bootstrap(brokers)
    [port] = free_ports(1)
    create(brokers[1], TOPIC, 1, 3)
    with Producer(addresses) as producer:
        for number in range(100):
            producer.send(TOPIC, b"%d" % number)
    _commit(addresses, "readers", 40)
    config = {
        "bootstrap": addresses,
        "listen": f"127.0.0.1:{port}",
        "zookeeper": f"{zookeeper.hosts},127.0.0.1:1",
        "canary_interval_ms": 100,
        "lag_interval_ms": 200,
    }
    with Program(tmp_path, "probe", config) as probe:
        probe.wait_log("ready")
        lag = f'pylog_group_lag_records{{group="readers",topic="{TOPIC}"}}'
        wait_until(lambda: scrape(port).get(lag) == 60, lambda: f"{scrape(port)}\n{probe.log}")
        wait_until(lambda: scrape(port)[f'pylog_group_lag_seconds{{group="readers",topic="{TOPIC}"}}'] > 0, "late")
        _commit(addresses, "readers", 100)
        wait_until(lambda: scrape(port).get(lag) == 0, lambda: f"{scrape(port)}\n{probe.log}")

        for broker_id in brokers:
            for stage in ("produce", "consume"):
                name = f'pylog_canary_seconds_count{{broker="{broker_id}",stage="{stage}"}}'
                wait_until(lambda name=name: scrape(port).get(name, 0) > 2, lambda: f"{scrape(port)}\n{probe.log}")
        page = scrape(port)
        assert page[f'pylog_zookeeper_up{{server="{zookeeper.hosts}"}}'] == 1
        assert page['pylog_zookeeper_up{server="127.0.0.1:1"}'] == 0
        assert page[f'pylog_zookeeper_znode_count{{server="{zookeeper.hosts}"}}'] > 0
        assert 'pylog_zookeeper_znode_count{server="127.0.0.1:1"}' not in page
        names = {f"pylog_zookeeper_{key.removeprefix('zk_')}" for key in KEYS.keys() - LEADER_ONLY}
        names |= {f"pylog_zookeeper_{name}" for name, _, _ in COUNTERS.values()}
        assert {name for name in names if f'{name}{{server="{zookeeper.hosts}"}}' not in page} == set()

        # A broker that dies stops its canary for as long as nobody leads its partition, and no other's.
        [killed, *left] = brokers
        brokers[killed].kill()
        before = {one: page[f'pylog_canary_seconds_count{{broker="{one}",stage="consume"}}'] for one in left}

        def goes_on() -> bool:
            now = scrape(port)
            return all(
                now[f'pylog_canary_seconds_count{{broker="{one}",stage="consume"}}'] > before[one] + 20 for one in left
            )

        wait_until(goes_on, lambda: f"{scrape(port)}\n{probe.log}")

        # Once another leads, nothing is counted for the dead leader: what it shows is that it was here last.
        dead = f'pylog_canary_seconds_count{{broker="{killed}",stage="consume"}}'
        lively = f'pylog_canary_seconds_count{{broker="{left[0]}",stage="consume"}}'
        before_s, after_s = scrape(port), dict[str, float]()

        def goes_on_alone() -> bool:
            after_s.update(scrape(port))
            return after_s[lively] > before_s[lively] + 100

        wait_until(goes_on_alone, lambda: f"{scrape(port)}\n{probe.log}")
        assert after_s[dead] - before_s[dead] < 50, (before_s, after_s)
        assert probe.stop() == 0
    assert "Traceback" not in probe.log
