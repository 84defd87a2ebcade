"""`pylog stream`: run, check, rebase, reset."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from pylog import faults
from pylog.cli.failure import Failure, without_spark
from pylog.cli.options import new_app, told_to_the_user
from pylog.cli.output import note
from pylog.cli.progress import progress

if TYPE_CHECKING:
    from pylog.ingest.stream.checkpoint import Owner, StreamCheckpoint
    from pylog.ingest.stream.config import StreamConfig

app = new_app("Run a query over topics on Spark, on and on; move it to another position.")

ConfigFile: TypeAlias = Annotated[Path, typer.Option("--config", metavar="FILE", help="The query's configuration.")]
Execute: TypeAlias = Annotated[bool, typer.Option("--execute", help="Do it; else it only shows what would be.")]


@app.command(epilog="Example: pylog stream run --config /etc/pylog/stream-views.yml")
def run(
    config: ConfigFile,
    once: Annotated[bool, typer.Option("--once", help="End once all is written that the topics hold now.")] = False,
) -> None:
    """Run a query until SIGTERM or SIGINT, and write its rows to its topic."""
    query, loaded = _loaded(config)
    from pylog.daemon.ready import tell_ready
    from pylog.daemon.stop import Stop

    stop = Stop()
    stop.on_signals()
    with told_to_the_user(_place(config, loaded)):
        query.run(loaded, stop, is_once=once, on_start=tell_ready)


@app.command(epilog="Example: pylog stream check --config /etc/pylog/stream-views.yml")
def check(config: ConfigFile) -> None:
    """Plan a query over its topics, and change nothing; what would keep it from running is an error."""
    query, loaded = _loaded(config)
    with told_to_the_user(_place(config, loaded)), progress("planning the query"):
        columns = query.check(loaded)
    note(f"{config}: good, writes {', '.join(columns)} to topic {loaded.output}")


@app.command(epilog="Example: pylog stream rebase --config /etc/pylog/stream-views.yml --execute")
def rebase(config: ConfigFile, execute: Execute = False) -> None:
    """Let a changed query go on where it was, without its state: open windows count from there on."""
    with _stopped(config) as (loaded, checkpoint, owner):
        position = checkpoint.rebase(owner) if execute else checkpoint.position(owner)
    if position is None:
        raise _no_position(config, "no micro-batch of the query has ended yet", "pylog stream reset begins anew")
    places = ", ".join(f"{partition} at {offset}" for partition, offset in sorted(position.offsets.items()))
    note(f"query {loaded.name} {'goes' if execute else 'would go'} on without its state: {places}")


@app.command(epilog="Example: pylog stream reset --config /etc/pylog/stream-views.yml --execute")
def reset(config: ConfigFile, execute: Execute = False) -> None:
    """Let a query begin anew where its inputs' options say, without position and state."""
    with _stopped(config) as (loaded, checkpoint, owner):
        if execute:
            checkpoint.reset(owner)
    note(f"query {loaded.name} {'begins' if execute else 'would begin'} anew: what it wrote already comes again")


@app.command(epilog="Example: pylog stream forget --config /etc/pylog/stream-views.yml --execute")
def forget(config: ConfigFile, execute: Execute = False) -> None:
    """Delete the consumer group and the metrics of a query that is run no more, so that nobody waits for it.

    Its checkpoint stays: a query of the same name and text goes on there.
    """
    from pylog.client.admin.groups import GroupAdmin
    from pylog.errors import ApiError, ErrorCode

    with _stopped(config) as (loaded, _, _):
        if execute and loaded.group:
            with told_to_the_user(loaded.cluster.bootstrap):
                try:
                    GroupAdmin(loaded.cluster).delete_group(loaded.group)
                except ApiError as error:
                    if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                        raise
        if execute and loaded.metrics_file is not None:
            loaded.metrics_file.unlink(missing_ok=True)
    what = f"group {loaded.group}" if loaded.group else "no group"
    note(f"query {loaded.name} {'is' if execute else 'would be'} forgotten: {what}, and its metrics")


def _loaded(config: Path) -> "tuple[ModuleType, StreamConfig]":
    from pylog.config import load_stream_config

    loaded = load_stream_config(config)
    try:
        from pylog.ingest.stream import query
    except ModuleNotFoundError as error:
        raise without_spark(error) from error
    return query, loaded


def _place(config: Path, loaded: "StreamConfig") -> str:
    """Return what an error is about: Ansible checks a file of a query under a name for the moment."""
    return f"query {loaded.name} of {config}, brokers at {loaded.cluster.bootstrap}"


@contextmanager
def _stopped(config: Path) -> "Iterator[tuple[StreamConfig, StreamCheckpoint, Owner]]":
    """Lend the checkpoint of a query that must not run meanwhile."""
    from pylog.config import load_stream_config
    from pylog.ingest.stream.checkpoint import StreamCheckpoint

    loaded = load_stream_config(config)
    checkpoint = StreamCheckpoint(loaded.checkpoint)
    if checkpoint.owner() is None:
        raise _no_position(config, f"{loaded.checkpoint}: no query ran there yet", "pylog stream run starts it")
    with checkpoint.held():
        owner = checkpoint.owner()
        assert owner is not None, "it was there, and nobody takes one away"
        if owner.name != loaded.name:
            found = f"{loaded.checkpoint} belongs to query {owner.name}"
            raise _no_position(config, found, "name the query's own checkpoint")
        yield loaded, checkpoint, owner


def _no_position(config: Path, found: str, following: str) -> Failure:
    return Failure(faults.POSITION_WRONG, where=str(config), found=found, next=following)
