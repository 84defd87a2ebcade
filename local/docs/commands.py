"""A page for each command of `pylog`, from the definitions that make its help."""

import importlib
import re
from collections.abc import Iterator

import click
import typer

from pylog.cli.app import VERBS

_FOOT = """
What holds for every command, exit codes and settings: [all commands](README.md).
"""

_INDEX = """\
# Commands

One page a command, generated from the definitions that make `pylog COMMAND --help`.

| command | |
|---|---|
{rows}

## What holds for all

**Exit codes.** 0 done or healthy, 1 failed or unhealthy, 2 usage, 3 unreachable, 4 cannot tell,
130 interrupted. Every end but 0 says
a code on stderr, which `pylog explain` and [errors.md](../errors.md) explain.

**Output.** Data goes to stdout, notes, questions, errors and progress bars to stderr; bars show only on a terminal.
`--format` takes `text`, `wide` (more columns), `json` and `yaml`; the keys of JSON and YAML are stable.

**Settings.** A file, then the environment, then flags, each stronger than the one before.
The file is `~/.config/pylog/config.yml` (under `$XDG_CONFIG_HOME` if that is set), or what `PYLOG_CONFIG` names; an
unknown key is an error with file and line.

| file | environment | flag | default |
|---|---|---|---|
| `bootstrap` | `PYLOG_BOOTSTRAP` | `--bootstrap`, `-b` | `localhost:9092` |
| `zookeeper` | `PYLOG_ZOOKEEPER` | `--zookeeper` of `pylog zk` | `localhost:2181` |
| `format` | `PYLOG_FORMAT` | `--format` | `text` |
| `timeout_s` | `PYLOG_TIMEOUT` | `--timeout` | 10 |
| `properties` (names of librdkafka) | | `--property`, `-X` | |
| `security` ([encryption and login](../security.md#programs)) | | | none |

**Completion.** `source <(pylog completion bash)`, the same with `zsh`, or `pylog completion fish | source`: commands,
options and their values, and the names of topics and groups of the cluster.

**A bug** ends with [PYLOG-0001](../errors.md); `PYLOG_DEBUG=1` shows where.
"""


def command_pages() -> dict[str, str]:
    """Return file name -> page, the index among them."""
    pages, rows = {}, []
    for words, command in _commands():
        name = "-".join(words) + ".md"
        pages[name] = _page(words, command)
        first = (command.help or "").strip().splitlines()[0]
        rows.append(f"| [`pylog {' '.join(words)}`]({name}) | {first} |")
    return {"README.md": _INDEX.format(rows="\n".join(rows))} | pages


def _commands() -> Iterator[tuple[list[str], click.Command]]:
    for verb in VERBS:
        command = typer.main.get_command(importlib.import_module(f"pylog.cli.{verb}").app)
        leaves = getattr(command, "commands", None)
        if leaves is None:
            yield [verb], command
            continue
        for name, leaf in leaves.items():
            yield [verb, name], leaf


def _page(words: list[str], command: click.Command) -> str:
    context = click.Context(command, info_name=f"pylog {' '.join(words)}")
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    text = f"# pylog {' '.join(words)}\n\n{_prose(command.help or '')}\n\n```\n{usage}\n```\n\n"
    records = [record for one in command.params if (record := one.get_help_record(context))]
    options = [record for record in records if "--help" not in record[0]]
    if options:
        text += "| | |\n|---|---|\n" + "".join(f"| `{_cell(name)}` | {_cell(help_)} |\n" for name, help_ in options)
    example = (command.epilog or "").removeprefix("Example: ")
    return text + f"\nExample:\n\n```\n{example}\n```\n" + _FOOT


def _prose(text: str) -> str:
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()
