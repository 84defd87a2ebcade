"""Logs that compaction cannot digest: how many a broker holds, and when they no longer count."""

import asyncio
import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from pylog.broker.data.partitions import Partitions
from pylog.broker.maintenance import Maintenance, MaintenanceConfig
from pylog.broker.settings import parse_broker_settings
from pylog.cluster.image import BrokerInfo, ClusterImage, PartitionImage, TopicImage
from pylog.log.directory import LogDirectory
from pylog.log.log import Log
from pylog.metrics import Metrics
from pylog.model import NodeAddress
from tests.unit.log.test_compaction import close_segment, finish_jobs, numbered, put

ADDRESS = NodeAddress(1, "h1", 9092)
CONFIG = MaintenanceConfig(
    log_flush_offset_checkpoint_interval_ms=60_000,
    log_scrub_interval_ms=-1,
    log_disk_alarm_percent=85,
    log_disk_high_watermark_percent=95,
)


class Compacting:
    """A broker that leads two partitions of a compacted topic, each with a closed segment to compact."""

    def __init__(self, directory: Path) -> None:
        self.partitions = Partitions(LogDirectory.open(directory, broker_id=1), 1, parse_broker_settings({}))
        self.partitions.registered_epoch = lambda: 7
        state = PartitionImage(1, 1, (1,), (1,), 1)
        topic = TopicImage("t", UUID(int=5), {0: state, 1: state}, {"cleanup.policy": "compact"})
        self.image = ClusterImage(1, 1, "c", 1, {1: BrokerInfo(1, 7, None, ADDRESS, ADDRESS)}, {"t": topic})
        self.apply(self.image)
        self.metrics = Metrics()
        produce: Any = None
        self.maintenance = Maintenance(
            self.partitions._directory, self.partitions, produce, CONFIG, self.metrics,
            compact_interval_s=lambda: 1.0, now_ms=lambda: 1 << 40, is_retention_ours=False,
        )  # fmt: skip
        for number in range(2):
            self.grow(number)

    def apply(self, image: ClusterImage) -> None:
        self.partitions.retire(image)
        self.partitions.switch(image, self.partitions.prepare(image))

    def log(self, number: int) -> Log:
        partition = self.partitions.get("t", number)
        assert partition is not None
        assert partition.log is not None
        return partition.log

    def grow(self, number: int) -> None:
        """Let a partition have one more segment to compact."""
        log = self.log(number)
        put(log, numbered(9))
        close_segment(log)
        finish_jobs(log)

    def damage(self, number: int) -> None:
        """Change the last byte of the first segment."""
        path = min(self.log(number).directory.glob("*.log"))
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)

    def shown(self, name: str) -> float:
        """Return the value of a metric."""
        [line] = [line for line in self.metrics.render().splitlines() if line.startswith(f"{name} ")]
        return float(line.split()[1])

    @property
    def failed(self) -> float:
        return self.shown("pylog_compaction_failed_logs")


def test_a_damaged_log_counts_until_it_leaves_the_broker(tmp_path: Path) -> None:
    async def story() -> None:
        broker = Compacting(tmp_path)
        broker.damage(0)
        assert broker.failed == 0
        await broker.maintenance._compact()
        assert (broker.failed, broker.shown("pylog_compactions_total")) == (1, 1)
        await broker.maintenance._compact()
        assert broker.failed == 1, "it is not tried again, and counts once"
        broker.apply(replace(broker.image, version=2, topics={}))
        assert broker.failed == 0
        await broker.maintenance._compact()
        assert not broker.maintenance._uncompactable, "nor does it hold memory"

    asyncio.run(story())


def test_a_damaged_log_that_is_no_longer_compacted_does_not_count(tmp_path: Path) -> None:
    async def story() -> None:
        broker = Compacting(tmp_path)
        broker.damage(0)
        await broker.maintenance._compact()
        topic = replace(broker.image.topics["t"], configs={"cleanup.policy": "delete"})
        broker.apply(replace(broker.image, version=2, topics={"t": topic}))
        assert broker.failed == 0

    asyncio.run(story())


def test_a_log_that_the_disk_refused_counts_until_a_pass_ends_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        broker = Compacting(tmp_path)

        def refuse(*_: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", refuse)
            await broker.maintenance._compact()
            assert broker.failed == 2
        await broker.maintenance._compact()
        assert (broker.failed, broker.shown("pylog_compactions_total")) == (0, 2)

    asyncio.run(story())
