"""Every example runs, and prints what it says; the Spark ones run in tests/pipeline."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pylog.testing import BrokerProcess, SecuredBroker
from tests.cluster.conftest import write_config
from tests.consumers.conftest import CONFIG
from tests.servers.zookeeper import ZooKeeper

EXAMPLES = Path(__file__).parents[2] / "examples"
ELSEWHERE = {
    "quickstart": "tests/net/test_cli_cluster.py",
    "secured_client": "below",
    "spark_batch": "tests/pipeline/test_examples.py",
    "spark_stream": "tests/pipeline/test_examples.py",
    "spark_to_topic": "tests/pipeline/test_examples.py",
    "spark_windows": "tests/pipeline/test_examples.py",
}
PRINTED = {
    "plain_client": ["0 record 0", "1 record 1", "2 record 2"],
    "streams": [f"page {number}" for number in range(5)],
    "two_groups": ["billing got 40, shipping got 40"],
    "join": ["Ada clicked 20 times", "Bob clicked 20 times"],
    "replay": ["with the bug: -12", "corrected: 12"],
    "custom_partitioner": ["de is in 1 partition", "fr is in 1 partition"],
    "own_serializer": ["Login(user='ada', at=1700000000)"],
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A broker and its ZooKeeper."""
    home = tmp_path_factory.mktemp("cluster")
    with ZooKeeper(home / "zookeeper") as zookeeper:
        config = write_config(
            home / "broker",
            1,
            zookeeper,
            **CONFIG | {"offsets.topic.replication.factor": 1, "default.replication.factor": 1, "num.partitions": 4},
        )
        with BrokerProcess(home / "broker", config_file=config) as broker:
            yield broker.bootstrap, zookeeper.hosts


@pytest.mark.parametrize("name", PRINTED)
def test_it_prints_what_it_should(name: str, cluster: tuple[str, str]) -> None:
    ended = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *cluster],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ended.returncode, sorted(ended.stdout.splitlines())) == (0, sorted(PRINTED[name])), ended.stderr


def test_a_file_of_properties_is_all_that_a_client_needs_to_log_in(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    with SecuredBroker(tmp_path / "broker") as broker:
        file.write_text("".join(f"{name}={value}\n" for name, value in broker.client().items()))
        command = [sys.executable, str(EXAMPLES / "secured_client.py"), str(file)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout.splitlines()) == (0, ["0 record 0", "1 record 1", "2 record 2"]), (
        ended.stderr
    )


def test_the_pytest_fixture_works() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLES / "test_with_a_broker.py")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=EXAMPLES)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "2 passed" in ended.stdout


def test_no_example_is_forgotten() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == PRINTED.keys() | ELSEWHERE.keys() | {"test_with_a_broker"}
