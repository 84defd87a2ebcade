"""Every recipe with an output runs as it stands, against a broker and a registry."""

import datetime as dt
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.docs.blocks import blocks_of, matches
from pylog.audit.counting import WindowCount
from pylog.audit.load import ensure_topic, write
from pylog.audit.reports import FOR_EVER_MS, Report, Tier
from pylog.audit.sequences import Sequences
from pylog.client.connection import Connection
from pylog.testing import BrokerProcess
from tests.net.test_tutorial import run_blocks
from tests.programs.program import Program
from tests.servers.ports import free_ports

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "docs/recipes.md"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "broker") as running:
        yield running


def write_ledger(bootstrap: str) -> None:
    """Have all tiers tell of records that were sent yesterday at 10:20, of which the lake lacks three."""
    yesterday = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    window_ms = int(yesterday.replace(hour=10, minute=20, second=0, microsecond=0).timestamp() * 1000)

    def report(tier: Tier, who: str, ranges: list[tuple[int, int]]) -> Report:
        count = sum(last - first + 1 for first, last in ranges)
        windows = {("web-1/17", window_ms): WindowCount("web-1", count, 7, Sequences(ranges))}
        return Report(
            tier=tier, topic="clicks", who=who, number=0, at_ms=window_ms, complete_ms=FOR_EVER_MS, windows=windows
        )

    cluster = Connection(bootstrap=bootstrap)
    ensure_topic(cluster, 1)
    whole = [(0, 999)]
    write(cluster, [
        report(Tier.PRODUCER, "web-1/17", whole), report(Tier.LIVE, "reader", whole),
        report(Tier.LAKE, "job", [(0, 411), (415, 999)]),
    ], pytest.fail)  # fmt: skip


def test_the_recipes_run_as_they_stand(broker: BrokerProcess, tmp_path: Path) -> None:
    # The block about Spark is run by tests/pipeline, where Spark is.
    page, _, rest = RECIPES.read_text().partition("```python\n")
    page += rest.partition("## Which records")[2]
    [port] = free_ports(1)
    given = {"listen": f"127.0.0.1:{port}", "bootstrap": broker.bootstrap, "replication_factor": 1}
    with Program(tmp_path / "registry", "registry", given) as registry:
        registry.wait_log("event=primary")
        write_ledger(broker.bootstrap)
        page = re.sub("OFFLINE|LIVE", broker.bootstrap, page)
        blocks = blocks_of(page.replace("localhost:8081", f"127.0.0.1:{port}"))
        assert len(blocks) >= 8
        broker_port = int(broker.bootstrap.rpartition(":")[2])
        for block, output in zip(blocks, run_blocks(blocks, tmp_path, broker_port), strict=True):
            if block.output is not None:
                assert matches(block.output, output), f"{block.commands}\nwanted:\n{block.output}\nfound:\n{output}"
