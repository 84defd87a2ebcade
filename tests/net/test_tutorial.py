"""Every command of the tutorial runs, and prints what the page says."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from local.docs.blocks import Block, blocks_of, matches
from tests.servers.ports import free_ports

TUTORIAL = Path(__file__).parents[2] / "docs/tutorial.md"
TIMEOUT_S = 150


def run_blocks(blocks: list[Block], directory: Path, port: int | None = None) -> list[str]:
    """Run all blocks in one shell and return what each printed; their broker is at *port*, a free one unless given."""
    port = port or free_ports(1)[0]
    marker = "---next---"
    script = "set -e\n" + "".join(f"{block.commands}\necho {marker}\n" for block in blocks)
    environment = os.environ | {
        "PYLOG_BOOTSTRAP": f"localhost:{port}",
        "HOME": str(directory),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    with (directory / "stderr").open("wb") as notes:
        # A session of its own, so that whatever a failing page leaves running ends with it.
        shell = subprocess.Popen(
            ["bash", "-c", script.replace("9092", str(port))],
            stdout=subprocess.PIPE,
            stderr=notes,
            cwd=directory,
            env=environment,
            start_new_session=True,
        )
        try:
            output = shell.communicate(timeout=TIMEOUT_S)[0].decode()
        finally:
            if shell.returncode != 0:
                os.killpg(shell.pid, signal.SIGKILL)
    outputs = output.split(f"{marker}\n")
    assert shell.returncode == 0, (
        f"{blocks[len(outputs) - 1].commands}\n{outputs[-1]}\n{(directory / 'stderr').read_text()}"
    )
    return outputs[:-1]


def test_the_tutorial_runs_as_it_stands(tmp_path: Path) -> None:
    blocks = blocks_of(TUTORIAL.read_text())
    assert len(blocks) > 8
    for block, output in zip(blocks, run_blocks(blocks, tmp_path), strict=True):
        if block.output is not None:
            assert matches(block.output, output), f"{block.commands}\nwanted:\n{block.output}\nfound:\n{output}"


@pytest.mark.parametrize(
    ("wanted", "found", "is_match"),
    [
        ("a\n", "a\n", True),
        ("a\n", "ab\n", False),
        ("a …\nb\n", "a 1 2\nb\n", True),
        ("…\n", "\n", True),
        ("a.\n", "ab\n", False),
        ("x …\n", "y 1\n", False),
    ],
)
def test_what_a_page_says_is_compared(wanted: str, found: str, is_match: bool) -> None:
    assert matches(wanted, found) is is_match
