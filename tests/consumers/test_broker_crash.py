"""Groups and offsets over the death of the broker that keeps them."""

from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from pylog.testing import BrokerProcess
from tests.consumers.conftest import CONFIG, PARTITIONS, GroupView, create_topic, produce, run_members, wait_until
from tests.consumers.test_clients import at_least_once, numbered
from tests.servers.dump import check_all


def test_committed_offsets_survive_a_kill(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, config=CONFIG) as broker:
        create_topic(broker.bootstrap, "t", partitions=2)
        produce(broker.bootstrap, "t", numbered("r", 20), partitions=2)
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False, "log_level": 0}
        wanted = [TopicPartition("t", 0, 7, "half way"), TopicPartition("t", 1, 3)]
        consumer = Consumer(settings)
        committed = consumer.commit(offsets=wanted, asynchronous=False)
        assert committed is not None
        assert [one.error for one in committed] == [None, None]
        consumer.close()

        broker.kill()
        broker.start()
        consumer = Consumer(settings)
        found = consumer.committed([TopicPartition("t", 0), TopicPartition("t", 1)], timeout=30)
        assert [(one.offset, one.metadata) for one in found] == [(7, "half way"), (3, None)]
        consumer.subscribe(["t"])
        first = consumer.poll(30)
        assert first is not None
        assert (first.partition(), first.offset()) in ((0, 7), (1, 3))
        consumer.close()
        broker.stop()
        check_all(broker.data_dir)


def test_a_group_goes_on_after_a_kill(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker", config=CONFIG) as broker, run_members(tmp_path, broker.bootstrap) as start:
        create_topic(broker.bootstrap, "t")
        group = GroupView(broker.bootstrap, "g")
        members = [start("confluent", "g", "t"), start("kafka-python", "g", "t")]
        group.wait_stable("confluent", "kafka-python")
        produce(broker.bootstrap, "t", numbered("before"))
        at_least_once(members, numbered("before"))

        broker.kill()
        broker.start()
        produce(broker.bootstrap, "t", numbered("after"))
        at_least_once(members, numbered("after"))
        # Asked anew: the admin client of before may hold on to the dead broker's connection for good.
        GroupView(broker.bootstrap, "g").wait_stable("confluent", "kafka-python")
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False})
        partitions = [TopicPartition("t", number) for number in range(PARTITIONS)]
        wait_until(
            lambda: all(one.offset == 10 for one in consumer.committed(partitions, timeout=30)),
            "everything is committed",
        )
        consumer.close()
        broker.stop()
        check_all(broker.data_dir)
