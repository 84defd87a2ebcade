"""`pylog audit`: count, lake, report."""

import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pylog import faults
from pylog.cli.failure import Failure
from pylog.cli.options import Bootstrap, Format, FormatOption, Properties, Timeout, connection, format_of, new_app
from pylog.cli.options import settings as load_given
from pylog.cli.output import emit, note
from pylog.cli.progress import progress, tracked
from pylog.cli.target import parse_duration_ms, parse_time_ms

if TYPE_CHECKING:
    from pylog.audit.judge import Finding, Judgement

app = new_app("Count what passes each tier, and say what is missing where.")


@app.command(epilog="Example: pylog audit count --config /etc/pylog/audit-live.yml")
def count(
    config: Annotated[Path, typer.Option("--config", metavar="FILE", help="Tier, cluster and topics.")],
    check: Annotated[bool, typer.Option("--check", help="Read the file, and change nothing.")] = False,
) -> None:
    """Count the records of one tier until SIGTERM or SIGINT, and report them to `_audit`."""
    from pylog.config import load_counter_config

    loaded = load_counter_config(config)
    if check:
        note(f"{config}: good, for tier {loaded.tier}")
        return
    from pylog.audit import counter
    from pylog.daemon.notices import Notices
    from pylog.daemon.stop import Stop
    from pylog.daemon.threads import end_with_threads
    from pylog.daemon.web import WebServer, metrics_app
    from pylog.metrics import Metrics
    from pylog.process_metrics import measure_process

    stop, metrics = Stop(), Metrics()
    measure_process(metrics)
    stop.on_signals()
    end_with_threads()
    with ExitStack() as stack:
        if loaded.metrics_listen is not None:
            stack.enter_context(WebServer(*loaded.metrics_listen, metrics_app(metrics), tls=loaded.metrics_tls))
        counter.run(loaded, stop, Notices(), metrics)


@app.command(epilog="Example: pylog audit lake /var/lib/pylog/lake --bootstrap log-b1:9092")
def lake(
    directory: Annotated[Path, typer.Argument(metavar="LAKE", help="The directory the ingestion loads into.")],
    since: Annotated[str, typer.Option(metavar="DURATION", help="Count hours from so long ago on.")] = "26h",
    window_ms: Annotated[int, typer.Option("--window-ms", min=1000, help="How long a window is.")] = 60_000,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keep there what files held, so that the next run reads only new ones."),
    ] = None,
    bootstrap: Bootstrap = None,
    timeout: Timeout = None,
    property: Properties = None,
) -> None:
    """Count the rows of a lake's Parquet files, and report them to `_audit` of the cluster it is loaded from."""
    from pylog.audit import lake as counting
    from pylog.audit import load
    from pylog.audit.held import Memory
    from pylog.client.admin.cluster import Admin
    from pylog.errors import ApiError, ErrorCode, StorageError
    from pylog.ingest.lake import HOUR_S, Lake
    from pylog.log.checkpoint import write_atomically

    cluster = connection(load_given(bootstrap, timeout, property))
    state = Lake.open(directory).visible()
    now_ms = time.time_ns() // 1_000_000
    from_ms = now_ms - parse_duration_ms(since)
    from_ms -= from_ms % 3_600_000
    admin, reports = Admin(cluster), []
    memory = Memory.decode(_text_of(keep), window_ms)
    for topic in tracked(sorted(state.position.topic_ids), "counting topics"):
        loaded = {one.partition: offset for one, offset in state.position.offsets.items() if one.topic == topic}
        try:
            # Asked before the files are read: what they hold is then at least as much.
            complete_ms = counting.complete_ms(admin, topic, loaded, now_ms)
        except ApiError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            note(f"topic {topic} is in the lake and not in the cluster any more; its count stays what it was")
            continue
        all_files = [file for file in state.files.values() if file.topic == topic]
        # An hour more: a clock that was set back puts a record into one before its stamp's.  What was written since
        # then counts whatever hour it is of: the clocks of producers may be years off.
        files = [
            directory / file.path
            for file in all_files
            if not file.hour_ended_s
            or file.hour_ended_s + HOUR_S > from_ms / 1000
            or _written_ms(directory / file.path) >= from_ms
        ]
        of_it = counting.Loaded(state.position.topic_ids.get(topic), loaded, len(files) == len(all_files))
        reports.append(
            counting.count(
                topic,
                files,
                window_ms,
                of_it,
                from_ms=from_ms,
                now_ms=now_ms,
                complete_ms=complete_ms,
                warn=note,
                memory=memory,
            )
        )
    if keep is not None:
        try:
            write_atomically(keep, memory.encode(), durable=False)
        except StorageError as error:
            note(str(error))  # what was counted is right all the same
    load.write(cluster, reports, note)
    note(f"reported {sum(len(one.windows) for one in reports)} windows of {len(reports)} topics")


def _text_of(path: Path | None) -> str:
    try:
        return "" if path is None else path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def _written_ms(path: Path) -> float:
    try:
        return path.stat().st_mtime * 1000
    except OSError:
        return float("inf")  # counted, and told as one that cannot be read


@app.command(epilog="Example: pylog audit report --ledger log-a1:9092 --ledger log-b1:9092 --since 2h --format wide")
def report(
    ledger: Annotated[
        list[str],
        typer.Option(
            "--ledger", metavar="HOST:PORT,..", help="Brokers of a cluster that has an `_audit`; once for each cluster."
        ),
    ],
    topic: Annotated[list[str] | None, typer.Option("--topic", "-t", help="Only this; may be repeated.")] = None,
    since: Annotated[str, typer.Option(metavar="DURATION", help="Judge windows from so long ago on.")] = "24h",
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Judge windows from here on, as 2030-01-31T10:00 [--since]."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="TIME", help="... and before this; exit code 4 if nobody can tell for all of them yet."
        ),
    ] = None,
    window_ms: Annotated[int, typer.Option("--window-ms", min=1000, help="How long a window is.")] = 60_000,
    lateness_ms: Annotated[
        int | None, typer.Option("--lateness-ms", min=0, help="How late a record or a clock may be [one window].")
    ] = None,
    picture: Annotated[Path | None, typer.Option(metavar="DIR", help="Write an SVG for each topic there.")] = None,
    metrics: Annotated[Path | None, typer.Option(metavar="FILE", help="Write Prometheus metrics there.")] = None,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keep there what was read, so that the next run reads only what came since."),
    ] = None,
    timeout: Timeout = None,
    property: Properties = None,
    format: FormatOption = None,
) -> None:
    """Compare what was produced with what arrived at each tier.

    Exit code 1 if something is missing, 4 if nobody can tell: no cluster keeps an account, or, between --from and --to,
    a tier is not counted to the end yet.
    """
    from pylog.audit import judge as judging
    from pylog.audit import load, render
    from pylog.audit.confirm import confirm

    now_ms = time.time_ns() // 1_000_000
    from_ms = now_ms - parse_duration_ms(since) if from_ is None else parse_time_ms(from_, "--from")
    from_ms -= from_ms % window_ms
    to_ms = now_ms if to is None else parse_time_ms(to, "--to")
    if to_ms <= from_ms:
        raise Failure(faults.OPTION_WRONG, where="--to", found=str(to), wanted="a time after the first window")
    clusters = [connection(load_given(one, timeout, property)) for one in ledger]
    for one, cluster in zip(ledger, clusters, strict=True):
        if not load.is_kept(cluster):
            raise Failure(faults.COUNTS_UNKNOWN, "a cluster keeps no account", where=one, wanted="the topic _audit")
    with progress("reading what was counted") as bar:
        found = judging.judge(
            load.load(clusters, from_ms, note, keep, bar.at),
            now_ms,
            window_ms,
            window_ms if lateness_ms is None else lateness_ms,
        )
    if to is not None:
        found = found.between(from_ms, to_ms)
    if topic:
        found = found.only(topic)
    with progress("asking the clusters about what is missing") as bar:
        confirm(found, clusters, bar.at)
    if picture is not None:
        picture.mkdir(parents=True, exist_ok=True)
        for name in found.rows:
            (picture / f"{name}.svg").write_text(render.as_picture(found, name))
    if metrics is not None:
        _write_metrics(found, metrics)
    emit(
        format_of(format) if format is not None else Format.TEXT,
        render.as_data(found),
        lambda is_wide: render.as_text(found, is_wide=is_wide),
    )
    if found.alarms:
        first = found.alarms[0]
        raise Failure(
            faults.COUNTS_DIFFER,
            f"{len(found.alarms)} windows are not complete",
            where=f"topic {first.topic}, tier {first.tier}, window {render.moment(first.window_ms)}",
            found=f"{first.count} records {first.kind}, of {_whose(first)}",
            next="pylog audit report with --format wide, and the journal of that tier's program",
        )

    # Of a day up to now the last minutes are always open; of a time that was asked for by name nothing may be.
    if (from_ is not None or to is not None) and (unknown := found.unknown(topic or [])):
        raise Failure(
            faults.COUNTS_UNKNOWN, where=unknown[0], found=f"{len(unknown)} tiers or topics that nobody can judge"
        )
    if (from_ is not None or to is not None) and not found.rows and not found.passages:
        raise Failure(
            faults.COUNTS_UNKNOWN,
            found="no record was counted in this time",
            wanted="records that were written then, counted by `pylog audit count`",
        )


def _whose(finding: "Finding") -> str:
    if finding.found_in is not None:
        return f"partition {finding.partition}, offsets of {finding.found_in}"
    return f"producer {finding.producer} on {finding.host}"


def _write_metrics(found: "Judgement", path: Path) -> None:
    from pylog.audit.judge import Kind
    from pylog.log.checkpoint import write_atomically
    from pylog.metrics import Metrics

    metrics = Metrics()
    metrics.gauge("pylog_audit_judged_timestamp_seconds", "When the last report was made.").value = found.at_ms / 1000
    for name in sorted(found.rows | found.passages):
        for kind in Kind:
            metrics.gauge(
                "pylog_audit_findings",
                "Records that are missing, doubled, altered, compacted away or of unknown number.",
                topic=name,
                kind=kind,
            ).value = sum(one.count for one in found.findings if (one.topic, one.kind) == (name, kind))
    write_atomically(path, metrics.render())
