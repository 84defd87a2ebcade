"""The topics of a datacenter are as its inventory has them."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from testinfra.utils.ansible_runner import AnsibleRunner

pytestmark = pytest.mark.readonly


def test_every_topic_is_as_the_inventory_has_it(
    runner: AnsibleRunner, variables: Callable[[str], dict[str, Any]]
) -> None:
    seen = 0
    for name in runner.get_hosts("pylog_broker"):
        found = variables(name)
        admin = AdminClient(
            {"bootstrap.servers": f"{found['ansible_host']}:{found['pylog_broker_instances'][0]['port']}"}
        )
        there = admin.list_topics(timeout=20).topics
        assert not {*found.get("topics_absent", [])} & there.keys()
        for topic in found.get("topics_wanted", []):
            resource = ConfigResource(ResourceType.TOPIC, topic["name"])
            config = admin.describe_configs([resource])[resource].result(20)
            for setting, value in topic.get("config", {}).items():
                assert config[setting].value == str(value), (topic["name"], setting)
            partitions = there[topic["name"]].partitions
            assert len(partitions) >= topic.get("partitions", 1)
            assert {len(one.replicas) for one in partitions.values()} <= {
                topic.get("replication_factor", len(partitions[0].replicas))
            }
            seen += 1
    assert seen, "the inventory wants no topic"
