"""What the pages show runs against a broker as it stands: the README's program, and the example of each command."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pylog.testing import BrokerProcess
from tests.command import Command as Run
from tests.commands import Command, commands_of

ROOT = Path(__file__).parents[2]

ORDER = (
    "topic create", "produce", "consume", "demo", "topic list", "topic describe", "topic alter", "topic apply",
    "config describe", "config alter", "partition elect", "cluster info", "top", "group list", "group describe",
    "group reset-offsets", "group delete", "topic delete", "explain", "completion",
)  # fmt: skip
"""Commands whose example needs a broker at most, in an order in which each finds what it names."""

ELSEWHERE = {
    "needs more than one broker": ("cluster health", "cluster impact", "partition reassign"),
    "needs a cluster, its hosts or ZooKeeper": (
        "cluster adopt", "cluster backup", "cluster finalize", "cluster restore", "zk identity", "zk open", "zk secure",
        "zk show", "retention",
        "config check", "user apply", "user delete", "user list", "user set",
    ),
    "needs an authorizer": ("acl add", "acl clients", "acl denials", "acl list", "acl remove"),
    "needs segment files": ("log dump", "log ends", "log purge-stray", "log verify"),
    "runs until it is stopped": ("broker", "console", "mirror run", "registry", "probe", "audit count", "ship journal"),
    "needs a second cluster": ("mirror move", "mirror rights", "mirror resend", "mirror status", "audit report"),
    "needs a worker of Kafka Connect": (
        "connect apply", "connect pause", "connect restart", "connect resume", "connect status", "connect watch",
    ),
    "needs transactions": ("txn abort", "txn describe", "txn hanging", "txn list"),
    "needs a lake or Spark": (
        "lake accept", "lake files", "lake retry", "lake status", "audit lake", "sql",
        "stream check", "stream forget", "stream rebase", "stream reset", "stream run",
    ),
}  # fmt: skip
"""Why an example is not run here; tests/cluster, tests/net, tests/programs and tests/pipeline run these commands."""


def examples() -> dict[str, Command]:
    """Return the example of each command's page."""
    pages = sorted((ROOT / "docs/cli").glob("*-*.md")) + sorted((ROOT / "docs/cli").glob("[a-z]*.md"))
    found = {}
    for page in pages:
        whole = [command for command in commands_of(page, ROOT) if command.is_whole]
        assert len(whole) == 1, page
        verb = whole[0].words[1]
        found[f"{verb} {whole[0].words[2]}" if page.stem.startswith(f"{verb}-") else verb] = whole[0]
    return found


def test_every_example_runs_here_or_says_why_not() -> None:
    assert sorted(examples()) == sorted([*ORDER, *(name for names in ELSEWHERE.values() for name in names)])


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as running:
        yield running


def test_the_examples_run_as_they_stand(broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "topics.yml").write_text("topics:\n  - {name: clicks, partitions: 16}\n")
    run = Run(broker.bootstrap)
    places = {"/tmp/produced.json": f"{tmp_path}/produced.json", "100000": "1000"}
    for name in ORDER:
        if name == "group list":
            run("consume", "clicks", "--group", "readers", "--exit")
        words = [places.get(word, word) for word in examples()[name].words[1:]]
        run(*words, stdin=b"alice:/home\nbob:/jobs\n")


def test_the_readmes_program_runs_as_it_stands(broker: BrokerProcess) -> None:
    [program] = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert "localhost:9092" in program
    done = subprocess.run(
        [sys.executable, "-c", program.replace("localhost:9092", broker.bootstrap)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "b'en' b'hello, log' 0\n"), done.stderr
