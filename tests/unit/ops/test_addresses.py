"""Where hosts are reached: what the operator says, never how Ansible logs in (F9)."""

from typing import Any

import pytest

from pylog.ops.addresses import addresses

SPECS = {"zookeeper_client_port": {"default": 2181}, "load_balancer_port": {"default": 9092}}
BROKER = [{"id": 1, "port": 9092}]


@pytest.mark.parametrize(
    ("variables", "host", "broker", "zookeeper"),
    [
        ({}, "h1", "h1:9092", "h1:2181"),
        ({"ansible_host": "192.0.2.1"}, "h1", "h1:9092", "h1:2181"),
        ({"pylog_address": "10.0.0.1"}, "10.0.0.1", "10.0.0.1:9092", "10.0.0.1:2181"),
        ({"pylog_address": "10.0.0.1", "broker_advertised_host": "b"}, "10.0.0.1", "b:9092", "10.0.0.1:2181"),
        ({"pylog_address": "fc00::1"}, "fc00::1", "[fc00::1]:9092", "[fc00::1]:2181"),
        ({"zookeeper_address": "z", "zookeeper_client_port": 2182}, "h1", "h1:9092", "z:2182"),
        ({"pylog_broker_instances": [{"id": 1, "port": 9092, "advertised_port": 19092}]}, "h1", "h1:19092", "h1:2181"),
    ],
)
def test_an_address_is_what_the_operator_says(
    variables: dict[str, Any], host: str, broker: str, zookeeper: str
) -> None:
    found = addresses({"h1": {"pylog_broker_instances": BROKER} | variables}, SPECS)
    assert (found["host"]["h1"], found["brokers"]["h1"], found["zookeeper"]["h1"]) == (host, [broker], zookeeper)
    assert found["load_balancer"]["h1"].endswith(":9092")


def test_each_broker_of_a_host_has_its_place() -> None:
    two = [{"id": 1, "port": 9092}, {"id": 2, "port": 9093}]
    assert addresses({"h1": {"pylog_broker_instances": two}, "h2": {}}, SPECS)["ids"] == {"h1": [1, 2], "h2": []}
    assert addresses({"h1": {"pylog_broker_instances": two}, "h2": {}}, SPECS)["brokers"] == {
        "h1": ["h1:9092", "h1:9093"],
        "h2": [],
    }
