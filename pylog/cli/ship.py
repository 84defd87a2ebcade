"""`pylog ship`: this host's own logs into a topic."""

import os
import socket
from pathlib import Path
from typing import Annotated

import typer

from pylog import faults
from pylog.cli.failure import Failure
from pylog.cli.options import Bootstrap, Codec, Properties, Timeout, connection, new_app, settings
from pylog.cli.output import note
from pylog.errors import ConfigError

app = new_app("Send this host's own logs to a topic.")


@app.command(epilog="Example: pylog ship journal --bootstrap h1:9092,h2:9092 --state /var/lib/pylog-ship/cursor")
def journal(
    state: Annotated[Path, typer.Option(metavar="FILE", help="Remembers the last acknowledged entry.")],
    topic: Annotated[str, typer.Option(help="Where entries go, as journalctl's JSON.")] = "host.journal",
    key: Annotated[str | None, typer.Option(metavar="HOST", help="Key of every record [this host's name].")] = None,
    since_boot: Annotated[
        bool, typer.Option("--since-boot/--from-start", help="Where to start when there is no state.")
    ] = False,
    directory: Annotated[Path | None, typer.Option(metavar="DIR", help="Journal files, not this host's own.")] = None,
    compression: Annotated[Codec, typer.Option("--compression", "-z", help="Of the batches.")] = Codec.LZ4,
    metrics_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="For the node exporter's text collector.")
    ] = None,
    bootstrap: Bootstrap = None,
    timeout: Timeout = None,
    property: Properties = None,
) -> None:
    """Follow the systemd journal; no entry is lost over a restart, some may come twice."""
    from pylog.daemon.notices import Notices
    from pylog.daemon.stop import Stop
    from pylog.daemon.threads import end_with_threads
    from pylog.ship.journal import ShipConfig, ship_journal

    if not os.access(state.parent, os.W_OK):
        raise Failure(
            faults.OPTION_WRONG,
            "the state cannot be kept",
            where=str(state.parent),
            found="no directory that can be written",
            wanted="one",
            next=f"mkdir -p {state.parent}",
        )
    config = ShipConfig(
        cluster=connection(settings(bootstrap, timeout, property)),
        topic=topic,
        key=key or socket.gethostname(),
        state=state,
        since_boot=since_boot,
        directory=directory,
        compression=compression,
        metrics_file=metrics_file,
    )
    stop = Stop()
    stop.on_signals()
    end_with_threads()
    try:
        totals = ship_journal(config, stop, Notices())
    except ConfigError as error:
        raise Failure(
            faults.STATE_DAMAGED,
            found=str(error),
            wanted="what pylog ship wrote there",
            next=f"rm {state}, which ships the whole journal again",
        ) from error
    note(
        f"level=info event=stopped shipped={totals.shipped} truncated={totals.truncated} unreadable={totals.unreadable}"
    )
