"""`pylog topic apply`: make the topics what a document says."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from pylog import faults
from pylog.cli.document import read_document
from pylog.cli.failure import Failure
from pylog.cli.options import (
    Bootstrap,
    FormatOption,
    Properties,
    Timeout,
    connection,
    format_of,
    settings,
    told_to_the_user,
)
from pylog.cli.output import Column, emit, note, table
from pylog.cli.progress import tracked
from pylog.client.admin.configs import ConfigAdmin, Holder
from pylog.client.admin.partitions import PartitionAdmin
from pylog.errors import ApiError
from pylog.ops.topics import Action, Change, Difference, Found, Refusal, Verdict, Wanted, compare, read

_COLUMNS = [Column("topic"), Column("what"), Column("found"), Column("wanted")]


class _Topics(ConfigAdmin, PartitionAdmin):
    """One client for everything that a document may ask for."""


def apply(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The document, YAML or JSON; - for stdin.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    bootstrap: Bootstrap = None,
    timeout: Timeout = None,
    property: Properties = None,
    format: FormatOption = None,
) -> None:
    """Make the topics what a document says: create, add partitions, set settings, delete what it names as absent.

    What the document does not name is left alone. Partitions only grow. With one refusal nothing is changed.
    """
    wanted, absent = read_document(str(file), read, next=f"correct it, then pylog topic apply {file} --dry-run")
    found, form = settings(bootstrap, timeout, property), format_of(format)
    with told_to_the_user(found.bootstrap):
        admin = _Topics(connection(found))
        verdict = compare(wanted, absent, _found(admin, wanted, absent))
        refusals = [*verdict.refusals, *_refused_by_brokers(admin, verdict)]
        if refusals:
            raise _refused(refusals)
        if not dry_run:
            for change in tracked(verdict.changes, "changing topics"):
                _carry_out(admin, change, is_dry_run=False)
    rows = [_row(one) for change in verdict.changes for one in change.differences]
    data = {
        "dry_run": dry_run,
        "changes": [
            {
                "action": str(change.action),
                "topic": change.topic,
                "differences": [_row(one) for one in change.differences],
            }
            for change in verdict.changes
        ],
    }
    emit(form, data, lambda is_wide: table(rows, _COLUMNS, is_wide) if rows else "")
    count = len({change.topic for change in verdict.changes})
    note(f"{count} topics {'would change' if dry_run else 'changed'}" if count else "every topic is as wanted")


def _found(admin: _Topics, wanted: Sequence[Wanted], absent: Sequence[str]) -> dict[str, Found]:
    there = admin.cluster().topics
    named = [name for name in [*(one.name for one in wanted), *absent] if name in there]
    configs = admin.topic_configs(named)
    return {
        name: Found(
            partitions=len(there[name].partitions),
            replication_factor=there[name].replication_factor,
            config={key: value.value or "" for key, value in configs[name].items() if value.is_own},
        )
        for name in named
    }


def _refused_by_brokers(admin: _Topics, verdict: Verdict) -> list[Refusal]:
    """Return what the brokers would refuse, so that the first change is made only when all can be."""
    refusals = []
    for change in verdict.changes:
        try:
            _carry_out(admin, change, is_dry_run=True)
        except ApiError as error:
            wanted = ", ".join(f"{one.what} {one.wanted}" for one in change.differences)
            difference = Difference(topic=change.topic, what=change.action, found=str(error), wanted=wanted)
            refusals.append(Refusal(difference=difference, remedy="correct the document"))
    return refusals


def _carry_out(admin: _Topics, change: Change, *, is_dry_run: bool) -> None:
    match change.action:
        case Action.CREATE:
            admin.create_topic(
                change.topic,
                partitions=change.partitions or -1,
                replication_factor=change.replication_factor or -1,
                config=change.set,
                is_dry_run=is_dry_run,
            )
        case Action.GROW:
            assert change.partitions is not None, change
            admin.add_partitions(change.topic, change.partitions, is_dry_run=is_dry_run)
        case Action.CONFIGURE:
            admin.alter(Holder.TOPIC, change.topic, change.set, change.unset, is_dry_run=is_dry_run)
        case Action.DELETE:
            if not is_dry_run:  # the protocol has no question whether a topic could be deleted
                admin.delete_topic(change.topic)


def _refused(refusals: Sequence[Refusal]) -> Failure:
    for one in refusals:
        note(f"{one.difference}; {one.remedy}")
    first = refusals[0]
    return Failure(
        faults.TOPICS_REFUSED,
        where=first.difference.topic,
        found=f"{first.difference.what}: {first.difference.found}",
        wanted=str(first.difference.wanted),
        next=first.remedy,
    )


def _row(one: Difference) -> dict[str, str | None]:
    return {"topic": one.topic, "what": one.what, "found": one.found, "wanted": one.wanted}
