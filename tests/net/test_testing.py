"""What `pylog.testing` gives to other projects' tests: the secured broker."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from pylog.testing import USERS, SecuredBroker

INSTALL = Path(__file__).parents[2] / "docs" / "install.md"


def test_a_secured_broker_knows_its_users_and_their_rights_after_a_restart_too(tmp_path: Path) -> None:
    writes = {"resource": "topic", "name": "clicks", "operations": ["Write", "Describe"]}
    users = [*USERS, {"name": "bob", "password": "bob-password", "acls": [writes]}]
    with SecuredBroker(tmp_path, users=users, config={"num.partitions": 3}) as broker:
        admin = AdminClient(broker.client())
        admin.create_topics([NewTopic("clicks", -1, 1)])["clicks"].result(10)
        address = broker.bootstrap
        broker.restart()
        assert broker.bootstrap == address
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            seen = AdminClient(broker.client("bob", mechanism)).list_topics(timeout=10).topics
            assert len(seen["clicks"].partitions) == 3
        assert AdminClient(broker.client("alice")).list_topics(timeout=10).topics == {}
        producer = Producer(broker.client("bob"))
        producer.produce("clicks", b"x")
        assert producer.flush(10) == 0
        for properties in ({"sasl.password": "wrong"}, {"security.protocol": "PLAINTEXT"}):
            with pytest.raises(KafkaException) as raised:
                AdminClient({**broker.client(), "log_level": 0, **properties}).list_topics(timeout=3)
            assert raised.value.args[0].code() in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT)
    assert (tmp_path / "server.pem").stat().st_mode & 0o777 == 0o600


def test_wrong_users_of_a_secured_broker_are_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'root' is none of the users"):
        SecuredBroker(tmp_path, admin="root")
    wrong = [*USERS, {"name": "bob", "password": "bob-password", "acls": [{"resource": "disk"}]}]
    with pytest.raises(RuntimeError, match=r"users\[2\]"):
        SecuredBroker(tmp_path, users=wrong).start()


def test_the_page_s_tests_with_a_secured_broker_pass(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", INSTALL.read_text(), re.DOTALL)
    parts = [one for one in blocks if "secured_broker" in one or "SecuredBroker" in one]
    assert len(parts) == 2
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["pylog.testing"]\n')
    use = '\n\ndef test_bob(broker):\n    assert broker.client("bob")["sasl.username"] == "bob"\n'
    (tmp_path / "test_page.py").write_text(parts[0])
    (tmp_path / "test_own.py").write_text(parts[1] + use)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
