"""Other people's clients over each protocol and mechanism, against a broker that demands them."""

import asyncio
import json
import math
import os
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from confluent_kafka.cimpl import NewTopic
from cryptography.x509.oid import NameOID
from joserfc import jwt
from joserfc.jwk import ECKey
from pyspark.sql.types import StringType, StructField, StructType

from pylog.client import Connection, Message, MessageSet
from pylog.client import Producer as PaperProducer
from pylog.client.raw import RawClient
from pylog.client.security import ClientSecurity
from pylog.errors import ApiError, ErrorCode
from pylog.ingest.landing import Landing, land
from pylog.ingest.options import parse_options, parse_sink_options
from pylog.ingest.sink import PylogWriter
from pylog.ingest.source import PylogDataSource, PylogReader
from pylog.model import TopicPartition
from pylog.testing import BrokerProcess, SecuredBroker
from pylog.wire.api.offsets import LATEST_TIMESTAMP
from tests.interop.conftest import PEER
from tests.servers.certificates import Authority
from tests.servers.kafka import ACL_COMMAND, CONFIG_COMMAND, CONSOLE_CONSUMER, CONSOLE_PRODUCER, java_tool
from tests.servers.ports import free_ports

pytestmark = pytest.mark.skipif(PEER == "kafka", reason="the settings of Kafka's own broker are others")

PASSWORD = "s3cret, =ü"
KEY = ECKey.generate_key("P-256", {"kid": "one"})
PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
CASES = [
    ("SSL", ""),
    ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
    ("SASL_PLAINTEXT", "SCRAM-SHA-512"),
    ("SASL_SSL", "SCRAM-SHA-256"),
    ("SASL_SSL", "SCRAM-SHA-512"),
    ("SASL_SSL", "PLAIN"),
    ("SASL_SSL", "OAUTHBEARER"),
]


class Secured:
    """A broker of each protocol, with one user, and what clients need."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory / "certificates")
        self.server = self.authority.server()
        names = (NameOID.ORGANIZATION_NAME, "Org"), (NameOID.COMMON_NAME, "alice")
        self.client = self.authority.issue("alice.pem", *names)
        (directory / "keys.json").write_text(json.dumps({"keys": [KEY.as_dict(private=False)]}))
        (directory / "password").write_text(f"{PASSWORD}\n")
        self.brokers = {protocol: self._broker(directory, protocol) for protocol in PROTOCOLS}

    def _broker(self, directory: Path, protocol: str) -> BrokerProcess:
        home = directory / protocol
        home.mkdir()
        [port] = free_ports(1)
        lines: dict[str, object] = {"host": "127.0.0.1", "port": port, "security.protocol": protocol}
        if "SSL" in protocol:
            lines["ssl.keystore.location"] = self.server
        if protocol == "SSL":
            lines |= {"ssl.truststore.location": self.authority.trusted, "ssl.client.auth": "required"}
        if protocol == "SASL_SSL":
            lines |= {
                "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN,OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": f"file://{directory}/keys.json",
                "sasl.oauthbearer.expected.audience": "pylog",
            }
        if "SASL" in protocol:
            lines["connections.max.reauth.ms"] = 3_000
        listener = "".join(f"    {name}: {value}\n" for name, value in lines.items())
        config = home / "broker.yml"
        config.write_text(
            f"version: 1\nbroker_id: 0\ndata_dir: {home}/data\nadmin_socket: {home}/data/admin.sock\n"
            f"listeners:\n  client:\n{listener}store:\n  kind: embedded\n"
            "config:\n  offsets.topic.replication.factor: 1\n"
        )
        if "SASL" in protocol:
            (home / "data" / "store").mkdir(parents=True)
            command = ["user", "set", "alice", f"--config={config}", f"--password-file={directory}/password"]
            subprocess.run([sys.executable, "-m", "pylog", *command], check=True)
        return BrokerProcess(home, port=port, config_file=config)

    def librdkafka(self, protocol: str, mechanism: str) -> dict[str, Any]:
        """Return what confluent-kafka needs."""
        config: dict[str, Any] = {
            "bootstrap.servers": self.brokers[protocol].bootstrap,
            "security.protocol": protocol,
            "log_level": 0,
        }
        if "SSL" in protocol:
            config["ssl.ca.location"] = str(self.authority.trusted)
        if protocol == "SSL":
            config |= {"ssl.certificate.location": str(self.client), "ssl.key.location": str(self.client)}
        elif mechanism == "OAUTHBEARER":
            config |= {"sasl.mechanism": mechanism, "oauth_cb": lambda _: (token(), time.time() + 60)}
        else:
            config |= {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": PASSWORD}
        return config

    def context(self) -> ssl.SSLContext:
        """Return what Python's clients verify the broker with."""
        context = ssl.create_default_context(cafile=str(self.authority.trusted))
        context.load_cert_chain(self.client)
        return context


def token() -> str:
    now_s = int(time.time())
    claims = {"sub": "alice", "aud": "pylog", "iat": now_s, "exp": now_s + 60}
    return jwt.encode({"alg": "ES256", "kid": "one"}, claims, KEY)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    found = Secured(tmp_path_factory.mktemp("secured"))
    with found.brokers["SSL"], found.brokers["SASL_PLAINTEXT"], found.brokers["SASL_SSL"]:
        yield found


@pytest.fixture
def topic(secured: Secured, request: pytest.FixtureRequest) -> str:
    name = "".join(char if char.isalnum() else "-" for char in request.node.name).strip("-")
    for protocol in PROTOCOLS:
        mechanism = "SCRAM-SHA-256" if "SASL" in protocol else ""
        admin = AdminClient(secured.librdkafka(protocol, mechanism))
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    return name


def consumed(config: Mapping[str, Any], topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({**config, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        found: list[bytes | None] = []
        deadline_s = time.monotonic() + 30
        while len(found) < count and time.monotonic() < deadline_s:
            for message in consumer.consume(count, 1.0):
                assert message.error() is None, message.error()
                found.append(message.value())
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize(("protocol", "mechanism"), CASES)
def test_librdkafka(secured: Secured, topic: str, protocol: str, mechanism: str) -> None:
    config = secured.librdkafka(protocol, mechanism)
    producer = Producer(config)
    values = [bytes([number]) * 40_000 for number in range(50)]
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    assert consumed(config, topic, len(values)) == values


@pytest.mark.parametrize(("protocol", "mechanism"), CASES)
def test_kafka_python(secured: Secured, topic: str, protocol: str, mechanism: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.net.sasl.oauth import AbstractTokenProvider  # type: ignore[import-untyped, unused-ignore]

    class Provider(AbstractTokenProvider):  # type: ignore[misc, unused-ignore]
        def token(self) -> str:
            return token()

    config: dict[str, Any] = {
        "bootstrap_servers": secured.brokers[protocol].bootstrap,
        "security_protocol": protocol,
        "ssl_context": secured.context() if "SSL" in protocol else None,
    }
    if mechanism == "OAUTHBEARER":
        config |= {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": Provider()}
    elif mechanism:
        config |= {"sasl_mechanism": mechanism, "sasl_plain_username": "alice", "sasl_plain_password": PASSWORD}
    producer = KafkaProducer(**config)
    values = [bytes([number]) * 40_000 for number in range(50)]
    for sent in [producer.send(topic, value) for value in values]:
        sent.get(30)
    producer.close()
    consumer = KafkaConsumer(topic, **config, auto_offset_reset="earliest", consumer_timeout_ms=20_000)
    assert [next(consumer).value for _ in values] == values
    consumer.close()


@pytest.mark.parametrize(("protocol", "mechanism"), CASES)
def test_aiokafka(secured: Secured, topic: str, protocol: str, mechanism: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc, unused-ignore]
        async def token(self) -> str:
            return token()

    async def exchange() -> None:
        config: dict[str, Any] = {
            "bootstrap_servers": secured.brokers[protocol].bootstrap,
            "security_protocol": protocol,
            "ssl_context": secured.context() if "SSL" in protocol else None,
        }
        if mechanism == "OAUTHBEARER":
            config |= {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": Provider()}
        elif mechanism:
            config |= {"sasl_mechanism": mechanism, "sasl_plain_username": "alice", "sasl_plain_password": PASSWORD}
        values = [bytes([number]) * 40_000 for number in range(50)]
        async with AIOKafkaProducer(**config) as producer:
            for value in values:
                await producer.send_and_wait(topic, value)
        async with AIOKafkaConsumer(topic, **config, auto_offset_reset="earliest") as consumer:
            assert [(await anext(consumer)).value for _ in values] == values

    asyncio.run(asyncio.wait_for(exchange(), 60))


def test_librdkafka_logs_in_again_and_loses_nothing(secured: Secured, topic: str) -> None:
    errors: list[KafkaError] = []
    config = secured.librdkafka("SASL_SSL", "SCRAM-SHA-512") | {"error_cb": errors.append}
    producer = Producer(config)
    failed: list[object] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    sent = 0
    deadline_s = time.monotonic() + 8  # more than two sessions of three seconds
    while time.monotonic() < deadline_s:
        producer.produce(topic, b"x", on_delivery=delivered)
        sent += 1
        producer.poll(0.01)
    assert producer.flush(30) == 0
    assert (failed, errors) == ([], [])
    assert len(consumed(config, topic, sent)) == sent


@pytest.mark.parametrize(
    "wrong",
    [
        {"sasl.password": "wrong"},
        {"sasl.username": "nobody"},
        {"sasl.mechanism": "PLAIN", "sasl.password": "wrong"},
    ],
)
def test_a_wrong_login_is_told_apart_from_a_broker_that_is_away(secured: Secured, wrong: dict[str, str]) -> None:
    errors: list[int] = []
    config = secured.librdkafka("SASL_SSL", "SCRAM-SHA-256") | {"error_cb": lambda error: errors.append(error.code())}
    client = AdminClient(config | wrong)
    with pytest.raises(KafkaException):
        client.list_topics(timeout=3)
    client.poll(0)
    assert KafkaError._AUTHENTICATION in errors


def test_unsigned_tokens_are_refused(secured: Secured) -> None:
    errors: list[int] = []
    config = secured.librdkafka("SASL_SSL", "OAUTHBEARER")
    del config["oauth_cb"]
    config |= {
        "enable.sasl.oauthbearer.unsecure.jwt": True,
        "sasl.oauthbearer.config": "principal=alice",
        "error_cb": lambda error: errors.append(error.code()),
    }
    with pytest.raises(KafkaException):
        AdminClient(config).list_topics(timeout=3)
    assert "mechanism=OAUTHBEARER" in secured.brokers["SASL_SSL"].log


def test_users_are_made_and_described_over_the_wire(secured: Secured) -> None:
    admin = AdminClient(secured.librdkafka("SASL_SSL", "SCRAM-SHA-256"))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192)
    change = UserScramCredentialUpsertion("bob", info, b"b0b")
    admin.alter_user_scram_credentials([change])["bob"].result(30)
    described: Any = admin.describe_user_scram_credentials(["bob"])
    found = described["bob"].result(30)
    assert [(int(one.mechanism.value), one.iterations) for one in found.scram_credential_infos] == [(2, 8192)]
    config = secured.librdkafka("SASL_SSL", "SCRAM-SHA-512") | {"sasl.username": "bob", "sasl.password": "b0b"}
    assert AdminClient(config).list_topics(timeout=20).brokers


def test_no_password_stands_in_a_log(secured: Secured) -> None:
    said = "".join(broker.log for broker in secured.brokers.values())
    assert "login failed" in said
    for secret in (PASSWORD, "s3cret", "b0b", "wrong"):
        assert f"'{secret}'" not in said
        assert secret == "wrong" or secret not in said


@pytest.mark.parametrize(("protocol", "mechanism"), [one for one in CASES if one[1] != "OAUTHBEARER"])
def test_our_own_blocking_client(secured: Secured, topic: str, protocol: str, mechanism: str) -> None:
    names = {"log_level", "bootstrap.servers"}
    given = secured.librdkafka(protocol, mechanism)
    properties = {name: str(value) for name, value in given.items() if name not in names}
    with RawClient(given["bootstrap.servers"], security=ClientSecurity.from_properties(properties)) as client:
        assert client.topics([topic])[topic].leaders == {0: 0}
        assert client.list_offsets([TopicPartition(topic, 0)], LATEST_TIMESTAMP) == {TopicPartition(topic, 0): 0}
        if mechanism:
            assert all(one.expires_s < math.inf for one in client._connections.values())


def test_our_own_client_tells_a_wrong_password_at_once(secured: Secured) -> None:
    properties = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(secured.authority.trusted),
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": "wrong",
    }
    security = ClientSecurity.from_properties(properties)
    bootstrap = secured.brokers["SASL_SSL"].bootstrap
    with RawClient(bootstrap, security=security) as client, pytest.raises(ApiError) as caught:
        client.topics()
    assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_query_of_spark_s_and_a_task_of_the_load_job_log_in(secured: Secured, topic: str, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text(f"{PASSWORD}\n")
    password.chmod(0o600)
    block = {
        "protocol": "SASL_SSL",
        "mechanism": "SCRAM-SHA-512",
        "user": "alice",
        "password_file": str(password),
        "ca_file": str(secured.authority.trusted),
    }
    bootstrap = secured.brokers["SASL_SSL"].bootstrap
    with PaperProducer(Connection(bootstrap=bootstrap).secured(block)) as producer:
        producer.send(topic, MessageSet(Message(b"one"), Message(b"two")))
    given = {"bootstrap": bootstrap, "topics": topic}
    options = parse_options(given | {f"security.{key}": value for key, value in block.items()}, is_stream=False)
    reader = PylogReader(options, PylogDataSource(given).schema())
    [task] = reader.partitions()
    assert PASSWORD not in repr(task)
    values = [value for batch in reader.read(task) for value in batch.column("value").to_pylist()]
    assert values == [b"one", b"two"]
    sink = parse_sink_options(
        {"bootstrap": bootstrap, "topic": topic} | {f"security.{key}": value for key, value in block.items()}
    )
    writer = PylogWriter(StructType([StructField("value", StringType())]), sink)
    assert PASSWORD not in repr(vars(writer))
    assert writer.write(iter([pa.RecordBatch.from_pydict({"value": ["three"]})])).records == 1
    [task] = reader.partitions()
    values = [value for batch in reader.read(task) for value in batch.column("value").to_pylist()]
    assert values == [b"one", b"two", b"three"]
    landing = Landing(
        bootstrap=bootstrap,
        directory=tmp_path,
        prefix="1",
        fail_on_data_loss=True,
        topic_ids=task.topic_ids,
        security=block,
    )
    assert PASSWORD not in repr(landing)
    assert sum(land(list(task.ranges), landing).rows.values()) == 3


OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def java_properties(secured: Secured, protocol: str, mechanism: str, directory: Path) -> Path:
    """Return a file with what Kafka's own clients need."""
    lines = {"security.protocol": protocol}
    if "SSL" in protocol:
        lines |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(secured.authority.trusted)}
    if protocol == "SSL":
        lines |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(secured.client)}
    elif mechanism == "OAUTHBEARER":
        (directory / "token").write_text(token())
        handler = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
        lines |= {
            "sasl.mechanism": mechanism,
            "sasl.login.callback.handler.class": handler,
            "sasl.oauthbearer.token.endpoint.url": f"file://{directory}/token",
            "sasl.jaas.config": f"{OAUTH_MODULE} required;",
        }
    elif mechanism:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        login = f'org.apache.kafka.common.security.{module} required username="alice" password="{PASSWORD}";'
        lines |= {"sasl.mechanism": mechanism, "sasl.jaas.config": login}
    text = "".join(f"{name}={value}\n" for name, value in lines.items())
    path = directory / "client.properties"
    path.write_text("".join(char if char.isascii() else f"\\u{ord(char):04x}" for char in text))
    return path


@pytest.mark.parametrize(("protocol", "mechanism"), CASES)
def test_java(secured: Secured, topic: str, tmp_path: Path, protocol: str, mechanism: str) -> None:
    file = java_properties(secured, protocol, mechanism, tmp_path)
    where = ("--bootstrap-server", secured.brokers[protocol].bootstrap, "--topic", topic)
    java_tool(CONSOLE_PRODUCER, *where, "--producer.config", str(file), stdin=b"one\ntwo\n")
    options = ("--consumer.config", str(file), "--from-beginning", "--max-messages", "2", "--timeout-ms", "30000")
    assert java_tool(CONSOLE_CONSUMER, *where, *options) == b"one\ntwo\n"


def test_kafkas_own_tools_make_users_and_rights(tmp_path: Path) -> None:
    with SecuredBroker(tmp_path / "broker") as broker:
        admin = AdminClient(broker.client())
        admin.create_topics([NewTopic("clicks", 1, 1)])["clicks"].result(30)
        login = broker.client()
        text = (
            "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\nssl.truststore.type=PEM\n"
            f"ssl.truststore.location={broker.authority}\n"
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="{login["sasl.username"]}" password="{login["sasl.password"]}";\n'
        )
        file = tmp_path / "admin.properties"
        file.write_text(text)
        where = ("--bootstrap-server", broker.bootstrap, "--command-config", str(file))
        user = ("--entity-type", "users", "--entity-name", "bob")
        java_tool(CONFIG_COMMAND, *where, "--alter", "--add-config", "SCRAM-SHA-256=[password=of-bob]", *user)
        assert b"SCRAM-SHA-256=iterations=" in java_tool(CONFIG_COMMAND, *where, "--describe", *user)

        bob = {**login, "sasl.username": "bob", "sasl.password": "of-bob", "log_level": 0}
        assert AdminClient(bob).list_topics(timeout=30).topics == {}
        acl = ("--allow-principal", "User:bob", "--operation", "Read", "--topic", "clicks")
        java_tool(ACL_COMMAND, *where, "--add", *acl)
        listed = java_tool(ACL_COMMAND, *where, "--list", "--topic", "clicks")
        assert b"(principal=User:bob, host=*, operation=READ, permissionType=ALLOW)" in listed
        assert set(AdminClient(bob).list_topics(timeout=30).topics) == {"clicks"}

        java_tool(ACL_COMMAND, *where, "--remove", "--force", *acl)
        assert b"User:bob" not in java_tool(ACL_COMMAND, *where, "--list", "--topic", "clicks")
        assert AdminClient(bob).list_topics(timeout=30).topics == {}
        java_tool(CONFIG_COMMAND, *where, "--alter", "--delete-config", "SCRAM-SHA-256", *user)
        with pytest.raises(KafkaException):
            AdminClient(bob).list_topics(timeout=3)


@pytest.mark.parametrize(("protocol", "mechanism"), [("SSL", ""), ("SASL_SSL", "SCRAM-SHA-256"), ("SASL_SSL", "PLAIN")])
def test_debians_kcat(secured: Secured, topic: str, tmp_path: Path, protocol: str, mechanism: str) -> None:
    given = secured.librdkafka(protocol, mechanism)
    file = tmp_path / "kcat.conf"
    file.write_text("".join(f"{name}={value}\n" for name, value in given.items() if name != "log_level"))
    subprocess.run(["kcat", "-F", str(file), "-P", "-t", topic], input=b"one\ntwo\n", check=True, timeout=60)
    command = ["kcat", "-F", str(file), "-C", "-t", topic, "-e", "-q", "-o", "beginning"]
    found = subprocess.run(command, capture_output=True, check=True, timeout=60)
    assert found.stdout == b"one\ntwo\n"


@pytest.fixture(scope="module")
def franz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A client of franz-go, compiled."""
    program = tmp_path_factory.mktemp("franz") / "franz"
    source = Path(__file__).parent / "clients" / "franz"
    subprocess.run(["go", "build", "-o", str(program), "."], cwd=source, check=True, timeout=600)
    return program


@pytest.mark.skipif(shutil.which("go") is None, reason="franz-go wants the go command")
@pytest.mark.parametrize(("protocol", "mechanism"), CASES)
def test_franz_go(secured: Secured, topic: str, franz: Path, protocol: str, mechanism: str) -> None:
    command = [str(franz), secured.brokers[protocol].bootstrap, topic, protocol, *([mechanism] if mechanism else [])]
    given = {"CA": str(secured.authority.trusted), "LOGIN": "alice", "PASSWORD": PASSWORD, "TOKEN": token()}
    if protocol == "SSL":
        given["CERTIFICATE"] = str(secured.client)
    done = subprocess.run(
        command, input=b"one\ntwo\n", capture_output=True, env=os.environ | given, check=False, timeout=60
    )
    assert (done.stdout, done.returncode) == (b"one\ntwo\n", 0), done.stderr.decode()
    refused = subprocess.run(
        command,
        input=b"one\n",
        capture_output=True,
        env=os.environ | given | {"PASSWORD": "wrong", "TOKEN": "wrong", "CERTIFICATE": ""},
        check=False,
        timeout=60,
    )
    assert (refused.stdout, refused.returncode) == (b"", 1)
