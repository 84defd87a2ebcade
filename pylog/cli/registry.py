"""`pylog registry`: run an instance of the schema registry."""

from pathlib import Path
from typing import Annotated

import typer

from pylog.cli.options import new_app
from pylog.cli.output import note

app = new_app()


@app.command(epilog="Example: pylog registry --config /etc/pylog/registry.yml")
def registry(
    config: Annotated[Path, typer.Option(metavar="FILE", help="Its configuration file.")],
    check: Annotated[bool, typer.Option("--check", help="Read the file, and change nothing.")] = False,
) -> None:
    """Serve schemas over Confluent's REST API until SIGTERM or SIGINT."""
    from pylog.config import load_registry_config

    loaded = load_registry_config(config)
    if check:
        note(f"{config}: good, for the registry at {loaded.advertised_url}")
        return
    from pylog.daemon.notices import Notices
    from pylog.daemon.stop import Stop
    from pylog.daemon.threads import end_with_threads
    from pylog.registry.instance import run

    stop = Stop()
    stop.on_signals()
    end_with_threads()
    run(loaded, stop, Notices())
