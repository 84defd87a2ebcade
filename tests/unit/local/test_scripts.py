"""Scripts from npm are taken by hash alone."""

import base64
import hashlib
import io
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from local.scripts import SCRIPTS, Script, WrongArchive, extract


def archive_of(path: Path, name: str, content: bytes) -> Script:
    with tarfile.open(path, "w:gz") as files:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        files.addfile(member, io.BytesIO(content))
    digest = base64.b64encode(hashlib.sha512(path.read_bytes()).digest()).decode()
    return Script("1.0.0", f"sha512-{digest}", name)


def test_the_file_of_the_right_archive_is_taken(tmp_path: Path) -> None:
    script = archive_of(tmp_path / "a.tgz", "package/a.js", b"let a")
    assert extract(tmp_path / "a.tgz", script) == b"let a"


def test_another_archive_is_refused(tmp_path: Path) -> None:
    script = archive_of(tmp_path / "a.tgz", "package/a.js", b"let a")
    archive_of(tmp_path / "a.tgz", "package/a.js", b"let b")
    with pytest.raises(WrongArchive, match="wanted sha512-"):
        extract(tmp_path / "a.tgz", script)


def test_an_archive_without_the_file_is_refused(tmp_path: Path) -> None:
    script = archive_of(tmp_path / "a.tgz", "package/a.js", b"let a")
    with pytest.raises(WrongArchive, match="has no file"):
        extract(tmp_path / "a.tgz", replace(script, member="package/b.js"))


def test_each_script_names_a_version_and_a_hash() -> None:
    for script in SCRIPTS.values():
        assert script.version.count(".") == 2
        assert len(base64.b64decode(script.integrity.removeprefix("sha512-"))) == 64
