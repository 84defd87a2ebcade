"""Sealed backups: who has no key reads nothing and changes nothing without being found out."""

from pathlib import Path

import pytest

from pylog.errors import ConfigError
from pylog.store.sealed import MAGIC, SealError, is_sealed, read_secrets, seal, unseal

SECRET, OTHER = b"a" * 32, b"b" * 32
CONTENT = b'{"nodes": {"/config/users/alice": "salt"}}'


def test_what_was_sealed_is_opened_by_its_secret_alone() -> None:
    sealed = seal(CONTENT, SECRET)
    assert is_sealed(sealed)
    assert b"alice" not in sealed
    assert unseal(sealed, (SECRET,), "x") == CONTENT
    assert unseal(sealed, (OTHER, SECRET), "x") == CONTENT, "a former key still opens"
    with pytest.raises(SealError, match="none of the 1 secrets"):
        unseal(sealed, (OTHER,), "x")
    assert unseal(seal(b"", SECRET), (SECRET,), "x") == b""


def test_two_files_of_one_secret_have_nothing_in_common_but_their_first_line() -> None:
    first, second = (seal(CONTENT, SECRET).removeprefix(MAGIC) for _ in range(2))
    assert first[:37] != second[:37]


def test_a_file_that_was_cut_or_changed_anywhere_is_refused() -> None:
    sealed = seal(CONTENT, SECRET)
    for length in range(len(sealed) - 1):
        with pytest.raises(SealError):
            unseal(sealed[:length], (SECRET,), "x")
    for place in range(len(MAGIC), len(sealed) - 3):  # of the last character some bits count for nothing
        other = b"A" if sealed[place : place + 1] != b"A" else b"B"
        with pytest.raises(SealError):
            unseal(sealed[:place] + other + sealed[place + 1 :], (SECRET,), "x")


@pytest.mark.parametrize(
    ("content", "mode", "found"),
    [
        ("", 0o600, "each line must be a secret of 32 characters"),
        ("short\n", 0o600, "each line must be a secret of 32 characters"),
        ("a" * 32 + "\nshort\n", 0o600, "each line must be a secret of 32 characters"),
        ("a" * 32 + "\n", 0o644, "must not be readable by everybody"),
    ],
)
def test_a_key_file_that_protects_nothing_is_refused(tmp_path: Path, content: str, mode: int, found: str) -> None:
    path = tmp_path / "key"
    path.write_text(content)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=found):
        read_secrets(path)


def test_a_key_file_has_a_secret_a_line(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("a" * 32 + "\n\n" + "b" * 32)
    path.chmod(0o640)
    assert read_secrets(path) == (SECRET, OTHER)
    with pytest.raises(ConfigError, match="No such file"):
        read_secrets(tmp_path / "missing")
