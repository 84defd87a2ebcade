"""The command `pylog`: finds the verb, imports only that verb, and ends with its exit code.

Importing every verb, librdkafka and YAML takes half a second; ``pylog --help`` and completion must not wait for it,
so the verbs and their first lines stand in a table here and `tests/unit/cli/test_app.py` compares it with the modules.
"""

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from pylog import __version__
from pylog.cli.failure import Exit, Failure, failure_of
from pylog.errors import PylogError

if TYPE_CHECKING:
    from collections.abc import Sequence

VERBS = {
    "broker": "Run a broker: from a configuration file, or standalone in one directory.",
    "cluster": "Is the cluster healthy, and what is it made of?",
    "topic": "List, create, describe and delete topics.",
    "produce": "Send each line of stdin as a record.",
    "consume": "Write records to stdout.",
    "group": "See consumer groups and their lag; move or delete their offsets.",
    "log": "Read segment files of a stopped or running broker.",
    "retention": "Make the brokers on this host delete expired segments.",
    "config": "Check configuration files.",
    "ship": "Send this host's own logs to a topic.",
    "demo": "Generate activity events: page views, logins, searches, host metrics.",
}
"""Verb -> its first line of help; the module `pylog.cli.<verb>` holds its `app`."""

_EPILOG = "Exit codes: 0 done or healthy, 1 failed or unhealthy, 2 usage, 3 unreachable."


class _LazyGroup(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401  # typer's own vendored context type is private
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401
        if cmd_name not in VERBS:
            return None
        command = typer.main.get_command(importlib.import_module(f"pylog.cli.{cmd_name}").app)
        command.name = cmd_name
        return command

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # The reader of our output has seen enough, as `head` does; the rest, which exit flushes, goes nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return None

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


# Plain help: rich's takes 0.37 s to the first line, this 0.12 s, and pipes as it looks.
app = typer.Typer(
    cls=_LazyGroup, rich_markup_mode=None, pretty_exceptions_enable=False, epilog=_EPILOG,
    help="A distributed log for activity and operational data.", no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]})


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        sys.stdout.write(f"pylog {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", help="Print the release.", callback=_print_version, is_eager=True),
) -> None:
    """A distributed log for activity and operational data."""


def run(arguments: "Sequence[str]") -> int:
    """Run one command line and return its exit code."""
    try:
        app(list(arguments), prog_name="pylog")
    except SystemExit as end:
        return _exit_code(end.code)
    except Failure as failure:
        return _report(failure)
    except PylogError as error:
        return _report(failure_of(error))
    return Exit.DONE


def _report(failure: Failure) -> int:
    sys.stderr.write(f"{failure}\n")
    return failure.exit_code


def _exit_code(code: object) -> int:
    if code is None:
        return Exit.DONE
    return code if isinstance(code, int) else Exit.FAILED
