"""`pylog connect`: connectors of Apache Kafka Connect as code, and how they are."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pylog import faults
from pylog.cli.document import read_document
from pylog.cli.failure import Failure, failure_of
from pylog.cli.options import FormatOption, format_of, new_app
from pylog.cli.output import Column, done, emit, note, table
from pylog.cli.progress import progress, sleep, tracked
from pylog.errors import PylogError

if TYPE_CHECKING:
    from pylog.connect.document import Change, Wanted
    from pylog.connect.health import Status
    from pylog.connect.workers import Workers

app = new_app("Make connectors of Kafka Connect what a document says; see and restart them.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="A connector.")]
Url = Annotated[str, typer.Option(metavar="URL", help="REST API of any worker.")]
User = Annotated[str, typer.Option(metavar="NAME", help="For workers that ask for a login.")]
PasswordFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Its first line is the password.")]
Ca = Annotated[Path | None, typer.Option(metavar="FILE", help="Certificates to trust instead of the system's.")]
Certificate = Annotated[Path | None, typer.Option(metavar="FILE", help="Key and certificate to show the worker, PEM.")]
Document = Annotated[str, typer.Argument(metavar="FILE", help="The document, YAML or JSON; - for stdin.")]

_URL = "http://127.0.0.1:8083"
_COLUMNS = [Column("connector"), Column("what"), Column("found"), Column("wanted")]
_PAUSE_S = 1.0


@app.command(epilog="Example: pylog connect apply connectors.yml --dry-run")
def apply(
    file: Document,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    url: Url = _URL,
    user: User = "",
    password_file: PasswordFile = None,
    ca: Ca = None,
    certificate: Certificate = None,
    format: FormatOption = None,
) -> None:
    """Make connectors what a document says: create, set, pause, stop, resume, delete what it names as absent.

    What the document does not name is left alone. Workers judge all settings first; with one refusal nothing changes.
    """
    from pylog.connect.document import compare

    wanted, absent = _read(file)
    workers = _workers(url, user, password_file, ca, certificate)
    with _told_to_the_user():
        changes = compare(wanted, absent, workers.connectors())
        refused = [
            (change.connector, setting, message)
            for change in tracked(changes, "checking settings")
            if change.config
            for setting, message in workers.faults(change.config)
        ]
        if refused:
            raise _refused(refused)
        if not dry_run:
            for change in tracked(changes, "changing connectors"):
                workers.carry_out(change)
    _emit_changes(changes, dry_run, format)


@app.command(epilog="Example: pylog connect status --wanted connectors.yml --wait 120")
def status(
    wanted: Annotated[
        str | None, typer.Option(metavar="FILE", help="Judge by this document instead: - for stdin.")
    ] = None,
    wait: Annotated[
        float,
        typer.Option(min=0, max=3600, metavar="SECONDS", help="So long for all to be well."),
    ] = 0,
    consecutive: Annotated[int, typer.Option(min=1, max=100, metavar="N", help="Well so many times in a row.")] = 1,
    besides: Annotated[
        list[str] | None, typer.Option("--except", metavar="NAME", help="A connector not to judge; repeatable.")
    ] = None,
    url: Url = _URL,
    user: User = "",
    password_file: PasswordFile = None,
    ca: Ca = None,
    certificate: Certificate = None,
    format: FormatOption = None,
) -> None:
    """Show connectors and tasks; exit 1 when one is not as it should be: running, unless a document says otherwise."""
    from pylog.connect.health import unwell
    from pylog.connect.workers import Refused, WorkerAway

    should = None if wanted is None else _read(wanted)[0]
    workers = _workers(url, user, password_file, ca, certificate)
    began_s, times_well = time.monotonic(), 0
    deadline = began_s + wait
    with _told_to_the_user(), progress("waiting for connectors") as bar:
        while True:
            try:
                statuses = workers.statuses()
            except (WorkerAway, Refused):  # as while it starts
                if time.monotonic() >= deadline:
                    raise
                times_well = 0
                sleep(bar, _PAUSE_S, began_s, wait)
                continue
            found = unwell(_to_judge(should, statuses, besides or ()), statuses)
            times_well = 0 if found else times_well + 1
            if times_well >= consecutive or (time.monotonic() >= deadline and (found or not wait)):
                break
            sleep(bar, _PAUSE_S, began_s, wait)
    rows = _status_rows(statuses)
    columns = [Column(name) for name in ("connector", "task", "state", "worker", "reason")]
    data = {"connectors": rows, "unwell": found}
    emit(format_of(format), data, lambda is_wide: table(rows, columns, is_wide) if rows else "")
    if found:
        for line in found:
            note(line)
        raise Failure(faults.CONNECTORS_UNWELL, where=url, found=found[0], wanted="all as they should be")
    note(f"{len(statuses)} connectors, all as they should be")


@app.command(epilog="Example: pylog connect restart orders-source")
def restart(
    name: Name,
    all_tasks: Annotated[bool, typer.Option("--all-tasks", help="Also tasks that run.")] = False,
    url: Url = _URL,
    user: User = "",
    password_file: PasswordFile = None,
    ca: Ca = None,
    certificate: Certificate = None,
    format: FormatOption = None,
) -> None:
    """Restart what has failed of a connector, or all of it."""
    with _told_to_the_user():
        _workers(url, user, password_file, ca, certificate).restart(name, only_failed=not all_tasks)
    done(format_of(format), {"connector": name, "restarted": True}, f"restarted {name}")


@app.command(epilog="Example: pylog connect pause orders-source")
def pause(
    name: Name,
    url: Url = _URL,
    user: User = "",
    password_file: PasswordFile = None,
    ca: Ca = None,
    certificate: Certificate = None,
    format: FormatOption = None,
) -> None:
    """Pause a connector: its tasks stay where they are and do nothing; `resume` goes on."""
    _move(name, "pause", _workers(url, user, password_file, ca, certificate))
    done(format_of(format), {"connector": name, "state": "paused"}, f"paused {name}")


@app.command(epilog="Example: pylog connect resume orders-source")
def resume(
    name: Name,
    url: Url = _URL,
    user: User = "",
    password_file: PasswordFile = None,
    ca: Ca = None,
    certificate: Certificate = None,
    format: FormatOption = None,
) -> None:
    """Go on with a connector that is paused or stopped."""
    _move(name, "run", _workers(url, user, password_file, ca, certificate))
    done(format_of(format), {"connector": name, "state": "running"}, f"resumed {name}")


@app.command(epilog="Example: pylog connect watch --worker 10.0.0.7:8083")
def watch(
    worker: Annotated[
        list[str] | None, typer.Option(metavar="HOST:PORT", help="Restart only what failed on this one; repeatable.")
    ] = None,
    metrics_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="For the node exporter's text collector.")
    ] = None,
    url: Url = _URL,
    user: User = "",
    password_file: PasswordFile = None,
    ca: Ca = None,
    certificate: Certificate = None,
) -> None:
    """Restart failed connectors and tasks, after waits that double from 10 s to 10 minutes, until stopped."""
    from pylog.connect.watch import watch as watch_workers
    from pylog.daemon.notices import Notices
    from pylog.daemon.stop import Stop

    stop = Stop()
    stop.on_signals()
    watch_workers(_workers(url, user, password_file, ca, certificate), worker, metrics_file, stop, Notices())


def _to_judge(
    should: "Sequence[Wanted] | None", statuses: "Mapping[str, Status]", besides: Sequence[str]
) -> "list[Wanted]":
    from pylog.connect.document import State, Wanted

    if should is None:
        # One that somebody paused is as it should be where no document says otherwise.
        should = [
            Wanted(
                name=name, config={}, state=State(one.state) if one.state in ("paused", "stopped") else State.RUNNING
            )
            for name, one in statuses.items()
        ]
    return [one for one in should if one.name not in besides]


def _move(name: str, action: str, workers: "Workers") -> None:
    from pylog.connect.document import Action, Change

    with _told_to_the_user():
        workers.carry_out(Change(action=Action(action), connector=name, differences=()))


def _emit_changes(changes: "Sequence[Change]", dry_run: bool, format: FormatOption) -> None:
    rows = [
        {"connector": one.connector, "what": one.what, "found": one.found, "wanted": one.wanted}
        for change in changes
        for one in change.differences
    ]
    data = {
        "dry_run": dry_run,
        "changes": [
            {
                "action": str(change.action),
                "connector": change.connector,
                "differences": [row for row in rows if row["connector"] == change.connector],
            }
            for change in changes
        ],
    }
    emit(format_of(format), data, lambda is_wide: table(rows, _COLUMNS, is_wide) if rows else "")
    count = len({change.connector for change in changes})
    note(f"{count} connectors {'would change' if dry_run else 'changed'}" if count else "every connector is as wanted")


def _status_rows(statuses: "dict[str, Status]") -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for name, one in sorted(statuses.items()):
        rows.append({"connector": name, "task": "", "state": one.state, "worker": one.worker, "reason": one.reason})
        rows += [
            {"connector": name, "task": t.number, "state": t.state, "worker": t.worker, "reason": t.reason}
            for t in one.tasks
        ]
    return rows


def _refused(refused: Sequence[tuple[str, str, str]]) -> Failure:
    for connector, setting, message in refused:
        note(f"{connector}: {setting}: {message}")
    connector, setting, message = refused[0]
    return Failure(
        faults.CONNECTORS_REFUSED,
        where=f"{connector}: {setting}",
        found=message,
        wanted="a setting that Connect accepts",
    )


def _read(file: str) -> "tuple[list[Wanted], list[str]]":
    from pylog.connect.document import read

    return read_document(file, read)


def _workers(url: str, user: str, password_file: Path | None, ca: Path | None, certificate: Path | None) -> "Workers":
    from pylog.connect.workers import Workers

    password = ""
    if password_file is not None:
        try:
            password = password_file.read_text().partition("\n")[0]
        except (OSError, UnicodeDecodeError) as error:
            raise Failure(faults.FILE_UNREADABLE, where=str(password_file), found=str(error)) from None
    try:
        return Workers(url, user=user, password=password, ca=ca, certificate=certificate)
    except (ValueError, OSError) as error:
        raise Failure(faults.OPTION_WRONG, where="--url, --ca, --certificate", found=str(error)) from None


@contextmanager
def _told_to_the_user() -> Iterator[None]:
    try:
        yield
    except PylogError as error:
        raise failure_of(error) from error
