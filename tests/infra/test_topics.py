"""The topics of a datacenter are as its inventory has them."""

from collections.abc import Callable
from typing import Any

import pytest
from testinfra.utils.ansible_runner import AnsibleRunner

from tests.infra.conftest import datacenter_of, places, pylog

pytestmark = pytest.mark.readonly


def test_every_topic_is_as_the_inventory_has_it(
    runner: AnsibleRunner, variables: Callable[[str], dict[str, Any]]
) -> None:
    seen = 0
    for name in runner.get_hosts("pylog_broker"):
        mine, host = variables(name), runner.get_host(name)
        # Asked on the host: the machine that runs the tests may reach it by SSH alone.
        asked = ("--bootstrap", places(runner, variables, datacenter_of(mine)), "--format", "json")
        there = {one["name"] for one in pylog(host, "topic", "list", *asked)}
        assert not {*mine.get("topics_absent", [])} & there
        for topic in mine.get("topics_wanted", []):
            found = pylog(host, "topic", "describe", topic["name"], *asked)
            for setting, value in topic.get("config", {}).items():
                assert found["config"][setting] == str(value), (topic["name"], setting)
            partitions = found["partitions"]
            assert len(partitions) >= topic.get("partitions", 1)
            assert {len(one["replicas"]) for one in partitions} <= {
                topic.get("replication_factor", len(partitions[0]["replicas"]))
            }
            seen += 1
    if not seen:
        pytest.skip("the inventory wants no topic")
