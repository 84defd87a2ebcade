"""Run kafka-python's integration tests and franz-go's kgo tests against a standalone broker; keep what came of them.

    python -m tests.suites PIP DIRECTORY [kafka-python] [kgo]

Source distribution and Go module are fetched through PIP (pip's path) and the go command, both pinned, into DIRECTORY.
What cannot pass is named in EXPECTED with its reason; anything else that fails makes this end with 1.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from pylog import __version__
from pylog.testing import BrokerProcess

ROOT = Path(__file__).parents[2]
FRANZ_GO = "github.com/twmb/franz-go@v1.22.2"
KGO_RECORDS = 5_000
LIMIT_S = 900

EXPECTED: dict[str, dict[str, str]] = {
    "kafka-python": {
        r"^test_create_describe_delete_acls$": "the broker of the suite is open, and has no ACLs",
        r"^test_alter_replica_log_dirs$": "an instance has one data directory, so there is nowhere to move a replica",
        r"^test_describe_configs_broker_resource": "wants the setting advertised.listeners, which Apache Kafka too has "
        "only where it is set; listeners of ours are no settings",
    },
    "kgo": {},
}
"""By suite: pattern of test names that fail, and why."""

CONFIG = {
    "num.partitions": 4,
    "group.min.session.timeout.ms": 100,
    "group.initial.rebalance.delay.ms": 0,
}
"""What the suites take for granted of a broker."""


_SERVICE = """
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    def close(self):
        pass


class SpawnedService:
    pass
"""
"""Stands in for a module of the suite that its distribution lacks, and that starts brokers of its own."""


class Results(NamedTuple):
    """Names of tests by how they ended."""

    passed: list[str]
    failed: list[str]
    skipped: list[str]


def kafka_python(pip: str, directory: Path, broker: BrokerProcess) -> Results:
    """Run the integration tests of kafka-python's source distribution."""
    requirements = ROOT / "tests/suites/requirements.txt"
    _run(
        [
            pip,
            "download",
            "-q",
            "--no-deps",
            "--no-binary",
            ":all:",
            "--require-hashes",
            "-r",
            str(requirements),
            "-d",
            str(directory),
        ]
    )
    [archive] = directory.glob("kafka_python-*.tar.gz")
    source = directory / archive.name.removesuffix(".tar.gz")
    shutil.rmtree(source, ignore_errors=True)
    with tarfile.open(archive) as packed:
        packed.extractall(directory)  # what is in it is known: its hash is pinned
    (source / "test" / "__init__.py").touch()  # or Python's own package of that name comes first
    (source / "test" / "service.py").write_text(_SERVICE)
    report = directory / "kafka-python.txt"
    environment = {
        **os.environ,
        "KAFKA_URI": f"tcp://{broker.bootstrap}",
        "KAFKA_VERSION": "3.9.2",
        "KAFKA_ROOT": str(directory),
        "PYTHONPATH": str(source),
    }
    files = [f"test/integration/test_{name}_integration.py" for name in ("admin", "consumer", "producer")]
    with report.open("w") as output:
        # Without the options of its own, which want a plugin.
        subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", "-q", "--tb=short",
             "-o", "addopts=", *files],
            cwd=source, env=environment, stdout=output, stderr=subprocess.STDOUT, timeout=LIMIT_S, check=False,
        )  # fmt: skip
    text = report.read_text()
    return Results(
        *(sorted(set(re.findall(rf"^{word} \S*::(\S+)", text, re.MULTILINE))) for word in ("PASSED", "FAILED", "XFAIL"))
    )


def kgo(pip: str, directory: Path, broker: BrokerProcess) -> Results:
    """Run the tests of franz-go's package kgo."""
    found = _run(["go", "mod", "download", "-json", FRANZ_GO])
    [cached] = re.findall(r'"Dir": "([^"]+)"', found)
    program, source = directory / "kgo.test", directory / "franz-go"
    if not program.exists():
        shutil.rmtree(source, ignore_errors=True)
        shutil.copytree(cached, source, copy_function=shutil.copyfile)
        _run(["go", "test", "-c", "-o", str(program), "./pkg/kgo"], cwd=source)
    report = directory / "kgo.txt"
    environment = {
        **os.environ,
        "KGO_SEEDS": broker.bootstrap,
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": str(KGO_RECORDS),
        "KGO_LOG_LEVEL": "none",
        "GOMAXPROCS": "1",
    }
    with report.open("w") as output:
        subprocess.run(
            [str(program), "-test.v", "-test.timeout", f"{LIMIT_S - 60}s"],
            cwd=source / "pkg/kgo",
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=LIMIT_S,
            check=False,
        )
    text = report.read_text()
    passed, failed, skipped = (
        sorted(set(re.findall(rf"^\s*--- {word}: (\S+)", text, re.MULTILINE))) for word in ("PASS", "FAIL", "SKIP")
    )
    return Results(passed, failed, skipped)


SUITES: dict[str, Callable[[str, Path, BrokerProcess], Results]] = {"kafka-python": kafka_python, "kgo": kgo}


def _run(command: Sequence[str], cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        said = done.stdout[-3000:] + done.stderr[-3000:]
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{said}")
    return done.stdout


def reason_of(suite: str, test: str) -> str | None:
    """Return why *test* cannot pass, or None if it should."""
    return next((reason for pattern, reason in EXPECTED[suite].items() if re.search(pattern, test)), None)


def page(results: dict[str, Results]) -> str:
    """Return what is kept."""
    lines = [
        f"# Suites of others, {datetime.now(UTC):%Y-%m-%d}, pylog {__version__}",
        "",
        "`make suites` runs them against a standalone broker.",
        "",
        "| suite | passed | failed | of which cannot pass | skipped |",
        "|---|---|---|---|---|",
    ]
    for suite, found in results.items():
        known = sum(reason_of(suite, test) is not None for test in found.failed)
        lines.append(f"| {suite} | {len(found.passed)} | {len(found.failed)} | {known} | {len(found.skipped)} |")
    for suite, found in results.items():
        lines += ["", f"## {suite}: what failed", ""]
        lines += [f"- `{test}`: {reason_of(suite, test) or 'NOT EXPECTED'}" for test in found.failed] or ["Nothing."]
    return "\n".join([*lines, ""])


def main(arguments: Sequence[str]) -> int:
    """Run what is named, or all; return 1 if a test failed that should pass."""
    pip, directory, *names = arguments
    path = Path(directory).absolute()
    path.mkdir(parents=True, exist_ok=True)
    results: dict[str, Results] = {}
    for name in names or SUITES:
        with tempfile.TemporaryDirectory() as data, BrokerProcess(Path(data), config=CONFIG) as broker:
            results[name] = SUITES[name](pip, path, broker)
            if not results[name].passed:
                raise SystemExit(f"{name}: no test passed; see {path / name}.txt")
    text = page(results)
    (ROOT / f"docs/results/suites-{datetime.now(UTC):%Y-%m-%d}.md").write_text(text)
    print(text)
    unexpected = [test for suite, found in results.items() for test in found.failed if not reason_of(suite, test)]
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
