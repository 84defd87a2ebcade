"""Java programs of tests start with their classes from an archive."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.servers import zookeeper
from tests.servers.jvm import learning, shared_classes
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


def test_the_first_run_that_ends_well_leaves_the_archive_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYLOG_CACHE", str(tmp_path))
    main = "org.apache.zookeeper.Version"

    def source_of_its_classes() -> str:
        with learning("version", zookeeper.JARS) as flags:
            command = zookeeper.java_command(main, jvm=[*flags, f"-Xlog:class+load:file={tmp_path}/loaded"])
            subprocess.run(command, capture_output=True, check=True)
        loaded = (tmp_path / "loaded").read_text().splitlines()
        return next(line for line in loaded if f" {main} " in line).rpartition(" source: ")[2]

    with pytest.raises(subprocess.CalledProcessError), learning("version", zookeeper.JARS) as flags:
        subprocess.run(zookeeper.java_command(main, "--unknown", jvm=flags), capture_output=True, check=True)
    assert list(tmp_path.rglob("*.jsa")) == []
    assert source_of_its_classes() != "shared objects file (top)"
    assert source_of_its_classes() == "shared objects file (top)"
