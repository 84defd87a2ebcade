"""`pylog cluster finalize`: after an upgrade of all brokers, let them write what only the new release reads."""

from pathlib import Path
from typing import Annotated

import typer

from pylog import faults
from pylog.cli.failure import Failure, failure_of
from pylog.cli.options import FormatOption, format_of
from pylog.cli.output import emit
from pylog.cli.progress import progress
from pylog.client.admin.broker_socket import ask, socket_of
from pylog.errors import ApiError, ErrorCode, Unreachable

_TIMEOUT_S = 60


def finalize(
    broker: Annotated[int | None, typer.Option(metavar="ID", help="Ask this broker of this host.")] = None,
    socket: Annotated[Path | None, typer.Option(metavar="PATH", help="Ask the broker at this admin socket.")] = None,
    format: FormatOption = None,
) -> None:
    """Let all brokers write this release's formats; the release before it cannot read them, so there is no way back."""
    if (broker is None) == (socket is None):
        raise Failure(
            faults.OPTIONS_CONFLICT,
            where="--broker, --socket",
            found="both" if broker else "neither",
            wanted="one of them",
            next="pylog cluster finalize --help",
        )
    path = socket_of(broker) if broker is not None else socket
    assert path is not None
    try:
        with progress("waiting for all brokers"):
            status, answer = ask(path, "POST", "/finalize", {}, _TIMEOUT_S)
    except Unreachable as error:
        raise Failure(
            faults.NO_BROKER_HERE,
            where=str(path),
            found=str(error),
            wanted="a running broker",
            next="systemctl status 'pylog-broker@*'",
        ) from error
    if status != 200:
        raise failure_of(ApiError(ErrorCode(answer["error_code"]), str(answer["error"])), str(path))
    emit(format_of(format), answer, lambda is_wide: f"formats of level {answer['level']} are written from now on")
