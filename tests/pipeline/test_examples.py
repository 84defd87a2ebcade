"""The examples with Spark, as programs of their own."""

import subprocess
import sys
from pathlib import Path

from pylog.testing import BrokerProcess
from tests.pipeline.conftest import Topics

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, *arguments: str) -> list[str]:
    ended = subprocess.run([sys.executable, str(EXAMPLES / f"{name}.py"), *arguments], capture_output=True, text=True,
                           check=False, timeout=180)
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
