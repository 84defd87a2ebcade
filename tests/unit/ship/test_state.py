"""The stored cursor."""

from pathlib import Path

import pytest

from pylog.errors import ConfigError
from pylog.ship.state import load_cursor, store_cursor


def test_no_state_means_nothing_was_acknowledged(tmp_path: Path) -> None:
    assert load_cursor(tmp_path / "state") is None


def test_the_last_stored_cursor_is_found_again(tmp_path: Path) -> None:
    for cursor in ("s=1;i=1", "s=1;i=2"):
        store_cursor(tmp_path / "state", cursor)
    assert load_cursor(tmp_path / "state") == "s=1;i=2"
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[]",
        "7",
        '{"version": 1, "cursor": 5}',
        '{"version": 2, "cursor": "c"}',
    ],
)
def test_a_file_that_is_no_state_is_refused_and_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "state").write_text(content)
    with pytest.raises(ConfigError, match="state"):
        load_cursor(tmp_path / "state")
