"""What DescribeConfigs shows of a broker."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pylog.broker.config import BrokerConfig, ListenerConfig, StoreConfig
from pylog.broker.control.configs import handle_describe
from pylog.broker.handler import Caller
from pylog.broker.settings import Source, parse_broker_settings
from pylog.cluster.image import ClusterImage
from pylog.security.principal import Session
from pylog.wire.api.configs import DescribeConfigsRequest, DescribeConfigsResource, ResourceType

CALLER = Caller("c", Session(client_host="h", listener_name="client"), 4)
CONFIG = BrokerConfig(
    broker_id=7,
    rack="a",
    data_dir=Path("/data"),
    client=ListenerConfig(host="0.0.0.0", port=9092, advertised_host="h7", advertised_port=19092),
    internal=None,
    admin_socket=Path("/run/admin.sock"),
    store=StoreConfig(kind="embedded"),
    settings=parse_broker_settings({}),
)


def described(name: str, keys: list[str] | None = None) -> dict[str, Any]:
    partitions = SimpleNamespace(image=ClusterImage(1, 1, "c", 7, {}, {}))
    cluster: Any = SimpleNamespace(broker_id=7, config=CONFIG, settings=CONFIG.settings, partitions=partitions)
    resource = DescribeConfigsResource(resource_type=ResourceType.BROKER, resource_name=name, configuration_keys=keys)
    answer: Any = handle_describe(
        cluster,
        DescribeConfigsRequest(resources=[resource]),
        CALLER,
    )
    [row] = answer.results
    assert row.error_code == 0, row.error_message
    return {config.name: config for config in row.configs}


def test_a_broker_shows_which_one_it_is_and_where() -> None:
    shown = described("7")
    assert {name: shown[name].value for name in CONFIG.identity()} == {
        "broker.id": "7",
        "broker.rack": "a",
        "log.dirs": "/data",
        "listeners": "PLAINTEXT://0.0.0.0:9092",
        "advertised.listeners": "PLAINTEXT://h7:19092",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
    }
    assert shown["broker.id"].read_only
    assert shown["broker.id"].config_source == Source.STATIC_BROKER
    assert not shown["log.cleaner.backoff.ms"].read_only


def test_no_secret_of_a_brokers_file_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "3b1c4f-not-to-be-seen"
    settings = replace(CONFIG.client.settings, ssl_keystore_location=f"/{secret}", security_protocol="SSL")
    config = replace(
        CONFIG,
        client=replace(CONFIG.client, settings=settings),
        cluster_secret=secret.encode(),
        cluster_secret_file=Path(secret),
        store=StoreConfig(kind="zookeeper", hosts=secret),
    )
    monkeypatch.setattr(sys.modules[__name__], "CONFIG", config)
    shown = described("7")
    assert shown["listener.security.protocol.map"].value == "SSL:SSL", "of this file"
    for name, row in shown.items():
        assert secret not in f"{name} {row.value} {row.synonyms}"
        assert not {"secret", "password", "key"} & set(name.split(".")), name


def test_only_what_was_asked_for_is_shown() -> None:
    assert set(described("7", ["broker.rack", "num.partitions"])) == {"broker.rack", "num.partitions"}
    assert described("") == {}, "what all brokers have in common"
