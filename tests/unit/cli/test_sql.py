"""Options of `pylog sql` that need others."""

import pytest

from pylog.cli.app import run


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--checkpoint", "/tmp/c"], "--into beside it"),
        (["--write-option", "compression=zstd"], "--into beside it"),
        (["--into", "counts", "--checkpoint", "/tmp/c"], "--follow beside it"),
    ],
)
def test_an_option_of_a_query_that_writes_is_refused_without_it(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sql", "SELECT 1", *options]) == 2
    assert message in capsys.readouterr().err
