"""A real broker and a real Spark, one of each for all tests here: the JVM takes longer to start than any test.

Some tests start a Spark of their own. Each finds its classes in an archive, which halves what its start costs.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path

import pyspark
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyspark.sql import SparkSession

from pylog.ingest import job
from pylog.ingest import spark as starting
from pylog.testing import BrokerProcess
from tests.servers.jvm import shared_classes

Header = tuple[str, str | bytes | None]
_numbers = count(1)
# The Java machine leaves its archive when it has ended, later than its Python.
_USUAL = """
import sys
from pylog.ingest import spark
session = spark.session("local[2]")
session.range(10).write.parquet(sys.argv[1])
session.read.parquet(sys.argv[1]).selectExpr("sum(id)").collect()
java = session.sparkContext._gateway.proc
session.stop()
java.stdin.close()
java.wait()
"""


@pytest.fixture(scope="session", autouse=True)
def classes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have each Spark of the tests and of what they start take its classes from an archive."""
    jars = ":".join(map(str, sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))))

    def run(flags: Sequence[str]) -> None:
        options = os.environ | {"SPARK_SUBMIT_OPTS": " ".join(flags)}
        target = tmp_path_factory.mktemp("classes") / "numbers"
        subprocess.run([sys.executable, "-c", _USUAL, str(target)], check=True, env=options)

    with pytest.MonkeyPatch.context() as patch:
        # A warning of the Java machine about its archive would stand in the middle of what a program prints.
        patch.setenv("SPARK_SUBMIT_OPTS", " ".join([*shared_classes("spark", jars, run), "-Xlog:disable"]))
        yield


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    # Records of tests carry timestamps of years ago; retention must not eat them.
    config = {"auto.create.topics.enable": "false", "log.retention.ms": "-1"}
    with BrokerProcess(tmp_path_factory.mktemp("broker"), config=config) as running:
        yield running


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = starting.session("local[2]")
    yield session
    session.stop()


class Topics:
    """Makes topics under fresh names and fills them."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(self, partitions: int = 2, name: str | None = None) -> str:
        name = name or f"logins-{next(_numbers)}"
        self._admin.create_topics([NewTopic(name, partitions, 1)])[name].result(20)
        return name

    def delete(self, name: str) -> None:
        self._admin.delete_topics([name])[name].result(20)

    def add_partitions(self, name: str, total: int) -> None:
        self._admin.create_partitions([NewPartitions(name, total)])[name].result(20)

    def delete_records(self, name: str, partition: int, before: int) -> None:
        """Move the log start, as retention does."""
        end = TopicPartition(name, partition, before)
        self._admin.delete_records([end])[end].result(20)

    def send(
        self,
        topic: str,
        keys: Sequence[bytes | None],
        *,
        value: Callable[[bytes | None], bytes | None] = lambda key: b"value of " + (key or b""),
        headers: Callable[[bytes | None], list[Header]] = lambda key: [],
        codec: str = "none",
        partition: int = -1,
        timestamp_ms: int = 0,
    ) -> None:
        """Produce one record a key and wait for all acknowledgements; timestamp 0 is now."""
        failed: list[object] = []
        producer = Producer({"bootstrap.servers": self._bootstrap, "compression.type": codec, "linger.ms": 20})
        for key in keys:
            producer.produce(
                topic, value(key), key, partition, headers=headers(key), timestamp=timestamp_ms,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )  # fmt: skip
        assert producer.flush(30) == 0
        assert failed == []

    def send_one_to_each(self, topic: str, partitions: int) -> None:
        """Produce one record to each partition, whose key is the partition's number in four digits."""
        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 20})
        for partition in range(partitions):
            producer.produce(topic, b"", b"%04d" % partition, partition)
        assert producer.flush(60) == 0

    def send_each(self, names: Sequence[str], keys: Sequence[bytes]) -> None:
        """Produce the same records to each of *names*, by one producer."""
        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 20})
        for name in names:
            for key in keys:
                producer.produce(name, b"value of " + key, key)
        assert producer.flush(60) == 0


@pytest.fixture(scope="session")
def topics(broker: BrokerProcess) -> Topics:
    return Topics(broker.bootstrap)


@pytest.fixture
def config(broker: BrokerProcess, tmp_path: Path) -> Callable[..., job.JobConfig]:
    """Makes the job's configuration over a lake and a checkpoint of this test's own."""

    def make(*names: str, **more: object) -> job.JobConfig:
        given = {"lake": tmp_path / "lake", "checkpoint": tmp_path / "checkpoint", "group": "", **more}
        return job.JobConfig(bootstrap=broker.bootstrap, topics=names, **given)  # type: ignore[arg-type]

    return make
