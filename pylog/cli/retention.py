"""`pylog retention`: delete expired segments, through the brokers of this host or in place of those that are down."""

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
from pylog.cli.progress import tracked
from pylog.client.admin.broker_socket import RUN_DIR, ask
from pylog.errors import PylogError, Unreachable
from pylog.log import offline
from pylog.log.checkpoint import write_atomically
from pylog.metrics import Metrics

app = new_app()

CONFIG_DIR = Path("/etc/pylog")
"""Where the configuration of brokers that run as services is."""

_LAST_SUCCESS = "pylog_retention_last_success_timestamp_seconds"
_TIMEOUT_S = 300
"""Deleting thousands of segments from a slow disk takes minutes; cron's next run must not pile up behind it."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One broker of this host; without a data directory it can only be asked."""

    socket: Path
    data_dir: Path | None = None


@dataclass(slots=True)
class Outcome:
    """What was done for one broker, or why nothing was.

    Attributes:
        is_offline: the broker is down, and its files were looked at instead.
        skipped: partitions that were left alone, and why.
    """

    instance: Instance
    deleted: list[dict[str, Any]] = field(default_factory=list)
    freed_bytes: int = 0
    error: str | None = None
    is_offline: bool = False
    skipped: list[dict[str, Any]] = field(default_factory=list)


@app.command(epilog="Example: pylog retention --all --metrics-file /var/lib/prometheus/node-exporter/pylog.prom")
def retention(
    socket: Annotated[list[Path] | None, typer.Option(metavar="PATH", help="A broker's socket; repeatable.")] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR", help="The data directory of a standalone broker, or of one that is down; repeatable."
        ),
    ] = None,
    all: Annotated[bool, typer.Option("--all", help=f"Every broker of this host: {CONFIG_DIR}/broker-*.yml.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Delete nothing, say what would be.")] = False,
    metrics_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the node exporter's text collector reads.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say it to syslog alone, for cron.")] = False,
    format: FormatOption = None,
) -> None:
    """Have the brokers of this host delete expired segments; say what that freed, here and to syslog.

    A broker that is down has it done by this command, by its files: retention.json and the checkpointed high
    watermarks.  A partition that lacks either is skipped.
    """
    if bool(socket or data) == all:
        raise Failure(
            faults.OPTIONS_CONFLICT,
            where="--socket, --data, --all",
            found="both" if all else "neither",
            wanted="--all or any of the others",
            next="pylog retention --help",
        )
    outcomes: list[Outcome] = []
    instances = [Instance(path) for path in socket or ()]
    instances += [Instance(path / "admin.sock", path) for path in data or ()]
    if all:
        instances, outcomes = _instances_of_host()
    outcomes += [_apply(instance, dry_run=dry_run) for instance in tracked(instances, "applying retention")]
    if not dry_run:
        _tell_syslog(outcomes)
        if metrics_file is not None:
            _write_metrics(metrics_file, outcomes, time.time())
    if not quiet:
        _show(format_of(format), outcomes, dry_run=dry_run)
    if not outcomes:
        raise Failure(
            faults.NO_BROKER_HERE,
            where=f"{CONFIG_DIR}, {RUN_DIR}",
            found="no broker-*.yml, no broker-*.sock",
            wanted="a broker",
            next="systemctl status 'pylog-broker@*'",
        )
    if failed := [outcome for outcome in outcomes if outcome.error]:
        if quiet:
            raise typer.Exit(faults.HOST_BROKERS_SILENT.exit_code)
        raise Failure(
            faults.HOST_BROKERS_SILENT,
            f"retention failed for {len(failed)} of {len(outcomes)} brokers",
            where=str(failed[0].instance.socket),
            found=str(failed[0].error),
            wanted="a reply to POST /retention, or the data directory of a broker that is down",
            next="systemctl status 'pylog-broker@*'",
        )


def _instances_of_host() -> tuple[list[Instance], list[Outcome]]:
    """Return the brokers this host has, and the failures of those whose configuration cannot be read."""
    from pylog.config import load_broker_config

    sockets = set(RUN_DIR.glob("broker-*.sock"))
    instances: list[Instance] = []
    failed: list[Outcome] = []
    for path in sorted(CONFIG_DIR.glob("broker-*.yml")):
        try:
            config = load_broker_config(path)
        except PylogError as error:
            socket = RUN_DIR / f"{path.stem}.sock"
            if socket not in sockets:
                failed.append(Outcome(Instance(socket), error=str(error)))
            continue
        sockets.discard(config.admin_socket)
        instances.append(Instance(config.admin_socket, config.data_dir))
    return [*instances, *map(Instance, sorted(sockets))], failed


def _apply(instance: Instance, *, dry_run: bool) -> Outcome:
    try:
        status, answer = ask(instance.socket, "POST", "/retention", {"dry_run": dry_run}, _TIMEOUT_S)
    except Unreachable as error:
        if instance.data_dir is None:
            return Outcome(instance, error=str(error))
        return _apply_offline(instance, instance.data_dir, dry_run=dry_run)
    if status != 200:
        return Outcome(instance, error=f"{instance.socket}: status {status}: {answer}")
    return Outcome(instance, answer["deleted"], answer["freed_bytes"])


def _apply_offline(instance: Instance, data_dir: Path, *, dry_run: bool) -> Outcome:
    try:
        done = offline.retain(data_dir, time.time_ns() // 1_000_000, dry_run=dry_run)
        offline.remove(done.files)
    except PylogError as error:
        return Outcome(instance, error=f"the broker is down, and {error}")
    return Outcome(
        instance,
        [
            {
                "topic": key.topic,
                "partition": key.partition,
                "base_offset": segment.base_offset,
                "size_bytes": segment.size_bytes,
            }
            for key, segment in done.deleted
        ],
        sum(segment.size_bytes for _, segment in done.deleted),
        is_offline=True,
        skipped=[{"topic": key.topic, "partition": key.partition, "reason": reason} for key, reason in done.skipped],
    )


def _show(format: Format, outcomes: list[Outcome], *, dry_run: bool) -> None:
    rows = [{"socket": str(o.instance.socket), **segment} for o in outcomes for segment in o.deleted]
    freed_bytes = sum(o.freed_bytes for o in outcomes)
    data = {
        "dry_run": dry_run,
        "deleted": rows,
        "freed_bytes": freed_bytes,
        "offline": [str(o.instance.data_dir) for o in outcomes if o.is_offline],
        "skipped": [{"socket": str(o.instance.socket), **skipped} for o in outcomes for skipped in o.skipped],
        "failed": [{"socket": str(o.instance.socket), "error": o.error} for o in outcomes if o.error],
    }
    columns = [
        Column("topic"),
        Column("partition"),
        Column("base_offset"),
        Column("size_bytes"),
        Column("socket", is_wide=True),
    ]
    emit(format, data, lambda is_wide: table(rows, columns, is_wide) if rows else "")
    verb = "would be deleted" if dry_run else "deleted"
    for outcome in outcomes:
        for skipped in outcome.skipped:
            note(
                f"skipped {skipped['topic']}-{skipped['partition']} in {outcome.instance.data_dir}: {skipped['reason']}"
            )
    down = sum(outcome.is_offline for outcome in outcomes)
    note(f"{len(rows)} segments {verb}, {freed_bytes} bytes, {len(outcomes) - down} brokers asked, {down} down")


def _tell_syslog(outcomes: list[Outcome]) -> None:
    syslog.openlog("pylog-retention", facility=syslog.LOG_CRON)
    for outcome in outcomes:
        if outcome.error:
            syslog.syslog(syslog.LOG_ERR, f"socket={outcome.instance.socket} error={outcome.error!r}")
            continue
        place = f"data={outcome.instance.data_dir}" if outcome.is_offline else f"socket={outcome.instance.socket}"
        syslog.syslog(
            syslog.LOG_INFO, f"{place} deleted_segments={len(outcome.deleted)} freed_bytes={outcome.freed_bytes}"
        )
        for skipped in outcome.skipped:
            syslog.syslog(
                syslog.LOG_WARNING,
                f"{place} skipped={skipped['topic']}-{skipped['partition']} reason={skipped['reason']!r}",
            )
    syslog.closelog()


def _write_metrics(path: Path, outcomes: list[Outcome], now_s: float) -> None:
    """Replace the metrics file; the time of the last success survives a failure, so that an alarm can see its age."""
    metrics = Metrics()
    is_success = bool(outcomes) and not any(o.error for o in outcomes)
    last_success_s = now_s if is_success else _last_success(path)
    metrics.gauge("pylog_retention_last_run_timestamp_seconds", "When retention last ran.").value = now_s
    metrics.gauge("pylog_retention_failed_brokers", "Brokers whose segments were not looked at then.").value = sum(
        o.error is not None for o in outcomes
    )
    if last_success_s is not None:
        metrics.gauge(_LAST_SUCCESS, "When every broker of this host last applied retention.").value = last_success_s
    for outcome in outcomes:
        broker = outcome.instance.socket.stem
        metrics.gauge(
            "pylog_retention_freed_bytes", "Bytes freed by the last run.", broker=broker
        ).value = outcome.freed_bytes
        metrics.gauge(
            "pylog_retention_deleted_segments", "Segments deleted by the last run.", broker=broker
        ).value = len(outcome.deleted)
        metrics.gauge(
            "pylog_retention_skipped_partitions", "Partitions the last run skipped.", broker=broker
        ).value = len(outcome.skipped)
    write_atomically(path, metrics.render(), durable=False)


def _last_success(path: Path) -> float | None:
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    found = re.search(rf"^{_LAST_SUCCESS} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else None
