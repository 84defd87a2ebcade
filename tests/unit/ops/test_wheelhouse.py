"""Packing a release: complete or refused, and named by what is in it."""

import tarfile
from pathlib import Path

import pytest

from pylog.ops.wheelhouse import LOCK, WheelhouseError, pack, pinned

PINS = "kazoo==2.11.0 --hash=sha256:aa\npylog-cluster==0.1.0 --hash=sha256:bb\n"
WHEELS = ("kazoo-2.11.0-py2.py3-none-any.whl", "pylog_cluster-0.1.0-py3-none-any.whl")


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    for name in WHEELS:
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "unwanted-1.0-py3-none-any.whl").write_bytes(b"")
    path = tmp_path / "broker.txt"
    path.write_text(PINS)
    return path


def names(archive: str) -> list[str]:
    with tarfile.open(archive) as tar:
        return tar.getnames()


def test_pylog_and_its_base_have_an_archive_each_with_the_lock_last(lock: Path, tmp_path: Path) -> None:
    made = pack(lock, tmp_path / "out")
    assert names(made["archive"]) == [WHEELS[1], LOCK]
    assert names(made["base_archive"]) == [WHEELS[0], LOCK]
    assert made["version"] == "0.1.0"


def test_each_name_follows_the_hashes_of_its_wheels(lock: Path, tmp_path: Path) -> None:
    first = pack(lock, tmp_path / "out")
    assert pack(lock, tmp_path / "out") == first
    assert first["release"].startswith("0.1.0-")
    lock.write_text(PINS.replace("bb", "cc"))
    second = pack(lock, tmp_path / "out")
    assert (second["release"] == first["release"], second["base"] == first["base"]) == (False, True)
    lock.write_text(PINS.replace("aa", "cc"))
    third = pack(lock, tmp_path / "out")
    assert (third["release"] == first["release"], third["base"] == first["base"]) == (False, False)


def test_a_former_archive_goes_when_another_comes(lock: Path, tmp_path: Path) -> None:
    pack(lock, tmp_path / "out")
    lock.write_text(PINS.replace("bb", "cc"))
    second = pack(lock, tmp_path / "out")
    there = {str(path) for path in (tmp_path / "out").iterdir()}
    assert there == {second["archive"], second["base_archive"]}


@pytest.mark.parametrize("name", WHEELS)
def test_a_missing_wheel_is_named(lock: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).unlink()
    with pytest.raises(WheelhouseError, match="run: make wheelhouse") as caught:
        pack(lock, tmp_path / "out")
    assert name.split("-")[0].replace("_", "-") in str(caught.value)


def test_a_lock_without_pylog_is_refused(lock: Path, tmp_path: Path) -> None:
    lock.write_text("kazoo==2.11.0 --hash=sha256:aa\n")
    with pytest.raises(WheelhouseError, match="pylog-cluster"):
        pack(lock, tmp_path / "out")


def test_a_wheelhouse_that_was_never_built_is_named(tmp_path: Path) -> None:
    with pytest.raises(WheelhouseError, match="is missing; run: make wheelhouse"):
        pack(tmp_path / "broker.txt", tmp_path / "out")


def test_pins_are_read_over_several_lines_and_with_extras() -> None:
    text = "a-b==1.0 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\nC.d[x]==2 ; python_version > '3'\n# e==3\n"
    assert pinned(text) == {"a-b": "1.0", "c-d": "2"}
