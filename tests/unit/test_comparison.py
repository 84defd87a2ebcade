"""The comparison speaks of every system that the paper and its readers named."""

from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs/comparison.md").read_text()

NAMED = (
    "Apache Kafka",
    "Confluent",
    "ActiveMQ",
    "RabbitMQ",
    "Flume",
    "Scribe",
    "Data Highway",
    "SNS",
    "Hadoop",
    "MapReduce",
    "IBM WebSphere MQ",
    "JMS",
    "Oracle",
    "TIBCO",
    "HedWig",
    "HDFS",
    "NFS",
)


@pytest.mark.parametrize("system", NAMED)
def test_every_system_that_was_named_is_compared(system: str) -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("|")]
    assert any(system in row for row in rows), f"{system} has no row"


def test_it_begins_with_when_not_to_use_pylog() -> None:
    headings = [line for line in PAGE.splitlines() if line.startswith("## ")]
    assert headings[0] == "## When not to use pylog"
