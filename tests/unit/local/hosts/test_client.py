"""Files with which clients connect to local hosts."""

import json
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from local.hosts import client
from local.hosts.client import bootstrap, java_properties, properties, settings, write
from pylog.cli.settings import load_settings
from tests.servers.certificates import Authority

HOSTS = {"hosts": {"live2": {"ip": "192.0.2.2"}, "live1": {"ip": "192.0.2.1"}, "offline1": {"ip": "192.0.2.9"}}}


@pytest.fixture
def password(tmp_path: Path) -> Path:
    path = tmp_path / "demo.password"
    write(path, "a password\n")
    return path


def test_clients_begin_at_the_live_brokers_or_at_the_only_ones() -> None:
    assert bootstrap(HOSTS) == "192.0.2.1:9092,192.0.2.2:9092"
    assert bootstrap({"hosts": {"offline1": {"ip": "192.0.2.9"}}}) == "192.0.2.9:9092"


def test_pylog_reads_its_file(tmp_path: Path, password: Path) -> None:
    path, authority = tmp_path / "client.yml", Authority(tmp_path).trusted
    write(path, settings("192.0.2.1:9092", password, authority))
    found = load_settings({"PYLOG_CONFIG": str(path)})
    assert found.bootstrap == "192.0.2.1:9092"
    assert found.properties["sasl.password"] == "a password"
    assert found.properties["ssl.ca.location"] == str(authority)


def test_librdkafka_knows_every_property(tmp_path: Path) -> None:
    text = properties("192.0.2.1:9092", "a=password", Authority(tmp_path).trusted)
    given: dict[str, str | int | float | bool] = {}
    given.update(line.split("=", 1) for line in text.splitlines())
    assert given["sasl.password"] == "a=password"
    AdminClient(given)  # it refuses what it does not know


def test_java_clients_find_their_login_and_the_authority(tmp_path: Path) -> None:
    authority = Authority(tmp_path).trusted
    given = dict(line.split("=", 1) for line in java_properties("192.0.2.1:9092", "0a1b", authority).splitlines())
    assert given["security.protocol"] == "SASL_SSL"
    assert given["sasl.jaas.config"].endswith('ScramLoginModule required username="demo" password="0a1b";')
    assert (given["ssl.truststore.type"], given["ssl.truststore.location"]) == ("PEM", str(authority))


def test_the_files_are_for_their_owner_alone(password: Path) -> None:
    password.chmod(0o644)
    write(password, "another\n")
    assert password.stat().st_mode & 0o777 == 0o600


def test_files_for_open_hosts_name_the_brokers_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "STATE", tmp_path)
    (tmp_path / "hosts.json").write_text(json.dumps(HOSTS))
    (tmp_path / "security").write_text("none\n")
    assert client.main() == 0
    servers = "192.0.2.1:9092,192.0.2.2:9092"
    for name in ("client.properties", "client.java.properties"):
        assert (tmp_path / name).read_text() == f"bootstrap.servers={servers}\n"
    found = load_settings({"PYLOG_CONFIG": str(tmp_path / "client.yml")})
    assert (found.bootstrap, found.properties) == (servers, {})
