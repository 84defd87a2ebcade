"""Jars by coordinates and hash: locks, archives, and what is refused. Maven itself runs in tests/programs."""

import hashlib
import json
import tarfile
from pathlib import Path

import pytest

from pylog.ops.jars import JarsError, lock, main, pack, read_lock, rounds


def jar(directory: Path, name: str, content: bytes = b"classes") -> str:
    """Put a jar where `fetch` would; return its line of a lock."""
    sha256 = hashlib.sha256(content).hexdigest()
    directory.mkdir(exist_ok=True)
    (directory / f"{sha256}.jar").write_bytes(content)
    return f"{name} --sha256={sha256}\n"


def locked(path: Path, *lines: str) -> Path:
    path.write_text("".join(lines))
    return path


def test_a_lock_is_read_in_one_order_without_its_comments() -> None:
    text = f"# made by hand\n\norg.b:b:2 --sha256={'b' * 64}\norg.a:a:1 --sha256={'a' * 64}  # the first\n"
    assert [one.coordinates for one in read_lock(text, "x.txt")] == ["org.a:a:1", "org.b:b:2"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.txt: found no jar"),
        ("org.a:a:1\n", "x.txt:1: found 'org.a:a:1', wanted group:artifact:version --sha256=HEX"),
        (f"org.a:a:1 --sha256={'A' * 64}\n", "x.txt:1: found"),
        (f"../a:a:1 --sha256={'a' * 64}\n", "x.txt:1: found"),
        (f"org.a:a:1 --sha256={'a' * 64}\norg.a:a:1 --sha256={'b' * 64}\n", "stands there twice"),
    ],
)
def test_a_wrong_lock_is_refused_by_file_and_line(text: str, message: str) -> None:
    with pytest.raises(JarsError, match=message):
        read_lock(text, "x.txt")


def test_coordinates_of_another_form_never_reach_maven() -> None:
    with pytest.raises(JarsError, match=r"found org\.a:a, <x>:y:z, wanted group:artifact:version"):
        lock(["org.a:a", "<x>:y:z", "org.a:a:1"])


def test_an_archive_has_a_folder_for_each_lock_and_the_same_bytes_each_time(tmp_path: Path) -> None:
    jars = tmp_path / "jars"
    worker = locked(tmp_path / "worker.txt", jar(jars, "org.a:a:1", b"1"), jar(jars, "org.b:b:2", b"2"))
    plugin = locked(tmp_path / "plugin.txt", jar(jars, "org.b:b:2", b"2"))
    first = pack({"worker": worker, "plugin": plugin}, jars, tmp_path / "one")
    second = pack({"plugin": plugin, "worker": worker}, jars, tmp_path / "two")
    assert first["name"] == second["name"]
    assert Path(first["archive"]).read_bytes() == Path(second["archive"]).read_bytes()
    with tarfile.open(first["archive"]) as archive:
        assert archive.getnames() == ["plugin/org.b.b-2.jar", "worker/org.a.a-1.jar", "worker/org.b.b-2.jar"]


def test_another_jar_gives_another_archive_which_replaces_the_former(tmp_path: Path) -> None:
    jars = tmp_path / "jars"
    worker = tmp_path / "worker.txt"
    before = pack({"worker": locked(worker, jar(jars, "org.a:a:1", b"1"))}, jars, tmp_path / "archives")
    after = pack({"worker": locked(worker, jar(jars, "org.a:a:1", b"2"))}, jars, tmp_path / "archives")
    assert before["name"] != after["name"]
    assert [str(path) for path in (tmp_path / "archives").iterdir()] == [after["archive"]]


def test_every_jar_that_is_missing_is_named_with_the_command_that_fetches_it(tmp_path: Path) -> None:
    worker = locked(tmp_path / "w.txt", f"org.a:a:1 --sha256={'a' * 64}\norg.b:b:1 --sha256={'b' * 64}\n")
    with pytest.raises(JarsError) as refused:
        pack({"worker": worker}, tmp_path / "jars", tmp_path)
    assert "lacks org.a:a:1, org.b:b:1; run: make jars LOCKS='" in str(refused.value)


def test_a_damaged_jar_is_not_packed(tmp_path: Path) -> None:
    jars = tmp_path / "jars"
    worker = locked(tmp_path / "w.txt", jar(jars, "org.a:a:1"))
    next(jars.iterdir()).write_bytes(b"others")
    with pytest.raises(JarsError, match=r"damaged: org\.a:a:1"):
        pack({"worker": worker}, jars, tmp_path / "archives")
    assert not list(tmp_path.glob("archives/*"))


@pytest.mark.parametrize("name", ["../up", "", "UP", "a b"])
def test_a_folder_is_named_plainly(tmp_path: Path, name: str) -> None:
    with pytest.raises(JarsError, match="is no name of a folder"):
        pack({name: tmp_path / "w.txt"}, tmp_path, tmp_path)


def test_a_lock_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main("pack", str(tmp_path), str(tmp_path), f"worker={tmp_path}/none.txt") == 1
    assert "none.txt: No such file" in capsys.readouterr().err


def test_the_command_prints_the_archive_for_the_role(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    worker = locked(tmp_path / "w.txt", jar(tmp_path / "jars", "org.a:a:1"))
    assert main("pack", str(tmp_path / "jars"), str(tmp_path), f"worker={worker}") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["archive"] == str(tmp_path / f"connect-{answer['name']}.tar")


def test_locks_of_the_repository_are_locks() -> None:
    for path in (Path(__file__).parents[3] / "requirements" / "connect").glob("*.txt"):
        assert read_lock(path.read_text(), str(path))


def test_two_versions_of_an_artifact_are_asked_of_maven_one_after_the_other() -> None:
    lines = [f"{name} --sha256={'0' * 64}" for name in ("g:a:1", "g:a:2", "g:b:1", "h:a:1")]
    assert rounds(read_lock("\n".join(lines), "lock")) == [["g:a:1", "g:b:1", "h:a:1"], ["g:a:2"]]
    assert rounds([]) == []
