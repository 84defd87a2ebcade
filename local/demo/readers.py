"""Two readers that share nothing: kcat over what the brokers store, pyarrow over what the lake holds.

Neither uses pylog's own decoder, so a fault in it cannot hide in both.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.dataset as ds

from pylog.errors import PylogError, StorageError
from pylog.ingest.lake import Lake
from pylog.ingest.landing import COLUMNS

CURSOR_HEADER = "pylog.cursor"
"""Header in which the journal's shipper names an entry."""

_TIMEOUT_S = 600
"""For one topic: a million records take a few seconds; this ends a kcat that waits for brokers that are gone."""


class ReaderError(PylogError):
    """A reader could not read to the end, so what it counted means nothing; the message says why."""

    fault = 309


def stored_keys(bootstrap: str, topic: str) -> Iterator[bytes | None]:
    """Yield the key of every record the brokers hold now."""
    with _kcat(bootstrap, topic, r"%K\n%k") as output:
        while line := output.readline():
            yield _key(output, int(line))


def stored_cursors(bootstrap: str, topic: str) -> Iterator[tuple[bytes | None, str]]:
    """Yield (key, cursor) of every journal entry the brokers hold now."""
    with _kcat(bootstrap, topic, r"%K\n%k%h\n") as output:
        while line := output.readline():
            key = _key(output, int(line))
            headers = output.readline().decode().rstrip("\n").split(",")
            yield key, _cursor(topic, {name: value for name, _, value in (h.partition("=") for h in headers)})


def landed_keys(lake: Path, topic: str) -> Iterator[bytes | None]:
    """Yield the key of every record in the topic's Parquet files."""
    for batch in _landed(lake, topic, ["key"]):
        yield from batch["key"].to_pylist()


def landed_cursors(lake: Path, topic: str) -> Iterator[tuple[bytes | None, str]]:
    """Yield (key, cursor) of every journal entry in the topic's Parquet files."""
    for batch in _landed(lake, topic, ["key", "headers"]):
        for key, headers in zip(batch["key"].to_pylist(), batch["headers"].to_pylist(), strict=True):
            yield key, _cursor(topic, {h["key"]: (h["value"] or b"").decode() for h in headers or []})


def _key(output: IO[bytes], size: int) -> bytes | None:
    return None if size < 0 else output.read(size)


def _cursor(topic: str, headers: dict[str, str]) -> str:
    cursor = headers.get(CURSOR_HEADER)
    if cursor is None:
        raise ReaderError(f"a record of {topic} has no header {CURSOR_HEADER}: it is not from `pylog ship journal`")
    return cursor


@contextmanager
def _kcat(bootstrap: str, topic: str, line_format: str) -> Iterator[IO[bytes]]:
    """Run kcat over a whole topic; leaving the context checks that it read to the end."""
    program = shutil.which("kcat")
    if program is None:
        raise ReaderError("kcat is not installed: apt-get install kcat")
    command = [
        "timeout", str(_TIMEOUT_S), program, "-C", "-b", bootstrap, "-t", topic, "-o", "beginning", "-e", "-q",
        "-X", "check.crcs=true", "-f", line_format,
    ]  # fmt: skip
    # Errors go to a file: a pipe that nobody reads could fill and block kcat.
    with tempfile.TemporaryFile() as errors, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as kcat:
        assert kcat.stdout is not None, "its output was asked for"
        try:
            yield kcat.stdout
        except BaseException:
            kcat.terminate()
            raise
        code = kcat.wait()
        errors.seek(0)
        said = errors.read().decode(errors="replace").strip()
    if code != 0:
        raise ReaderError(f"kcat over {topic} at {bootstrap} ended with {code}: {said or 'without a word'}")


def _landed(lake: Path, topic: str, columns: list[str]) -> Iterator[pa.RecordBatch]:
    # What lies there, not what the commits list: they are what is checked here.  They are only asked which files a
    # compaction has replaced.
    replaced = {lake / path for paths in Lake.open(lake).visible().replaced.values() for path in paths}
    files = [str(path) for path in (lake / f"topic={topic}").rglob("*.parquet") if path not in replaced]
    try:
        yield from ds.dataset(files, format="parquet", schema=COLUMNS).to_batches(columns=columns)
    except (pa.ArrowException, OSError) as error:
        raise StorageError(f"the Parquet files of {topic} in {lake} cannot be read: {error}") from error
