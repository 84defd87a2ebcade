"""The lake on disk: Parquet files that appear whole, once each, and a commit for every micro-batch.

lake       => topic=<name>/date=<yyyy-mm-dd>/<batch>-<number>.parquet    what readers read
              _staging/<batch>/data/…                                    being written
              _staging/<batch>/publish.json                              all is written: these names go out
              _commits/<batch>.json                                      these names are out
              _lock                                                      held by the job that writes
batch      => <first 8 digits of the query id>-<batch number, 8 digits>
commit     => {"version": 1, "query_id": str, "batch_id": int, "position": where the batch ended,
               "files": [{"path", "rows", "size_bytes"}]}

Killed before ``publish.json``, a batch leaves nothing but staging, which the next attempt throws away.  Killed after
it, the next attempt moves the remaining files and commits: it never writes that batch again.  So a file in a topic's
directory is whole, never changes, and no record is in two of them; readers need to know no more than that.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from pylog.errors import PylogError, StorageError

VERSION = 1
_ID_DIGITS = 8


class LakeError(PylogError):
    """The lake and the checkpoint contradict each other; the message says how to go on."""

    fault = 308


@dataclass(frozen=True, slots=True)
class Batch:
    """Names one micro-batch of one streaming query, for ever.

    Attributes:
        query_id: Spark's id of the query, kept in its checkpoint.
        batch_id: number of the micro-batch in that query.
        position: where the batch ends, as the checkpoint has it; the same batch always ends there.
    """

    query_id: str
    batch_id: int
    position: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name its files begin with."""
        return f"{self.query_id[:_ID_DIGITS]}-{self.batch_id:08}"


class Lake:
    """One lake, written by one job at a time."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._staging = root / "_staging"
        self._commits = root / "_commits"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the lake if need be and keep other writers out.

        Raises:
            StorageError: it cannot be written.
            LakeError: another job is writing it.
        """
        try:
            for directory in (self._staging, self._commits):
                directory.mkdir(parents=True, exist_ok=True)
            lock = (self.root / "_lock").open("w")
        except OSError as error:
            raise StorageError(f"lake {self.root} cannot be written: {error}") from error
        with lock:
            try:
                # The kernel drops the lock with the process, however that ends.
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise LakeError(f"another job is writing lake {self.root}: wait until it is done") from error
            yield

    def land(self, batch: Batch, write: Callable[[Path], None]) -> int:
        """Put one micro-batch into the lake unless it is there; after a crash, finish what was begun.

        Args:
            batch: which.
            write: fills a new directory with ``topic=…/date=…/*.parquet``.

        Returns:
            How many records this call landed; 0 when they were there already.

        Raises:
            StorageError: the disk refused, or a file that was promised is gone.
            LakeError: the batch is there but ended elsewhere.
        """
        staging = self._staging / batch.name
        committed = self._read(self._commits / f"{batch.name}.json")
        if committed is not None:
            _check_same(batch, committed)
            shutil.rmtree(staging, ignore_errors=True)
            return 0
        try:
            promised = self._read(staging / "publish.json")
            if promised is None:
                promised = self._stage(batch, staging, write)
            _check_same(batch, promised)
            self._publish(staging, promised)
            self._commit(batch, promised)
        except OSError as error:
            raise StorageError(f"lake {self.root} cannot be written: {error}") from error
        shutil.rmtree(staging)
        return sum(file["rows"] for file in promised["files"])

    def check_checkpoint(self, query_id: str | None, last_batch_id: int | None) -> None:
        """Refuse a checkpoint that is not this lake's: it would land records twice, or leave some out.

        Args:
            query_id: the checkpoint's query; None when the checkpoint is new.
            last_batch_id: the last micro-batch it holds for done; None when there is none.

        Raises:
            LakeError: they do not belong together.
        """
        prefix = None if query_id is None else query_id[:_ID_DIGITS]
        foreign = sorted(path for path in self._commits.glob("*.json") if path.name.split("-")[0] != prefix)
        if foreign:
            raise LakeError(
                f"lake {self.root} was written with another checkpoint (its commit {foreign[0].name} is not of "
                f"{'a new one' if prefix is None else prefix}): use that checkpoint, or an empty lake with this one"
            )
        if query_id is not None and last_batch_id is not None:
            name = f"{Batch(query_id, last_batch_id, {}).name}.json"
            if not (self._commits / name).exists():
                raise LakeError(
                    f"lake {self.root} lacks commit {name}, which the checkpoint holds for done: "
                    "restore the lake, or start an empty one with a new checkpoint"
                )

    def _stage(self, batch: Batch, staging: Path, write: Callable[[Path], None]) -> dict[str, Any]:
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        data = staging / "data"
        write(data)
        files = []
        for number, path in enumerate(sorted(data.rglob("*.parquet"))):
            _sync(path)
            files.append(
                {
                    "staged": str(path.relative_to(data)),
                    "path": str(path.relative_to(data).with_name(f"{batch.name}-{number:05}.parquet")),
                    "rows": pq.read_metadata(path).num_rows,
                    "size_bytes": path.stat().st_size,
                }
            )
        promised = {
            "version": VERSION,
            "query_id": batch.query_id,
            "batch_id": batch.batch_id,
            "position": batch.position,
            "files": files,
        }
        _write(staging / "publish.json", promised)
        return promised

    def _publish(self, staging: Path, promised: Mapping[str, Any]) -> None:
        directories = {self.root}
        for file in promised["files"]:
            staged, final = staging / "data" / file["staged"], self.root / file["path"]
            final.parent.mkdir(parents=True, exist_ok=True)
            directories |= {final.parent, final.parent.parent}
            if staged.exists():
                staged.replace(final)
            elif not final.exists():
                raise StorageError(f"{final} was written and is gone: restore it, or start a new lake")
        for directory in directories:
            _sync(directory)

    def _commit(self, batch: Batch, promised: Mapping[str, Any]) -> None:
        files = [{name: file[name] for name in ("path", "rows", "size_bytes")} for file in promised["files"]]
        _write(self._commits / f"{batch.name}.json", {**promised, "files": files})

    def _read(self, path: Path) -> dict[str, Any] | None:
        try:
            body: dict[str, Any] = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise StorageError(f"{path} cannot be read: {error}") from error
        if body.get("version") != VERSION:
            raise LakeError(f"{path} has version {body.get('version')!r}; this release knows {VERSION}")
        return body


def _check_same(batch: Batch, found: Mapping[str, Any]) -> None:
    if found["query_id"] != batch.query_id or found["position"] != batch.position:
        raise LakeError(
            f"batch {batch.name} is in the lake but ended elsewhere: the checkpoint was set back or copied. "
            "Restore the checkpoint that belongs to the lake, or start an empty lake with a new one"
        )


def _write(path: Path, body: Mapping[str, Any]) -> None:
    """Create *path* whole or not at all, on disk when this returns; fails if it exists."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)  # after a kill it may be a second name of the file itself
    with temporary.open("w") as file:
        json.dump(body, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.link(temporary, path)  # unlike a rename, a link never replaces what another writer put there
    temporary.unlink()
    _sync(path.parent)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
