"""`pylog console`: the cluster in a browser."""

from pathlib import Path
from typing import Annotated

import typer

from pylog import faults
from pylog.cli.failure import Failure
from pylog.cli.options import Bootstrap, Properties, Timeout, connection, new_app, settings
from pylog.cli.output import note

app = new_app()


@app.command(epilog="Example: pylog console --bootstrap localhost:9092 --payloads")
def console(
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Its configuration file; without, it serves this host alone.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Read the file, and change nothing.")] = False,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Of 127.0.0.1 [8085]; 0 takes a free one.")] = None,
    payloads: Annotated[bool, typer.Option("--payloads", help="Show keys and values of records too.")] = False,
    ledger: Annotated[
        list[str] | None,
        typer.Option(
            "--ledger", metavar="HOST:PORT,..", help="Another cluster with an `_audit` to compare; may be repeated."
        ),
    ] = None,
    bootstrap: Bootstrap = None,
    timeout: Timeout = None,
    property: Properties = None,
) -> None:
    """Show a cluster in a browser, until SIGTERM or SIGINT.

    Without a file it listens on 127.0.0.1 and asks for no login: whoever reaches this host's port sees what you see.
    Come from elsewhere by ssh -L. With a file it can ask for the cluster's own users.
    """
    from pylog.console.config import DEFAULT_PORT, EVERYBODY, ConsoleConfig

    if config is not None:
        if bootstrap or timeout or property or payloads or ledger or port is not None:
            raise Failure(
                faults.OPTIONS_CONFLICT,
                where="--config",
                found="other options beside it",
                wanted="--config alone: the file says all of it",
            )
        # Only here: it brings what reads the files of brokers, 5 MB.
        from pylog.config import load_console_config

        loaded = load_console_config(config)
    elif check:
        raise Failure(faults.OPTIONS_CONFLICT, "an option is missing", where="--check", wanted="--config FILE with it")
    else:
        loaded = ConsoleConfig(
            cluster=connection(settings(bootstrap, timeout, property)),
            listen=("127.0.0.1", DEFAULT_PORT if port is None else port),
            read_payloads=(EVERYBODY,) if payloads else (),
            ledgers=tuple(connection(settings(other, timeout, property)) for other in ledger or ()),
        )
    if check:
        note(f"{config}: good, for a console of {loaded.cluster.bootstrap}")
        return
    from pylog.console.instance import run
    from pylog.daemon.notices import Notices
    from pylog.daemon.stop import Stop
    from pylog.daemon.threads import end_with_threads

    stop = Stop()
    stop.on_signals()
    end_with_threads()
    run(loaded, stop, Notices())
