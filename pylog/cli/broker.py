"""`pylog broker`: run one."""

from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

import typer

from pylog import faults
from pylog.cli.failure import Failure
from pylog.cli.options import assignments, new_app

app = new_app()


@app.command(epilog="Example: pylog broker --standalone --data /tmp/log --port 9092")
def broker(
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Configuration file of a broker.")] = None,
    standalone: Annotated[bool, typer.Option("--standalone", help="One broker, its own store, no ZooKeeper.")] = False,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Where --standalone keeps everything.")] = None,
    host: Annotated[str, typer.Option(help="Where --standalone listens.")] = "127.0.0.1",
    open: Annotated[
        bool,
        typer.Option("--open", help="Allow a --host that other machines reach: everybody there may do everything."),
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where --standalone listens; 0 takes a free one.")] = 9092,
    set: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="A broker setting by Kafka's name, with --standalone; may be repeated."
        ),
    ] = None,
) -> None:
    """Run a broker until SIGTERM or SIGINT."""
    from pylog.broker.process import run
    from pylog.config import load_broker_config, standalone_config

    if standalone == (config is not None):
        raise _usage("--config, --standalone", "both" if standalone else "neither", "one of them")
    if config is not None:
        if data is not None or set:
            raise _usage("--config", "--data or --set with it", "settings in the file")
        _end(run(load_broker_config(config)))
        return
    if not (open or _is_loopback(host)):
        raise Failure(faults.OPEN_ADDRESS, where="--host", found=host, wanted="an address of loopback, or --open")
    if data is None:
        raise _usage("--standalone", "no --data", "--data DIR")
    _end(run(standalone_config(data, host, port, assignments("--set", set))))


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _end(exit_code: int) -> None:
    if exit_code:
        raise Failure(faults.BROKER_ENDED)


def _usage(where: str, found: str, wanted: str) -> Failure:
    return Failure(faults.OPTIONS_CONFLICT, where=where, found=found, wanted=wanted, next="pylog broker --help")
