"""What a broker's page says of its partitions: leaders, bytes, and how far followers are behind."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from pylog.broker.data.partition_counts import PartitionCounts
from pylog.metrics import OTHER, Metrics
from tests.unit.broker.data.test_identity import BROKER_EPOCH, EPOCH, FOLLOWER, Leading


class _Counted(Leading):
    """Broker 1, which leads t-0 and other-0 with one follower, and the page of its metrics."""

    def __init__(self, directory: Path, records: int = 0) -> None:
        super().__init__(directory, records)
        self.metrics, self.now_ms = Metrics(), 0
        PartitionCounts(self.partitions, self.metrics, lambda: False, lambda: 0, lambda: self.now_ms)

    def follow(self, topic: str, offset: int, end: int) -> None:
        """Let the follower have everything below *offset* of *topic*, when the log ends at *end*."""
        found = self.partitions.get(topic, 0)
        assert found is not None
        assert found.leading is not None
        found.leading.fetched(FOLLOWER, BROKER_EPOCH, offset, end, now_ms=self.now_ms)

    def shown(self, name: str) -> list[str]:
        return [line for line in self.metrics.render().splitlines() if line.startswith(name)]


def test_a_follower_lags_since_it_last_had_everything_of_any_partition(tmp_path: Path) -> None:
    async def story() -> None:
        counted = _Counted(tmp_path, records=3)
        name = f'pylog_follower_lag_seconds{{follower="{FOLLOWER}"}}'
        counted.now_ms = 1_000
        counted.follow("t", 3, 3)
        counted.follow("other", 0, 0)
        counted.now_ms = 60_000
        assert counted.shown(name) == [f"{name} 0"], "it lacks nothing, however long ago it asked"
        counted.follow("t", 2, 3)
        assert counted.shown(name) == [f"{name} 59"]
        counted.follow("t", 3, 3)
        assert counted.shown(name) == [f"{name} 0"]

    asyncio.run(story())


def test_the_log_of_each_topic_has_its_bytes(tmp_path: Path) -> None:
    async def story() -> None:
        counted = _Counted(tmp_path, records=3)
        assert counted.shown('pylog_topic_log_bytes{topic="other"}') == ['pylog_topic_log_bytes{topic="other"} 0']
        [line] = counted.shown('pylog_topic_log_bytes{topic="t"}')
        assert float(line.split()[-1]) == counted.log.size_bytes > 0

    asyncio.run(story())


def test_the_smallest_topics_beyond_the_limit_are_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        monkeypatch.setattr("pylog.broker.data.partition_counts.MAX_TOPICS", 1)
        counted = _Counted(tmp_path, records=3)
        rows = counted.shown("pylog_topic_log_bytes{")
        assert [row.split('"')[1] for row in rows] == ["t", OTHER]

    asyncio.run(story())


def test_each_leader_that_a_partition_gets_is_counted_once(tmp_path: Path) -> None:
    async def story() -> None:
        counted = _Counted(tmp_path)
        topic = counted.image.topics["t"]
        for version, epoch in ((2, EPOCH + 1), (3, EPOCH + 1), (4, EPOCH + 2)):
            state = replace(topic.partitions[0], leader=FOLLOWER, leader_epoch=epoch, partition_epoch=version)
            topics = {**counted.image.topics, "t": replace(topic, partitions={0: state})}
            counted.apply(replace(counted.image, version=version, topics=topics))
        assert counted.shown("pylog_leader_changes_total") == ["pylog_leader_changes_total 2"]

    asyncio.run(story())
