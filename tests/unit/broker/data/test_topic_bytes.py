"""Bytes by topic: what producers append and consumers get, and nothing of followers."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pylog.broker.data.topic_bytes import TopicBytes
from pylog.metrics import MAX_TOPICS, Metrics
from pylog.wire.records import Record, encode_batch
from tests.unit.broker.data.test_fetch_by_id import Consumer
from tests.unit.broker.data.test_identity import HERE, Leading
from tests.unit.broker.data.test_produce_twice import Producing


def test_what_producers_append_is_counted_once(tmp_path: Path) -> None:
    async def story() -> None:
        producing = Producing(tmp_path)
        batch = encode_batch([Record(0, 1, None, b"v")])
        producing.send(bytes(batch), acks=1)
        producing.send(b"no batch", acks=1)
        assert producing.produce._topic_bytes == {"t": len(batch)}
        assert producing.produce._bytes.value == len(batch)

    asyncio.run(story())


def test_what_consumers_get_is_counted_and_what_followers_get_is_not(tmp_path: Path) -> None:
    async def story() -> None:
        leading = Leading(tmp_path, records=3)
        leading.log.high_watermark = 3
        assert leading.ask(0).records_bytes
        assert leading.handler._bytes.value == 0
        [(_, _, size)] = Consumer(leading).ask(HERE)
        assert leading.handler._topic_bytes == {"t": size}
        assert leading.handler._bytes.value == size > 0

    asyncio.run(story())


def test_topics_that_are_gone_leave_the_page() -> None:
    metrics, topics = Metrics(), {"a": 1, "b": 1}
    partitions: Any = SimpleNamespace(image=SimpleNamespace(topics=topics))
    shown = TopicBytes("pylog_example_total", "Example.", partitions, metrics)
    shown.counts["a"] += 5
    shown.counts["b"] += 7
    del topics["b"]
    lines = [line for line in metrics.render().splitlines() if not line.startswith("#")]
    assert lines == ['pylog_example_total{topic="a"} 5']
    assert shown.counts == {"a": 5}


def test_topics_beyond_the_limit_are_one_row_that_only_grows() -> None:
    metrics, topics = Metrics(), {f"t{number:04}": 1 for number in range(MAX_TOPICS + 3)}
    partitions: Any = SimpleNamespace(image=SimpleNamespace(topics=topics))
    shown = TopicBytes("pylog_example_total", "Example.", partitions, metrics)
    for topic in topics:
        shown.counts[topic] += 2
    assert 'pylog_example_total{topic="other"} 6' in metrics.render()
    del topics["t0000"]
    late = f"t{MAX_TOPICS:04}"
    shown.counts[late] += 5
    lines = [line for line in metrics.render().splitlines() if not line.startswith("#")]
    assert len(lines) == MAX_TOPICS + 1
    assert f'pylog_example_total{{topic="{late}"}} 5' in lines, "in the place of the topic that is gone"
    assert 'pylog_example_total{topic="other"} 6' in lines
