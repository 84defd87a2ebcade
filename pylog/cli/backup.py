"""`pylog cluster backup` and `pylog cluster restore`: the metadata of a cluster as a file, and back."""

import json
import os
import re
import sys
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from pylog import __version__, faults
from pylog.cli.failure import Failure
from pylog.cli.options import FormatOption, format_of
from pylog.cli.output import Column, emit, note, table
from pylog.cli.progress import progress
from pylog.cli.store import connected_store
from pylog.log.checkpoint import write_atomically
from pylog.metrics import Metrics

if TYPE_CHECKING:
    from pylog.cluster.restore import Restoration
    from pylog.store.base import Store

Config: TypeAlias = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="The configuration file of a broker: its store.")
]
Data: TypeAlias = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="The data directory of a standalone broker that is down.")
]

KeyFile: TypeAlias = Annotated[
    Path | None, typer.Option("--key-file", metavar="FILE", help="A random secret a line; the first seals, each opens.")
]


def backup(
    to: Annotated[Path | None, typer.Option(metavar="FILE", help="A new file for it; stdout without.")] = None,
    into: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A directory for a file named by the time; older ones go.")
    ] = None,
    keep: Annotated[int, typer.Option(metavar="N", min=1, help="With --into: files that stay.")] = 14,
    metrics_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --into: for the node exporter's text collector.")
    ] = None,
    key_file: KeyFile = None,
    config: Config = None,
    data: Data = None,
) -> None:
    """Write down the cluster's metadata: topics, where they are, settings, quotas, the paper's consumers' offsets."""
    from pylog.store.backup import encode_backup, read_nodes

    if to is not None and into is not None:
        raise Failure(faults.OPTIONS_CONFLICT, "--to and --into exclude each other")
    # A key that cannot be used is told before anything is read.
    sealed_with = _secrets(key_file)
    now_ms = time.time_ns() // 1_000_000
    with progress("reading the store") as bar, _store(config, data) as store:
        text = encode_backup(read_nodes(store, bar.at), now_ms, __version__)
    if sealed_with:
        from pylog.store.sealed import seal

        text = seal(text.encode(), sealed_with[0]).decode().rstrip("\n")
    if into is not None:
        note(f"written to {rotate(into, text, now_ms, keep)}")
        if metrics_file is not None:
            write_metrics(metrics_file, now_ms)
    elif to is not None:
        _write(to, text)
        note(f"written to {to}")
    else:
        sys.stdout.write(text + "\n")


def rotate(directory: Path, text: str, now_ms: int, keep: int) -> Path:
    """Write a backup into *directory*, remove all but the *keep* newest, and return where it is.

    It gets its name once it is whole, so that none that was cut short by a full disk takes the place of a good one.
    """
    path = directory / name_of(now_ms)
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    _write(part, text)
    part.replace(path)
    for name in outdated((one.name for one in directory.iterdir()), keep):
        (directory / name).unlink()
    return path


def name_of(now_ms: int) -> str:
    """Return the name of a backup that was made at *now_ms*; names sort by time."""
    return time.strftime("metadata-%Y%m%dT%H%M%SZ.json", time.gmtime(now_ms // 1000))


def outdated(names: Iterable[str], keep: int) -> list[str]:
    """Return those of *names* that are backups beside the *keep* newest; other files never are."""
    backups = sorted(name for name in names if re.fullmatch(r"metadata-\d{8}T\d{6}Z\.json", name))
    return backups[: max(0, len(backups) - keep)]


def write_metrics(path: Path, now_ms: int) -> None:
    """Write when the last backup succeeded, whole or not at all."""
    metrics = Metrics()
    metrics.gauge(
        "pylog_backup_last_success_timestamp_seconds", "When the cluster's metadata was backed up last."
    ).value = now_ms / 1000
    write_atomically(path, metrics.render(), durable=False)


def _private(path: str, flags: int) -> int:
    """Open a file that nobody else could read even for a moment."""
    return os.open(path, flags, 0o600)


def _write(to: Path, text: str) -> None:
    try:
        # It may hold credentials, and an older backup is never replaced by one that may be worse.
        with open(to, "x", opener=_private) as file:
            file.write(text + "\n")
    except OSError as error:
        raise Failure(
            faults.FILE_UNREADABLE,
            where=str(to),
            found=error.strerror or str(error),
            wanted="a file that does not exist yet",
        ) from error


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `pylog cluster backup` wrote.")],
    ends: Annotated[
        list[Path] | None,
        typer.Option("--ends", metavar="FILE", help="What `pylog log ends` wrote, once for every broker."),
    ] = None,
    lost: Annotated[
        list[int] | None, typer.Option(metavar="ID", help="A broker nobody can read; what only it had waits for it.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Write it; without, everything is only shown.")] = False,
    key_file: KeyFile = None,
    config: Config = None,
    data: Data = None,
    format: FormatOption = None,
) -> None:
    """Bring back metadata that the store lost, while all brokers are stopped; logs newer than the backup count."""
    from pylog.cluster.restore import found_broker, plan_restore
    from pylog.store.backup import decode_backup, replace_nodes

    nodes = decode_backup(_opened(_read(file), _secrets(key_file), file), str(file))
    found = [found_broker(_json(path), str(path)) for path in ends or ()]
    made = plan_restore(nodes, found, lost=lost or ())
    with progress("writing the store") as bar, _store(config, data) as store:
        if yes:
            replace_nodes(store, made.nodes, bar.at)
    _show(made, is_written=yes, format=format)
    note("restored; start the brokers" if yes else "nothing was written; --yes writes it")


def _secrets(key_file: Path | None) -> tuple[bytes, ...]:
    if key_file is None:
        return ()
    from pylog.store.sealed import read_secrets

    return read_secrets(key_file)


def _opened(content: bytes, secrets: tuple[bytes, ...], file: Path) -> bytes:
    from pylog.store.sealed import is_sealed, unseal

    if not is_sealed(content):
        return content
    if not secrets:
        raise Failure(faults.OPTIONS_CONFLICT, "the backup is sealed", where=str(file), wanted="--key-file FILE")
    return unseal(content, secrets, str(file))


def _show(made: "Restoration", *, is_written: bool, format: FormatOption) -> None:
    from pylog.cluster.formats import NEWEST_LEVEL

    rows = [
        {
            "topic": topic.name,
            "known_from": topic.origin.value,
            "partitions": len(topic.image.partitions),
            "leader_epoch": max(state.leader_epoch for state in topic.image.partitions.values()),
            "catching_up": list(topic.catching_up),
            "waiting": list(topic.waiting),
            "uncertain": list(topic.uncertain),
            "topic_id": str(topic.image.topic_id),
        }
        for topic in made.topics
    ]
    columns = [
        Column("topic"),
        Column("known_from"),
        Column("partitions"),
        Column("catching_up"),
        Column("waiting"),
        Column("uncertain"),
        Column("leader_epoch", is_wide=True),
        Column("topic_id", is_wide=True),
    ]
    document = {
        "restored": is_written,
        "cluster_id": made.cluster_id,
        "controller_epoch": made.controller_epoch,
        "format_level": made.level,
        "topics": rows,
        "left_out": list(made.left_out),
        "dropped_orders": list(made.dropped_orders),
    }
    heading = (
        f"cluster           {made.cluster_id}\n"
        f"controller epoch  {made.controller_epoch}\n"
        f"format level      {made.level}\n\n"
    )
    emit(format_of(format), document, lambda is_wide: heading + table(rows, columns, is_wide))
    if made.level > made.backup_level:
        note(f"the backup is from before transactions, of format level {made.backup_level}; the disks have some")
    if made.level < NEWEST_LEVEL:
        note(f"format level {made.level}: if it had been raised since the backup, run `pylog cluster finalize` again")
    for left in made.left_out:
        note(f"left out, and kept: {left}")
    for name in made.dropped_orders:
        note(f"the deletion of {name} was under way when the backup was made: order it again")
    for topic in made.topics:
        for number in topic.waiting:
            note(f"{topic.name}-{number} waits for a broker that was not read")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Failure(faults.FILE_MISSING, where=str(path), found=error.strerror or str(error)) from error


def _json(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(_read(path))
    except ValueError as error:
        raise Failure(
            faults.OPTION_WRONG, where=str(path), found=str(error), wanted="what `pylog log ends --format json` writes"
        ) from error
    return found


def _store(config: Path | None, data: Path | None) -> AbstractContextManager["Store"]:
    """Return the store of a broker, to connect to."""
    from pylog.broker.config import STORE
    from pylog.config import load_broker_config, standalone_config

    if (config is None) == (data is None):
        raise Failure(
            faults.OPTIONS_CONFLICT,
            where="--config, --data",
            found="both" if config else "neither",
            wanted="one of them",
            next="pylog cluster backup --config /etc/pylog/broker-1.yml",
        )
    if data is not None and not (data / STORE).is_dir():
        raise Failure(faults.FILE_MISSING, where=str(data), wanted="the directory of a standalone broker")
    if config is not None:
        found = load_broker_config(config)
    else:
        assert data is not None
        found = standalone_config(data)
    return connected_store(found)
