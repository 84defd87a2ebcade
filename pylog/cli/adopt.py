"""`pylog cluster adopt`: give a standalone broker a new store in the place of a lost one."""

import time
from pathlib import Path
from typing import Annotated

import typer

from pylog import faults
from pylog.cli.failure import Failure
from pylog.cli.options import FormatOption, format_of
from pylog.cli.output import Column, emit, note, table
from pylog.cli.progress import progress


def adopt(
    data: Annotated[Path, typer.Option(metavar="DIR", help="The data directory of a standalone broker that is down.")],
    yes: Annotated[bool, typer.Option("--yes", help="Write the store; without it the topics are only named.")] = False,
    format: FormatOption = None,
) -> None:
    """Rebuild a standalone broker's lost store from the topics that lie in its data directory."""
    from pylog.broker import adoption

    if not data.is_dir():
        raise Failure(faults.FILE_MISSING, where=str(data))
    with progress("adopting topics" if yes else "looking for topics") as bar:
        topics = adoption.adopt(data, time.time_ns() // 1_000_000, bar.at) if yes else adoption.find_topics(data)
    rows = [
        {
            "topic": topic.name,
            "topic_id": str(topic.topic_id) if topic.topic_id else None,
            "partitions": len(topic.partitions) + len(topic.missing),
            "begin_empty": list(topic.missing),
            "config": [f"{name}={value}" for name, value in topic.configs.items()],
        }
        for topic in topics
    ]
    columns = [
        Column("topic"),
        Column("partitions"),
        Column("begin_empty"),
        Column("config"),
        Column("topic_id", is_wide=True),
    ]
    emit(format_of(format), {"adopted": yes, "topics": rows}, lambda is_wide: table(rows, columns, is_wide))
    note(f"{len(rows)} topics " + ("adopted; start the broker" if yes else "would be adopted; --yes adopts them"))
    note(
        "users and ACLs are lost with the store: make them again before clients come, by pylog user apply,"
        " or by pylog user set and pylog acl add"
    )
    if any(not topic.configs for topic in topics):
        note("other settings of topics than cleanup.policy and retention are lost with the store: set them again")
