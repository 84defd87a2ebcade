"""`format("pylog")` and a registry with encryption and login, beside a broker with users and ACLs."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pylog.client.avro import AvroSerializer, RegistryClient
from pylog.client.connection import Connection
from pylog.client.producer import Producer
from pylog.ops.rights import _registry
from pylog.testing import USERS, SecuredBroker
from tests.programs.program import Program
from tests.servers.ports import free_ports

SCHEMA = '{"type":"record","name":"Click","fields":[{"name":"page","type":"string"}]}'
READS = [
    {"resource": "topic", "name": "clicks", "operations": ["Read", "Describe"]},
    {"resource": "cluster", "operations": ["Describe"]},
]
PASSWORDS = {"carol": "carol's password", "dave": "dave's password", "registry": "a password of the registry"}


class Place:
    """A secured broker with topic "clicks", and its registry; carol may read, dave may see no topic."""

    def __init__(self, home: Path) -> None:
        [port] = free_ports(1)
        [(_, rules)] = _registry({})
        acls: Mapping[str, object] = {"carol": READS, "dave": [], "registry": rules}
        users = [{"name": name, "password": word, "acls": acls[name]} for name, word in PASSWORDS.items()]
        self.home = home
        self.broker = SecuredBroker(home / "broker", users=[*USERS, *users])
        self.registry_url = f"https://127.0.0.1:{port}"
        self._port = port
        for name, word in PASSWORDS.items():
            path = home / f"{name}.password"
            path.touch(mode=0o600)
            path.write_text(word)

    def login(self, user: str) -> dict[str, str]:
        """Return the block ``security:`` of a user."""
        return {
            "protocol": "SASL_SSL",
            "mechanism": "SCRAM-SHA-256",
            "user": user,
            "password_file": str(self.home / f"{user}.password"),
            "ca_file": str(self.broker.authority),
        }

    def registry(self) -> Program:
        """Return the registry, which is started by entering it."""
        settings = {
            "listen": f"127.0.0.1:{self._port}",
            "listen_security": {"ssl.keystore.location": str(self.broker.key_store)},
            "login": "scram",
            "login_mechanism": "SCRAM-SHA-256",
            "bootstrap": self.broker.bootstrap,
            "security": self.login("registry"),
            "replication_factor": 1,
        }
        return Program(self.home / "registry", "registry", settings)

    def rows(self, spark: SparkSession, user: str) -> DataFrame:
        """Return the topic as Spark reads it under *user*."""
        security = {f"security.{key}": value for key, value in self.login(user).items()}
        given = {"bootstrap": self.broker.bootstrap, "topic": "clicks", "schemaRegistry": self.registry_url}
        return spark.read.format("pylog").options(**given, **security).load()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    found = Place(tmp_path_factory.mktemp("secured"))
    with found.broker as broker:
        admin = AdminClient(broker.client())
        admin.create_topics([NewTopic("clicks", 1, 1)])["clicks"].result(20)
        with found.registry() as registry:
            registry.wait_log("event=primary")
            connection = Connection(bootstrap=broker.bootstrap, properties=broker.client())
            client = RegistryClient(found.registry_url, security=connection.security())
            serializer = AvroSerializer(client, "clicks-value", SCHEMA)
            with Producer(connection) as producer:
                for page in ("/home", "/jobs"):
                    producer.send("clicks", serializer({"page": page}))
            yield found


def test_values_are_columns_for_a_user_who_may_read_the_topic(spark: SparkSession, place: Place) -> None:
    found = place.rows(spark, "carol").select("decoded.page", "decodeError").collect()
    assert sorted(tuple(row) for row in found) == [("/home", None), ("/jobs", None)]


def test_who_may_not_see_the_topic_learns_so_from_the_registry(spark: SparkSession, place: Place) -> None:
    with pytest.raises(PySparkException, match=r"RegistryDenied.*clicks-value"):
        place.rows(spark, "dave")
