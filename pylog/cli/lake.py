"""`pylog lake`: files, status, accept, retry."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from pylog.cli.options import FormatOption, connection, format_of, new_app, settings
from pylog.cli.output import Column, emit, table
from pylog.cli.progress import progress
from pylog.ingest.lake import File, Lake, as_owner
from pylog.ingest.status import StatusFiles, topic_rows

app = new_app("See what the lake holds: the files that count, and how far it was loaded.")

Directory = Annotated[Path, typer.Argument(metavar="LAKE", help="The directory the ingestion loads into.")]
Topic = Annotated[str | None, typer.Option("--topic", "-t", help="Only this topic.")]


@app.command(epilog="Example: pylog lake files /var/lib/pylog/lake --topic clicks")
def files(lake: Directory, topic: Topic = None, format: FormatOption = None) -> None:
    """List the Parquet files that count; each stays at least as long as the job's grace time."""
    found = sorted(_of(topic, Lake.open(lake).visible().files.values()), key=lambda file: file.path)
    rows = [{"path": str(lake / file.path), "rows": file.rows, "size_bytes": file.size_bytes} for file in found]
    columns = [Column("path"), Column("rows", is_wide=True), Column("size_bytes", is_wide=True)]

    def text(is_wide: bool) -> str:
        return table(rows, columns, is_wide) if is_wide else "".join(f"{row['path']}\n" for row in rows)

    emit(format_of(format), rows, text)


@app.command(epilog="Example: pylog lake status /var/lib/pylog/lake --format wide")
def status(lake: Directory, topic: Topic = None, format: FormatOption = None) -> None:
    """Show per topic what was loaded, the next offset of each partition, and what did not decode."""
    opened = Lake.open(lake)
    state = opened.visible()
    last = StatusFiles(lake).read()
    rows = topic_rows(state, last, topic)
    data = {
        "lake": str(lake),
        "id": opened.id(),
        "commit": state.number,
        "loaded_at_ms": last.at_ms or None,
        "staged": opened.staged(),
        "replaced_files": sum(map(len, state.replaced.values())),
        "topics": rows,
    }
    columns = [
        Column("topic"),
        Column("records"),
        Column("files"),
        Column("size_bytes"),
        Column("dead_batches"),
        Column("lag"),
        Column("topic_id", is_wide=True),
        Column("next_offsets", is_wide=True),
    ]

    def text(is_wide: bool) -> str:
        staged = len(data["staged"])  # type: ignore[arg-type]
        loaded = f"loaded at {_time(last.at_ms)}" if last.at_ms else "never loaded to its end"
        head = (
            f"{loaded}, commit {state.number}, {data['replaced_files']} replaced files to be deleted, "
            f"{staged} in staging\n"
        )
        stops = "".join(
            f"topic {name} is stopped since {_time(stop.since_ms)}: {stop.reason} [{stop.code}]\n"
            + (f"  pylog lake accept {lake} {name}\n" if stop.can_be_accepted else "")
            for name, stop in last.stopped.items()
            if topic in (None, name)
        )
        return head + table(rows, columns, is_wide) + stops

    emit(format_of(format), data, text)


@app.command(epilog="Example: pylog lake accept /var/lib/pylog/lake clicks")
def accept(lake: Directory, topic: Annotated[str, typer.Argument(metavar="TOPIC")]) -> None:
    """Let the next load go on with a topic that stopped, without what is missing of it.

    A topic that was made again is read from its new beginning, offsets that retention deleted become a hole, a log that
    was cut goes on at its end. What the lake holds of the topic stays. A topic that stopped for another reason is
    refused: it goes on by itself once its fault is mended.
    """
    opened = Lake.open(lake)
    with as_owner(opened.root):
        stop = StatusFiles(opened.root).accept(topic)
    typer.echo(f"the next load goes on with topic {topic} without what is missing: {stop.reason}")


@app.command(epilog="Example: pylog lake retry /var/lib/pylog/lake --topic clicks --bootstrap host:9092")
def retry(
    lake: Directory,
    topic: Topic = None,
    bootstrap: Annotated[
        str, typer.Option("--bootstrap", help="Brokers that are asked for the batches again, as HOST:PORT[,…].")
    ] = "",
    replace_header_names: Annotated[
        bool, typer.Option("--replace-header-names", help="Land header names that are not UTF-8, with U+FFFD in them.")
    ] = False,
) -> None:
    """Land what decodes now of the batches that did not decode.

    Tries the batches as they were stored, then what the brokers still hold of them, if their topic was not made again.
    What does not decode stays a dead letter.
    """
    from pylog.ingest.retry import RetryConfig
    from pylog.ingest.retry import retry as land_again

    opened = Lake.open(lake)
    security = connection(settings(bootstrap or None, None)).security()
    config = RetryConfig(
        lake=lake,
        topic=topic,
        bootstrap=bootstrap,
        security=security.loaded() if bootstrap else security,  # the lake's owner may not read root's files
        header_errors="replace" if replace_header_names else "strict",
    )
    with progress("landing again") as bar, as_owner(opened.root):
        found = land_again(config, bar.at)
    typer.echo(f"landed records={found.records} dead_letters={found.after} of={found.before} lake={lake}")


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")


def _of(topic: str | None, found: Iterable[File]) -> list[File]:
    return [file for file in found if topic is None or file.topic == topic]
