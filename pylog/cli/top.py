"""`pylog top`: throughput, hot partitions and lag as they are, and how they have been."""

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
from pylog.cli.progress import progress, sleep
from pylog.cli.rates import LagAges, Look, Trends, group_rates, hot_partitions, sparkline, topic_rates
from pylog.client.admin.groups import GroupAdmin
from pylog.errors import ApiError, PylogError
from pylog.model import OnProgress, TopicPartition, nobody

if TYPE_CHECKING:
    from rich.console import RenderableType

app = new_app()

_TOPICS = (Column("topic"), Column("partitions"), Column("written_a_second"))
_PARTITIONS = (
    Column("topic"),
    Column("partition"),
    Column("leader"),
    Column("written_a_second"),
    Column("times_mean"),
)
_GROUPS = (
    Column("group"),
    Column("lag"),
    Column("lag_seconds"),
    Column("read_a_second"),
    Column("lag_a_second"),
)
_TREND_WIDTH = 30
_MOST_PARTITIONS = 10
"""Hot partitions shown; with more of them none is hot."""

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
    """Watch records written by topic and partition, and lag by group, until Ctrl-C; wide: internal topics too.

    times_mean of a partition is its rate over the mean of its topic's partitions. lag_seconds is the age of the oldest
    record that a group has not read; of what was there before the first look, only the time since then.
    """
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
        watch = _Watch(rows, _look(admin, is_internal=is_internal))
        if once:
            with progress("looking twice") as bar:
                sleep(bar, interval, time.monotonic(), interval)
                data = watch.take(_look(admin, is_internal=is_internal, on_progress=bar.at))
            emit(wanted, data, lambda _: _text(data))
        else:
            _show(admin, watch, interval, is_internal=is_internal)


def _look(admin: GroupAdmin, *, is_internal: bool, on_progress: OnProgress = nobody) -> Look:
    leaders = {
        TopicPartition(name, one.partition): one.leader
        for name, topic in admin.cluster().topics.items()
        if is_internal or not name.startswith("__")
        for one in topic.partitions
        if one.has_leader
    }
    groups = admin.groups()
    committed = {}
    deadline_s = time.monotonic() + admin.timeout_s
    for number, one in enumerate(groups[:_MAX_GROUPS]):
        on_progress(number, min(len(groups), _MAX_GROUPS))
        try:
            committed[one.group_id] = admin.committed(one.group_id)
        except ApiError:  # its coordinator has just moved; the others' lag is known all the same
            if time.monotonic() > deadline_s:
                break  # each of the other groups might take a time-out too
    # Last, so that no commit seems to be ahead of its log.
    ends = admin.ends(list(leaders))
    return Look(time.monotonic(), ends, committed, leaders, len(groups) - len(committed))


class _Watch:
    """What the looks so far add up to."""

    def __init__(self, rows: int, first: Look) -> None:
        self._rows = rows
        self._before = first
        self._ages = LagAges()
        self._ages.note(first)
        self.written, self.lags, self.totals = Trends(), Trends(), Trends()

    def take(self, look: Look) -> dict[str, Any]:
        """Return what moved since the look before."""
        topics, groups = topic_rates(self._before, look), group_rates(self._before, look)
        seconds = round(look.at_s - self._before.at_s, 2)
        hot = hot_partitions(self._before, look)[: min(self._rows, _MOST_PARTITIONS)]
        self._ages.note(look)
        self._before = look
        written, lag = sum(one.written_a_second for one in topics), sum(one.lag for one in groups)
        self.written.note({one.topic: one.written_a_second for one in topics})
        self.lags.note({one.group: one.lag for one in groups})
        self.totals.note({"written": written, "lag": lag})
        return {
            "seconds": seconds,
            "written_a_second": round(written, 1),
            "lag": lag,
            "unknown_groups": look.unknown_groups,
            "topics": [
                {
                    "topic": one.topic,
                    "partitions": one.partition_count,
                    "written_a_second": round(one.written_a_second, 1),
                }
                for one in topics[: self._rows]
            ],
            "hot_partitions": [
                {
                    "topic": one.partition.topic,
                    "partition": one.partition.partition,
                    "leader": one.leader,
                    "written_a_second": round(one.written_a_second, 1),
                    "times_mean": round(one.factor, 1),
                }
                for one in hot
            ],
            "groups": [
                {
                    "group": one.group,
                    "lag": one.lag,
                    "lag_seconds": round(self._ages.seconds(look, one.group), 1),
                    "read_a_second": round(one.read_a_second, 1),
                    "lag_a_second": round(one.lag_a_second, 1),
                }
                for one in groups[: self._rows]
            ],
        }


def _unknown(data: Mapping[str, Any]) -> str:
    return f", of {data['unknown_groups']:,} groups not known" if data["unknown_groups"] else ""


def _text(data: Mapping[str, Any]) -> str:
    return (
        f"written  {data['written_a_second']:,.1f} a second\nlag      {data['lag']:,}{_unknown(data)}\n\n"
        + table(data["topics"], _TOPICS, False)
        + "\n"
        + table(data["hot_partitions"], _PARTITIONS, False)
        + "\n"
        + table(data["groups"], _GROUPS, False)
    )


def _show(admin: GroupAdmin, watch: _Watch, interval: float, *, is_internal: bool) -> None:
    from rich.live import Live

    try:
        with Live(auto_refresh=False, screen=True) as live:
            data, failure = None, ""
            while True:
                time.sleep(interval)
                try:
                    data, failure = watch.take(_look(admin, is_internal=is_internal)), ""
                except PylogError as error:
                    if data is None:
                        raise
                    failure = str(error)  # what was seen last stays: this is when somebody looks
                live.update(_screen(data, watch, failure), refresh=True)
    except KeyboardInterrupt:
        pass  # the way to stop watching


def _screen(data: Mapping[str, Any], watch: _Watch, failure: str) -> "RenderableType":
    from rich.console import Group

    written, lag = (sparkline(watch.totals.of(name), _TREND_WIDTH) for name in ("written", "lag"))
    return Group(
        f"pylog top   {data['written_a_second']:,.1f} records a second {written}   lag {data['lag']:,} {lag}"
        f"{_unknown(data)}   Ctrl-C ends",
        *([f"NOT UP TO DATE, {failure}"] if failure else []),
        _table(data["topics"], _TOPICS, watch.written),
        _table(data["hot_partitions"], _PARTITIONS),
        _table(data["groups"], _GROUPS, watch.lags),
    )


def _table(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[Column], trends: Trends | None = None
) -> "RenderableType":
    from rich.table import Table
    from rich.text import Text

    shown = Table(expand=True)
    for column in columns:
        shown.add_column(column.name.replace("_", " "), justify="left" if column is columns[0] else "right")
    if trends is not None:
        shown.add_column("trend")
    for row in rows:
        # As text: a name with brackets in it is no markup.
        cells = [
            Text(f"{row[c.name]:,}" if isinstance(row[c.name], int | float) else str(row[c.name])) for c in columns
        ]
        if trends is not None:
            cells.append(Text(sparkline(trends.of(str(row[columns[0].name])), _TREND_WIDTH)))
        shown.add_row(*cells)
    return shown
