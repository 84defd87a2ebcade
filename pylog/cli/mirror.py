"""`pylog mirror`: run, status, move, resend."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from pylog import faults
from pylog.cli.failure import Failure
from pylog.cli.options import FormatOption, format_of, new_app, told_to_the_user
from pylog.cli.output import Column, emit, emit_rows, note, table
from pylog.cli.progress import progress

app = new_app("Run a mirror of another cluster; see how far it is; move groups over; send parked records on.")

ConfigFile: TypeAlias = Annotated[Path, typer.Option("--config", metavar="FILE", help="The mirror's configuration.")]


@app.command(epilog="Example: pylog mirror run --config /etc/pylog/mirror.yml")
def run(
    config: ConfigFile,
    check: Annotated[bool, typer.Option("--check", help="Read the file, and change nothing.")] = False,
) -> None:
    """Mirror topics until SIGTERM or SIGINT; several instances share the partitions."""
    from pylog.config import load_mirror_config

    loaded = load_mirror_config(config)
    if check:
        note(f"{config}: good, from {loaded.source.name} to {loaded.target.name}")
        return
    from pylog.daemon.notices import Notices
    from pylog.daemon.stop import Stop
    from pylog.daemon.threads import end_with_threads
    from pylog.mirror import instance

    stop = Stop()
    stop.on_signals()
    end_with_threads()
    instance.run(loaded, stop, Notices())


@app.command(epilog="Example: pylog mirror status --config /etc/pylog/mirror.yml --wait 60")
def status(
    config: ConfigFile,
    wait: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0, help="Wait for what the source has now, until none came for so long."),
    ] = 0,
    format: FormatOption = None,
) -> None:
    """Show how far the mirror is in every partition; with --wait, fail if it does not get there."""
    from pylog.config import load_mirror_config
    from pylog.mirror import move as moving

    loaded = load_mirror_config(config)
    doing = "waiting for the mirror" if wait else "asking both clusters"
    with told_to_the_user(loaded.source.connection.bootstrap), progress(doing) as bar:
        missing = moving.wait_arrived(loaded, wait, bar.at) if wait else {}
        found = moving.standings(loaded)
    rows = [
        {
            "topic": one.partition.topic,
            "partition": one.partition.partition,
            "source_end": one.end,
            "mirrored": one.mirrored,
            "lag": one.lag,
            "pairs": one.pairs,
        }
        for one in found
    ]
    columns = [
        Column("topic"),
        Column("partition"),
        Column("source_end"),
        Column("mirrored"),
        Column("lag"),
        Column("pairs", is_wide=True),
    ]
    emit(format_of(format), rows, lambda is_wide: table(rows, columns, is_wide))
    if missing:
        raise Failure(
            faults.MIRROR_BEHIND,
            where=loaded.target.name,
            found=f"{sum(missing.values())} offsets of {len(missing)} partitions missing, none came for {wait:g} s",
        )


@app.command(epilog="Example: pylog mirror move readers --config /etc/pylog/mirror.yml --prove --execute")
def move(
    group: Annotated[str, typer.Argument(metavar="GROUP")],
    config: ConfigFile,
    back: Annotated[bool, typer.Option("--back", help="From the target to the source, not to the target.")] = False,
    prove: Annotated[
        bool, typer.Option("--prove", help="Read in both clusters what is unread; fail if something is skipped.")
    ] = False,
    source_lost: Annotated[
        bool,
        typer.Option("--source-lost", help="Ask the target alone, for what the mirror last carried over of the group."),
    ] = False,
    execute: Annotated[bool, typer.Option("--execute", help="Do it; else it only shows what would be.")] = False,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="--prove waits for the mirror until none came for so long.")
    ] = 60,
    format: FormatOption = None,
) -> None:
    """Let a group without members go on in the other cluster where it stopped; it skips nothing."""
    from pylog.config import load_mirror_config
    from pylog.mirror import move as moving
    from pylog.mirror import proof

    if source_lost and (back or prove):
        raise Failure(
            faults.OPTIONS_CONFLICT,
            where="--source-lost",
            found="--back" if back else "--prove",
            wanted="neither --back nor --prove with it: both ask the source",
        )
    loaded = load_mirror_config(config)
    way = moving.Way.BACK if back else moving.Way.OVER
    leaves, enters = way.ends(loaded)
    with told_to_the_user(enters.connection.bootstrap):
        found = moving.plan_move_without_source(loaded, group) if source_lost else moving.plan_move(loaded, group, way)
        with progress("comparing what is unread") as bar:
            proofs = proof.prove(loaded, found, way, wait, bar.at) if prove else {}
        lost = sum(one.lost for one in proofs.values())
        if execute and not lost:
            moving.execute(loaded, group, found, way)
    rows = [
        {
            "topic": one.partition.topic,
            "partition": one.partition.partition,
            "source_offset": one.entered if back else one.left,
            "target_offset": one.left if back else one.entered,
            "left": one.ahead,
            "mapped": one.is_mapped,
            **({name: getattr(proofs[one.partition], name) for name in _PROVED} if prove else {}),
        }
        for one in found
    ]
    columns = [Column(name) for name in (*_MOVED, *(_PROVED if prove else ()))]
    emit(format_of(format), rows, lambda is_wide: table(rows, columns, is_wide))
    if lost:
        raise Failure(
            faults.DATA_LOSS,
            f"group {group} would skip {lost} records; nothing was changed",
            where=enters.name,
            found=f"{lost} records of {leaves.name} that the group has not read",
            wanted="each of them, from where the group goes on",
            next="pylog mirror status, and whether somebody else writes to these topics",
        )
    note(f"moved group {group} to {enters.name}" if execute else "nothing was changed: add --execute to do it")


@app.command(epilog="Example: pylog mirror rights readers --config /etc/pylog/mirror.yml")
def rights(
    group: Annotated[str, typer.Argument(metavar="GROUP")],
    config: ConfigFile,
    back: Annotated[bool, typer.Option("--back", help="From the target to the source, not to the target.")] = False,
    format: FormatOption = None,
) -> None:
    """Show what users of a group lack in the other cluster to go on reading there; fail if they lack something.

    Its users are those whom an ACL lets read in the group: whoever is a super user is not seen.
    """
    from pylog.config import load_mirror_config
    from pylog.mirror import move as moving
    from pylog.mirror import rights as comparing

    loaded = load_mirror_config(config)
    way = moving.Way.BACK if back else moving.Way.OVER
    leaves, enters = way.ends(loaded)
    with told_to_the_user(enters.connection.bootstrap), progress("comparing rights"):
        found = comparing.check(loaded, group, way)
    rows = [one._asdict() for one in found or ()]
    columns = [Column(name) for name in comparing.Lack._fields]
    emit(format_of(format), rows, lambda is_wide: table(rows, columns, is_wide))
    if found is None:
        note(f"not compared: {leaves.name} or {enters.name} has no authorizer")
    elif found:
        raise Failure(
            faults.RIGHTS_LACKING,
            where=enters.name,
            found=f"{len(found)} rights or logins that users of group {group} have in {leaves.name} alone",
            wanted="in both",
        )


_MOVED = ("topic", "partition", "source_offset", "target_offset", "left", "mapped")
_PROVED = ("unread", "reread", "lost")


@app.command(epilog="Example: pylog mirror resend --config /etc/pylog/mirror.yml --execute")
def resend(
    config: ConfigFile,
    execute: Annotated[bool, typer.Option("--execute", help="Send them; else it only shows which wait.")] = False,
    format: FormatOption = None,
) -> None:
    """Send the records that the target refused and the mirror parked to where they belong, oldest first.

    What is refused again stays parked, with the new reason. Mend the topic first: its settings, or its partitions.
    """
    from pylog.config import load_mirror_config
    from pylog.mirror import resend as resending

    loaded = load_mirror_config(config)
    counts = {"sent": 0, "refused": 0}

    def rows(found: Iterable[tuple[resending.Parked, str | None]]) -> Iterator[dict[str, Any]]:
        for one, reason in found:
            is_sent = execute and reason is None
            counts["sent" if is_sent else "refused"] += 1
            yield {
                "topic": one.place.partition.topic,
                "partition": one.place.partition.partition,
                "source_offset": one.place.offset,
                "bytes": len(one.record.value or b""),
                "state": "sent" if is_sent else "parked",
                "reason": "" if is_sent else reason or one.place.reason,
            }

    doing = "sending parked records" if execute else "reading parked records"
    with told_to_the_user(loaded.target.connection.bootstrap), progress(doing) as bar:
        waiting = (
            resending.resend(loaded, bar.at) if execute else ((one, None) for one in resending.waiting(loaded, bar.at))
        )
        emit_rows(format_of(format), _PARKED, rows(waiting), bar.make_way)
    if not execute:
        note(f"{counts['refused']} records wait; nothing was changed: add --execute to send them")
        return
    note(f"sent {counts['sent']} records")
    if counts["refused"]:
        raise Failure(
            faults.NOT_DELIVERED,
            f"{counts['refused']} records are refused again, and stay parked",
            where=loaded.target.name,
            wanted="topics that take them: the settings that each reason names",
        )


_PARKED = ("topic", "partition", "source_offset", "bytes", "state", "reason")
