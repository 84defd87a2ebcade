"""Documents of commands: read from a file or standard input, and refused without showing what stands in them."""

import io
from pathlib import Path

import pytest

from pylog import faults
from pylog.cli.document import read_document
from pylog.cli.failure import Failure
from pylog.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "wanted"), [("a: 1\n", {"a": 1}), (' {"a": 1e400}', {"a": float("inf")}), ("", {}), ("# none\n", {})]
)
def test_yaml_and_json_are_read(tmp_path: Path, text: str, wanted: object) -> None:
    path = tmp_path / "document"
    path.write_text(text)
    assert read_document(str(path), lambda document: document) == wanted


def test_a_dash_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("a: 1"))
    assert read_document("-", lambda document: document) == {"a": 1}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\npassword: 'hunter2\n", ":3"),
        ("a: 1\npassword: *hunter2\n", ":2"),
        ("a: 1\n\thunter2: b\n", ":2"),
        ('{"a": 1,\n "password": hunter2}', ":2"),
    ],
)
def test_what_is_no_document_is_told_by_its_line_and_not_shown(tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / "document"
    path.write_text(text)
    with pytest.raises(Failure) as caught:
        read_document(str(path), lambda document: document, next="do this")
    assert caught.value.fault is faults.CONFIG_WRONG
    assert f"{path}{line}" in str(caught.value)
    assert "do this" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_what_is_wrong_in_a_document_is_told_with_its_file(tmp_path: Path) -> None:
    def refuse(document: object) -> None:
        raise ConfigError("found 7, wanted a name")

    path = tmp_path / "document"
    path.write_text("7")
    with pytest.raises(Failure, match="the document is wrong") as caught:
        read_document(str(path), refuse)
    assert "found 7, wanted a name" in str(caught.value)


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_file_that_cannot_be_read_is_told(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "document"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(Failure) as caught:
        read_document(str(path), lambda document: document)
    assert caught.value.fault is faults.FILE_UNREADABLE
