"""`pylog log`: read segment files without a broker."""

import json
import shutil
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from pylog import faults
from pylog.cli.failure import Failure
from pylog.cli.options import Format, FormatOption, format_of, new_app
from pylog.cli.output import Column, emit, note, table
from pylog.cli.progress import BYTES, progress, tracked
from pylog.cli.segments import SegmentReport, base_offset, find_segments, read_batches, verify_partition
from pylog.errors import PylogError
from pylog.log.layout import STRAY_SUFFIX, renamed_in
from pylog.wire.compression import NAMES
from pylog.wire.markers import decode_marker
from pylog.wire.records import BatchHeader, Record, decode_records

app = new_app("Read segment files of a stopped or running broker.")


@app.command(epilog="Example: pylog log verify /var/lib/pylog/1")
def verify(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A data directory, a partition or one segment.")],
    records: Annotated[bool, typer.Option("--records", help="Decompress and decode every record as well.")] = False,
    no_gaps: Annotated[bool, typer.Option("--no-gaps", help="A missing offset is damage too.")] = False,
    format: FormatOption = None,
) -> None:
    """Check every batch of every segment: size, magic, CRC, counts, offsets; exit 1 on damage."""
    if not directory.exists():
        raise Failure(
            faults.FILE_MISSING,
            "there is nothing to verify",
            where=str(directory),
            found="no such file or directory",
            wanted="a data directory, a partition's directory or a segment file",
        )
    partitions = find_segments(directory)
    rows, damages = [], []
    for path, files in partitions.items():
        reports = list(_with_progress(path, files, check_records=records))
        rows.append(_partition_row(path, reports))
        damages += [
            {"file": str(d.file), "position": d.position, "detail": d.detail}
            for report in reports
            for d in report.damages
        ]
    gaps = sum(row["gap_count"] for row in rows)
    columns = [
        Column("partition"),
        Column("segments"),
        Column("batches"),
        Column("records"),
        Column("size_bytes"),
        Column("first_offset"),
        Column("next_offset"),
        Column("gap_count"),
        Column("tail_bytes"),
        Column("damages"),
    ]
    places = [Column("file"), Column("position"), Column("detail")]
    emit(
        format_of(format),
        {"partitions": rows, "damages": damages},
        lambda is_wide: table(rows, columns, is_wide) + ("\n" + table(damages, places, is_wide) if damages else ""),
    )
    if damages or (no_gaps and gaps):
        missing = f", {gaps} offsets missing" if gaps else ""
        raise Failure(
            faults.LOG_DAMAGED,
            where=str(directory),
            found=f"{len(damages)} damages{missing}",
            wanted="whole batches in order",
        )


@app.command(epilog="Example: pylog log ends /var/lib/pylog/1 --format json > broker-1.json")
def ends(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The data directory of a broker that is down.")],
    format: FormatOption = None,
) -> None:
    """Show how far each log of a stopped broker reaches, and under which leader epochs; nothing is changed."""
    from pylog.log.ends import read_ends

    if not directory.is_dir():
        raise Failure(faults.FILE_MISSING, where=str(directory), wanted="a data directory")
    with progress("reading the logs") as bar:
        document = read_ends(directory, bar.at).document()
    rows = [{**one, "last_epoch": one["epochs"][-1][0] if one["epochs"] else None} for one in document["partitions"]]
    columns = [
        Column("topic"),
        Column("partition"),
        Column("start"),
        Column("end"),
        Column("last_epoch"),
        Column("topic_id", is_wide=True),
    ]
    emit(
        format_of(format),
        document,
        lambda is_wide: (
            f"broker   {document['broker_id']}\ncluster  {document['cluster_id']}\n"
            f"clean    {'yes' if document['is_clean'] else 'no'}\n\n" + table(rows, columns, is_wide)
        ),
    )


@app.command(epilog="Example: pylog log dump --records /var/lib/pylog/1/clicks-0/00000000000000000000.log")
def dump(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A segment file.")],
    records: Annotated[bool, typer.Option("--records", help="Show each record too.")] = False,
    count: Annotated[int | None, typer.Option("--count", "-n", min=0, help="Stop after so many batches.")] = None,
    format: FormatOption = None,
) -> None:
    """Show a segment's batches one by one, those of transactions and their markers too; JSON is one object a line."""
    if base_offset(file) is None:
        raise Failure(
            faults.OPTION_WRONG, "this is no segment", where=str(file), wanted="a file named by 20 digits and .log"
        )
    wanted = format_of(format)
    try:
        with file.open("rb") as opened:
            size_bytes = file.stat().st_size
            with progress(file.name, size_bytes, BYTES) as bar:
                bar.make_way()
                for position, header, batch in islice(read_batches(opened, size_bytes), count):
                    _write_batch(wanted, position, header, batch, _decoded(header, batch) if records else None)
                    bar.advance(len(batch))
            left = size_bytes - opened.tell() if count is None else 0
    except OSError as error:
        raise Failure(
            faults.FILE_UNREADABLE, "the segment cannot be read", where=str(file), found=error.strerror or str(error)
        ) from error
    if left:
        note(f"{left} bytes at the end are no whole batch; pylog log verify {file} says why")


def _partition_row(path: Path, reports: list[SegmentReport]) -> dict[str, Any]:
    firsts = [r.first_offset for r in reports if r.first_offset is not None]
    nexts = [r.next_offset for r in reports if r.next_offset is not None]
    return {
        "partition": path.name,
        "segments": len(reports),
        "batches": sum(r.batch_count for r in reports),
        "records": sum(r.record_count for r in reports),
        "size_bytes": sum(r.size_bytes for r in reports),
        "first_offset": firsts[0] if firsts else None,
        "next_offset": nexts[-1] if nexts else None,
        "gap_count": sum(r.gap_count for r in reports),
        "tail_bytes": sum(r.tail_bytes for r in reports),
        "damages": sum(len(r.damages) for r in reports),
    }


def _with_progress(path: Path, files: list[Path], *, check_records: bool) -> Iterator[SegmentReport]:
    """Verify the files; on a terminal, show on stderr how far it is."""
    sizes = [_file_bytes(file) for file in files]
    with progress(path.name, sum(sizes), BYTES) as bar:
        for report, size_bytes in zip(verify_partition(files, check_records=check_records), sizes, strict=True):
            bar.advance(size_bytes)
            yield report


def _file_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # verifying it says what is wrong


def _decoded(header: BatchHeader, batch: bytes) -> list[Record] | str:
    """Return the records, or why there are none: a dump goes on after a bad batch."""
    try:
        return decode_records(batch, header)
    except PylogError as error:
        return str(error)


def _marker_data(header: BatchHeader, batch: bytes) -> dict[str, Any]:
    """Return what a marker says; nothing for other batches."""
    try:
        marker = decode_marker(memoryview(batch), header) if header.is_control else None
    except PylogError as error:
        return {"marker": f"cannot be decoded: {error}"}
    if marker is None:
        return {}
    return {"marker": "commit" if marker.is_commit else "abort", "coordinator_epoch": marker.coordinator_epoch}


def _write_batch(
    format: Format, position: int, header: BatchHeader, batch: bytes, records: list[Record] | str | None
) -> None:
    data: dict[str, Any] = {
        "position": position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "record_count": header.record_count,
        "size_bytes": header.size_bytes,
        "compression": NAMES.get(header.compression, str(header.compression)),
        "max_timestamp": header.max_timestamp,
        "leader_epoch": header.partition_leader_epoch,
    }
    if format is not Format.TEXT:
        data |= {
            "crc": f"{header.crc:08x}",
            "magic": header.magic,
            "base_timestamp": header.base_timestamp,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
            "is_transactional": header.is_transactional,
            "is_control": header.is_control,
        }
    elif header.is_transactional:
        data |= {"transaction_of": header.producer_id, "producer_epoch": header.producer_epoch}
    data |= _marker_data(header, batch)
    shown = [_record_data(r) for r in records] if isinstance(records, list) else records
    if format in (Format.TEXT, Format.WIDE):
        lines = [_words(data)]
        if shown is not None:
            lines += ["  " + _words(r) for r in shown] if isinstance(shown, list) else [f"  cannot be decoded: {shown}"]
        sys.stdout.write("\n".join(lines) + "\n")
        return
    data |= {} if shown is None else {"records": shown}
    if format is Format.JSON:
        sys.stdout.write(json.dumps(data, ensure_ascii=False) + "\n")
    else:
        emit(format, [data], lambda _: "")


def _record_data(record: Record) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _shown(record.key),
        "value": _shown(record.value),
        "headers": {name: _shown(value) for name, value in record.headers},
    }


def _shown(content: bytes | None) -> str | None:
    return None if content is None else content.decode(errors="backslashreplace")


def _words(data: dict[str, Any]) -> str:
    return " ".join(
        f"{name}={json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value}"
        for name, value in data.items()
    )


@app.command("purge-stray", epilog="Example: pylog log purge-stray --yes /var/lib/pylog/1")
def purge_stray(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The data directory of a broker, running or not.")],
    yes: Annotated[bool, typer.Option("--yes", help="Delete them; without it they are only named.")] = False,
    format: FormatOption = None,
) -> None:
    """Delete what a broker set aside because its cluster did not know it; nothing brings it back."""
    try:
        strays = renamed_in(directory, STRAY_SUFFIX)
        rows = [{"directory": path.name, "size_bytes": _size_bytes(path)} for path in strays]
        if yes:
            for path in tracked(strays, "deleting"):
                shutil.rmtree(path)
    except OSError as error:
        raise Failure(
            faults.FILE_UNREADABLE, where=str(error.filename or directory), found=error.strerror or str(error)
        ) from error
    columns = [Column("directory"), Column("size_bytes")]
    data = {"deleted": yes, "directories": rows}
    emit(format_of(format), data, lambda is_wide: table(rows, columns, is_wide) if rows else "")
    size_bytes = sum(int(str(row["size_bytes"])) for row in rows)
    note(f"{len(rows)} directories, {size_bytes} bytes, " + ("deleted" if yes else "kept; --yes deletes them"))


def _size_bytes(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.iterdir() if file.is_file())
