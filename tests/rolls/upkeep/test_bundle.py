"""A support bundle of live hosts has what a helper needs, and none of the secrets that were planted."""

import subprocess
import sys
import tarfile
from pathlib import Path

from tests.rolls import cluster

PLANTED = "pLanted7in9plain"
FILE = "/etc/pylog/planted.yml"


def fab(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a day-2 task as an operator does."""
    program = str(Path(sys.executable).with_name("fab"))
    command = [program, *arguments, f"--inventory={cluster.INVENTORY}"]
    return subprocess.run(
        command, cwd=cluster.ROOT, env=cluster.environment(), capture_output=True, text=True, check=False
    )


def contents(path: Path) -> dict[str, str]:
    with tarfile.open(path) as tar:
        return {entry.name: tar.extractfile(entry).read().decode() for entry in tar}  # type: ignore[union-attr]


def test_a_bundle_has_everything_but_secrets(tmp_path: Path) -> None:
    secret = cluster.on("live1", "cat /etc/pylog/cluster.secret")
    cluster.on("live1", f"printf 'password: {PLANTED}\\nnote: {secret}\\n' > {FILE}")
    try:
        done = fab("bundle", f"--to={tmp_path / 'bundle.tar.gz'}")
    finally:
        cluster.on("live1", f"rm {FILE}")
    assert done.returncode == 0, done.stdout + done.stderr
    found = contents(tmp_path / "bundle.tar.gz")
    assert found[f"pylog-bundle/live1/files{FILE}"] == "password: ***\nnote: ***\n"
    leaks = [name for name, text in found.items() if PLANTED in text or secret in text]
    assert leaks == []
    for target in cluster.targets():
        [broker_id] = target.broker_ids
        top = f"pylog-bundle/{target.name}"
        assert '"release"' in found[f"{top}/broker-{broker_id}-status.txt"]
        assert "pylog_" in found[f"{top}/broker-{broker_id}-metrics.txt"]
        assert "ready port=" in found[f"{top}/journal-pylog-broker@{broker_id}.txt"]
        assert "broker_id" in found[f"{top}/files/etc/pylog/broker-{broker_id}.yml"]
        assert "mode" in found[f"{top}/zookeeper.txt"]
    assert (tmp_path / "bundle.tar.gz").stat().st_mode & 0o777 == 0o600
