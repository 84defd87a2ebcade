"""`pylog cluster`: is it healthy, and what is it made of?"""

import time
from dataclasses import asdict
from typing import Annotated

import typer

from pylog import faults
from pylog.cli.adopt import adopt
from pylog.cli.backup import backup, restore
from pylog.cli.failure import Failure, failure_of
from pylog.cli.finalize import finalize
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
from pylog.cli.output import Column, emit, note, table
from pylog.cli.progress import progress, sleep
from pylog.client.admin.broker_socket import ask, socket_of
from pylog.client.admin.cluster import Admin, ClusterView
from pylog.client.admin.health import Problem, Wanted, judge, outages
from pylog.client.admin.partitions import PartitionAdmin
from pylog.client.rows import broker_row, health_data
from pylog.errors import ApiError, PylogError, Unreachable
from pylog.model import TopicPartition

app = new_app("Is the cluster healthy, and what is it made of?")
app.command(epilog="Example: pylog cluster finalize --broker 1")(finalize)
app.command(epilog="Example: pylog cluster adopt --data /var/lib/pylog/0 --yes")(adopt)
app.command(epilog="Example: pylog cluster backup --config /etc/pylog/broker-1.yml --to metadata.json")(backup)
app.command(
    epilog="Example: pylog cluster restore metadata.json --ends b1.json --ends b2.json --config /etc/pylog/broker-1.yml"
)(restore)

_EMPTY = ClusterView("", -1, (), {})


@app.command(epilog="Example: pylog cluster health --broker 2 --leading --consecutive 3 --wait 600")
def health(
    bootstrap: Bootstrap = None,
    broker: Annotated[int | None, typer.Option(metavar="ID", help="This broker must be there and in sync.")] = None,
    leading: Annotated[bool, typer.Option("--leading", help="--broker must also lead what prefers it.")] = False,
    brokers: Annotated[int, typer.Option(metavar="N", min=1, help="So many brokers must be registered.")] = 1,
    elect: Annotated[bool, typer.Option("--elect", help="Once in sync, let --broker lead what prefers it.")] = False,
    away: Annotated[
        list[int] | None,
        typer.Option(
            metavar="ID", help="This broker may be lost: the others must have everything without it; repeatable."
        ),
    ] = None,
    moving: Annotated[bool, typer.Option("--moving", help="What is on the move need not have arrived.")] = False,
    consecutive: Annotated[int, typer.Option(metavar="N", min=1, help="Healthy readings in a row.")] = 1,
    interval: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="Time between them.")] = 1,
    wait: Annotated[float, typer.Option(metavar="SECONDS", min=0, help="Keep reading so long until healthy.")] = 0,
    exit_when_healthy: Annotated[bool, typer.Option("--exit-when-healthy", help="Wait without a limit.")] = False,
    timeout: Timeout = None,
    property: Properties = None,
    format: FormatOption = None,
) -> None:
    """Say whether all brokers answer, a controller is known, and every partition is led and in sync."""
    if (leading or elect) and broker is None:
        option = "--leading" if leading else "--elect"
        raise Failure(faults.OPTIONS_CONFLICT, "an option is missing", where=option, wanted="--broker ID with it")
    found = settings(bootstrap, timeout, property)
    wanted = Wanted(broker_count=brokers, broker=broker, is_leading=leading or elect, away=frozenset(away or ()))
    probe = _Probe(PartitionAdmin(connection(found)), wanted, is_electing=elect, is_moving=moving)
    deadline = float("inf") if exit_when_healthy and not wait else time.monotonic() + wait
    _wait_healthy(probe, consecutive, deadline, interval)
    _show_health(format_of(format), probe)
    if probe.unreachable is not None:
        raise failure_of(probe.unreachable, found.bootstrap)
    if probe.problems:
        first = probe.problems[0]
        raise Failure(faults.UNHEALTHY, where=first.subject, found=first.detail)


@app.command(epilog="Example: pylog cluster info --format json")
def info(
    bootstrap: Bootstrap = None,
    timeout: Timeout = None,
    property: Properties = None,
    format: FormatOption = None,
) -> None:
    """Show the cluster's id, its controller and its brokers."""
    found = settings(bootstrap, timeout, property)
    with told_to_the_user(found.bootstrap):
        view = Admin(connection(found)).cluster()
    partitions = [p for topic in view.topics.values() for p in topic.partitions]
    rows = [broker_row(b, view) for b in view.brokers]
    data = {
        "cluster_id": view.cluster_id,
        "controller_id": view.controller_id,
        "brokers": rows,
        "topic_count": len(view.topics),
        "partition_count": len(partitions),
    }
    columns = [
        Column("id"),
        Column("host"),
        Column("port"),
        Column("controller"),
        Column("leads", is_wide=True),
        Column("replicas", is_wide=True),
    ]
    emit(
        format_of(format),
        data,
        lambda is_wide: (
            f"cluster     {view.cluster_id}\ntopics      {len(view.topics)}\npartitions  {len(partitions)}\n\n"
            + table(rows, columns, is_wide)
        ),
    )


@app.command(epilog="Example: pylog cluster impact --broker 1 --broker 2")
def impact(
    broker: Annotated[list[int], typer.Option(metavar="ID", help="A broker that will stop; repeatable.")],
    bootstrap: Bootstrap = None,
    timeout: Timeout = None,
    property: Properties = None,
    format: FormatOption = None,
) -> None:
    """Say which partitions clients cannot use while a broker is stopped, one broker at a time."""
    found = settings(bootstrap, timeout, property)
    with told_to_the_user(found.bootstrap):
        admin = Admin(connection(found))
        view = admin.cluster()
        configs = admin.topic_configs(list(view.topics))
    known = {one.node_id for one in view.brokers} | {
        replica for topic in view.topics.values() for one in topic.partitions for replica in one.replicas
    }
    if unknown := sorted({*broker} - known):
        wanted = f"of {', '.join(map(str, sorted(known)))}"
        raise Failure(faults.OPTION_WRONG, where="--broker", found=", ".join(map(str, unknown)), wanted=wanted)
    min_isr = {name: int(config["min.insync.replicas"].value or 1) for name, config in configs.items()}
    rows = [asdict(one) for one in outages(view, broker, min_isr)]
    columns = [Column("broker"), Column("partition"), Column("effect"), Column("detail")]
    text = table(rows, columns, is_wide=False) if rows else "every partition stays usable, one broker at a time\n"
    emit(format_of(format), {"outages": rows}, lambda is_wide: text)


class _Probe:
    """Takes readings of a cluster and keeps the last one."""

    def __init__(
        self, admin: PartitionAdmin, wanted: Wanted, *, is_electing: bool = False, is_moving: bool = False
    ) -> None:
        self._admin = admin
        self._wanted = wanted
        self._is_electing = is_electing
        self._is_moving = is_moving
        self.view = _EMPTY
        self.problems: list[Problem] = []
        self.unreachable: Unreachable | None = None

    def read(self) -> bool:
        """Take one reading and return whether it is healthy."""
        self.view, self.unreachable = _EMPTY, None
        try:
            # First: what arrives in between is in sync by then.
            moves = self._admin.reassignments() if self._is_moving else {}
            self.view = self._admin.cluster()
        except Unreachable as error:
            self.unreachable = error
            self.problems = [Problem("unreachable", "cluster", str(error))]
            return False
        except ApiError as error:
            self.problems = [Problem("refused", "cluster", str(error))]
            return False
        answering = self._admin.answering(self.view.brokers)
        arriving = {one: move.adding for one, move in moves.items()}
        self.problems = judge(self.view, answering, self._wanted, self._not_ready(), arriving)
        # Only once nothing else is wrong: a leader that others have to catch up with first would make them wait.
        if self._is_electing and self.problems and {problem.kind for problem in self.problems} == {"not_leading"}:
            self._elect()
        return not self.problems

    def _elect(self) -> None:
        """Have the wanted broker lead what prefers it; the next reading shows whether it does."""
        try:
            results = self._admin.elect(
                [
                    TopicPartition(topic.name, p.partition)
                    for topic in self.view.topics.values()
                    for p in topic.partitions
                    if p.replicas[0] == self._wanted.broker != p.leader
                ]
            )
        except PylogError as error:
            note(f"waiting: no election: {error}")
            return
        refused = {partition: reason for partition, reason in results.items() if reason is not None}
        for partition, reason in list(refused.items())[:1]:
            note(f"waiting: no election of {len(refused)} partitions, first {partition}: {reason}")

    def _not_ready(self) -> str | None:
        """Return why the wanted broker says it is not ready; None also where it does not run on this host."""
        if self._wanted.broker is None or not (path := socket_of(self._wanted.broker)).exists():
            return None
        try:
            status, answer = ask(path, "GET", "/ready")
        except Unreachable as error:
            return str(error)
        return None if status == 200 else str(answer.get("reason", answer))


def _wait_healthy(probe: _Probe, consecutive: int, deadline: float, interval_s: float) -> None:
    """Read until *consecutive* readings in a row are healthy, or one after the deadline is not."""
    streak, told = 0, ""
    began_s = time.monotonic()
    limit_s = 0 if deadline == float("inf") else max(0, deadline - began_s)
    with progress("waiting for a healthy cluster") as bar:
        while True:
            streak = streak + 1 if probe.read() else 0
            if streak >= consecutive or (not streak and time.monotonic() >= deadline):
                return
            reason = f"{len(probe.problems)} problems, first: {probe.problems[0].detail}" if probe.problems else ""
            if reason and reason != told:
                note(f"waiting: {reason}")
            told = reason
            bar.advance(0, f"waiting, {len(probe.problems)} problems" if reason else f"healthy {streak} times")
            sleep(bar, interval_s, began_s, limit_s)


def _show_health(format: Format, probe: _Probe) -> None:
    data = health_data(probe.view, probe.problems)
    problems = data["problems"]
    state = "healthy" if not problems else f"unhealthy, {len(problems)} problems"
    summary = (
        f"{state}: {len(data['brokers'])} brokers, controller {data['controller_id']}, "
        f"{data['topic_count']} topics, {data['partition_count']} partitions\n"
    )
    columns = [Column("kind"), Column("subject"), Column("detail")]
    emit(format, data, lambda is_wide: summary + ("\n" + table(problems, columns, is_wide) if problems else ""))
