"""`pylog topic`: list, create, describe, alter, delete."""

from collections.abc import Mapping
from typing import Annotated

import typer

from pylog import faults
from pylog.cli.apply import apply
from pylog.cli.failure import Failure
from pylog.cli.options import (
    Bootstrap,
    Delete,
    FormatOption,
    Properties,
    Set,
    Timeout,
    Topic,
    assignments,
    connection,
    format_of,
    new_app,
    settings,
    told_to_the_user,
)
from pylog.cli.output import Column, done, emit, table
from pylog.client.admin.cluster import Admin, ConfigValue
from pylog.client.admin.configs import ConfigAdmin, Holder
from pylog.client.admin.partitions import PartitionAdmin
from pylog.client.rows import topic_data, topic_row
from pylog.errors import ApiError, ErrorCode
from pylog.model import TopicPartition

app = new_app("List, create, describe, alter and delete topics.")
app.command(epilog="Example: pylog topic apply topics.yml --dry-run")(apply)


@app.command("list", epilog="Example: pylog topic list --format wide")
def list_topics(
    bootstrap: Bootstrap = None,
    timeout: Timeout = None,
    property: Properties = None,
    format: FormatOption = None,
) -> None:
    """List all topics."""
    found = settings(bootstrap, timeout, property)
    with told_to_the_user(found.bootstrap):
        topics = Admin(connection(found)).cluster().topics
    rows = [topic_row(topic) for topic in topics.values()]
    columns = [
        Column("name"),
        Column("partitions"),
        Column("replication_factor"),
        Column("without_leader", is_wide=True),
        Column("not_in_sync", is_wide=True),
    ]
    emit(format_of(format), rows, lambda is_wide: table(rows, columns, is_wide))


@app.command(epilog="Example: pylog topic create clicks --partitions 8 --config retention.ms=86400000")
def create(
    name: Topic,
    partitions: Annotated[int, typer.Option("--partitions", "-p", help="-1: the brokers' default.")] = -1,
    replication_factor: Annotated[int, typer.Option("--replication-factor", "-r", help="-1: the default.")] = -1,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="NAME=VALUE", help="A topic setting by Kafka's name; may be repeated."),
    ] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="An existing topic is no failure.")] = False,
    bootstrap: Bootstrap = None,
    timeout: Timeout = None,
    property: Properties = None,
    format: FormatOption = None,
) -> None:
    """Create a topic."""
    found = settings(bootstrap, timeout, property)
    values = assignments("--config", config)
    with told_to_the_user(found.bootstrap):
        try:
            Admin(connection(found)).create_topic(
                name, partitions=partitions, replication_factor=replication_factor, config=values
            )
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS or not if_not_exists:
                raise
            done(format_of(format), {"topic": name, "created": False}, f"topic {name} exists already")
            return
    done(format_of(format), {"topic": name, "created": True}, f"created topic {name}")


@app.command(epilog="Example: pylog topic describe clicks --format json")
def describe(
    name: Topic,
    bootstrap: Bootstrap = None,
    timeout: Timeout = None,
    property: Properties = None,
    format: FormatOption = None,
) -> None:
    """Show a topic's partitions, their offsets, and the settings that differ from the brokers' (wide: all)."""
    found = settings(bootstrap, timeout, property)
    with told_to_the_user(found.bootstrap):
        admin = Admin(connection(found))
        topic = admin.topic(name)
        # A partition without a leader has nobody to tell its offsets, and would fail the whole question.
        led = [TopicPartition(name, p.partition) for p in topic.partitions if p.has_leader]
        offsets = admin.offsets(led)
        config = admin.topic_config(name)
    data = topic_data(topic, offsets, config)
    columns = [
        Column("partition"),
        Column("leader"),
        Column("replicas"),
        Column("isr"),
        Column("start_offset"),
        Column("end_offset"),
        Column("count"),
    ]
    emit(
        format_of(format),
        data,
        lambda is_wide: table(data["partitions"], columns, is_wide) + _config_text(config, is_wide),
    )


@app.command(epilog="Example: pylog topic alter clicks --partitions 12 --set retention.ms=86400000")
def alter(
    name: Topic,
    partitions: Annotated[int | None, typer.Option("--partitions", "-p", min=1, help="So many in all.")] = None,
    set: Set = None,
    delete: Delete = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say whether it would work.")] = False,
    bootstrap: Bootstrap = None,
    timeout: Timeout = None,
    property: Properties = None,
    format: FormatOption = None,
) -> None:
    """Add partitions to a topic, or change its settings; keys may move to other partitions, records never do."""
    values = assignments("--set", set)
    if partitions is None and not values and not delete:
        raise Failure(
            faults.OPTIONS_CONFLICT,
            "an option is missing",
            where="--partitions, --set, --delete",
            wanted="at least one",
        )
    found = settings(bootstrap, timeout, property)
    with told_to_the_user(found.bootstrap):
        before = len(Admin(connection(found)).topic(name).partitions)
        if values or delete:
            ConfigAdmin(connection(found)).alter(Holder.TOPIC, name, values, delete or [], is_dry_run=dry_run)
        if partitions is not None:
            PartitionAdmin(connection(found)).add_partitions(name, partitions, is_dry_run=dry_run)
    data = {
        "topic": name,
        "partitions": partitions or before,
        "set": values,
        "deleted": delete or [],
        "dry_run": dry_run,
    }
    grown = "" if partitions is None else f": {partitions} partitions instead of {before}"
    done(format_of(format), data, f"{'would alter' if dry_run else 'altered'} topic {name}{grown}")


@app.command(epilog="Example: pylog topic delete clicks --yes")
def delete(
    name: Topic,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = None,
    timeout: Timeout = None,
    property: Properties = None,
    format: FormatOption = None,
) -> None:
    """Delete a topic and all its records."""
    found = settings(bootstrap, timeout, property)
    if not yes and not typer.confirm(f"Delete topic {name} of {found.bootstrap} and all its records?", err=True):
        raise Failure(faults.NOT_CONFIRMED, "nothing was deleted", where=name, next=f"pylog topic delete {name} --yes")
    with told_to_the_user(found.bootstrap):
        Admin(connection(found)).delete_topic(name)
    done(format_of(format), {"topic": name, "deleted": True}, f"deleted topic {name}")


def _config_text(config: Mapping[str, ConfigValue], is_wide: bool) -> str:
    rows = [{"setting": n, "value": v.value, "own": v.is_own} for n, v in sorted(config.items()) if is_wide or v.is_own]
    columns = [Column("setting"), Column("value"), Column("own", is_wide=True)]
    return "\n" + table(rows, columns, is_wide) if rows else ""
