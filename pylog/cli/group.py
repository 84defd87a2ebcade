"""`pylog group`: list, describe, reset-offsets, delete."""

import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from pylog import faults
from pylog.cli.failure import Failure
from pylog.cli.named import named_partitions
from pylog.cli.options import (
    Bootstrap,
    FormatOption,
    Group,
    Properties,
    Timeout,
    connection,
    format_of,
    new_app,
    settings,
    told_to_the_user,
)
from pylog.cli.output import Column, done, emit, note, table
from pylog.cli.progress import progress as show_progress
from pylog.cli.start import Start, StartKind, positions
from pylog.cli.target import parse_duration_ms, parse_target
from pylog.client.admin.groups import GroupAdmin, GroupView
from pylog.client.commits import CommitHistory
from pylog.client.rows import group_data
from pylog.errors import ApiError, ErrorCode
from pylog.model import Offset, TopicPartition

app = new_app("See consumer groups and their lag; move or delete their offsets.")

_DEAD, _EMPTY = "Dead", "Empty"


@app.command("list", epilog="Example: pylog group list --format json")
def list_groups(
    bootstrap: Bootstrap = None,
    timeout: Timeout = None,
    property: Properties = None,
    format: FormatOption = None,
) -> None:
    """List all groups."""
    found = settings(bootstrap, timeout, property)
    with told_to_the_user(found.bootstrap):
        groups = GroupAdmin(connection(found)).groups()
    rows = [{"group": one.group_id, "state": one.state} for one in groups]
    emit(format_of(format), rows, lambda is_wide: table(rows, [Column("group"), Column("state")], is_wide))


@app.command(epilog="Example: pylog group describe readers --format wide")
def describe(
    group: Group,
    window: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, max=86_400, help="How far back commits count for the status.")
    ] = 600,
    bootstrap: Bootstrap = None,
    timeout: Timeout = None,
    property: Properties = None,
    format: FormatOption = None,
) -> None:
    """Show a group's members, and its offset, lag and status in every partition.

    OK: it keeps up. WARN: it reads, but the lag has not become smaller over its last ten commits. STALL: it commits the
    same offset again and again. STOP: it commits no longer. Each only while there is something to read. Wide shows too
    how many seconds ago it last committed (SILENT-S).
    """
    found = settings(bootstrap, timeout, property)
    with told_to_the_user(found.bootstrap):
        admin = GroupAdmin(connection(found))
        view = admin.group(group)
        progress = admin.progress(view)
        if view.state == _DEAD and not progress:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group!r} does not exist")
        now_ms = time.time_ns() // 1_000_000
        with show_progress("reading the group's commits") as bar:
            history = CommitHistory(connection(found))
            verdicts = history.verdicts(group, progress, now_ms, int(window * 1000), bar.at)
    data = group_data(view, progress, verdicts, now_ms)
    emit(format_of(format), data, lambda is_wide: _group_text(data, is_wide))


@app.command("reset-offsets", epilog="Example: pylog group reset-offsets readers --topic clicks --by 2h --execute")
def reset_offsets(
    group: Group,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", "-t", metavar="TOPIC[:PARTITION,..]", help="Only this; repeatable. Else all it has read."
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="TARGET",
            help="earliest, latest, OFFSET, @MILLISECONDS, or a time: 2030-01-31T12:00 (UTC).",
        ),
    ] = None,
    by: Annotated[str | None, typer.Option("--by", metavar="DURATION", help="So long ago: 90s, 2h, 1d12h.")] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it; else it only shows what would be.")] = False,
    bootstrap: Bootstrap = None,
    timeout: Timeout = None,
    property: Properties = None,
    format: FormatOption = None,
) -> None:
    """Move a group without members to other offsets; those outside what is kept become its nearest end."""
    target = _target(to, by)
    found = settings(bootstrap, timeout, property)
    with told_to_the_user(found.bootstrap):
        admin = GroupAdmin(connection(found))
        _refuse_living(admin.group(group))
        committed = admin.committed(group)
        wanted = named_partitions(admin, topic) if topic else sorted(committed)
        if not wanted:
            raise Failure(faults.GROUP_READ_NOTHING, where=group, next="name topics: --topic TOPIC")
        with show_progress("looking up offsets"):
            new = _new_offsets(admin, wanted, target)
        if execute:
            with show_progress("moving the group"):
                admin.commit(group, new)
    rows = [
        {"topic": one.topic, "partition": one.partition, "committed_offset": committed.get(one), "new_offset": offset}
        for one, offset in new.items()
    ]
    columns = [Column("topic"), Column("partition"), Column("committed_offset"), Column("new_offset")]
    emit(format_of(format), rows, lambda is_wide: table(rows, columns, is_wide))
    note(f"moved group {group}" if execute else "nothing was changed: add --execute to do it")


@app.command(epilog="Example: pylog group delete readers --yes")
def delete(
    group: Group,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = None,
    timeout: Timeout = None,
    property: Properties = None,
    format: FormatOption = None,
) -> None:
    """Delete a group without members, and all its offsets."""
    found = settings(bootstrap, timeout, property)
    if not yes and not typer.confirm(f"Delete group {group} of {found.bootstrap} and all its offsets?", err=True):
        raise Failure(
            faults.NOT_CONFIRMED, "nothing was deleted", where=group, next=f"pylog group delete {group} --yes"
        )
    with told_to_the_user(found.bootstrap):
        GroupAdmin(connection(found)).delete_group(group)
    done(format_of(format), {"group": group, "deleted": True}, f"deleted group {group}")


def _group_text(data: Mapping[str, Any], is_wide: bool) -> str:
    heads = {
        "state": data["state"],
        "assignor": data["assignor"],
        "coordinator": data["coordinator"],
        "members": len(data["members"]),
        "lag": data["lag"],
        "status": data["status"],
    }
    text = "".join(f"{name:13}{'-' if value is None else value}\n" for name, value in heads.items())
    columns = [
        Column("topic"),
        Column("partition"),
        Column("committed_offset"),
        Column("end_offset"),
        Column("lag"),
        Column("status"),
        Column("silent_s", is_wide=True),
        Column("client"),
        Column("host", is_wide=True),
        Column("member", is_wide=True),
    ]
    text += "\n" + table(data["partitions"], columns, is_wide)
    if is_wide:
        members = [Column("member"), Column("instance"), Column("client"), Column("host"), Column("partition_count")]
        text += "\n" + table(data["members"], members, is_wide)
    return text


def _target(to: str | None, by: str | None) -> Start:
    if (to is None) == (by is None):
        raise Failure(
            faults.OPTIONS_CONFLICT, where="--to, --by", found="neither" if to is None else "both", wanted="one of them"
        )
    if to is not None:
        return parse_target(to)
    assert by is not None
    return Start(StartKind.TIME, max(0, time.time_ns() // 1_000_000 - parse_duration_ms(by)))


def _refuse_living(view: GroupView) -> None:
    if view.state not in (_EMPTY, _DEAD):
        raise Failure(
            faults.GROUP_IS_ALIVE,
            where=view.group_id,
            found=f"{view.state}, {len(view.members)} members",
            wanted=_EMPTY,
            next=f"stop its consumers, then look: pylog group describe {view.group_id}",
        )


def _new_offsets(admin: GroupAdmin, wanted: list[TopicPartition], target: Start) -> dict[TopicPartition, Offset]:
    if target.kind is StartKind.TIME:
        return admin.offsets_at(wanted, target.number)
    return positions(target, admin.offsets(wanted))
