"""`pylog mirror`: run, status, move."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from pylog.cli.options import FormatOption, format_of, new_app, told_to_the_user
from pylog.cli.output import Column, emit, note, table

app = new_app("Run a mirror of another cluster; see how far it is; move groups over.")

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
    from pylog.mirror import instance

    stop = Stop()
    stop.on_signals()
    instance.run(loaded, stop, Notices())


@app.command(epilog="Example: pylog mirror status --config /etc/pylog/mirror.yml")
def status(config: ConfigFile, format: FormatOption = None) -> None:
    """Show how far the mirror is in every partition."""
    from pylog.config import load_mirror_config
    from pylog.mirror import move as moving

    loaded = load_mirror_config(config)
    with told_to_the_user(loaded.source.connection.bootstrap):
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


@app.command(epilog="Example: pylog mirror move readers --config /etc/pylog/mirror.yml --execute")
def move(
    group: Annotated[str, typer.Argument(metavar="GROUP")],
    config: ConfigFile,
    execute: Annotated[bool, typer.Option("--execute", help="Do it; else it only shows what would be.")] = False,
    format: FormatOption = None,
) -> None:
    """Let a group without members go on in the target where it stopped in the source; it skips nothing."""
    from pylog.config import load_mirror_config
    from pylog.mirror import move as moving

    loaded = load_mirror_config(config)
    with told_to_the_user(loaded.target.connection.bootstrap):
        found = moving.plan_move(loaded, group)
        if execute:
            moving.execute(loaded, group, found)
    rows = [
        {
            "topic": one.partition.topic,
            "partition": one.partition.partition,
            "source_offset": one.source,
            "target_offset": one.target,
            "left": one.left,
            "mapped": one.is_mapped,
        }
        for one in found
    ]
    columns = [
        Column("topic"),
        Column("partition"),
        Column("source_offset"),
        Column("target_offset"),
        Column("left"),
        Column("mapped"),
    ]
    emit(format_of(format), rows, lambda is_wide: table(rows, columns, is_wide))
    note(f"moved group {group} to {loaded.target.name}" if execute else "nothing was changed: add --execute to do it")
