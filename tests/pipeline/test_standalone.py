"""The load job on a standalone cluster, as role spark runs it: authentication on, REST port closed, a worker killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest

from pylog.ingest.job import JobConfig
from pylog.testing import BrokerProcess
from tests.pipeline.conftest import Topics
from tests.pipeline.test_job import arguments, keys, landed_keys, wait_for_commit
from tests.servers.ports import free_ports

_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_TIMEOUT_S = 300


class Cluster:
    """A master and workers, each a process group of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        [self.port] = free_ports(1)
        self.url = f"spark://127.0.0.1:{self.port}"
        self.log = directory / "spark.log"
        settings = {
            "spark.authenticate": "true", "spark.authenticate.secret": "0123456789abcdef",
            "spark.network.crypto.enabled": "true", "spark.master.rest.enabled": "false",
            "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
        }  # fmt: skip
        (directory / "conf").mkdir(parents=True)
        text = "".join(f"{name} {value}\n" for name, value in settings.items())
        (directory / "conf" / "spark-defaults.conf").write_text(text)
        self.environment = {
            **os.environ, "SPARK_CONF_DIR": str(directory / "conf"), "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_DIRS": str(directory / "local"), "PYTHONPATH": str(Path.cwd()),
        }  # fmt: skip
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, role: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [str(_CLASS), f"org.apache.spark.deploy.{role.lower()}.{role}", "--host", "127.0.0.1",
                   "--webui-port", "0", *arguments]  # fmt: skip
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                command, env=self.environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        self._processes.append(process)
        return process

    def start_worker(self) -> subprocess.Popen[bytes]:
        work = str(self._directory / f"work-{len(self._processes)}")
        return self.start("Worker", "--cores", "1", "--memory", "1g", "--work-dir", work, self.url)

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        while text not in self.log.read_text():
            assert time.monotonic() < deadline, self.log.read_text()[-2000:]
            time.sleep(0.1)

    def stop(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path / "spark")
    try:
        cluster.start("Master", "--port", str(cluster.port))
        cluster.wait_for("New state: ALIVE")
        yield cluster
    finally:
        cluster.stop()


def test_a_worker_killed_while_the_job_runs_loses_and_doubles_nothing(
    cluster: Cluster, broker: BrokerProcess, topics: Topics, config: Callable[..., JobConfig]
) -> None:
    assert "Started REST server" not in cluster.log.read_text()
    first = cluster.start_worker()
    cluster.start_worker()
    cluster.wait_for("Registering worker")
    topic = topics.create(partitions=4)
    topics.send(topic, keys(0, 20_000), value=lambda key: bytes(100))
    given = config(topic, max_offsets_per_batch=2_000)
    more = ("--max-offsets-per-task=500", f"--master={cluster.url}")
    process = subprocess.Popen(
        [sys.executable, "-m", "pylog.ingest.job", *arguments(given, *more)], env=cluster.environment,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        wait_for_commit(process, given.lake, 1)
        os.killpg(first.pid, signal.SIGKILL)  # the worker with its executor and their Python
        said = process.communicate(timeout=_TIMEOUT_S)[1]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert process.returncode == 0, said
    assert landed_keys(given.lake) == keys(0, 20_000)
