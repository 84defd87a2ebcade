"""`pylog completion`: the script by which a shell completes commands."""

import sys
from enum import StrEnum
from typing import Annotated

import typer

from pylog.cli.options import new_app

app = new_app()

_VARIABLE = "_PYLOG_COMPLETE"


class Shell(StrEnum):
    """Shells that are spoken."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@app.command(epilog="Example: pylog completion bash > /etc/bash_completion.d/pylog")
def completion(shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish")]) -> None:
    """Print a script that completes commands, options, topics and groups in a shell.

    For one session: source <(pylog completion bash), the same with zsh, or pylog completion fish | source.
    """
    from typer._completion_shared import get_completion_script

    script = get_completion_script(prog_name="pylog", complete_var=_VARIABLE, shell=shell.value)
    sys.stdout.write(script.lstrip() + "\n")
