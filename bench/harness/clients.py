"""The librdkafka client that drives the broker, and topics for it."""

import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pylog import model
from pylog.client.admin.cluster import Admin
from pylog.errors import PylogError

WORK_DIR = Path(__file__).resolve().parents[2] / ".local" / "bench"
"""Where binaries and brokers' data go unless told otherwise."""

_SOURCE = Path(__file__).with_name("rdk_client.c")
_STILL_S = 10.0
"""An end offset that stood still this long has seen all that will come."""
_ANSWER_S = 60.0
"""How long a broker may take to serve a topic that was just made: a JVM on one core under load takes seconds."""


def build_rdk_client(work_dir: Path = WORK_DIR) -> Path:
    """Compile `rdk_client.c` unless that is done already, and return the binary.

    Raises:
        RuntimeError: compiler or librdkafka's headers are missing.
    """
    binary = work_dir / "rdk_client"
    if binary.exists() and binary.stat().st_mtime >= _SOURCE.stat().st_mtime:
        return binary
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise RuntimeError("a C compiler is needed: apt-get install gcc libc6-dev librdkafka-dev")
    work_dir.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [compiler, "-O2", "-o", str(binary), str(_SOURCE), "-lrdkafka"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"cannot build {_SOURCE.name} (apt-get install librdkafka-dev):\n{done.stderr}")
    return binary


def run(command: Sequence[str], cpus: frozenset[int] | None, timeout_s: float) -> str:
    """Run one client to its end and return what it printed.

    Args:
        cpus: the only ones it may use; None for all.
        timeout_s: when it is taken for hung.

    Raises:
        RuntimeError: it failed; the message has its output.
    """
    pinned = ["taskset", "--cpu-list", ",".join(map(str, sorted(cpus))), *command] if cpus else list(command)
    done = subprocess.run(pinned, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


# What a client meets that asks for a topic before all have heard of it.
_JUST_MADE = (
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
)


class Topics:
    """Topics of one broker."""

    def __init__(self, bootstrap: str, properties: Mapping[str, str] = MappingProxyType({})) -> None:
        # Quiet: at the end the broker goes before its clients do.
        shared: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap,
            "log_level": 2,
            **properties,
        }
        self._admin = AdminClient(shared)
        self._bootstrap = bootstrap
        self._consumer = Consumer({**shared, "group.id": "bench", "enable.auto.commit": False})

    def create(self, name: str) -> None:
        """Create a topic with one partition and wait until it answers."""
        self.request(name, 1)
        self._end(name)

    def request(self, name: str, partitions: int, **configs: str) -> None:
        """Create a topic, ``_`` in a config's name for ``.``; return when the controller says that it is made."""
        named = {key.replace("_", "."): value for key, value in configs.items()}
        self._admin.create_topics([NewTopic(name, partitions, 1, config=named)])[name].result(60)

    def count(self, name: str, partitions: int) -> int:
        """Return how many messages a topic ever got, once all its partitions answer."""
        wanted = [model.TopicPartition(name, number) for number in range(partitions)]
        deadline_s = time.monotonic() + 120
        while True:
            try:
                # A client anew each time: one that asked for a topic just made may go on not knowing its leaders.
                return sum(Admin(self._bootstrap).ends(wanted).values())
            except PylogError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.02)

    def delete(self, name: str) -> None:
        """Delete a topic."""
        self._admin.delete_topics([name])[name].result(60)

    def wait_end(self, name: str, wanted: int) -> tuple[int, float]:
        """Wait until partition 0 ends at *wanted*, or stood still too long.

        Returns:
            The end offset and when it last grew, on the monotonic clock.
        """
        end, since = self._end(name), time.monotonic()
        while end < wanted and time.monotonic() - since < _STILL_S:
            time.sleep(0.01)
            if (found := self._end(name)) != end:
                end, since = found, time.monotonic()
        return end, since

    def _end(self, name: str) -> int:
        deadline = time.monotonic() + _ANSWER_S
        while True:
            try:
                return int(self._consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=30)[1])
            except KafkaException as error:
                if error.args[0].code() not in _JUST_MADE or time.monotonic() > deadline:
                    raise
            time.sleep(0.01)

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()
