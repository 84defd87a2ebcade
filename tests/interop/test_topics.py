"""Metadata, auto-creation, and topics made, described and deleted by every admin client."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicCollection, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient
from kio.index import load_response_schema
from kio.serial import entity_reader

from tests.interop import frames
from tests.interop.admins import ADMINS, Admin, ConfluentAdmin
from tests.interop.batches import Batch
from tests.interop.clients import CLIENTS, Client, Record
from tests.interop.clients.kcat import metadata
from tests.interop.conftest import PEER, Broker, create_topic, run_broker, wait_until
from tests.interop.frames import Connection

UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID = 100, 103

by_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
by_admin = pytest.mark.parametrize("admin", ADMINS, ids=lambda admin: admin.name)


class TestAdminClients:
    @by_admin
    def test_topic_is_created_listed_described_and_deleted(self, broker: Broker, admin: Admin) -> None:
        topic = f"life-of-{admin.name}"
        admin.create(broker.bootstrap, topic, 3, {"retention.ms": "3600000", "max.message.bytes": "2000000"})
        wait_until(lambda: topic in admin.topics(broker.bootstrap), "the topic is listed")
        assert admin.partitions(broker.bootstrap, topic) == 3
        config = admin.config(broker.bootstrap, topic)
        assert (config["retention.ms"], config["max.message.bytes"]) == ("3600000", "2000000")
        admin.delete(broker.bootstrap, topic)
        wait_until(lambda: topic not in admin.topics(broker.bootstrap), "the topic is gone")

    @by_admin
    def test_topic_cannot_be_created_twice(self, broker: Broker, topic: str, admin: Admin) -> None:
        with pytest.raises(Exception, match=r"(?i)exists|: 36\b"):
            admin.create(broker.bootstrap, topic, 1, {})
        assert admin.partitions(broker.bootstrap, topic) == 1

    @by_admin
    def test_topic_that_does_not_exist_cannot_be_deleted(self, broker: Broker, admin: Admin) -> None:
        with pytest.raises(Exception, match=r"(?i)unknown|does not exist|: 3\b"):
            admin.delete(broker.bootstrap, f"never-made-{admin.name}")

    @by_admin
    @pytest.mark.parametrize(
        ("partitions", "config", "error"),
        [
            (0, {}, r"(?i)partitions|: 37\b"),
            (1, {"no.such.setting": "1"}, r"(?i)no.such.setting|: 40\b"),
            (1, {"retention.ms": "soon"}, r"(?i)retention.ms|: 40\b"),
        ],
        ids=["no partitions", "unknown setting", "bad value"],
    )
    def test_bad_request_names_what_is_wrong(
        self, broker: Broker, admin: Admin, partitions: int, config: dict[str, str], error: str
    ) -> None:
        with pytest.raises(Exception, match=error):
            admin.create(broker.bootstrap, "not-to-be", partitions, config)
        assert "not-to-be" not in ConfluentAdmin().topics(broker.bootstrap)

    def test_topic_made_again_starts_empty(self, broker: Broker) -> None:
        admin, batch = ConfluentAdmin(), Batch(values=(b"old",) * 5).encode()
        create_topic(broker.bootstrap, "again")
        with Connection(broker.bootstrap) as connection:
            assert frames.produce_result(connection.ask(frames.produce("again", batch))) == (frames.NONE, 0)
            admin.delete(broker.bootstrap, "again")
            wait_until(lambda: "again" not in admin.topics(broker.bootstrap), "the topic is gone")
            create_topic(broker.bootstrap, "again", partitions=2)
            assert frames.produce_result(connection.ask(frames.produce("again", batch))) == (frames.NONE, 0)
            assert frames.listed_offset(connection.ask(frames.list_offsets("again"))) == 5

    def test_directories_of_a_deleted_topic_go(self, broker: Broker) -> None:
        create_topic(broker.bootstrap, "files-go", partitions=2)
        directories = [broker.data_dir / "files-go-0", broker.data_dir / "files-go-1"]
        assert all(directory.is_dir() for directory in directories)
        ConfluentAdmin().delete(broker.bootstrap, "files-go")
        # Their content may stay a while under another name, for those who still read it.
        wait_until(lambda: not any(directory.exists() for directory in directories), "the directories are gone")


class TestMetadata:
    def test_broker_lists_itself_where_clients_reach_it(self, broker: Broker) -> None:
        found = json.loads(metadata(broker.bootstrap))
        assert [each["name"] for each in found["brokers"]] == [broker.bootstrap]
        assert found["controllerid"] == found["brokers"][0]["id"]

    def test_all_topics_are_listed_with_their_leaders(self, broker: Broker) -> None:
        create_topic(broker.bootstrap, "led", partitions=4)
        topics = {each["topic"]: each["partitions"] for each in json.loads(metadata(broker.bootstrap))["topics"]}
        leader = json.loads(metadata(broker.bootstrap))["brokers"][0]["id"]
        assert [(each["partition"], each["leader"], each["isrs"]) for each in topics["led"]] == [
            (number, leader, [{"id": leader}]) for number in range(4)
        ]

    def test_empty_list_means_no_topic(self, broker: Broker, topic: str) -> None:
        """From version 1 on: null asks for all, an empty list for none (librdkafka's first request)."""
        with Connection(broker.bootstrap) as connection:
            body = connection.ask(frames.frame(frames.METADATA, 1, struct.pack(">i", 0)))
            everything = connection.ask(frames.frame(frames.METADATA, 1, struct.pack(">i", -1)))
        assert body.endswith(struct.pack(">i", 0))
        assert topic.encode() in everything
        assert topic.encode() not in body


class TestAutoCreation:
    @by_client
    def test_writing_makes_the_topic(self, broker: Broker, client: Client) -> None:
        topic, record = f"made-by-{client.name}", Record(b"k", b"first")
        client.produce(broker.bootstrap, topic, [record])
        assert [each.content for each in client.consume(broker.bootstrap, topic, 1)] == [record.content]

    def test_asking_without_leave_makes_nothing(self, broker: Broker) -> None:
        request = frames.frame(frames.METADATA, 4, struct.pack(">i", 1) + frames.string(b"only-asked") + b"\x00")
        with Connection(broker.bootstrap) as connection:
            assert frames.metadata_error(connection.ask(request)) == frames.UNKNOWN_TOPIC_OR_PARTITION
            assert frames.metadata_error(connection.ask(request)) == frames.UNKNOWN_TOPIC_OR_PARTITION
        assert "only-asked" not in ConfluentAdmin().topics(broker.bootstrap)

    def test_new_topics_take_the_broker_defaults(self, tmp_path: Path) -> None:
        with run_broker(tmp_path, {"num.partitions": 5}) as broker, Connection(broker.bootstrap) as connection:
            wait_until(
                lambda: frames.metadata_error(connection.ask(frames.metadata(b"five"))) == frames.NONE,
                "the topic is made",
            )
            assert ConfluentAdmin().partitions(broker.bootstrap, "five") == 5

    def test_switched_off_it_makes_nothing(self, tmp_path: Path) -> None:
        with (
            run_broker(tmp_path, {"auto.create.topics.enable": False}) as broker,
            Connection(broker.bootstrap) as connection,
        ):
            error = frames.metadata_error(connection.ask(frames.metadata(b"not-made")))
            assert error == frames.UNKNOWN_TOPIC_OR_PARTITION
            assert ConfluentAdmin().topics(broker.bootstrap) == set()


class TestAuthorizedOperations:
    """What a client may do is told where it asks for it: everything, while there is no access control."""

    def test_of_cluster_topics_and_groups(self, broker: Broker, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        operation = AclOperation
        cluster = admin.describe_cluster(include_authorized_operations=True).result(30)
        assert set(cluster.authorized_operations or ()) == {
            operation.CREATE, operation.ALTER, operation.DESCRIBE, operation.CLUSTER_ACTION, operation.DESCRIBE_CONFIGS,
            operation.ALTER_CONFIGS, operation.IDEMPOTENT_WRITE,
        }  # fmt: skip
        wanted = TopicCollection([topic])
        described = admin.describe_topics(wanted, include_authorized_operations=True)[topic].result(30)
        assert set(described.authorized_operations or ()) == {
            operation.READ, operation.WRITE, operation.CREATE, operation.DELETE, operation.ALTER, operation.DESCRIBE,
            operation.DESCRIBE_CONFIGS, operation.ALTER_CONFIGS,
        }  # fmt: skip
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "allowed"})
        consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
        consumer.close()
        groups = admin.describe_consumer_groups(["allowed"], include_authorized_operations=True)
        found = groups["allowed"].result(30)
        assert {operation.READ, operation.DELETE, operation.DESCRIBE} <= set(found.authorized_operations or ())

    def test_is_not_told_unasked(self, broker: Broker, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        assert admin.describe_cluster().result(30).authorized_operations is None
        assert admin.describe_topics(TopicCollection([topic]))[topic].result(30).authorized_operations is None


class TestTopicIds:
    def test_a_name_and_an_id_that_contradict_each_other(self, broker: Broker, topic: str) -> None:
        create_topic(broker.bootstrap, "contradicted")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        found = admin.describe_topics(TopicCollection([topic]))[topic].result(30)
        high, low = found.topic_id.get_most_significant_bits(), found.topic_id.get_least_significant_bits()
        topic_id = struct.pack(">qq", high, low)
        with Connection(broker.bootstrap) as connection:
            assert _metadata_error(connection, topic_id, topic.encode()) == frames.NONE
            if PEER == "pylog":  # Apache Kafka goes by the id and does not look at the name
                assert _metadata_error(connection, topic_id, b"contradicted") == INCONSISTENT_TOPIC_ID
            assert _metadata_error(connection, b"\x07" * 16, topic.encode()) == UNKNOWN_TOPIC_ID


def _metadata_error(connection: Connection, topic_id: bytes, name: bytes) -> int:
    """Ask about one topic by id and name (Metadata v12), and return its error code."""
    body = b"\x02" + topic_id + bytes((len(name) + 1,)) + name + b"\x00" + b"\x00\x00\x00"
    payload = struct.pack(">hhihB", frames.METADATA, 12, 1, -1, 0) + body
    answer = connection.ask(struct.pack(">i", len(payload)) + payload)
    found: Any = entity_reader(load_response_schema(frames.METADATA, 12))(answer[1:], 0)[0]
    [row] = found.topics
    return int(row.error_code.value)
