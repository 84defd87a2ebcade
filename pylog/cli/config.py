"""`pylog config`: see and change settings, check configuration files."""

from pathlib import Path
from typing import Annotated

import typer

from pylog import faults
from pylog.cli.failure import Failure
from pylog.cli.options import (
    Bootstrap,
    Delete,
    FormatOption,
    Properties,
    Set,
    Timeout,
    assignments,
    connection,
    format_of,
    new_app,
    settings,
    told_to_the_user,
)
from pylog.cli.output import Column, done, emit, table
from pylog.client.admin.configs import ConfigAdmin, Holder
from pylog.errors import ConfigError

app = new_app("See and change settings; check configuration files.")


@app.command(epilog="Example: pylog config describe topic clicks")
def describe(
    holder: Annotated[Holder, typer.Argument(metavar="topic|broker")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="The topic, or the broker's id.")],
    bootstrap: Bootstrap = None,
    timeout: Timeout = None,
    property: Properties = None,
    format: FormatOption = None,
) -> None:
    """Show the settings that differ from the defaults (wide: all), and who says so."""
    found = settings(bootstrap, timeout, property)
    with told_to_the_user(found.bootstrap):
        all_ = ConfigAdmin(connection(found)).settings(holder, name)
    rows = [
        {"setting": one.name, "value": one.value, "source": one.source, "read_only": one.is_read_only} for one in all_
    ]
    columns = [Column("setting"), Column("value"), Column("source"), Column("read_only", is_wide=True)]
    emit(
        format_of(format),
        rows,
        lambda is_wide: table([row for row in rows if is_wide or row["source"] != "default"], columns, is_wide),
    )


@app.command(epilog="Example: pylog config alter topic clicks --set retention.ms=86400000 --delete segment.ms")
def alter(
    holder: Annotated[Holder, typer.Argument(metavar="topic|broker")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="The topic, or the broker's id.")],
    set: Set = None,
    delete: Delete = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say whether it would work.")] = False,
    bootstrap: Bootstrap = None,
    timeout: Timeout = None,
    property: Properties = None,
    format: FormatOption = None,
) -> None:
    """Change settings of a broker or a topic, all or none; for a topic, `pylog topic alter` does the same."""
    new = assignments("--set", set)
    if not new and not delete:
        raise Failure(faults.OPTIONS_CONFLICT, "an option is missing", where="--set, --delete", wanted="at least one")
    found = settings(bootstrap, timeout, property)
    with told_to_the_user(found.bootstrap):
        ConfigAdmin(connection(found)).alter(holder, name, new, delete or [], is_dry_run=dry_run)
    done(
        format_of(format),
        {holder.value: name, "set": new, "deleted": delete or [], "dry_run": dry_run},
        f"{'would alter' if dry_run else 'altered'} {holder} {name}",
    )


@app.command(epilog="Example: pylog config check /etc/pylog/broker-1.yml")
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Configuration file of a broker.")],
    format: FormatOption = None,
) -> None:
    """Read a broker's configuration file as the broker would, and change nothing."""
    from pylog.config import load_broker_config

    try:
        config = load_broker_config(file)
    except ConfigError as error:
        raise Failure(
            faults.CONFIG_WRONG, found=str(error), next=f"correct it, then pylog config check {file}"
        ) from error
    done(
        format_of(format),
        {"file": str(file), "broker_id": config.broker_id, "hash": config.config_hash},
        f"{file}: good, for broker {config.broker_id} (hash {config.config_hash})",
    )
