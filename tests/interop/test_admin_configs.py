"""Settings read and changed, topics grown, records deleted, by confluent-kafka and by Kafka's own tools."""

import json
import re
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import KafkaError, KafkaException, NewPartitions

from tests.interop import frames
from tests.interop.admins import ConfluentAdmin
from tests.interop.batches import Batch
from tests.interop.conftest import Broker, create_topic, run_broker, wait_until
from tests.interop.frames import Connection
from tests.servers.kafka import CONFIG_COMMAND, TOPIC_COMMAND, java_tool

DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"


def admin(broker: Broker) -> AdminClient:
    """Return a client; keep it in a variable, since an answer on its way dies with its client."""
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def alter(broker: Broker, resource: ConfigResource) -> None:
    client = admin(broker)
    client.incremental_alter_configs([resource])[resource].result(30)


def change(
    broker: Broker,
    topic: str,
    name: str,
    value: str | None,
    operation: AlterConfigOpType = AlterConfigOpType.SET,
) -> None:
    entry = ConfigEntry(name, value, incremental_operation=operation)
    alter(broker, ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry]))


def entries(broker: Broker, resource: ConfigResource) -> dict[str, ConfigEntry]:
    client = admin(broker)
    found: dict[str, ConfigEntry] = client.describe_configs([resource])[resource].result(30)
    return found


def topic_entries(broker: Broker, topic: str) -> dict[str, ConfigEntry]:
    return entries(broker, ConfigResource(ResourceType.TOPIC, topic))


def refusal(caught: pytest.ExceptionInfo[KafkaException]) -> int:
    return int(caught.value.args[0].code())


def produce(broker: Broker, topic: str, count: int, **config: object) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, **config})
    for number in range(count):
        producer.produce(topic, b"value %d" % number, partition=0)
    assert producer.flush(30) == 0


class TestTopicConfigs:
    def test_a_change_shows_with_its_source_and_goes_back(self, broker: Broker, topic: str) -> None:
        change(broker, topic, "retention.ms", "12345")
        entry = topic_entries(broker, topic)["retention.ms"]
        assert (entry.value, entry.is_read_only) == ("12345", False)
        assert ConfigSource(entry.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
        change(broker, topic, "retention.ms", None, AlterConfigOpType.DELETE)
        assert topic_entries(broker, topic)["retention.ms"].value == "-1"  # the broker's, see conftest

    def test_a_change_leaves_other_settings_alone(self, broker: Broker, topic: str) -> None:
        change(broker, topic, "retention.ms", "12345")
        change(broker, topic, "segment.bytes", "1048576")
        assert topic_entries(broker, topic)["retention.ms"].value == "12345"

    def test_the_old_request_replaces_all_settings(self, broker: Broker, topic: str) -> None:
        change(broker, topic, "retention.ms", "12345")
        resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"segment.bytes": "1048576"})
        client = admin(broker)
        client.alter_configs([resource])[resource].result(30)
        found = topic_entries(broker, topic)
        assert (found["segment.bytes"].value, found["retention.ms"].value) == ("1048576", "-1")

    @pytest.mark.parametrize(
        ("name", "value"), [("no.such.setting", "1"), ("retention.ms", "soon"), ("segment.bytes", "1")]
    )
    def test_a_wrong_change_is_refused_and_changes_nothing(
        self, broker: Broker, topic: str, name: str, value: str
    ) -> None:
        before = ConfluentAdmin().config(broker.bootstrap, topic)
        with pytest.raises(KafkaException, match=re.escape(name)) as caught:
            change(broker, topic, name, value)
        assert refusal(caught) == KafkaError.INVALID_CONFIG
        assert ConfluentAdmin().config(broker.bootstrap, topic) == before

    def test_topics_take_what_tools_for_kafka_3_9_set(self, broker: Broker, topic: str) -> None:
        for name, value in (
            ("cleanup.policy", "delete, compact"),
            ("max.compaction.lag.ms", "86400000"),
            ("message.format.version", "3.0-IV1"),
            ("preallocate", "false"),
        ):
            change(broker, topic, name, value)
        shown = topic_entries(broker, topic)
        assert shown["cleanup.policy"].value == "delete,compact"
        assert shown["max.compaction.lag.ms"].value == "86400000"

    def test_settings_of_a_missing_topic_cannot_be_changed(self, broker: Broker) -> None:
        with pytest.raises(KafkaException) as caught:
            change(broker, "never-made", "retention.ms", "1")
        assert refusal(caught) == KafkaError.UNKNOWN_TOPIC_OR_PART

    def test_a_changed_limit_holds_at_once(self, broker: Broker, topic: str) -> None:
        change(broker, topic, "max.message.bytes", "500")
        big = Batch(values=(b"x" * 600,)).encode()
        with Connection(broker.bootstrap) as connection:
            error, _ = frames.produce_result(connection.ask(frames.produce(topic, big)))
        assert error == KafkaError.MSG_SIZE_TOO_LARGE

    def test_a_change_survives_a_restart(self, tmp_path: Path) -> None:
        with run_broker(tmp_path) as broker:
            create_topic(broker.bootstrap, "kept")
            change(broker, "kept", "retention.ms", "777")
            broker.restart()
            assert topic_entries(broker, "kept")["retention.ms"].value == "777"

    def test_settings_that_a_broker_reads_once_are_refused_with_the_reason(self, broker: Broker) -> None:
        broker_id = next(iter(admin(broker).list_topics(timeout=30).brokers))
        entry = ConfigEntry("max.connections", "1", incremental_operation=AlterConfigOpType.SET)
        with pytest.raises(KafkaException, match="the broker's file") as caught:
            alter(broker, ConfigResource(ResourceType.BROKER, str(broker_id), incremental_configs=[entry]))
        assert refusal(caught) == KafkaError.INVALID_CONFIG

    def test_a_broker_says_which_one_it_is_and_where(self, broker: Broker) -> None:
        broker_id = str(next(iter(admin(broker).list_topics(timeout=30).brokers)))
        shown = entries(broker, ConfigResource(ResourceType.BROKER, broker_id))
        assert shown["broker.id"].value == broker_id
        assert shown["broker.rack"].value is None
        assert Path(str(shown["log.dirs"].value)).is_dir()
        assert str(shown["listeners"].value).startswith("PLAINTEXT://127.0.0.1:")
        assert shown["listeners"].is_read_only

    def test_what_topics_inherit_changes_for_all_at_once_and_is_kept(self, tmp_path: Path) -> None:
        with run_broker(tmp_path) as broker:
            create_topic(broker.bootstrap, "heir")
            create_topic(broker.bootstrap, "own", max_message_bytes="2000000")
            where = ("--bootstrap-server", broker.bootstrap, "--entity-type", "brokers", "--entity-default")
            java_tool(CONFIG_COMMAND, *where, "--alter", "--add-config", "message.max.bytes=500,log.retention.ms=777")
            for again in (False, True):
                if again:
                    broker.restart()
                found = topic_entries(broker, "heir")["retention.ms"]
                assert found.value == "777"
                assert ConfigSource(found.source) is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
                assert topic_entries(broker, "own")["max.message.bytes"].value == "2000000"
                big = Batch(values=(b"x" * 600,)).encode()
                with Connection(broker.bootstrap) as connection:
                    error, _ = frames.produce_result(connection.ask(frames.produce("heir", big)))
                    assert error == KafkaError.MSG_SIZE_TOO_LARGE
                    assert frames.produce_result(connection.ask(frames.produce("own", big)))[0] == frames.NONE
            java_tool(CONFIG_COMMAND, *where, "--alter", "--delete-config", "message.max.bytes,log.retention.ms")
            assert topic_entries(broker, "heir")["retention.ms"].value == "-1"
            with Connection(broker.bootstrap) as connection:
                assert frames.produce_result(connection.ask(frames.produce("heir", big)))[0] == frames.NONE

    def test_kafka_s_tool_changes_and_describes(self, broker: Broker, topic: str) -> None:
        where = ("--bootstrap-server", broker.bootstrap, "--entity-type", "topics", "--entity-name", topic)
        java_tool(CONFIG_COMMAND, *where, "--alter", "--add-config", "retention.ms=54321,segment.bytes=1048576")
        said = java_tool(CONFIG_COMMAND, *where, "--describe").decode()
        assert "retention.ms=54321" in said
        assert "DYNAMIC_TOPIC_CONFIG:retention.ms=54321" in said
        java_tool(CONFIG_COMMAND, *where, "--alter", "--delete-config", "retention.ms")
        assert "retention.ms=54321" not in java_tool(CONFIG_COMMAND, *where, "--describe").decode()


class TestCreatePartitions:
    def test_a_topic_grows_and_the_new_partitions_take_records(self, broker: Broker, topic: str) -> None:
        client = admin(broker)
        client.create_partitions([NewPartitions(topic, 4)])[topic].result(30)
        assert ConfluentAdmin().partitions(broker.bootstrap, topic) == 4
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce(topic, b"last", partition=3)
        assert producer.flush(30) == 0

    @pytest.mark.parametrize("count", [0, 1, 2])
    def test_a_topic_never_shrinks(self, broker: Broker, count: int) -> None:
        name = f"does-not-shrink-to-{count}"
        create_topic(broker.bootstrap, name, partitions=2)
        client = admin(broker)
        with pytest.raises(Exception, match=r"(?i)partitions"):
            client.create_partitions([NewPartitions(name, count)])[name].result(30)
        assert ConfluentAdmin().partitions(broker.bootstrap, name) == 2

    def test_growth_survives_a_restart(self, tmp_path: Path) -> None:
        with run_broker(tmp_path) as broker:
            create_topic(broker.bootstrap, "grown")
            java_tool(
                TOPIC_COMMAND,
                "--bootstrap-server",
                broker.bootstrap,
                "--alter",
                "--topic",
                "grown",
                "--partitions",
                "3",
            )
            broker.restart()
            assert ConfluentAdmin().partitions(broker.bootstrap, "grown") == 3


class TestDeleteRecords:
    def test_the_log_begins_later_also_after_kill(self, tmp_path: Path) -> None:
        with run_broker(tmp_path) as broker:
            create_topic(broker.bootstrap, "cut")
            produce(broker, "cut", 10)
            client = admin(broker)
            partition = TopicPartition("cut", 0, 4)
            assert client.delete_records([partition])[partition].result(30).low_watermark == 4
            checkpoint = broker.data_dir / "log-start-offset-checkpoint"
            wait_until(lambda: checkpoint.exists() and "cut 0 4" in checkpoint.read_text(), "it is written down")
            broker.kill()
            broker.start()
            with Connection(broker.bootstrap) as connection:
                assert frames.listed_offset(connection.ask(frames.list_offsets("cut", timestamp_ms=-2))) == 4

    def test_beyond_the_end_is_refused(self, broker: Broker, topic: str) -> None:
        produce(broker, topic, 3)
        partition = TopicPartition(topic, 0, 4)
        client = admin(broker)
        with pytest.raises(KafkaException) as caught:
            client.delete_records([partition])[partition].result(30)
        assert refusal(caught) == KafkaError.OFFSET_OUT_OF_RANGE

    def test_kafka_s_tool_deletes_up_to_the_end(self, broker: Broker, topic: str, tmp_path: Path) -> None:
        produce(broker, topic, 5)
        file = tmp_path / "offsets.json"
        file.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": -1}]}))
        said = java_tool(DELETE_RECORDS, "--bootstrap-server", broker.bootstrap, "--offset-json-file", str(file))
        assert "low_watermark: 5" in said.decode()


class TestDescriptions:
    def test_kafka_s_tool_sizes_the_log_directory(self, broker: Broker, topic: str) -> None:
        produce(broker, topic, 5)
        said = java_tool(LOG_DIRS, "--bootstrap-server", broker.bootstrap, "--describe", "--topic-list", topic).decode()
        found = json.loads(said.splitlines()[-1])
        [directory] = found["brokers"][0]["logDirs"]
        assert (directory["error"], directory["logDir"]) == (None, str(broker.data_dir))
        [row] = directory["partitions"]
        size = (broker.data_dir / f"{topic}-0" / f"{0:020d}.log").stat().st_size
        assert (row["partition"], row["size"], row["offsetLag"]) == (f"{topic}-0", size, 0)

    def test_the_cluster_is_described(self, broker: Broker) -> None:
        client = admin(broker)
        found = client.describe_cluster().result(30)
        assert found.controller.id == found.nodes[0].id
        assert f"{found.nodes[0].host}:{found.nodes[0].port}" == broker.bootstrap
        assert found.cluster_id

    def test_kafka_s_tool_names_the_producers(self, broker: Broker, topic: str) -> None:
        produce(broker, topic, 3, **{"enable.idempotence": True})
        said = java_tool(
            TRANSACTIONS,
            "--bootstrap-server",
            broker.bootstrap,
            "describe-producers",
            "--topic",
            topic,
            "--partition",
            "0",
        ).decode()
        [row] = [line.split() for line in said.splitlines()[1:] if line.strip()]
        assert (int(row[1]), int(row[3])) == (0, 2)  # epoch, last sequence
