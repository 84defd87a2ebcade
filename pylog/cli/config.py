"""`pylog config`: check configuration files."""

from pathlib import Path
from typing import Annotated

import typer

from pylog.cli.failure import Failure
from pylog.cli.options import new_app
from pylog.cli.output import note
from pylog.errors import ConfigError

app = new_app("Check configuration files.")


@app.command(epilog="Example: pylog config check /etc/pylog/broker-1.yml")
def check(file: Annotated[Path, typer.Argument(metavar="FILE", help="Configuration file of a broker.")]) -> None:
    """Read a broker's configuration file as the broker would, and change nothing."""
    from pylog.config import load_broker_config

    try:
        config = load_broker_config(file)
    except ConfigError as error:
        raise Failure("the configuration is wrong", found=str(error), next=f"correct it, then pylog config check {file}"
                      ) from error
    note(f"{file}: good, for broker {config.broker_id} (hash {config.config_hash})")
