"""The registry by TLS and with login, beside a broker with users and ACLs: whose clients may do what."""

import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from pylog.client import avro
from pylog.client.admin.acls import AclAdmin
from pylog.client.security import ClientSecurity
from pylog.ops.rights import _registry
from pylog.registry.following import FollowFailed, Source
from pylog.security.acl import Binding, Entry, Operation, Pattern, PatternType, Permission, ResourceType
from tests.programs.program import Program, wait_until
from tests.programs.test_console import PASSWORDS, Cluster
from tests.servers.ports import free_ports
from tests.servers.zookeeper import ZooKeeper

CLICKS = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
SALARIES = '{"type":"record","name":"S","fields":[{"name":"a","type":"int"}]}'


class Instance(Program):
    """Logs in as bob, who has the rights that role `users` gives a registry and no others."""

    def __init__(self, directory: Path, cluster: Cluster, zookeeper: ZooKeeper) -> None:
        [self.port] = free_ports(1)
        self.url = f"https://127.0.0.1:{self.port}"
        super().__init__(
            directory,
            "registry",
            {
                "listen": f"0.0.0.0:{self.port}",
                "advertised_url": self.url,
                "listen_security": {
                    "ssl.keystore.location": str(cluster.certificate),
                    "ssl.truststore.location": str(cluster.authority.trusted),
                },
                "login": "scram",
                "bootstrap": cluster.broker.bootstrap,
                "security": {
                    "protocol": "SASL_SSL",
                    "mechanism": "SCRAM-SHA-256",
                    "user": "bob",
                    "password_file": str(cluster.password_files["bob"]),
                    "ca_file": str(cluster.authority.trusted),
                },
                "zookeeper": zookeeper.hosts,
                "replication_factor": 1,
            },
        )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    found = Cluster(tmp_path_factory.mktemp("cluster"))
    with found.broker:
        found.fill()
        [(_, rules)] = _registry({})
        wanted = [("bob", rule["name"], Operation[_name(one)]) for rule in rules for one in rule["operations"]]
        wanted.append(("alice", "clicks", Operation.WRITE))
        AclAdmin(found.connection()).add(
            [
                Binding(
                    Pattern(ResourceType.TOPIC, PatternType.LITERAL, topic),
                    Entry(f"User:{user}", "*", operation, Permission.ALLOW),
                )
                for user, topic, operation in wanted
            ]
        )
        yield found


def _name(operation: str) -> str:
    return "".join(f"_{one}" if one.isupper() else one for one in operation).lstrip("_").upper()


@pytest.fixture(scope="module")
def instances(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Instance, Instance]]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as zookeeper:
        first, second = (Instance(tmp_path_factory.mktemp("registry"), cluster, zookeeper) for _ in range(2))
        with first:
            first.wait_log("event=primary")
            with second:
                second.wait_log("event=ready")
                wait_until(lambda: client(cluster, second, "admin").get_subjects() == [], "the second answers")
                yield first, second


def client(cluster: Cluster, instance: Instance, user: str, password: str | None = None) -> SchemaRegistryClient:
    return SchemaRegistryClient(
        {
            "url": instance.url,
            "ssl.ca.location": str(cluster.authority.trusted),
            "basic.auth.user.info": f"{user}:{PASSWORDS[user] if password is None else password}",
            "max.retries": 0,
        }
    )


def ours(cluster: Cluster, user: str) -> ClientSecurity:
    return ClientSecurity(user=user, password=PASSWORDS[user], ca_location=cluster.authority.trusted)


def refusal(act: Any, *arguments: object) -> int:
    with pytest.raises(SchemaRegistryError) as caught:
        act(*arguments)
    return int(caught.value.error_code)


def test_a_writer_of_a_topic_registers_its_schema_at_any_instance(
    cluster: Cluster, instances: tuple[Instance, Instance]
) -> None:
    first, second = instances
    alice, admin = client(cluster, second, "alice"), client(cluster, second, "admin")
    secret_id = admin.register_schema("salaries-value", Schema(SALARIES, "AVRO"))
    schema_id = alice.register_schema("clicks-value", Schema(CLICKS, "AVRO"))
    assert client(cluster, first, "alice").get_schema(schema_id).schema_str == CLICKS
    assert refusal(alice.register_schema, "salaries-value", Schema(CLICKS, "AVRO")) == 40301
    assert refusal(alice.get_schema, secret_id) == 40301
    assert refusal(alice.get_latest_version, "salaries-value") == 40301
    assert refusal(alice.delete_subject, "clicks-value") == 40301
    assert refusal(alice.set_compatibility, None, "NONE") == 40301
    fields = '{"type":"record","name":"T","fields":[{"name":"s","type":"S"}]}'
    refers = Schema(fields, "AVRO", [SchemaReference("S", "salaries-value", 1)])
    assert refusal(alice.register_schema, "clicks-value", refers) == 40301
    assert (alice.get_subjects(), admin.get_subjects()) == (["clicks-value"], ["clicks-value", "salaries-value"])
    assert admin.delete_subject("salaries-value") == [1]


def test_a_wrong_password_and_no_login_are_refused(cluster: Cluster, instances: tuple[Instance, Instance]) -> None:
    first, _ = instances
    assert refusal(client(cluster, first, "alice", "wrong").get_subjects) == 401
    assert refusal(client(cluster, first, "bob", PASSWORDS["alice"]).get_subjects) == 401
    with pytest.raises(avro.RegistryDenied, match="Unauthorized"):
        avro.RegistryClient(first.url, security=ClientSecurity(ca_location=cluster.authority.trusted)).latest("x")


def test_clients_of_ours_log_in_by_the_block_of_their_cluster(
    cluster: Cluster, instances: tuple[Instance, Instance]
) -> None:
    urls = [one.url for one in instances]
    registry = avro.RegistryClient(urls, security=ours(cluster, "alice"))
    value = avro.AvroSerializer(registry, "clicks-value", CLICKS)({"a": 7})
    assert avro.AvroDeserializer(avro.RegistryClient(urls, security=ours(cluster, "alice")))(value) == {"a": 7}
    with pytest.raises(avro.RegistryDenied, match="bob-hidden"):
        avro.RegistryClient(urls, security=ours(cluster, "alice")).latest("bob-hidden-value")


def test_another_registry_follows_as_a_user_that_reads_the_topic(
    cluster: Cluster, instances: tuple[Instance, Instance]
) -> None:
    urls = [one.url for one in instances]
    assert "clicks-value" in {one.subject for one in Source(urls, ours(cluster, "bob")).snapshot().versions}
    with pytest.raises(FollowFailed, match="Unauthorized"):
        Source(urls, ClientSecurity(ca_location=cluster.authority.trusted)).snapshot()


def test_metrics_are_for_a_certificate_or_a_login(cluster: Cluster, instances: tuple[Instance, Instance]) -> None:
    first, _ = instances
    context = ssl.create_default_context(cafile=str(cluster.authority.trusted))
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{first.url}/metrics", context=context)
    keys = cluster.authority.issue("prometheus.pem")
    context.load_cert_chain(keys)
    with urllib.request.urlopen(f"{first.url}/metrics", context=context) as page:
        assert b"pylog_registry_subjects" in page.read()
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{first.url}/subjects", context=context)
