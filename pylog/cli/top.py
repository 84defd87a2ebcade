"""`pylog top`: throughput and lag as they are."""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pylog import faults
from pylog.cli.failure import Failure
from pylog.cli.options import (
    Bootstrap,
    Format,
    FormatOption,
    Properties,
    Timeout,
    connection,
    format_of,
    new_app,
    settings,
    told_to_the_user,
)
from pylog.cli.output import Column, emit, table
from pylog.cli.rates import Look, group_rates, topic_rates
from pylog.client.admin.groups import GroupAdmin
from pylog.model import TopicPartition

if TYPE_CHECKING:
    from rich.console import RenderableType

app = new_app()

_TOPICS = (Column("topic"), Column("partitions"), Column("written_a_second"))
_GROUPS = (Column("group"), Column("lag"), Column("read_a_second"), Column("lag_a_second"))
_MAX_GROUPS = 1000
"""Each costs a request a look."""


@app.command(epilog="Example: pylog top --once --format json")
def top(
    interval: Annotated[
        float, typer.Option("--interval", "-i", metavar="SECONDS", min=0.1, max=3600, help="Between two looks.")
    ] = 2,
    once: Annotated[bool, typer.Option("--once", help="Print once, after two looks, and end.")] = False,
    rows: Annotated[int, typer.Option(metavar="N", min=1, help="Topics and groups shown, the busiest first.")] = 20,
    internal: Annotated[bool, typer.Option("--internal", help="Topics that begin with __ too.")] = False,
    bootstrap: Bootstrap = None,
    timeout: Timeout = None,
    property: Properties = None,
    format: FormatOption = None,
) -> None:
    """Watch records written a second by topic, and lag by group, until Ctrl-C; wide: internal topics too."""
    found, wanted = settings(bootstrap, timeout, property), format_of(format)
    if not once and (wanted in (Format.JSON, Format.YAML) or not sys.stdout.isatty()):
        raise Failure(
            faults.OPTIONS_CONFLICT,
            "what is watched needs a terminal",
            where="--once",
            found="no terminal" if wanted in (Format.TEXT, Format.WIDE) else f"--format {wanted}",
            wanted="--once",
            next="pylog top --once",
        )
    is_internal = internal or wanted is Format.WIDE
    with told_to_the_user(found.bootstrap):
        admin = GroupAdmin(connection(found))
        before = _look(admin, is_internal=is_internal)
        if once:
            time.sleep(interval)
            data = _data(before, _look(admin, is_internal=is_internal), rows)
            emit(wanted, data, lambda _: _text(data))
        else:
            _watch(admin, before, interval, rows, is_internal=is_internal)


def _look(admin: GroupAdmin, *, is_internal: bool) -> Look:
    led = [
        TopicPartition(name, one.partition)
        for name, topic in admin.cluster().topics.items()
        if is_internal or not name.startswith("__")
        for one in topic.partitions
        if one.has_leader
    ]
    committed = {one.group_id: admin.committed(one.group_id) for one in admin.groups()[:_MAX_GROUPS]}
    # Last, so that no commit seems to be ahead of its log.
    return Look(time.monotonic(), admin.ends(led), committed)


def _data(before: Look, after: Look, rows: int) -> dict[str, Any]:
    topics, groups = topic_rates(before, after), group_rates(before, after)
    return {
        "seconds": round(after.at_s - before.at_s, 2),
        "written_a_second": round(sum(one.written_a_second for one in topics), 1),
        "lag": sum(one.lag for one in groups),
        "topics": [
            {"topic": one.topic, "partitions": one.partition_count, "written_a_second": round(one.written_a_second, 1)}
            for one in topics[:rows]
        ],
        "groups": [
            {
                "group": one.group,
                "lag": one.lag,
                "read_a_second": round(one.read_a_second, 1),
                "lag_a_second": round(one.lag_a_second, 1),
            }
            for one in groups[:rows]
        ],
    }


def _text(data: Mapping[str, Any]) -> str:
    return (
        f"written  {data['written_a_second']:,.1f} a second\nlag      {data['lag']:,}\n\n"
        + table(data["topics"], _TOPICS, False)
        + "\n"
        + table(data["groups"], _GROUPS, False)
    )


def _watch(admin: GroupAdmin, before: Look, interval: float, rows: int, *, is_internal: bool) -> None:
    from rich.live import Live

    try:
        with Live(auto_refresh=False, screen=True) as live:
            while True:
                time.sleep(interval)
                after = _look(admin, is_internal=is_internal)
                live.update(_screen(_data(before, after, rows)), refresh=True)
                before = after
    except KeyboardInterrupt:
        pass  # the way to stop watching


def _screen(data: Mapping[str, Any]) -> "RenderableType":
    from rich.console import Group

    return Group(
        f"pylog top   {data['written_a_second']:,.1f} records a second   lag {data['lag']:,}   Ctrl-C ends",
        _table(data["topics"], _TOPICS),
        _table(data["groups"], _GROUPS),
    )


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> "RenderableType":
    from rich.table import Table

    shown = Table(expand=True)
    for column in columns:
        shown.add_column(column.name.replace("_", " "), justify="left" if column is columns[0] else "right")
    for row in rows:
        shown.add_row(
            *(f"{row[c.name]:,}" if isinstance(row[c.name], int | float) else str(row[c.name]) for c in columns)
        )
    return shown
