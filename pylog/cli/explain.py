"""`pylog explain`: what an error code or a metric means, and what to do when an alert fires."""

import difflib
import textwrap
from dataclasses import asdict
from typing import Annotated, Any

import typer

from pylog import faults
from pylog.cli.failure import Failure
from pylog.cli.options import FormatOption, format_of, new_app
from pylog.cli.output import Column, emit, table
from pylog.cli.told_metrics import ToldMetric, find_metric, told_metrics
from pylog.errors import ErrorCode, fault_number
from pylog.faults import CATALOGUE, Fault
from pylog.runbooks import RUNBOOKS, Runbook

app = new_app()


_STEPS = ("look", "decide", "act", "verify")


@app.command(epilog="Example: pylog explain PYLOG-1003")
def explain(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="[CODE|ERROR|ALERT|METRIC]",
            help="PYLOG-1003, 1003, an error of the protocol as KAFKA_STORAGE_ERROR, an alert as PylogBrokerDown, or a "
            "metric as pylog_group_lag_seconds; all codes without.",
        ),
    ] = None,
    format: FormatOption = None,
) -> None:
    """Say what an error code, an alert or a metric means, and what to do."""
    if code is None:
        rows = [_row(one) for one in sorted(CATALOGUE.values(), key=lambda one: one.number)]
        columns = [Column("code"), Column("what"), Column("exit_code", is_wide=True)]
        emit(format_of(format), rows, lambda is_wide: table(rows, columns, is_wide))
        return
    if (alert := _alert(code)) is not None:
        emit(format_of(format), {"alert": alert} | asdict(RUNBOOKS[alert]), lambda _: _runbook(alert, RUNBOOKS[alert]))
        return
    if (metric := find_metric(code)) is not None:
        told = told_metrics()[metric]
        emit(format_of(format), {"metric": metric} | asdict(told), lambda _: _metric(metric, told))
        return
    one = _fault(code)
    emit(
        format_of(format),
        _row(one),
        lambda _: (
            f"{one.code}: {one.what}\n\n  cause      {one.cause}\n  remedy     {one.remedy}\n"
            f"  exit code  {one.exit_code}\n"
        ),
    )


def _alert(text: str) -> str | None:
    """Return the name of the alert *text*, in small letters or capitals; None if it is none."""
    return {name.lower(): name for name in RUNBOOKS}.get(text.lower())


def _runbook(name: str, runbook: Runbook) -> str:
    """Return the way through one alert as text."""
    said = f"{name}: {runbook.what}\n"
    for step in _STEPS:
        said += "\n" + _paragraph(step, getattr(runbook, step))
    return f"{said}\n"


def _metric(name: str, told: ToldMetric) -> str:
    """Return one metric as text."""
    said = f"{name}: a {told.kind} of {', '.join(told.programs)}\n"
    for head, words in (("says", told.says), ("alerts", ", ".join(told.alerts) or "none reads it")):
        said += "\n" + _paragraph(head, words)
    return f"{said}\n"


def _paragraph(head: str, words: str) -> str:
    """Return *words* beside their *head*; backticks stay, and no option or name is broken at its hyphens."""
    return textwrap.fill(
        words,
        100,
        initial_indent=f"  {head:<8}",
        subsequent_indent=" " * 10,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _fault(text: str) -> Fault:
    code = ErrorCode.__members__.get(text.upper())  # as clients and metrics name errors of the protocol
    digits = text.upper().removeprefix("PYLOG-") if code is None else str(fault_number(code))
    found = CATALOGUE.get(int(digits)) if digits.isascii() and digits.isdecimal() and len(digits) <= 4 else None
    if found is None:
        near = difflib.get_close_matches(text, [*RUNBOOKS, *told_metrics()], n=1)
        wanted = f"{near[0]}?" if near else "a code that pylog printed, or the name of an alert or of a metric"
        raise Failure(faults.UNKNOWN_CODE, where="CODE", found=text, wanted=wanted)
    return found


def _row(one: Fault) -> dict[str, Any]:
    return {
        "code": one.code,
        "what": one.what,
        "cause": one.cause,
        "remedy": one.remedy,
        "exit_code": int(one.exit_code),
    }
