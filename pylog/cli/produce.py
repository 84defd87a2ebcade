"""`pylog produce`: each line of stdin becomes a record."""

import os
import stat
import sys
from collections.abc import Iterator
from typing import Annotated, BinaryIO

import typer

from pylog import faults
from pylog.cli.failure import Failure, failure_of
from pylog.cli.input import InputRecord, Reader, compile_input
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
from pylog.cli.progress import BYTES, progress
from pylog.client.producer import Producer

app = new_app()


@app.command(epilog="Example: printf 'alice:hello\\n' | pylog produce chat -k :")
def produce(
    topic: Topic,
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            metavar="TEMPLATE",
            help="How a line is read: %s or %v value, %k key, %p partition, %T time in ms, %h headers; or text, json.",
        ),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator", "-k", metavar="TEXT", help="What parts key and value; no part before it: no key."
        ),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="TEXT", help="Of every record without one.")] = None,
    timestamp: Annotated[
        int | None, typer.Option(metavar="MS", min=1, help="Of every record without one, in ms since 1970 [now].")
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition", "-p", min=-1, help="Of every record; -1: by key, else random [what the input says]."
        ),
    ] = None,
    compression: Annotated[Codec, typer.Option("--compression", "-z", help="Of the batches.")] = Codec.NONE,
    acks: Annotated[str, typer.Option(metavar="all|1|0", help="Who must have it: ISR, leader, nobody.")] = "all",
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="On every record; may be repeated.")
    ] = None,
    empty_is_null: Annotated[bool, typer.Option("--null", "-Z", help="Send an empty value as null.")] = False,
    delivery_timeout: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="For each record.")] = 30,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No summary on stderr.")] = False,
    bootstrap: Bootstrap = None,
    timeout: Timeout = None,
    property: Properties = None,
) -> None:
    """Send each line of stdin as a record, and wait until all are acknowledged."""
    if acks not in ("all", "1", "0"):
        raise Failure(faults.OPTION_WRONG, where="--acks", found=acks, wanted="all, 1 or 0")
    read = _reader(format, key_separator)
    named = assignments("--header", header)
    headers: list[tuple[str, bytes | None]] = [(name, value.encode()) for name, value in named.items()]
    default_key = key.encode() if key is not None else None
    found = settings(bootstrap, timeout, property)
    with told_to_the_user(found.bootstrap):
        producer = Producer(
            connection(found), acks=acks, compression=compression, delivery_timeout_ms=int(delivery_timeout * 1000)
        )
        count, refused = 0, None
        size_bytes = _size_bytes(sys.stdin.buffer)
        with progress("producing", size_bytes, BYTES) if size_bytes else progress("producing") as bar:
            for line in _lines(sys.stdin.buffer):
                try:
                    record = read(line)
                except ValueError as error:
                    refused = Failure(
                        faults.FORMAT_WRONG,
                        "a line does not fit",
                        where=f"line {count + 1}",
                        found=str(error),
                        next=f"the {count} lines before it were produced",
                    )
                    break
                place = partition if partition is not None else record.partition
                producer.send(
                    topic,
                    None if empty_is_null and not record.value else record.value,
                    default_key if record.key is None else record.key,
                    partition=-1 if place is None else place,
                    headers=record.headers + headers,
                    timestamp_ms=record.timestamp_ms or timestamp or 0,
                )
                producer.poll(0)
                count += 1
                bar.advance(len(line) + 1 if size_bytes else 1)
            producer.flush()
    if producer.first_error is not None:
        note(f"{count - producer.failed_count} of {count} records were produced to {topic}")
        raise failure_of(producer.first_error, found.bootstrap)
    if refused is not None:
        raise refused
    if not quiet:
        note(f"produced {count} records to {topic}")


def _reader(format: str | None, key_separator: str | None) -> Reader:
    if key_separator == "":
        raise Failure(faults.OPTION_WRONG, where="--key-separator", found="nothing", wanted="at least one character")
    if format is not None:
        if key_separator is not None:
            raise Failure(
                faults.OPTIONS_CONFLICT,
                where="--format, --key-separator",
                found="both",
                wanted="one of them",
                next=f"pylog produce -f '%k{key_separator}%s'",
            )
        return compile_input(format)
    separator = None if key_separator is None else key_separator.encode()

    def read(line: bytes) -> InputRecord:
        key, value = split_line(line, separator)
        return InputRecord(value, key)

    return read


def split_line(line: bytes, separator: bytes | None) -> tuple[bytes | None, bytes]:
    """Return key and value of a line; no separator in it means no key."""
    if separator is None:
        return None, line
    key, found, value = line.partition(separator)
    return (key, value) if found else (None, line)


def _size_bytes(stream: BinaryIO) -> int:
    """Return the size of the file that *stream* reads, 0 if it is none."""
    try:
        status = os.fstat(stream.fileno())
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    for line in stream:
        yield line.removesuffix(b"\n")
