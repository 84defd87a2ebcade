"""The command `pylog`: finds the verb, imports only that verb, and ends with its exit code.

Importing every verb, librdkafka and YAML takes half a second; ``pylog --help`` and completion must not wait for it,
so the verbs and their first lines stand in a table here and `tests/unit/cli/test_app.py` compares it with the modules.
"""

import importlib
import os
import sys
import traceback
from typing import TYPE_CHECKING, Any

import click
import typer
from click.shell_completion import CompletionItem
from typer.core import TyperGroup

from pylog import __version__, faults
from pylog.cli.failure import Exit, Failure, failure_of
from pylog.cli.progress import switch_off
from pylog.errors import PylogError

if TYPE_CHECKING:
    from collections.abc import Sequence

VERBS = {
    "broker": "Run a broker: from a configuration file, or standalone in one directory.",
    "cluster": "Is the cluster healthy, and what is it made of?",
    "topic": "List, create, describe, alter and delete topics.",
    "produce": "Send lines of stdin as records.",
    "consume": "Write records to stdout.",
    "group": "See consumer groups and their lag; move or delete their offsets.",
    "txn": "See transactions, find those that hang, and end them.",
    "partition": "Move partitions between brokers; give leaders back.",
    "config": "See and change settings; check configuration files.",
    "acl": "See, add and remove access control lists.",
    "top": "Watch throughput and lag as they are.",
    "log": "Read segment files of a stopped or running broker.",
    "retention": "Have the brokers of this host delete expired segments; say what that freed, here and to syslog.",
    "user": "Give users passwords, straight in the store; see and delete users.",
    "zk": "Read what the cluster keeps in ZooKeeper.",
    "audit": "Count what passes each tier, and say what is missing where.",
    "mirror": "Run a mirror of another cluster; see how far it is; move groups over.",
    "registry": "Run the schema registry.",
    "console": "Show the cluster in a browser.",
    "probe": "Measure a cluster from outside: canary records, group lag, ZooKeeper.",
    "connect": "Make connectors of Kafka Connect what a document says; see and restart them.",
    "ship": "Send this host's own logs to a topic.",
    "lake": "See what the lake holds: the files that count, and how far it was loaded.",
    "sql": "Ask topics in SQL: key, value, topic, partition, offset, timestamp, timestampType.",
    "stream": "Run a query over topics on Spark, on and on; move it to another position.",
    "demo": "Generate activity events: page views, logins, searches, host metrics.",
    "explain": "Say what an error code means, or an alert, and what to do.",
    "completion": "Print a script that completes commands in a shell.",
}
"""Verb -> its first line of help; the module `pylog.cli.<verb>` holds its `app`."""

_EPILOG = (
    "Exit codes: 0 done or healthy, 1 failed or unhealthy, 2 usage, 3 unreachable, 4 cannot tell, 130 interrupted. "
    "Example: pylog topic list"
)


class _LazyGroup(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401  # typer's own vendored context type is private
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401
        if cmd_name not in VERBS:
            return None
        command = typer.main.get_command(importlib.import_module(f"pylog.cli.{cmd_name}").app)
        command.name = cmd_name
        return command

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:  # noqa: ANN401
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        # From the table: importing every verb would make the user wait for each press of the key.
        return [CompletionItem(verb, help=text) for verb, text in VERBS.items() if verb.startswith(incomplete)]

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Failure(faults.INTERRUPTED) from None  # typer would end without a word
        except BrokenPipeError:
            # The reader of our output has seen enough, as `head` does; the rest, which exit flushes, goes nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return None

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


# Plain help: rich's takes 0.37 s to the first line, this 0.12 s, and pipes as it looks.
app = typer.Typer(
    cls=_LazyGroup,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    epilog=_EPILOG,
    help="A distributed log for activity and operational data.",
    no_args_is_help=True,
    suggest_commands=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        sys.stdout.write(f"pylog {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", help="Print the release.", callback=_print_version, is_eager=True),
    no_progress: bool = typer.Option(
        False, "--no-progress", envvar="PYLOG_NO_PROGRESS", help="Show no bars; there are none without a terminal."
    ),
) -> None:
    """A distributed log for activity and operational data."""
    if no_progress:
        switch_off()


def run(arguments: "Sequence[str]") -> int:
    """Run one command line and return its exit code; every one but 0 comes with an error that has a code."""
    if "_PYLOG_COMPLETE" in os.environ:
        from typer._completion_classes import completion_init

        completion_init()
    try:
        code = typer.main.get_command(app).main(list(arguments), prog_name="pylog", standalone_mode=False)
    except Failure as failure:
        return _report(failure)
    except PylogError as error:
        return _report(failure_of(error))
    except click.ClickException as error:
        return _report(_usage(error))
    except (click.Abort, KeyboardInterrupt):
        return _report(Failure(faults.INTERRUPTED))
    except Exception as error:  # noqa: BLE001  # the top of the process
        if os.environ.get("PYLOG_DEBUG"):
            traceback.print_exc()
        return _report(Failure(faults.BUG, found=f"{type(error).__name__}: {error}"))
    return code if isinstance(code, int) else Exit.DONE  # a number comes from typer.Exit: cron's quiet commands


def _report(failure: Failure) -> int:
    sys.stderr.write(f"{failure}\n")
    return failure.exit_code


def _usage(error: click.ClickException) -> Failure:
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "pylog"
    following = f"{command} --help"
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        sys.stderr.write(error.format_message() + "\n\n")
        return Failure(faults.COMMAND_LINE, "a command is missing", where=command, next=following)
    is_value = isinstance(error, click.BadParameter) and not isinstance(error, click.MissingParameter)
    fault = faults.OPTION_WRONG if is_value else faults.COMMAND_LINE
    return Failure(fault, where=command, found=error.format_message(), next=following)
