"""`pylog partition`: move partitions between brokers, give leaders back."""

import time
from collections.abc import Sequence
from typing import Annotated

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
from pylog.cli.output import Column, emit, note, table
from pylog.cli.progress import Bar, progress
from pylog.cli.reassign import reassign
from pylog.client.admin.cluster import PartitionView
from pylog.client.admin.partitions import PartitionAdmin
from pylog.model import TopicPartition

_HEARD_S = 10.0
_LOOK_S = 0.1

app = new_app("Move partitions between brokers; give leaders back.")
app.command(epilog="Example: pylog partition reassign --topic clicks --to 1,2,3 --execute")(reassign)


@app.command(epilog="Example: pylog partition elect --topic clicks")
def elect(
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="TOPIC[:PARTITION,..]", help="Only this; repeatable. Else all."),
    ] = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean", help="Where no replica in sync is left, any other: loses what it lacks. Needs --topic."
        ),
    ] = False,
    bootstrap: Bootstrap = None,
    timeout: Timeout = None,
    property: Properties = None,
    format: FormatOption = None,
) -> None:
    """Let the first replica of each partition lead again; shows the partitions whose leader changed or could not."""
    if unclean and not topic:
        raise Failure(faults.OPTIONS_CONFLICT, "an option is missing", where="--unclean", wanted="--topic with it")
    found = settings(bootstrap, timeout, property)
    with told_to_the_user(found.bootstrap):
        admin = PartitionAdmin(connection(found))
        wanted = named_partitions(admin, topic) if topic else None
        results = admin.elect(wanted, is_unclean=unclean)
        elected = [one for one, error in results.items() if error is None]
        with progress("waiting for the leaders", len(elected)) as bar:
            leaders = _leaders_after(admin, elected, bar, is_unclean=unclean)
    rows = [
        {
            "topic": one.topic,
            "partition": one.partition,
            "leader": leaders[one.topic][one.partition].leader,
            "problem": None if error is None else str(error),
        }
        for one, error in sorted(results.items())
    ]
    columns = [Column("topic"), Column("partition"), Column("leader"), Column("problem")]
    emit(format_of(format), rows, lambda is_wide: table(rows, columns, is_wide) if rows else "")
    failed = [one for one, error in sorted(results.items()) if error is not None]
    if failed:
        raise Failure(
            faults.ELECTION_FAILED,
            f"{len(failed)} of {len(results)} leaders were not elected",
            where=str(failed[0]),
            found=str(results[failed[0]]),
        )
    note(f"{len(results)} leaders were elected" if results else "every partition is led as it should be")


def _leaders_after(
    admin: PartitionAdmin, elected: Sequence[TopicPartition], bar: Bar, *, is_unclean: bool
) -> dict[str, tuple[PartitionView, ...]]:
    """Return the partitions of each topic once the broker that answers has heard of the new leaders."""

    def is_heard(one: PartitionView) -> bool:
        return one.leader >= 0 if is_unclean else one.leader == one.replicas[0]

    end = time.monotonic() + _HEARD_S
    while True:
        found = {name: one.partitions for name, one in admin.cluster().topics.items()}
        heard = sum(is_heard(found[one.topic][one.partition]) for one in elected)
        bar.at(heard, len(elected))
        if heard == len(elected) or time.monotonic() > end:
            return found
        time.sleep(_LOOK_S)
