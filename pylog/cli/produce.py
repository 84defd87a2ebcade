"""`pylog produce`: each line of stdin becomes a record."""

import sys
from collections.abc import Iterator
from typing import Annotated, BinaryIO

import typer

from pylog import faults
from pylog.cli.failure import Failure, failure_of
from pylog.cli.options import (
    Bootstrap,
    Codec,
    Properties,
    Timeout,
    Topic,
    assignments,
    connection,
    new_app,
    settings,
    told_to_the_user,
)
from pylog.cli.output import note
from pylog.client.producer import Producer

app = new_app()


@app.command(epilog="Example: printf 'alice:hello\\n' | pylog produce chat -k :")
def produce(
    topic: Topic,
    key_separator: Annotated[str | None, typer.Option(
        "--key-separator", "-k", metavar="TEXT", help="What parts key and value; no part before it: no key.")] = None,
    partition: Annotated[int, typer.Option("--partition", "-p", min=-1, help="-1: by key, else random.")] = -1,
    compression: Annotated[Codec, typer.Option("--compression", "-z", help="Of the batches.")] = Codec.NONE,
    acks: Annotated[str, typer.Option(metavar="all|1|0", help="Who must have it: ISR, leader, nobody.")] = "all",
    header: Annotated[list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE",
                                                     help="On every record; may be repeated.")] = None,
    empty_is_null: Annotated[bool, typer.Option("--null", "-Z", help="Send an empty value as null.")] = False,
    delivery_timeout: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="For each record.")] = 30,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No summary on stderr.")] = False,
    bootstrap: Bootstrap = None, timeout: Timeout = None, property: Properties = None,
) -> None:
    """Send each line of stdin as a record, and wait until all are acknowledged."""
    if acks not in ("all", "1", "0"):
        raise Failure(faults.OPTION_WRONG, where="--acks", found=acks, wanted="all, 1 or 0")
    if key_separator == "":
        raise Failure(faults.OPTION_WRONG, where="--key-separator", found="nothing", wanted="at least one character")
    found = settings(bootstrap, timeout, property)
    headers = [(name, value.encode()) for name, value in assignments("--header", header).items()]
    separator = key_separator.encode() if key_separator is not None else None
    count = 0
    with told_to_the_user(found.bootstrap):
        producer = Producer(connection(found), acks=acks, compression=compression,
                            delivery_timeout_ms=int(delivery_timeout * 1000))
        for line in _lines(sys.stdin.buffer):
            key, value = split_line(line, separator)
            producer.send(topic, None if empty_is_null and not value else value, key, partition=partition,
                          headers=headers)
            producer.poll(0)
            count += 1
        producer.flush()
    if producer.first_error is not None:
        note(f"{count - producer.failed_count} of {count} records were produced to {topic}")
        raise failure_of(producer.first_error, found.bootstrap)
    if not quiet:
        note(f"produced {count} records to {topic}")


def split_line(line: bytes, separator: bytes | None) -> tuple[bytes | None, bytes]:
    """Return key and value of a line; no separator in it means no key."""
    if separator is None:
        return None, line
    key, found, value = line.partition(separator)
    return (key, value) if found else (None, line)


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    for line in stream:
        yield line.removesuffix(b"\n")
