"""`pylog consume`: records to stdout."""

import sys
import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Annotated

import typer

from pylog import faults
from pylog.cli.failure import Failure
from pylog.cli.named import named_partitions
from pylog.cli.options import Bootstrap, Properties, Timeout, Topics, connection, new_app, settings, told_to_the_user
from pylog.cli.progress import progress
from pylog.cli.start import Start, StartKind, parse_start, positions
from pylog.cli.template import Writer, compile_template
from pylog.client.admin.cluster import Admin
from pylog.client.connection import Connection
from pylog.client.consumer import ConsumedRecord, Consumer, GroupConsumer
from pylog.daemon.stop import Stop
from pylog.errors import ApiError, ErrorCode
from pylog.model import IsolationLevel, Offset, TopicPartition

app = new_app()

_MAX_READ = 10_000
_COMMIT_INTERVAL_S = 1.0


@app.command(epilog="Example: pylog consume clicks --from -10 -e -f '%p %o %k %s\\n'")
def consume(
    topics: Topics,
    format: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            metavar="TEMPLATE",
            help=r"As kcat: %s or %v value, %k key, %t topic, %p partition, %o offset, %T time in ms, %D date, "
            r"%h headers, %S %K sizes, \n \t \xHH; or text, wide, json, yaml.",
        ),
    ] = "text",
    start: Annotated[
        str,
        typer.Option(
            "--from", "-o", metavar="START", help="beginning or earliest, end or latest, OFFSET, -COUNT, @MILLISECONDS."
        ),
    ] = "beginning",
    partition: Annotated[list[int] | None, typer.Option("--partition", "-p", help="Only this; repeatable.")] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", metavar="GROUP", help="Share the topics with the other members of this group."),
    ] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=0, help="Stop after so many records.")] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit", "-e", help="Stop at the end as it is now, instead of following.")
    ] = False,
    isolation_level: Annotated[
        IsolationLevel,
        typer.Option("--isolation-level", help="read_uncommitted: records of open and aborted transactions too."),
    ] = IsolationLevel.READ_COMMITTED,
    unbuffered: Annotated[bool, typer.Option("--unbuffered", "-u", help="Write each record at once.")] = False,
    bootstrap: Bootstrap = None,
    timeout: Timeout = None,
    property: Properties = None,
) -> None:
    """Write the records of topics to stdout; follows them unless told to stop.

    As a member of a group it commits what it has written, so that each record comes at least once to one member.
    Of transactions it writes what was committed, and waits before the first open one.
    """
    output, from_ = Output(compile_template(format), is_unbuffered=unbuffered), parse_start(start)
    found = settings(bootstrap, timeout, [f"isolation.level={isolation_level}", *(property or ())])
    with told_to_the_user(found.bootstrap):
        if group is not None:
            _consume_as_member(connection(found), group, topics, from_, partition, count, output, is_short=exit_at_end)
        else:
            _consume(connection(found), topics, from_, partition, count, output, is_short=exit_at_end)


class Output:
    """Stdout, for records."""

    def __init__(self, write: Writer, *, is_unbuffered: bool) -> None:
        self._record = write
        self._is_unbuffered = is_unbuffered

    def write(self, records: Iterable[ConsumedRecord]) -> None:
        """Write each."""
        output = sys.stdout.buffer
        for record in records:
            output.write(self._record(record))
            if self._is_unbuffered:
                output.flush()

    def flush(self) -> None:
        """Hand everything over: a pipe buffers blocks, and whoever follows wants to see the last record too."""
        sys.stdout.flush()


def _consume(
    cluster: Connection,
    topics: list[str],
    start: Start,
    numbers: list[int] | None,
    count: int | None,
    output: Output,
    *,
    is_short: bool,
) -> None:
    admin = Admin(cluster)
    suffix = ":" + ",".join(map(str, numbers)) if numbers else ""
    wanted = named_partitions(admin, [topic + suffix for topic in topics])
    with Consumer(cluster) as consumer:
        found = _positions(admin, wanted, start, _level(cluster))
        consumer.assign(found)
        try:
            if is_short:
                _to_end(consumer, output, count)
            else:
                _follow(consumer, output, count)
        except KeyboardInterrupt:
            pass  # the way to stop following
        finally:
            output.flush()


def _level(cluster: Connection) -> IsolationLevel:
    """Return the level that librdkafka reads by; it ignores the case of the property's value."""
    return IsolationLevel(cluster.properties["isolation.level"].lower())


def _to_end(consumer: Consumer, output: Output, count: int | None) -> None:
    with progress("consuming") as bar:
        bar.make_way()
        records = consumer.records_to_end(lambda done, total: bar.at(done, min(total, count or total)))
        output.write(islice(records, count))


def _consume_as_member(
    cluster: Connection,
    group: str,
    topics: list[str],
    start: Start,
    numbers: list[int] | None,
    count: int | None,
    output: Output,
    *,
    is_short: bool,
) -> None:
    if numbers or start.kind not in (StartKind.BEGINNING, StartKind.END):
        raise Failure(
            faults.OPTIONS_CONFLICT,
            where="--group",
            found="--partition" if numbers else "--from",
            wanted="a group decides itself who reads what from where",
            next=f"pylog group reset-offsets {group} --to TARGET, or leave out --group",
        )
    known = Admin(cluster).cluster().topics
    if missing := [topic for topic in topics if topic not in known]:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {missing[0]!r} does not exist")
    begin = "earliest" if start.kind is StartKind.BEGINNING else "latest"
    with GroupConsumer(cluster, group, topics, start=begin) as consumer:
        # A flag, because an exception between reading and writing would commit what was never written.
        stop = Stop()
        stop.on_signals()
        _follow(consumer, output, count, until=lambda: stop.is_wanted or (is_short and consumer.is_at_end))
        consumer.commit()


def _positions(
    admin: Admin, partitions: list[TopicPartition], start: Start, level: IsolationLevel
) -> dict[TopicPartition, Offset]:
    if start.kind is StartKind.TIME:
        return admin.offsets_at(partitions, start.number)
    return positions(start, admin.offsets(partitions, level))


def _follow(consumer: Consumer, output: Output, count: int | None, until: Callable[[], bool] = lambda: False) -> None:
    """Write whatever comes, each batch as soon as it is there; a member commits what is written, once a second."""
    left, committed_s = count, time.monotonic()
    with progress("consuming", count) as bar:
        bar.make_way()
        while (left is None or left > 0) and not until():
            records = consumer.read(0.2, _MAX_READ if left is None else min(left, _MAX_READ))
            output.write(records)
            output.flush()
            bar.advance(len(records))
            left = None if left is None else left - len(records)
            if isinstance(consumer, GroupConsumer) and time.monotonic() > committed_s + _COMMIT_INTERVAL_S:
                consumer.commit()
                committed_s = time.monotonic()
