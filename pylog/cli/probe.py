"""`pylog probe`: measure a cluster from outside."""

from pathlib import Path
from typing import Annotated

import typer

from pylog.cli.options import new_app
from pylog.cli.output import note

app = new_app()


@app.command(epilog="Example: pylog probe --config /etc/pylog/probe.yml")
def probe(
    config: Annotated[Path, typer.Option(metavar="FILE", help="Its configuration file.")],
    check: Annotated[bool, typer.Option("--check", help="Read the file, and change nothing.")] = False,
) -> None:
    """Measure a cluster from outside: canary records, group lag, ZooKeeper.

    Shows what it finds as metrics on /metrics, until SIGTERM or SIGINT.
    """
    from pylog.config import load_probe_config

    loaded = load_probe_config(config)
    if check:
        note(f"{config}: good, for a probe of {loaded.cluster.bootstrap}")
        return
    from pylog.daemon.notices import Notices
    from pylog.daemon.stop import Stop
    from pylog.daemon.threads import end_with_threads
    from pylog.probe.instance import run

    stop = Stop()
    stop.on_signals()
    end_with_threads()
    run(loaded, stop, Notices())
