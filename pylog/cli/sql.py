"""`pylog sql`: SQL over topics, on Spark."""

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime
from typing import Annotated, Any

import typer

from pylog import faults
from pylog.cli.failure import Failure, without_spark
from pylog.cli.options import Bootstrap, FormatOption, assignments, format_of, new_app, settings
from pylog.cli.output import emit_rows
from pylog.cli.progress import Bar, progress
from pylog.cli.settings import Settings

app = new_app()


@app.command(epilog="Example: pylog sql \"SELECT CAST(value AS STRING) FROM topic('host.journal') LIMIT 10\"")
def sql(
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="Spark's SQL; a table is the topic of its name, or topic('NAME').")
    ],
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what arrives, one line of JSON a row.")] = False,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", "-o", metavar="NAME=VALUE", help='Of format("pylog"), as startingTimestamp; repeatable.'
        ),
    ] = None,
    watermark: Annotated[
        list[str] | None,
        typer.Option(
            "--watermark",
            metavar="'TOPIC=COLUMN TIME'",
            help="With --follow: rows of a topic later than this are dropped, and what waits for them ends, "
            "as 'clicks=timestamp 10 minutes'; repeatable.",
        ),
    ] = None,
    into: Annotated[
        str | None,
        typer.Option(
            "--into",
            metavar="TOPIC",
            help="Write the rows to this topic instead of showing them: column value, or a JSON object of all columns "
            "but key, partition, headers and timestamp.",
        ),
    ] = None,
    write_option: Annotated[
        list[str] | None,
        typer.Option(
            "--write-option",
            metavar="NAME=VALUE",
            help='With --into, of the format("pylog") that writes, as compression=zstd; repeatable.',
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="DIRECTORY",
            help="With --follow and --into: where the query keeps how far it is, and goes on when it is started again.",
        ),
    ] = None,
    master: Annotated[str, typer.Option(help="Spark's master.")] = "local[2]",
    bootstrap: Bootstrap = None,
    format: FormatOption = None,
) -> None:
    """Ask topics in SQL: key, value, topic, partition, offset, timestamp, timestampType."""
    if not into and (write_option or checkpoint):
        where = "--checkpoint" if checkpoint else "--write-option"
        raise Failure(faults.OPTION_WRONG, where=where, wanted="--into beside it: only a query that writes has one")
    if checkpoint and not follow:
        raise Failure(faults.OPTION_WRONG, where="--checkpoint", wanted="--follow beside it: only streams go on")
    try:
        from pylog.ingest import sql as engine
    except ModuleNotFoundError as error:
        raise without_spark(error) from error
    found_settings = settings(bootstrap, None)
    brokers = found_settings.bootstrap
    options = security_options(found_settings) | assignments("--option", option)
    watermarks = _watermarks(watermark)
    if watermarks and not follow:
        raise Failure(faults.OPTION_WRONG, where="--watermark", wanted="--follow beside it: only streams have one")
    if into:
        target = engine.Target(into, assignments("--write-option", write_option), checkpoint or "")
        if follow:
            engine.follow_into(query, brokers, options, master, target, watermarks)
        else:
            with progress("asking Spark"):
                records = engine.write(query, brokers, options, master, target)
            typer.echo(f"{records} records written to {into}")
        return
    if follow:
        engine.follow(query, brokers, options, master, _write, watermarks)
        return
    with progress("asking Spark") as bar:
        columns, found = engine.rows(query, brokers, options, master)
        emit_rows(format_of(format), columns, _counted(columns, found, bar), bar.make_way)


def security_options(found: Settings) -> dict[str, str]:
    """Return the options that connect Spark as the settings connect other commands."""
    if not found.security and any(name.startswith(("sasl.", "ssl.", "security.")) for name in found.properties):
        raise Failure(
            faults.SETTING_WRONG,
            where="properties",
            found="how to log in, by librdkafka's names",
            wanted="a block security: with password_file, which Spark's hosts read themselves",
        )
    return {f"security.{key}": value for key, value in found.security.items()}


def _counted(columns: Sequence[str], rows: Iterable[Sequence[Any]], bar: Bar) -> Iterator[dict[str, Any]]:
    for row in rows:
        yield _plain(columns, row)
        bar.advance(1)


def _watermarks(texts: list[str] | None) -> dict[str, tuple[str, str]]:
    found = {}
    for topic, text in assignments("--watermark", texts).items():
        column, _, delay = text.partition(" ")
        if not delay.strip():
            raise Failure(
                faults.OPTION_WRONG,
                where="--watermark",
                found=text,
                wanted="a column and a time, as timestamp 10 minutes",
            )
        found[topic] = column, delay.strip()
    return found


def _write(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    for row in rows:
        typer.echo(json.dumps(_plain(columns, row), ensure_ascii=False))


def _plain(columns: Sequence[str], row: Sequence[Any]) -> dict[str, Any]:
    return {name: _value(value) for name, value in zip(columns, row, strict=True)}


def _value(value: Any) -> Any:  # noqa: ANN401  a column holds anything
    if isinstance(value, bytes | bytearray):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return "base64:" + base64.b64encode(value).decode()
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return [_value(one) for one in value]
    return value if isinstance(value, int | float | str | bool | None) else str(value)
