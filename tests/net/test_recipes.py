"""Every recipe with an output runs as it stands, against a broker and a registry."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from local.docs.blocks import blocks_of, matches
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


def test_the_recipes_run_as_they_stand(broker: BrokerProcess, tmp_path: Path) -> None:
    # The block about Spark is run by tests/pipeline, where Spark is.
    page, _, rest = RECIPES.read_text().partition("```python\n")
    page += rest.partition("## Which records")[2]
    [port] = free_ports(1)
    given = {"listen": f"127.0.0.1:{port}", "bootstrap": broker.bootstrap, "replication_factor": 1}
    with Program(tmp_path / "registry", "registry", given) as registry:
        registry.wait_log("event=primary")
        blocks = blocks_of(page.replace("localhost:8081", f"127.0.0.1:{port}"))
        assert len(blocks) >= 7
        broker_port = int(broker.bootstrap.rpartition(":")[2])
        for block, output in zip(blocks, run_blocks(blocks, tmp_path, broker_port), strict=True):
            if block.output is not None:
                assert matches(block.output, output), f"{block.commands}\nwanted:\n{block.output}\nfound:\n{output}"
