"""`pylog explain`: what an error code means."""

from typing import Annotated, Any

import typer

from pylog import faults
from pylog.cli.failure import Failure
from pylog.cli.options import FormatOption, format_of, new_app
from pylog.cli.output import Column, emit, table
from pylog.faults import CATALOGUE, Fault

app = new_app()


@app.command(epilog="Example: pylog explain PYLOG-1003")
def explain(
    code: Annotated[str | None, typer.Argument(metavar="[CODE]", help="As PYLOG-1003 or 1003; else all.")] = None,
    format: FormatOption = None,
) -> None:
    """Say what an error code means, and what to do."""
    if code is None:
        rows = [_row(one) for one in sorted(CATALOGUE.values(), key=lambda one: one.number)]
        columns = [Column("code"), Column("what"), Column("exit_code", is_wide=True)]
        emit(format_of(format), rows, lambda is_wide: table(rows, columns, is_wide))
        return
    one = _fault(code)
    emit(
        format_of(format),
        _row(one),
        lambda _: (
            f"{one.code}: {one.what}\n\n  cause      {one.cause}\n  remedy     {one.remedy.replace('`', '')}\n"
            f"  exit code  {one.exit_code}\n"
        ),
    )


def _fault(text: str) -> Fault:
    digits = text.upper().removeprefix("PYLOG-")
    found = CATALOGUE.get(int(digits)) if digits.isascii() and digits.isdecimal() and len(digits) <= 4 else None
    if found is None:
        raise Failure(faults.UNKNOWN_CODE, where="CODE", found=text, wanted="a code that pylog printed")
    return found


def _row(one: Fault) -> dict[str, Any]:
    return {
        "code": one.code,
        "what": one.what,
        "cause": one.cause,
        "remedy": one.remedy,
        "exit_code": int(one.exit_code),
    }
