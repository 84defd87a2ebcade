"""`pylog demo`: activity events at a chosen rate, and a count of what was acknowledged."""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count as count_up
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from pylog import faults
from pylog.audit.counting import Count, key_hash, write_report
from pylog.cli.activity import TOPICS, Activity, Encode, KeyValue, as_json, schema
from pylog.cli.failure import Failure
from pylog.cli.options import (
    Bootstrap,
    Codec,
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
from pylog.cli.progress import progress
from pylog.client.admin.cluster import Admin
from pylog.client.connection import Connection
from pylog.client.producer import Producer
from pylog.errors import ApiError, ErrorCode, PylogError

app = new_app()

_BLOCK_RECORDS = 2000
_BLOCKS_A_SECOND = 20
"""How finely a rate is spread; fewer records a block than one would send none at low rates."""
AVRO_SUFFIX = ".avro"
"""Of the topics whose values are Avro: a topic holds one kind of value."""

Send: TypeAlias = Callable[[str, Sequence[KeyValue]], None]
"""Hands over records of a topic; raises the first error that is known."""


@app.command(epilog="Example: pylog demo --records 100000 --rate 5000 --report /tmp/produced.json")
def demo(
    records: Annotated[int, typer.Option(metavar="N", min=0, help="How many; 0: until interrupted.")] = 1_000_000,
    rate: Annotated[float, typer.Option(metavar="N", min=0, help="Records a second; 0: as fast as it goes.")] = 0,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="JSON with count and key hash of each topic, written once all are acknowledged."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides the values.")] = 1,
    run: Annotated[str | None, typer.Option(metavar="NAME", help="Starts every key [the time, in hex].")] = None,
    partitions: Annotated[int, typer.Option(metavar="N", min=1, help="Of topics that are missing.")] = 4,
    replication_factor: Annotated[int, typer.Option(metavar="N", help="Of topics that are missing.")] = -1,
    schema_registry: Annotated[
        str | None,
        typer.Option(
            metavar="URL,..", help=f"Values in Avro, under schemas registered there, to topics NAME{AVRO_SUFFIX}."
        ),
    ] = None,
    audit_window_ms: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, help="Stamp records and account for them in _audit, by windows so long; 0: do not."
        ),
    ] = 0,
    compression: Annotated[Codec, typer.Option("--compression", "-z", help="Of the batches.")] = Codec.LZ4,
    bootstrap: Bootstrap = None,
    timeout: Timeout = None,
    property: Properties = None,
    format: FormatOption = None,
) -> None:
    """Produce page views, searches, logins and host metrics, and say how many of each were acknowledged."""
    found = settings(bootstrap, timeout, property)
    name = run or f"{time.time_ns() // 1_000_000:x}"
    suffix = AVRO_SUFFIX if schema_registry else ""
    with told_to_the_user(found.bootstrap):
        cluster = connection(found)
        _create_missing(Admin(cluster), [topic + suffix for topic in TOPICS], partitions, replication_factor)
        activity = Activity(name, seed, avro(schema_registry, suffix, cluster) if schema_registry else as_json)
        started_s = time.monotonic()
        sending = (
            _Audited(cluster, compression, audit_window_ms, replication_factor)
            if audit_window_ms
            else _Plain(cluster, compression)
        )
        try:
            counts = _produce(sending.send, activity, suffix, records, rate)
            sending.close()
        except PylogError:
            note("some records were not acknowledged; no report is written")
            raise
    if report is not None:
        _write_report(report, counts)
    total, took_s = sum(c.count for c in counts.values()), time.monotonic() - started_s
    rows = [{"topic": topic, "count": c.count, "key_hash": f"{c.key_hash:016x}"} for topic, c in counts.items()]
    emit(
        format_of(format),
        {"run": name, "topics": rows},
        lambda is_wide: table(rows, [Column("topic"), Column("count"), Column("key_hash")], is_wide),
    )
    note(f"run {name}: {total} records acknowledged in {took_s:.1f} s, {total / max(took_s, 1e-9):,.0f} a second")


class _Plain:
    """Sends many records at once."""

    def __init__(self, cluster: Connection, compression: str) -> None:
        self._producer = Producer(cluster, compression=compression, linger_ms=50)

    def send(self, topic: str, records: Sequence[KeyValue]) -> None:
        self._producer.send_many(topic, records)
        if self._producer.first_error is not None:
            raise self._producer.first_error

    def close(self) -> None:
        self._producer.close()


class _Audited:
    """Sends records one by one, each with its stamp."""

    def __init__(self, cluster: Connection, compression: str, window_ms: int, replication_factor: int) -> None:
        from pylog.audit.load import ensure_topic
        from pylog.audit.producer import AuditedProducer

        ensure_topic(cluster, replication_factor)
        self._producer = AuditedProducer(cluster, window_ms=window_ms, compression=compression, linger_ms=50)

    def send(self, topic: str, records: Sequence[KeyValue]) -> None:
        for key, value in records:
            self._producer.send(topic, value, key)

    def close(self) -> None:
        self._producer.close()


def avro(urls: str, suffix: str, cluster: Connection | None = None) -> Encode:
    """Return what turns events into Avro; registers the schemas, as the user of *cluster* where the registry asks."""
    from pylog.client.avro import AvroSerializer, RegistryClient

    registry = RegistryClient(urls.split(","), security=cluster.security() if cluster else None)
    serializers = {topic: AvroSerializer(registry, f"{topic}{suffix}-value", schema(topic)) for topic in TOPICS}
    return lambda topic, event: serializers[topic](event)


def _create_missing(admin: Admin, topics: Sequence[str], partitions: int, replication_factor: int) -> None:
    present = admin.cluster().topics
    for topic in topics:
        if topic in present:
            continue
        try:
            admin.create_topic(topic, partitions=partitions, replication_factor=replication_factor)
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # another generator was quicker
                raise


def _produce(send: Send, activity: Activity, suffix: str, records: int, rate: float) -> dict[str, Count]:
    """Hand over all records at the given rate, and return their counts by topic."""
    counts = {topic + suffix: Count() for topic in TOPICS}
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a service that is stopped still waits for its acks
    with progress("producing", records or None) as bar:
        try:
            for size in _blocks(records, rate):
                for topic, events in activity.take(size).items():
                    send(topic + suffix, events)
                    # Summed here, not kept: an endless run must not grow.
                    counts[topic + suffix] += Count(len(events), sum(key_hash(key) for key, _ in events))
                bar.advance(size)
        except KeyboardInterrupt:
            note("interrupted; waiting for what is under way")
    return counts


def _blocks(records: int, rate: float) -> Iterator[int]:
    """Yield how many records to make next, each time when it is time for them."""
    size = max(1, min(_BLOCK_RECORDS, int(rate / _BLOCKS_A_SECOND))) if rate else _BLOCK_RECORDS
    started_s = time.monotonic()
    for made in count_up(0, size):
        if records and made >= records:
            return
        if rate:
            time.sleep(max(0.0, started_s + made / rate - time.monotonic()))
        yield min(size, records - made) if records else size


def _write_report(path: Path, counts: dict[str, Count]) -> None:
    try:
        write_report(path, counts)
    except OSError as error:
        raise Failure(
            faults.FILE_UNREADABLE,
            "the report cannot be written",
            where=str(path),
            found=error.strerror or str(error),
            wanted="a directory that can be written",
        ) from error
