"""Kafka's own administration of groups: its command line tools and clients' admin APIs."""

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from pylog.group.records import partition_for
from pylog.testing import BrokerProcess
from tests.consumers.conftest import CONFIG, GroupView, Start, create_topic, produce, wait_until
from tests.servers.kafka import DUMP_LOG_SEGMENTS, java_tool

GROUPS_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@pytest.fixture
def admin(broker: BrokerProcess) -> AdminClient:
    """confluent-kafka's."""
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def commit(bootstrap: str, group: str, *offsets: TopicPartition) -> None:
    """Commit from outside the group, as a consumer does that assigns itself."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0}
    )
    try:
        for one in consumer.commit(offsets=list(offsets), asynchronous=False) or ():
            assert one.error is None, one.error
    finally:
        consumer.close()


def groups_command(bootstrap: str, *arguments: str) -> list[list[str]]:
    """Run ``kafka-consumer-groups`` and return the words of each line."""
    lines = java_tool(GROUPS_COMMAND, "--bootstrap-server", bootstrap, *arguments).decode().splitlines()
    return [line.split() for line in lines if line.strip()]


def committed(admin: AdminClient, group: str) -> dict[tuple[str, int], int]:
    """Return everything a group has committed."""
    wanted = [ConsumerGroupTopicPartitions(group)]
    found = admin.list_consumer_group_offsets(wanted)[group].result(20).topic_partitions
    return {(one.topic, one.partition): one.offset for one in found}


class TestJavaTool:
    def test_from_list_to_delete(self, broker: BrokerProcess) -> None:
        create_topic(broker.bootstrap, "tool", partitions=2)
        produce(broker.bootstrap, "tool", [str(number) for number in range(20)], partitions=2)
        commit(broker.bootstrap, "readers", TopicPartition("tool", 0, 4), TopicPartition("tool", 1, 10))
        bootstrap = broker.bootstrap
        assert ["readers"] in groups_command(bootstrap, "--list")
        rows = groups_command(bootstrap, "--describe", "--group", "readers")
        assert sorted(rows[-2:]) == [
            ["readers", "tool", "0", "4", "10", "6", "-", "-", "-"],
            ["readers", "tool", "1", "10", "10", "0", "-", "-", "-"],
        ]
        reset = ("--reset-offsets", "--group", "readers", "--topic", "tool", "--to-earliest")
        groups_command(bootstrap, *reset, "--execute")
        assert ["readers", "tool", "0", "0", "10", "10", "-", "-", "-"] in groups_command(
            bootstrap, "--describe", "--group", "readers"
        )
        groups_command(bootstrap, "--delete-offsets", "--group", "readers", "--topic", "tool:1")
        assert len(groups_command(bootstrap, "--describe", "--group", "readers")) == len(rows) - 1
        assert groups_command(bootstrap, "--delete", "--group", "readers")[-1][:6] == [
            "Deletion",
            "of",
            "requested",
            "consumer",
            "groups",
            "('readers')",
        ]
        assert ["readers"] not in groups_command(bootstrap, "--list")

    def test_members_of_a_running_group(self, broker: BrokerProcess, topic: str, start: Start) -> None:
        start("confluent", "running", topic)
        GroupView(broker.bootstrap, "running").wait_stable("confluent")
        state = groups_command(broker.bootstrap, "--describe", "--group", "running", "--state")[-1]
        # group, coordinator, its id, strategy, state, members
        assert [state[0], *state[-3:]] == ["running", "range", "Stable", "1"]
        members = groups_command(broker.bootstrap, "--describe", "--group", "running", "--members", "--verbose")
        assert members[-1][2:5] == ["/127.0.0.1", "confluent", "8"]
        refused = java_tool(GROUPS_COMMAND, "--bootstrap-server", broker.bootstrap, "--delete", "--group", "running")
        assert b"GroupNotEmptyException" in refused

    def test_the_offsets_topic_is_kafkas(self, broker: BrokerProcess, topic: str, start: Start) -> None:
        commit(broker.bootstrap, "dumped", TopicPartition(topic, 0, 7, "note"))
        start("confluent", "dumped", topic)
        GroupView(broker.bootstrap, "dumped").wait_stable("confluent")
        number = partition_for("dumped", CONFIG["offsets.topic.num.partitions"])
        segment = broker.data_dir / f"__consumer_offsets-{number}" / f"{0:020}.log"
        text = java_tool(DUMP_LOG_SEGMENTS, "--offsets-decoder", "--files", str(segment)).decode()
        assert f'"group":"dumped","topic":"{topic}","partition":0' in text
        assert '"offset":7' in text
        assert '"generation":1,"protocol":"range"' in text
        assert '"currentStateTimestamp"' in text
        assert "isvalid: false" not in text


class TestAdminApis:
    def test_a_group_is_listed_described_changed_and_deleted(self, broker: BrokerProcess, admin: AdminClient) -> None:
        create_topic(broker.bootstrap, "admin", partitions=3)
        commit(broker.bootstrap, "api", TopicPartition("admin", 0, 1), TopicPartition("admin", 2, 5))
        listed = admin.list_consumer_groups().result(20)
        assert listed.errors == []
        assert [one.group_id for one in listed.valid if one.group_id == "api"] == ["api"]
        assert committed(admin, "api") == {("admin", 0): 1, ("admin", 2): 5}
        change = ConsumerGroupTopicPartitions("api", [TopicPartition("admin", 2, 3)])
        admin.alter_consumer_group_offsets([change])["api"].result(20)
        assert committed(admin, "api") == {("admin", 0): 1, ("admin", 2): 3}
        admin.delete_consumer_groups(["api"])["api"].result(20)
        assert committed(admin, "api") == {}

    def test_a_group_that_does_not_exist(self, admin: AdminClient) -> None:
        with pytest.raises(KafkaException, match="GROUP_ID_NOT_FOUND"):
            admin.delete_consumer_groups(["nobody"])["nobody"].result(20)
        assert committed(admin, "nobody") == {}
        listed = admin.list_consumer_groups().result(20)
        assert "nobody" not in [one.group_id for one in listed.valid]

    def test_offsets_of_topics_that_do_not_exist_are_refused(self, broker: BrokerProcess) -> None:
        with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
            commit(broker.bootstrap, "lost", TopicPartition("never-made", 0, 1))

    def test_offsets_go_with_their_topic(self, broker: BrokerProcess, admin: AdminClient) -> None:
        for name in ("stays", "goes"):
            create_topic(broker.bootstrap, name)
        commit(broker.bootstrap, "both", TopicPartition("stays", 0, 1), TopicPartition("goes", 0, 2))
        admin.delete_topics(["goes"])["goes"].result(20)
        wait_until(lambda: committed(admin, "both") == {("stays", 0): 1}, "its offsets are forgotten")

    def test_a_living_group_keeps_its_offsets(
        self, broker: BrokerProcess, admin: AdminClient, topic: str, start: Start
    ) -> None:
        start("confluent", "living", topic)
        GroupView(broker.bootstrap, "living").wait_stable("confluent")
        with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
            admin.delete_consumer_groups(["living"])["living"].result(20)
        change = ConsumerGroupTopicPartitions("living", [TopicPartition(topic, 0, 0)])
        (refused,) = admin.alter_consumer_group_offsets([change])["living"].result(20).topic_partitions
        assert refused.error.name() == "UNKNOWN_MEMBER_ID"
