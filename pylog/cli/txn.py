"""`pylog txn`: see transactions, find those that hang, and end them."""

import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from pylog import faults
from pylog.cli.failure import Failure
from pylog.cli.named import named_partitions
from pylog.cli.options import (
    Bootstrap,
    FormatOption,
    Properties,
    Timeout,
    connection,
    format_of,
    new_app,
    settings,
    told_to_the_user,
)
from pylog.cli.output import Column, done, emit, note, table
from pylog.cli.progress import progress
from pylog.cli.target import parse_duration_ms
from pylog.client.admin.cluster import Admin
from pylog.client.admin.transactions import ABORTABLE_STATES, TransactionAdmin
from pylog.client.rows import open_transaction_row, transaction_row
from pylog.model import TopicPartition

app = new_app("See transactions, find those that hang, and end them.")

_OLD = "20m"
"""transaction.max.timeout.ms as it is unless set, and five minutes."""


@app.command("list", epilog="Example: pylog txn list --state Ongoing")
def list_(
    state: Annotated[
        list[str] | None, typer.Option("--state", metavar="STATE", help="Only ids in this state; repeatable.")
    ] = None,
    bootstrap: Bootstrap = None,
    timeout: Timeout = None,
    property: Properties = None,
    format: FormatOption = None,
) -> None:
    """Show the transactional ids, and since when their transaction is open."""
    found = settings(bootstrap, timeout, property)
    with told_to_the_user(found.bootstrap):
        views = TransactionAdmin(connection(found)).ids(state or ())
    now_ms = _now_ms()
    rows = [transaction_row(one, now_ms) for one in views]
    columns = [
        Column("transactional_id"),
        Column("coordinator"),
        Column("producer_id"),
        Column("producer_epoch"),
        Column("state"),
        Column("open_s"),
        Column("partition_count"),
        Column("timeout_ms", is_wide=True),
    ]
    emit(format_of(format), rows, lambda is_wide: table(rows, columns, is_wide) if rows else "")


@app.command(epilog="Example: pylog txn describe payments-7")
def describe(
    transactional_id: Annotated[str, typer.Argument(metavar="ID", help="The transactional id.")],
    bootstrap: Bootstrap = None,
    timeout: Timeout = None,
    property: Properties = None,
    format: FormatOption = None,
) -> None:
    """Show one transactional id, and the partitions of its open transaction."""
    found = settings(bootstrap, timeout, property)
    with told_to_the_user(found.bootstrap):
        view = TransactionAdmin(connection(found)).describe(transactional_id)
    data = transaction_row(view, _now_ms()) | {"partitions": [str(one) for one in view.partitions]}
    lines = [f"{name.replace('_', ' '):<17} {_word(value)}" for name, value in data.items() if name != "partitions"]
    lines += ["", *(str(one) for one in view.partitions)] if view.partitions else []
    emit(format_of(format), data, lambda _: "\n".join(lines) + "\n")


@app.command(epilog="Example: pylog txn hanging --older-than 20m")
def hanging(
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="TOPIC[:PARTITION,..]", help="Only this; repeatable. Else all."),
    ] = None,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="DURATION", help="Only if nothing was written for so long.")
    ] = _OLD,
    bootstrap: Bootstrap = None,
    timeout: Timeout = None,
    property: Properties = None,
    format: FormatOption = None,
) -> None:
    """Show transactions that are open in a partition and that no coordinator will end; exit 1 if there are any.

    Exit 4 if not every coordinator was heard.
    """
    older_than_ms = parse_duration_ms(older_than)
    found = settings(bootstrap, timeout, property)
    now_ms = _now_ms()
    with told_to_the_user(found.bootstrap):
        cluster = connection(found)
        wanted = named_partitions(Admin(cluster), topic) if topic else None
        with progress("asking leaders and coordinators"):
            open_ = TransactionAdmin(cluster).hanging(older_than_ms, now_ms, wanted)
    rows = [open_transaction_row(one, now_ms) for one in open_]
    columns = [
        Column("topic"),
        Column("partition"),
        Column("start_offset"),
        Column("producer_id"),
        Column("producer_epoch"),
        Column("coordinator_epoch"),
        Column("silent_s"),
        Column("transactional_id"),
    ]
    emit(format_of(format), rows, lambda is_wide: table(rows, columns, is_wide) if rows else "")
    if open_:
        first = open_[0]
        raise Failure(
            faults.TRANSACTION_HANGS,
            f"{len(open_)} transactions hang",
            where=str(first.partition),
            found=f"open since offset {first.start}",
            next=f"pylog txn abort --hanging {first.partition.topic}:{first.partition.partition} "
            f"--start-offset {first.start}",
        )
    note("no transaction hangs")


@app.command(epilog="Example: pylog txn abort payments-7")
def abort(
    transactional_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="The transactional id whose transaction is open.")
    ] = None,
    hanging: Annotated[
        str | None,
        typer.Option("--hanging", metavar="TOPIC:PARTITION", help="Where a transaction hangs, instead of an id."),
    ] = None,
    start_offset: Annotated[
        int | None, typer.Option("--start-offset", min=0, help="With --hanging: the first offset of the transaction.")
    ] = None,
    bootstrap: Bootstrap = None,
    timeout: Timeout = None,
    property: Properties = None,
    format: FormatOption = None,
) -> None:
    """Abort an open transaction: that of an id, whose producer is fenced, or one that hangs in a partition."""
    if (transactional_id is None) == (hanging is None) or (hanging is None) != (start_offset is None):
        raise Failure(
            faults.OPTIONS_CONFLICT,
            where="ID, --hanging, --start-offset",
            found="neither an id nor a partition" if transactional_id is None and hanging is None else "a mixture",
            wanted="an id, or --hanging with --start-offset",
        )
    found = settings(bootstrap, timeout, property)
    with told_to_the_user(found.bootstrap):
        cluster = connection(found)
        admin = TransactionAdmin(cluster)
        if transactional_id is not None:
            data = _abort_of_id(admin, transactional_id)
        else:
            assert hanging is not None
            assert start_offset is not None
            data = _abort_in_partition(admin, _one_partition(Admin(cluster), hanging), start_offset)
    done(format_of(format), data, "aborted " + " ".join(f"{name}={value}" for name, value in data.items()))


def _abort_of_id(admin: TransactionAdmin, transactional_id: str) -> dict[str, Any]:
    view = admin.describe(transactional_id)
    if view.state not in ABORTABLE_STATES:
        raise Failure(
            faults.TRANSACTION_NOT_OPEN,
            where=transactional_id,
            found=view.state,
            wanted=" or ".join(ABORTABLE_STATES),
            next="pylog txn list --state Ongoing",
        )
    with progress("waiting for the end of the transaction"):
        admin.abort(transactional_id)
    return {"transactional_id": transactional_id, "producer_id": view.producer_id}


def _abort_in_partition(admin: TransactionAdmin, partition: TopicPartition, start_offset: int) -> dict[str, Any]:
    open_ = admin.hanging(0, _now_ms(), [partition])
    wanted = next((one for one in open_ if one.start == start_offset), None)
    if wanted is None:
        hang = ", ".join(str(one.start) for one in open_)
        raise Failure(
            faults.TRANSACTION_NOT_OPEN,
            where=str(partition),
            found=f"transactions hang from {hang}" if hang else "no transaction hangs",
            wanted=f"one that began at {start_offset}, and that its coordinator will not end",
            next="pylog txn hanging --older-than 0s",
        )
    admin.abort_in_partition(wanted)
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "start_offset": start_offset,
        "producer_id": wanted.producer_id,
    }


def _one_partition(admin: Admin, text: str) -> TopicPartition:
    found: Sequence[TopicPartition] = named_partitions(admin, [text])
    if len(found) != 1:
        raise Failure(faults.OPTION_WRONG, where="--hanging", found=text, wanted="TOPIC:PARTITION")
    return found[0]


def _word(value: object) -> str:
    return "-" if value is None else str(value)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
