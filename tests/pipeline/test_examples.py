"""The examples with Spark, as programs of their own."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

from pylog.client.consumer import Consumer
from pylog.model import TopicPartition
from pylog.testing import BrokerProcess
from tests.pipeline.conftest import Topics

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, *arguments: str) -> list[str]:
    ended = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_a_batch_report(broker: BrokerProcess, topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, [b"ada", b"bob", b"ada"])
    assert run("spark_batch", broker.bootstrap, topic) == ["ada 2", "bob 1"]


def test_a_stream_lands_in_files(broker: BrokerProcess, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create()
    topics.send(topic, [b"ada", b"bob"])
    assert run("spark_stream", broker.bootstrap, topic, str(tmp_path)) == ["2 events"]


def test_a_stream_is_joined_and_counted_by_window(broker: BrokerProcess, topics: Topics, tmp_path: Path) -> None:
    clicks, members = topics.create(), topics.create()
    topics.send(members, [b"1"], value=lambda _: b"before")
    topics.send(members, [b"1", b"2"], value=lambda key: b"Ada" if key == b"1" else b"Bob")
    topics.send(clicks, [b"1", b"2", b"1", b"nobody"])
    counted: Counter[str] = Counter()
    for line in run("spark_windows", broker.bootstrap, clicks, members, str(tmp_path)):
        _date, _time, member, count = line.split()
        counted[member] += int(count)  # of more than one window, if the clock struck meanwhile
    assert counted == {"Ada": 2, "Bob": 1}


def test_counts_go_back_into_a_topic(broker: BrokerProcess, topics: Topics, tmp_path: Path) -> None:
    clicks, counts = topics.create(), topics.create(partitions=1)
    topics.send(clicks, [b"ada", b"bob", b"ada"], timestamp_ms=20_000 * 86_400_000 + 3_600_000)
    assert run("spark_to_topic", broker.bootstrap, clicks, counts, str(tmp_path)) == []
    with Consumer(broker.bootstrap) as consumer:
        consumer.assign({TopicPartition(counts, 0): 0})
        found = {(record.key or b"").decode().split()[0]: record.value for record in consumer.records_to_end()}
    assert found == {"ada": b"2", "bob": b"1"}
