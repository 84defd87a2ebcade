"""`pylog partition reassign`: move partitions to other brokers."""

import json
import time
from collections.abc import Set
from pathlib import Path
from typing import Annotated

import typer

from pylog import faults
from pylog.cli.failure import Failure
from pylog.cli.named import named_partitions
from pylog.cli.options import (
    Bootstrap,
    Format,
    FormatOption,
    Properties,
    Timeout,
    connection,
    format_of,
    settings,
    told_to_the_user,
)
from pylog.cli.output import Column, emit, note, table
from pylog.cli.progress import progress, tracked
from pylog.client.admin.configs import ConfigAdmin, Holder
from pylog.client.admin.moves import Placement, Places, PlanError, plan_moves
from pylog.client.admin.partitions import PartitionAdmin
from pylog.model import TopicPartition

_POLL_S = 0.5
_NEWS_S = 10.0


def reassign(
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="TOPIC[:PARTITION,..]", help="Only this; repeatable. Else all."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(metavar="BROKER,..", help="Spread evenly over these brokers; all: every registered one."),
    ] = None,
    drain: Annotated[
        list[int] | None,
        typer.Option(metavar="BROKER", help="Take everything from this broker, move nothing else; repeatable."),
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", "-r", min=1, help="So many replicas of each partition.")
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A plan as --format json writes it, or Kafka's kafka-reassign-partitions."),
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it; else it only shows the plan.")] = False,
    throttle: Annotated[
        int | None,
        typer.Option(
            metavar="BYTES", min=1, help="A second, for what each broker sends and fetches; taken off at the end."
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Whether it waits until all is moved.")] = True,
    status: Annotated[bool, typer.Option("--status", help="Show what is on the move.")] = False,
    unthrottle: Annotated[
        bool, typer.Option("--unthrottle", help="With --status: take throttles off once nothing is on the move.")
    ] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Call off what is on the move.")] = False,
    bootstrap: Bootstrap = None,
    timeout: Timeout = None,
    property: Properties = None,
    format: FormatOption = None,
) -> None:
    """Move partitions to other brokers: shows the plan, and with --execute carries it out and waits.

    A plan moves as few replicas as it can. What is interrupted goes on in the cluster; --status and --cancel reach it.
    """
    chosen = [
        name
        for name, is_given in (
            ("--to, --drain, --replication-factor", to or drain or replication_factor),
            ("--plan", plan),
            ("--status", status),
            ("--cancel", cancel),
        )
        if is_given
    ]
    if len(chosen) != 1 or (to and drain) or (unthrottle and not status):
        raise Failure(
            faults.OPTIONS_CONFLICT,
            where="reassign",
            found=" and ".join(chosen) or "none of them",
            wanted="one of --to, --drain, --replication-factor, --plan, --status, --cancel",
            next="pylog partition reassign --help",
        )
    found, wanted = settings(bootstrap, timeout, property), format_of(format)
    with told_to_the_user(found.bootstrap):
        cluster = connection(found)
        admin = PartitionAdmin(cluster)
        chosen_partitions = named_partitions(admin, topic) if topic else None
        if status or cancel:
            _show_moves(admin, ConfigAdmin(cluster), chosen_partitions, wanted, is_cancel=cancel)
            if unthrottle and not admin.reassignments():
                _unthrottle_all(admin, ConfigAdmin(cluster))
            return
        view = admin.cluster()
        # Not the replicas of `view`: another broker may still show those of a move that is over.
        moving, placed = admin.placements()
        current = {
            TopicPartition(name, one.partition): one.replicas for name, t in view.topics.items() for one in t.partitions
        } | placed
        # On the way there it has the replicas that come and those that go; where it is bound for is what counts.
        current |= {one: move.target for one, move in moving.items() if one in current}
        if chosen_partitions is not None:
            current = {one: current[one] for one in chosen_partitions}
        brokers = [one.node_id for one in view.brokers]
        moves = (
            _read_plan(plan, current, moving.keys(), brokers)
            if plan
            else _make_plan(current, brokers, to, drain or [], replication_factor, admin.places())
        )
        _show_plan(wanted, current, moves)
        if not moves and moving:
            if execute and throttle is not None:
                _throttle(ConfigAdmin(cluster), brokers, sorted({one.topic for one in moving}), throttle)
            note(f"{len(moving)} partitions are on their way there")
        elif not moves:
            note("everything is where it should be")
        elif not execute:
            note("nothing was moved: add --execute to do it")
        else:
            _carry_out(admin, ConfigAdmin(cluster), brokers, moves, throttle, is_waiting=wait)


def _make_plan(
    current: Placement,
    known: list[int],
    to: str | None,
    drain: list[int],
    replication_factor: int | None,
    places: Places,
) -> dict[TopicPartition, tuple[int, ...]]:
    if to is None or to == "all":
        brokers = known
    else:
        words = to.split(",")
        if wrong := [word for word in words if not (word.isascii() and word.isdecimal())]:
            raise Failure(faults.OPTION_WRONG, where="--to", found=wrong[0] or "''", wanted="ids as 1,2,3, or all")
        brokers = [int(word) for word in words]
    if absent := sorted({*brokers} - {*known}):
        raise _impossible(", ".join(map(str, absent)), known)
    # One that has left already has nothing to be taken from it.
    for gone in sorted({*drain} - {*known, *(broker for one in current.values() for broker in one)}):
        note(f"broker {gone} is not registered and holds nothing")
    try:
        return plan_moves(
            current,
            set(brokers) - set(drain),
            replication_factor=replication_factor,
            is_balanced=to is not None,
            places=places,
        )
    except PlanError as error:
        raise _impossible(str(error), known) from error


def _read_plan(
    path: Path, current: Placement, moving: Set[TopicPartition], known: list[int]
) -> dict[TopicPartition, tuple[int, ...]]:
    """Read Kafka's JSON; what is so already is left out, but not what is still on its way there.

    plan => {"version": 1, "partitions": [{"topic": string, "partition": int, "replicas": [int]}]}
    """
    try:
        rows = json.loads(path.read_text())["partitions"]
        wanted = {
            TopicPartition(str(row["topic"]), int(row["partition"])): tuple(map(int, row["replicas"])) for row in rows
        }
    except OSError as error:
        raise Failure(faults.FILE_UNREADABLE, where=str(path), found=error.strerror or str(error)) from error
    except (KeyError, TypeError, ValueError) as error:
        raise Failure(
            faults.OPTION_WRONG,
            "this is no plan",
            where=str(path),
            found=repr(error),
            wanted='{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}',
        ) from error
    if gone := sorted(wanted.keys() - current.keys()):
        raise Failure(faults.NO_SUCH_PARTITION, where=str(path), found=str(gone[0]))
    for one, replicas in wanted.items():
        if not replicas or len(set(replicas)) < len(replicas) or not set(replicas) <= set(known):
            raise _impossible(f"{one} on {', '.join(map(str, replicas)) or 'none'}", known)
    # Ordered anew, a move lets go of brokers that have it waiting and do not come back.
    return {one: replicas for one, replicas in wanted.items() if one in moving or replicas != tuple(current[one])}


def _show_plan(format: Format, current: Placement, moves: Placement) -> None:
    rows = [
        {"topic": one.topic, "partition": one.partition, "from": list(current[one]), "replicas": list(replicas)}
        for one, replicas in sorted(moves.items())
    ]
    columns = [Column("topic"), Column("partition"), Column("from"), Column("replicas")]
    emit(format, {"version": 1, "partitions": rows}, lambda is_wide: table(rows, columns, is_wide) if rows else "")


def _carry_out(
    admin: PartitionAdmin,
    configs: ConfigAdmin,
    brokers: list[int],
    moves: dict[TopicPartition, tuple[int, ...]],
    throttle: int | None,
    *,
    is_waiting: bool,
) -> None:
    topics = sorted({one.topic for one in moves})
    if throttle is not None:
        _throttle(configs, brokers, topics, throttle)
    refused = {one: error for one, error in admin.reassign_partitions(moves).items() if error is not None}
    begun = moves.keys() - refused.keys()
    note(f"{len(begun)} of {len(moves)} moves began")
    if is_waiting and begun:
        try:
            _wait_moved(admin, begun)
        except KeyboardInterrupt:
            raise Failure(
                faults.INTERRUPTED,
                "stopped waiting; the moves go on",
                next="pylog partition reassign --status, or --cancel",
            ) from None
        if throttle is not None:
            _unthrottle(configs, brokers, topics)
        # A move that was called off meanwhile is no longer under way either.
        if left := _elsewhere(admin, {one: moves[one] for one in begun}):
            raise Failure(faults.MOVE_FAILED, f"{len(left)} of {len(begun)} moves were called off", where=str(left[0]))
        note(f"{len(begun)} partitions are where they should be")
    if refused:
        first = min(refused)
        raise Failure(
            faults.MOVE_FAILED,
            f"{len(refused)} of {len(moves)} moves were refused",
            where=str(first),
            found=str(refused[first]),
        )


def _wait_moved(admin: PartitionAdmin, partitions: Set[TopicPartition]) -> None:
    with progress("moving", len(partitions)) as bar:
        left = len(partitions)
        while left:
            time.sleep(_POLL_S)
            now = len(admin.reassignments(sorted(partitions)))
            bar.advance(left - now, f"moving, {now} left")
            left = now


def _elsewhere(admin: PartitionAdmin, moves: Placement) -> list[TopicPartition]:
    """Return the partitions that are not where they should be; the broker that is asked may hear of it a bit later."""
    deadline_s = time.monotonic() + _NEWS_S
    while True:
        topics = admin.cluster().topics
        left = [
            one
            for one, replicas in sorted(moves.items())
            if set(topics[one.topic].partitions[one.partition].replicas) != set(replicas)
        ]
        if not left or time.monotonic() > deadline_s:
            return left
        time.sleep(_POLL_S)


def _show_moves(
    admin: PartitionAdmin,
    configs: ConfigAdmin,
    partitions: list[TopicPartition] | None,
    format: Format,
    *,
    is_cancel: bool,
) -> None:
    moving = admin.reassignments(partitions)
    rows = [
        {
            "topic": one.topic,
            "partition": one.partition,
            "replicas": list(move.target),
            "adding": list(move.adding),
            "removing": list(move.removing),
        }
        for one, move in sorted(moving.items())
    ]
    columns = [Column("topic"), Column("partition"), Column("replicas"), Column("adding"), Column("removing")]
    emit(format, {"version": 1, "partitions": rows}, lambda is_wide: table(rows, columns, is_wide) if rows else "")
    if not is_cancel or not moving:
        note(f"{len(moving)} partitions are on the move")
        return
    refused = {one: error for one, error in admin.reassign_partitions(dict.fromkeys(moving)).items() if error}
    if refused:
        first = min(refused)
        raise Failure(
            faults.MOVE_FAILED,
            f"{len(refused)} of {len(moving)} moves were not called off",
            where=str(first),
            found=str(refused[first]),
        )
    _unthrottle(configs, [one.node_id for one in admin.cluster().brokers], sorted({one.topic for one in moving}))
    note(f"{len(moving)} moves were called off")


# Kafka's own names: a rate for each broker, and on the topic the replicas to which it holds.
_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


def _throttle(configs: ConfigAdmin, brokers: list[int], topics: list[str], rate: int) -> None:
    for broker in tracked(brokers, "throttling brokers"):
        configs.alter(Holder.BROKER, str(broker), dict.fromkeys(_RATES, str(rate)))
    for topic in tracked(topics, "throttling topics"):
        configs.alter(Holder.TOPIC, topic, dict.fromkeys(_REPLICAS, "*"))


def _unthrottle(configs: ConfigAdmin, brokers: list[int], topics: list[str]) -> None:
    for topic in tracked(topics, "unthrottling topics"):
        configs.alter(Holder.TOPIC, topic, {}, _REPLICAS)
    for broker in tracked(brokers, "unthrottling brokers"):
        configs.alter(Holder.BROKER, str(broker), {}, _RATES)


def _unthrottle_all(admin: PartitionAdmin, configs: ConfigAdmin) -> None:
    """Take off whatever throttle an interrupted command has left."""
    view = admin.cluster()
    for topic in tracked(list(view.topics), "unthrottling topics"):
        own = {one.name for one in configs.settings(Holder.TOPIC, topic) if one.source == "topic"}
        if throttled := own & {*_REPLICAS}:
            configs.alter(Holder.TOPIC, topic, {}, sorted(throttled))
    for broker in tracked(view.brokers, "unthrottling brokers"):
        own = {one.name for one in configs.settings(Holder.BROKER, str(broker.node_id)) if "changed" in one.source}
        if throttled := own & {*_RATES}:
            configs.alter(Holder.BROKER, str(broker.node_id), {}, sorted(throttled))


def _impossible(found: str, known: list[int]) -> Failure:
    return Failure(faults.PLAN_IMPOSSIBLE, found=found, wanted=f"among brokers {', '.join(map(str, known))}")
