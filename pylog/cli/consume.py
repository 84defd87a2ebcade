"""`pylog consume`: records to stdout."""

import sys
from collections.abc import Iterable
from itertools import islice
from typing import Annotated

import typer

from pylog.cli.named import named_partitions
from pylog.cli.options import Bootstrap, Properties, Timeout, Topic, connection, new_app, settings, told_to_the_user
from pylog.cli.start import Start, StartKind, parse_start, positions
from pylog.cli.template import Writer, compile_template
from pylog.client.admin import Admin
from pylog.client.consumer import ConsumedRecord, Consumer
from pylog.model import Offset, TopicPartition

app = new_app()


@app.command(epilog="Example: pylog consume clicks --from -10 -e -f '%p %o %k %s\\n'")
def consume(
    topic: Topic,
    format: Annotated[str, typer.Option(
        "--format", "-f", metavar="TEMPLATE",
        help=r"As kcat: %s value, %k key, %t topic, %p partition, %o offset, %T time in ms, %h headers, %S %K sizes, "
             r"\n \t \xHH; or json.")] = "%s\\n",
    start: Annotated[str, typer.Option(
        "--from", "-o", metavar="START", help="beginning, end, OFFSET, -COUNT, @MILLISECONDS.")] = "beginning",
    partition: Annotated[list[int] | None, typer.Option("--partition", "-p", help="Only this; repeatable.")] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=0, help="Stop after so many records.")] = None,
    exit_at_end: Annotated[bool, typer.Option(
        "--exit", "-e", help="Stop at the end as it is now, instead of following.")] = False,
    unbuffered: Annotated[bool, typer.Option("--unbuffered", "-u", help="Write each record at once.")] = False,
    bootstrap: Bootstrap = None, timeout: Timeout = None, property: Properties = None,
) -> None:
    """Write a topic's records to stdout; follows the topic unless told to stop."""
    write, from_ = compile_template(format), parse_start(start)
    found = settings(bootstrap, timeout, property)
    with told_to_the_user(found.bootstrap):
        admin, cluster = Admin(connection(found)), connection(found)
        wanted = named_partitions(admin, [f"{topic}:{','.join(map(str, partition))}" if partition else topic])
        with Consumer(cluster) as consumer:
            consumer.assign(_positions(admin, wanted, from_))
            try:
                if exit_at_end:
                    _write(islice(consumer.records_to_end(), count), write, is_unbuffered=unbuffered)
                else:
                    _follow(consumer, write, count, is_unbuffered=unbuffered)
            except KeyboardInterrupt:
                pass  # the way to stop following
            finally:
                sys.stdout.flush()


def _positions(admin: Admin, partitions: list[TopicPartition], start: Start) -> dict[TopicPartition, Offset]:
    if start.kind is StartKind.TIME:
        return admin.offsets_at(partitions, start.number)
    return positions(start, admin.offsets(partitions))


def _follow(consumer: Consumer, write: Writer, count: int | None, *, is_unbuffered: bool) -> None:
    """Write whatever comes, each batch as soon as it is there."""
    left = count
    while left is None or left > 0:
        records = consumer.read(0.2)[:left]
        _write(records, write, is_unbuffered=is_unbuffered)
        # A pipe buffers blocks; whoever follows wants to see the last record too.
        sys.stdout.flush()
        left = None if left is None else left - len(records)


def _write(records: Iterable[ConsumedRecord], write: Writer, *, is_unbuffered: bool) -> None:
    output = sys.stdout.buffer
    for record in records:
        output.write(write(record))
        if is_unbuffered:
            output.flush()
