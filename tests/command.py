"""Runs `pylog` command lines in the process of a test."""

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from typing import Any
from unittest.mock import patch

from pylog.cli.app import run


class Command:
    """Runs `pylog` command lines in this process, as a person would in a shell of their own."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def __call__(
        self, *arguments: str, stdin: bytes = b"", exit_code: int = 0, environment: dict[str, str] | None = None
    ) -> "Ended":
        """Run one to its end, which must be *exit_code*."""
        variables = {"HOME": "/does/not/exist", "PYLOG_BOOTSTRAP": self.bootstrap} | (environment or {})
        output, notes = io.TextIOWrapper(io.BytesIO(), write_through=True), io.StringIO()
        with (
            patch.dict("os.environ", variables),
            patch("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin))),
            redirect_stdout(output),
            redirect_stderr(notes),
        ):
            ended = run(arguments)
        content = output.buffer
        assert isinstance(content, io.BytesIO)
        assert ended == exit_code, f"{arguments}: {ended}\n{content.getvalue()!r}\n{notes.getvalue()}"
        return Ended(content.getvalue(), notes.getvalue())


class Ended:
    """What a command left behind."""

    def __init__(self, output: bytes, notes: str) -> None:
        self.output = output
        self.notes = notes

    @property
    def text(self) -> str:
        """Stdout."""
        return self.output.decode()

    @property
    def json(self) -> Any:
        """Stdout, read as a program would."""
        return json.loads(self.output)
