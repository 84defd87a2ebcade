"""The brokers a benchmark compares, each started with its own defaults on the loopback."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from pylog.testing import BrokerProcess
from tests.servers.kafka import KafkaServer


class Broker(Protocol):
    """A running broker."""

    @property
    def bootstrap(self) -> str:
        """``host:port`` for clients."""

    @property
    def pid(self) -> int:
        """Its process."""

    @property
    def data_dir(self) -> Path:
        """What grows with the messages."""


@contextmanager
def run_broker(system: str, work_dir: Path, cpus: frozenset[int] | None) -> Iterator[Broker]:
    """Run a broker over an empty directory and remove its data afterwards.

    Args:
        system: ``pylog`` or ``kafka``.
        work_dir: where its data goes.
        cpus: the only ones it may use; None for all.
    """
    directory = work_dir / f"{system}-{os.getpid()}"
    kinds = {"pylog": BrokerProcess, "kafka": KafkaServer}
    everything = os.sched_getaffinity(0)
    try:
        # A child inherits the affinity of the moment; setting it later would miss the threads it has by then.
        os.sched_setaffinity(0, cpus or everything)
        broker = kinds[system](directory)
        with broker:
            os.sched_setaffinity(0, everything)
            yield broker
    finally:
        os.sched_setaffinity(0, everything)
        shutil.rmtree(directory, ignore_errors=True)
