"""Brokers go from open to secured and back by the steps and the files of the bundle, while clients send on and on."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from cryptography.x509.oid import NameOID

from pylog.ops.migration import STEPS, Action, Kind, Position, Turn, next_turn, stage_at
from pylog.testing import BrokerProcess
from tests.cluster.conftest import wait_for
from tests.cluster.test_listeners import Load
from tests.cluster.test_users import pylog_user
from tests.securing import broker_file
from tests.servers.certificates import Authority
from tests.servers.ports import free_ports
from tests.servers.zookeeper import ZooKeeper

ALL = (1, 2, 3)
USER, PASSWORD = "pylog-admin", "a password of some length"
PROGRAMS = [step.name for step in STEPS].index("programs-secured")


class Datacenter:
    """Three brokers, whose files are those of a stage; ZooKeeper takes plain connections and TLS on one port."""

    def __init__(self, home: Path) -> None:
        self.authority = Authority(home / "ca")
        self._keys = self.authority.issue("tls.pem", (NameOID.COMMON_NAME, "pylog"))
        more = [
            "client.portUnification=true",
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            "authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider",
            f"ssl.keyStore.location={self.authority.issue('zk.pem', (NameOID.COMMON_NAME, 'pylog-zookeeper'))}",
            "ssl.keyStore.type=PEM",
            f"ssl.trustStore.location={self.authority.trusted}",
            "ssl.trustStore.type=PEM",
            "ssl.clientAuth=need",
        ]
        self.zookeeper = ZooKeeper(home / "zk", more=more)
        ports = iter(free_ports(4 * len(ALL)))
        self._instances = {
            number: {
                "id": number, "port": next(ports), "secured_port": next(ports), "internal_port": next(ports),
                "metrics_port": next(ports), "data_dir": str(home / str(number) / "data"),
            }
            for number in ALL
        }  # fmt: skip
        self.files = {number: home / str(number) / "broker.yml" for number in ALL}
        for number, file in self.files.items():
            (file.parent / "data").mkdir(parents=True)
            (file.parent / "secret").write_text("x" * 64)
            self._write(number, 0)
        self.brokers = {number: BrokerProcess(file.parent, config_file=file) for number, file in self.files.items()}
        self.done = 0

    def _write(self, number: int, done: int) -> None:
        text = broker_file(
            stage_at(STEPS, done), self._instances[number], address="127.0.0.1", store=self.zookeeper.hosts
        )
        home = self.files[number].parent
        for place, there in {
            "/etc/pylog/tls.pem": self._keys, "/etc/pylog/metrics.pem": self._keys,
            "/etc/pylog/ca.pem": self.authority.trusted, "/etc/pylog/cluster.secret": home / "secret",
            f"/run/pylog/broker-{number}.sock": home / "data" / "admin.sock",
        }.items():  # fmt: skip
            text = text.replace(place, str(there))
        self.files[number].write_text(text)

    @property
    def open(self) -> dict[str, Any]:
        return {"bootstrap.servers": self._addresses("port"), "log_level": 0}

    @property
    def secured(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self._addresses("secured_port"), "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": USER, "sasl.password": PASSWORD,
            "ssl.ca.location": str(self.authority.trusted), "log_level": 0,
        }  # fmt: skip

    def _addresses(self, port: str) -> str:
        return ",".join(f"127.0.0.1:{one[port]}" for one in self._instances.values())

    def go(self, to: int) -> None:
        """Make steps until so many are done, each by its actions and then one broker after the other."""
        while self.done != to:
            turn = next_turn(Position(done=self.done), STEPS, to_open=to < self.done)
            assert turn.step is not None
            self._act(turn)
            self.done += -1 if turn.is_back else 1
            if turn.step.kind is Kind.BROKERS:
                for number, broker in self.brokers.items():
                    self._write(number, self.done)
                    broker.restart()
                    wait_for(self._is_well, f"all are in sync: {turn.words}, broker {number}")

    def _is_well(self) -> bool:
        return all(one.admin("GET", "/ready")[0] == 200 for one in self.brokers.values())

    def _act(self, turn: Turn) -> None:
        """As playbook `secure` does."""
        file = self.files[1]
        for action in turn.side.actions:
            if action is Action.WRITE_USERS:
                pylog_user("set", file, USER, PASSWORD)
            elif action is Action.REMOVE_USERS:
                pylog_user("delete", file, USER)
            else:
                verb = ["secure"] if action is Action.CLOSE_TREE else ["open", "--yes"]
                subprocess.run([sys.executable, "-m", "pylog", "zk", *verb, f"--config={file}"], check=True)


@pytest.fixture
def datacenter(tmp_path: Path) -> Iterator[Datacenter]:
    found = Datacenter(tmp_path)
    with ExitStack() as stack:
        stack.enter_context(found.zookeeper)
        for broker in found.brokers.values():
            stack.enter_context(broker)
        yield found


def refusal(config: dict[str, Any]) -> str:
    """Return the name of the error that a send gets."""
    answers: list[str] = []
    producer = Producer(config | {"message.timeout.ms": 4000})
    producer.produce("t", b"x", on_delivery=lambda error, _: answers.append(error.name() if error else ""))
    producer.flush(20)
    return answers[0]


def test_no_send_fails_on_the_way_to_secured_and_back(datacenter: Datacenter) -> None:
    topic = NewTopic("t", num_partitions=6, replication_factor=3, config={"min.insync.replicas": "2"})
    admin = AdminClient(datacenter.open)
    admin.create_topics([topic], operation_timeout=20)["t"].result(30)
    with Load(datacenter.open, "t") as plain:
        datacenter.go(PROGRAMS)
    with Load(datacenter.secured, "t") as moved:
        datacenter.go(len(STEPS) - 1)
        assert refusal(datacenter.open) == "TOPIC_AUTHORIZATION_FAILED", "rights hold at the open listener too"
        datacenter.go(len(STEPS))
        assert refusal(datacenter.open) == "_MSG_TIMED_OUT", "nobody listens there any more"
        with pytest.raises(KafkaException):
            AdminClient(datacenter.open | {"security.protocol": "SSL"}).list_topics(timeout=5)
        datacenter.go(PROGRAMS)
    with Load(datacenter.open, "t") as back:
        datacenter.go(0)
    for load in (plain, moved, back):
        assert (load.failed, load.sent > 100) == ([], True)
