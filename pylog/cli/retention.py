"""`pylog retention`: make the brokers on this host delete expired segments.  Cron runs it."""

import re
import syslog
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from pylog import faults
from pylog.cli.failure import Failure
from pylog.cli.options import Format, FormatOption, format_of, new_app
from pylog.cli.output import Column, emit, note, table
from pylog.client.admin_socket import RUN_DIR, ask
from pylog.client.connection import Unreachable
from pylog.log.checkpoint import write_atomically
from pylog.metrics import Metrics

app = new_app()

_LAST_SUCCESS = "pylog_retention_last_success_timestamp_seconds"
_TIMEOUT_S = 300
"""Deleting thousands of segments from a slow disk takes minutes; cron's next run must not pile up behind it."""


@dataclass(slots=True)
class Outcome:
    """What one broker did, or why it did nothing."""

    socket: Path
    deleted: list[dict[str, Any]] = field(default_factory=list)
    freed_bytes: int = 0
    error: str | None = None


@app.command(epilog="Example: pylog retention --all --metrics-file /var/lib/prometheus/node-exporter/pylog.prom")
def retention(
    socket: Annotated[list[Path] | None, typer.Option(metavar="PATH", help="A broker's socket; repeatable.")] = None,
    all: Annotated[bool, typer.Option("--all", help=f"Every broker of this host: {RUN_DIR}/broker-*.sock.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Delete nothing, say what would be.")] = False,
    metrics_file: Annotated[Path | None, typer.Option(
        metavar="FILE", help="Where the node exporter's text collector reads.")] = None,
    format: FormatOption = None,
) -> None:
    """Ask brokers of this host to delete expired segments; say what that freed, to stdout and syslog."""
    if bool(socket) == all:
        raise Failure(faults.OPTIONS_CONFLICT, where="--socket, --all", found="both" if all else "neither",
                      wanted="one of them", next="pylog retention --help")
    sockets = socket or sorted(RUN_DIR.glob("broker-*.sock"))
    outcomes = [_ask(path, dry_run=dry_run) for path in sockets]
    if not dry_run:
        _tell_syslog(outcomes)
        if metrics_file is not None:
            _write_metrics(metrics_file, outcomes, time.time())
    _show(format_of(format), outcomes, dry_run=dry_run)
    if not sockets:
        raise Failure(faults.NO_BROKER_HERE, where=str(RUN_DIR), found="no broker-*.sock", wanted="a running broker",
                      next="systemctl status 'pylog-broker@*'")
    if failed := [outcome for outcome in outcomes if outcome.error]:
        raise Failure(faults.HOST_BROKERS_SILENT, f"{len(failed)} of {len(outcomes)} brokers did not answer",
                      where=str(failed[0].socket), found=str(failed[0].error), wanted="a reply to POST /retention",
                      next="systemctl status 'pylog-broker@*'")


def _ask(path: Path, *, dry_run: bool) -> Outcome:
    try:
        status, answer = ask(path, "POST", "/retention", {"dry_run": dry_run}, _TIMEOUT_S)
    except Unreachable as error:
        return Outcome(path, error=str(error))
    if status != 200:
        return Outcome(path, error=f"{path}: status {status}: {answer}")
    return Outcome(path, answer["deleted"], answer["freed_bytes"])


def _show(format: Format, outcomes: list[Outcome], *, dry_run: bool) -> None:
    rows = [{"socket": str(o.socket), **segment} for o in outcomes for segment in o.deleted]
    freed_bytes = sum(o.freed_bytes for o in outcomes)
    data = {"dry_run": dry_run, "deleted": rows, "freed_bytes": freed_bytes,
            "failed": [{"socket": str(o.socket), "error": o.error} for o in outcomes if o.error]}
    columns = [Column("topic"), Column("partition"), Column("base_offset"), Column("size_bytes"),
               Column("socket", is_wide=True)]
    emit(format, data, lambda is_wide: table(rows, columns, is_wide) if rows else "")
    verb = "would be deleted" if dry_run else "deleted"
    note(f"{len(rows)} segments {verb}, {freed_bytes} bytes, {len(outcomes)} brokers asked")


def _tell_syslog(outcomes: list[Outcome]) -> None:
    syslog.openlog("pylog-retention", facility=syslog.LOG_CRON)
    for outcome in outcomes:
        if outcome.error:
            syslog.syslog(syslog.LOG_ERR, f"socket={outcome.socket} error={outcome.error!r}")
        else:
            syslog.syslog(syslog.LOG_INFO, f"socket={outcome.socket} deleted_segments={len(outcome.deleted)} "
                                           f"freed_bytes={outcome.freed_bytes}")
    syslog.closelog()


def _write_metrics(path: Path, outcomes: list[Outcome], now_s: float) -> None:
    """Replace the metrics file; the time of the last success survives a failure, so that an alarm can see its age."""
    metrics = Metrics()
    is_success = bool(outcomes) and not any(o.error for o in outcomes)
    last_success_s = now_s if is_success else _last_success(path)
    metrics.gauge("pylog_retention_last_run_timestamp_seconds", "When retention last ran.").value = now_s
    metrics.gauge("pylog_retention_failed_brokers", "Brokers that did not answer then.").value = sum(
        o.error is not None for o in outcomes)
    if last_success_s is not None:
        metrics.gauge(_LAST_SUCCESS, "When every broker of this host last applied retention.").value = last_success_s
    for outcome in outcomes:
        broker = outcome.socket.stem
        metrics.gauge("pylog_retention_freed_bytes", "Bytes freed by the last run.", broker=broker).value = (
            outcome.freed_bytes)
        metrics.gauge("pylog_retention_deleted_segments", "Segments deleted by the last run.", broker=broker).value = (
            len(outcome.deleted))
    write_atomically(path, metrics.render(), durable=False)


def _last_success(path: Path) -> float | None:
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    found = re.search(rf"^{_LAST_SUCCESS} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else None
