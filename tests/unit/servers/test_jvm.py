"""Java programs of tests start with their classes from an archive."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.servers import zookeeper
from tests.servers.jvm import shared_classes
from tests.servers.ports import free_ports


def test_zookeeper_takes_its_classes_from_the_archive(tmp_path: Path) -> None:
    flags = shared_classes("zookeeper", zookeeper.JARS, zookeeper.serve_once)
    loaded = tmp_path / "loaded"
    server = zookeeper.ZooKeeperServer(tmp_path / "server", free_ports(1)[0], zookeeper.SETTINGS, None, 96, "127.0.0.1")
    server.start([*flags, f"-Xlog:class+load:file={loaded}"])
    try:
        server.wait_serving()
    finally:
        server.kill()
    [line] = [
        line
        for line in loaded.read_text().splitlines()
        if " org.apache.zookeeper.server.quorum.QuorumPeerMain " in line
    ]
    assert "shared objects file (top)" in line


def test_where_no_archive_comes_about_a_program_starts_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYLOG_CACHE", str(tmp_path))

    def leave_none(_: Sequence[str]) -> None:
        pass

    assert shared_classes("nothing", str(tmp_path / "no.jar"), leave_none) == ()
    assert [path.name for path in tmp_path.rglob("*")] == ["classes"]
