"""The paper's consumer where brokers ask for a login and ZooKeeper for an identity, with few rights at both."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from cryptography.x509.oid import NameOID

from pylog.client import Connection, ConsumerConnector, Message, MessageSet, Producer
from pylog.client.security import security_properties
from pylog.errors import ApiError
from pylog.store.base import NotAllowed
from pylog.store.node_rights import Right, digest_identity
from pylog.store.zookeeper import ZooKeeperStore
from pylog.store.zookeeper_security import Part, parse_zookeeper_security
from pylog.testing import BrokerProcess
from tests.cluster.conftest import write_config
from tests.servers.certificates import Authority
from tests.servers.zookeeper import ZooKeeper

BROKERS, READERS = digest_identity("pylog", "of the brokers"), digest_identity("reader", "of the readers")
PARTITIONS = 4
CONSUMES = [{"resource": "topic", "name": "clicks", "operations": ["Read", "Write"]}]
USERS: Sequence[Mapping[str, object]] = (
    {"name": "admin", "password": "password of admin"},
    {"name": "alice", "password": "password of alice", "acls": CONSUMES},
    {"name": "mallory", "password": "password of mallory", "acls": []},
)


@dataclass(frozen=True, slots=True)
class Place:
    """A secured broker and its ZooKeeper.

    Attributes:
        home: where passwords are.
    """

    home: Path
    authority: Authority
    keys: Path
    zookeeper: ZooKeeper
    broker: BrokerProcess

    def cluster(self, user: str) -> Connection:
        """How *user* connects."""
        return Connection(bootstrap=self.broker.bootstrap).secured(self.block(user))

    def block(self, user: str) -> dict[str, str]:
        """The block ``security:`` of *user*."""
        return {
            "protocol": "SASL_SSL",
            "mechanism": "SCRAM-SHA-256",
            "user": user,
            "password_file": str(self.home / f"{user}.password"),
            "ca_file": str(self.authority.trusted),
        }

    def identity(self, user: str) -> dict[str, str]:
        """What a consumer says to ZooKeeper."""
        return {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.location": str(self.authority.trusted),
            "zookeeper.ssl.keystore.location": str(self.keys),
            "zookeeper.auth.user": user,
            "zookeeper.auth.password.file": str(self.home / f"{user}.secret"),
            "zookeeper.set.acl": "true",
            "zookeeper.acl.owners": f"digest:{BROKERS.id}",
        }

    def consumer(self, user: str, identity: str, group: str = "readers", **options: Any) -> ConsumerConnector:
        """A consumer of a group."""
        return ConsumerConnector(
            self.cluster(user),
            self.zookeeper.secure_hosts,
            group,
            start="smallest",
            zookeeper_security=self.identity(identity),
            **options,
        )


def _secret(path: Path, text: str) -> Path:
    path.write_text(f"{text}\n")
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    home = tmp_path_factory.mktemp("secured")
    authority = Authority(home / "certificates")
    keys = authority.issue("client.pem", (NameOID.COMMON_NAME, "client"))
    for name, secret in {"pylog": "of the brokers", "reader": "of the readers", "stranger": "of nobody"}.items():
        _secret(home / f"{name}.secret", secret)
    for user in USERS:
        _secret(home / f"{user['name']}.password", str(user["password"]))
    with ZooKeeper(home / "zookeeper", authority=authority, tick_ms=2_000) as zookeeper:
        file = write_config(home / "broker", 1, zookeeper, session_timeout_ms=15_000)
        config = yaml.safe_load(file.read_text())
        config["listeners"]["client"] |= {
            "security.protocol": "SASL_SSL",
            "ssl.keystore.location": str(authority.server()),
        }
        config["store"] |= {
            "hosts": zookeeper.secure_hosts,
            "zookeeper.ssl.client.enable": True,
            "zookeeper.ssl.truststore.location": str(authority.trusted),
            "zookeeper.ssl.keystore.location": str(keys),
            "zookeeper.auth.user": "pylog",
            "zookeeper.auth.password.file": str(home / "pylog.secret"),
            "zookeeper.set.acl": True,
            "zookeeper.acl.consumers": f"digest:{READERS.id}",
        }
        config["config"] |= {
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:admin",
        }
        file.write_text(yaml.safe_dump(config))
        command = [sys.executable, "-m", "pylog", "user", "apply", "-", f"--config={file}"]
        subprocess.run(command, input=json.dumps({"users": USERS}), check=True, text=True)
        with BrokerProcess(home / "broker", config_file=file) as broker:
            found = Place(home, authority, keys, zookeeper, broker)
            admin = AdminClient(
                {"bootstrap.servers": broker.bootstrap, **security_properties(found.block("admin"), {})}
            )
            admin.create_topics([NewTopic("clicks", PARTITIONS, 1)])["clicks"].result(30)
            yield found


def test_two_consumers_share_a_topic_and_their_nodes_are_closed_to_strangers(place: Place) -> None:
    sent = [f"click {number}" for number in range(40)]
    with Producer(place.cluster("alice"), acks="all") as producer:
        producer.send("clicks", MessageSet([Message(text.encode()) for text in sent]))
    with place.consumer("alice", "reader", consumer_id="a") as one:
        stream = iter(one.create_message_streams({"clicks": 1})["clicks"][0])
        assert sorted(next(stream).payload().decode() for _ in sent) == sorted(sent)
        one.commit()
    with Producer(place.cluster("alice"), acks="all") as producer:
        producer.send("clicks", Message(b"after the commit"))
    with place.consumer("alice", "reader", consumer_id="b") as two:
        stream = iter(two.create_message_streams({"clicks": 1})["clicks"][0])
        assert next(stream).payload() == b"after the commit"
        security = place.identity("pylog") | {"zookeeper.acl.consumers": f"digest:{READERS.id}"}
        owners = ZooKeeperStore(
            place.zookeeper.secure_hosts, security=parse_zookeeper_security(security, part=Part.OWNER)
        )
        owners.connect()
        try:
            paths = ["/consumers/readers/ids/readers_b", "/consumers/readers/offsets/clicks/0"]
            for rights in owners.rights_many(paths):
                assert rights == {
                    BROKERS: Right.ALL, READERS: Right.READ | Right.WRITE | Right.CREATE | Right.DELETE
                }  # fmt: skip
        finally:
            owners.close()


def test_a_stranger_to_zookeeper_is_refused_by_name(place: Place) -> None:
    with place.consumer("alice", "stranger") as consumer, pytest.raises(NotAllowed, match="digest:stranger"):
        consumer.create_message_streams({"clicks": 1})


def test_a_user_without_a_right_for_the_topic_is_told_so(place: Place) -> None:
    """The group has committed nothing: one that has asks the brokers for no offsets, and is told nothing yet."""
    with place.consumer("mallory", "reader", "newcomers", consumer_id="m") as consumer:
        stream = iter(consumer.create_message_streams({"clicks": 1})["clicks"][0])
        with pytest.raises(ApiError, match="'clicks': this user has no right"):
            next(stream)
