"""What a query keeps between two runs: whose it is, how far it is, and Spark's own checkpoint and state.

checkpoint/stream.json  {"kind": "pylog stream checkpoint", "version": 1, "name": query, "cluster": cluster id,
                         "query": fingerprint or null, "generation": number, "starts": position or null}
checkpoint/lock         held by the process that runs the query
checkpoint/NNNN/        Spark's checkpoint of generation NNNN: offsets/, commits/, state/

A rebase or a reset begins a new generation: the file is replaced in one step, and Spark's former directory is kept
until the next one.  ``starts`` says where the streams of a rebased generation begin; elsewhere the inputs' options do.
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pylog.errors import PylogError, StorageError
from pylog.ingest.plan import Position, PositionError
from pylog.ingest.status import replace_text
from pylog.ingest.stream.config import StreamConfig

KIND = "pylog stream checkpoint"
VERSION = 1
_LOG_VERSION = "v1"
"""First line of the files in which Spark keeps offsets and commits."""


class CheckpointInUse(PylogError):
    """Another process runs the query: stop it first."""

    fault = 310


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Whose a checkpoint is.

    Attributes:
        name: of the query.
        cluster: id of the cluster that it reads and writes.
        query: its fingerprint; None until it has run once in this generation.
        generation: counts rebases and resets, from 1.
        starts: position at which a rebased generation began; None where the inputs' options say where.
    """

    name: str
    cluster: str
    query: str | None = None
    generation: int = 1
    starts: dict[str, Any] | None = None


class StreamCheckpoint:
    """One query's directory.

    Args:
        directory: made by the first run.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / "stream.json"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep every other process from running the query meanwhile.

        Raises:
            CheckpointInUse: one does.
            StorageError: the directory cannot be made or written.
        """
        try:
            # Spark's state has what the records have: it is nobody else's.
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StorageError(f"checkpoint {self._directory} cannot be written: {error}") from error
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise CheckpointInUse(f"another process runs the query of checkpoint {self._directory}") from error
            yield
        finally:
            os.close(fd)

    def owner(self) -> Owner | None:
        """Return whose it is; None where no query ran yet.

        Raises:
            PositionError: it is of another kind, or of a later release.
            StorageError: it cannot be read.
        """
        try:
            body = json.loads(self._path.read_text())
        except FileNotFoundError:
            strange = next((n for n in ("metadata", "offsets", "lake.json") if (self._directory / n).exists()), None)
            if strange is not None:
                raise PositionError(
                    f"{self._directory} holds {strange}: it is the checkpoint of something else; name a new directory"
                ) from None
            return None
        except (OSError, ValueError) as error:
            raise StorageError(f"checkpoint {self._path} cannot be read: {error}") from error
        if not isinstance(body, dict) or (body.get("kind"), body.get("version")) != (KIND, VERSION):
            raise PositionError(f"{self._path} is no {KIND!r} of version {VERSION}: name a new directory")
        try:
            return Owner(**{name: value for name, value in body.items() if name not in ("kind", "version")})
        except TypeError as error:
            raise StorageError(f"checkpoint {self._path} cannot be read: {error}") from error

    def checked(self, config: StreamConfig, cluster: str) -> Owner:
        """Return whose it is, once that was found to be *config*; changes nothing.

        Raises:
            PositionError: it belongs to another query or cluster, or the query has changed.
        """
        owner = self.owner()
        if owner is None:
            return Owner(name=config.name, cluster=cluster)
        if owner.name != config.name:
            raise PositionError(
                f"checkpoint {self._directory} belongs to query {owner.name!r}, not to {config.name!r}: "
                "give each query a checkpoint of its own"
            )
        if owner.cluster not in ("", cluster):
            raise PositionError(
                f"checkpoint {self._directory} belongs to cluster {owner.cluster!r}, and {config.cluster.bootstrap} is "
                f"{cluster!r}: name a new directory, or begin anew with `pylog stream reset`"
            )
        if owner.query not in (None, config.fingerprint()):
            raise PositionError(
                f"query {config.name!r} or its inputs changed since checkpoint {self._directory} began, and its "
                "state may mean something else now: `pylog stream rebase` goes on at its position without the state, "
                "`pylog stream reset` begins anew"
            )
        return replace(owner, cluster=cluster)

    def claim(self, config: StreamConfig, cluster: str) -> Owner:
        """Write down that it is *config*'s, and return that; see `checked`."""
        owner = replace(self.checked(config, cluster), query=config.fingerprint())
        self._write(owner)
        return owner

    def spark_directory(self, owner: Owner) -> Path:
        """Return Spark's checkpoint of the present generation."""
        return self._directory / f"{owner.generation:04}"

    def rebase(self, owner: Owner) -> Position:
        """Begin a generation at the position of this one, without its state; return that position.

        Raises:
            PositionError: there is no position to begin at.
        """
        position = self.position(owner)
        if position is None:
            raise PositionError(f"checkpoint {self._directory} has no position: no micro-batch has ended yet")
        self._begin(replace(owner, query=None, generation=owner.generation + 1, starts=position.to_json()))
        return position

    def reset(self, owner: Owner) -> None:
        """Begin a generation where the inputs' options say, without position and state, of whatever cluster."""
        self._begin(replace(owner, query=None, generation=owner.generation + 1, starts=None, cluster=""))

    def position(self, owner: Owner) -> Position | None:
        """Return the position behind the last micro-batch that ended; None if none has in this generation or before.

        Raises:
            PositionError: Spark's file of it cannot be read: see `committed`.
        """
        found = committed(self.spark_directory(owner))
        if found is not None:
            return found
        return None if owner.starts is None else Position.from_json(owner.starts)

    def _begin(self, owner: Owner) -> None:
        self._write(owner)
        for path in self._directory.glob("[0-9]*"):
            if re.fullmatch(r"\d{4,}", path.name) and int(path.name) < owner.generation - 1:
                with contextlib.suppress(OSError):
                    shutil.rmtree(path)

    def _write(self, owner: Owner) -> None:
        replace_text(self._path, json.dumps({"kind": KIND, "version": VERSION, **asdict(owner)}, indent=1))


def last_batch(directory: Path) -> int:
    """Return the number of the last micro-batch that ended, by Spark's checkpoint in *directory*; -1 without one."""
    try:
        names = [path.name for path in (directory / "commits").iterdir()]
    except FileNotFoundError:
        return -1
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def committed(directory: Path) -> Position | None:
    """Return the position behind the last micro-batch that ended, by Spark's checkpoint in *directory*.

    Of a topic that several streams of the query read, each partition has the lowest offset.  None if no micro-batch has
    ended.

    Raises:
        PositionError: the file is away, damaged, or written in a way that this release does not know; an older position
            in its place would have records come twice.

    Source: Spark's OffsetSeqLog: a line with the version, one of the micro-batch's metadata, one for each stream.
    """
    number = last_batch(directory)
    if number < 0:
        return None
    path = directory / "offsets" / str(number)
    try:
        version, _, *sources = path.read_text().splitlines()
        if version != _LOG_VERSION:
            raise ValueError(f"version {version!r}, not {_LOG_VERSION!r}")
        positions = [Position.from_json(json.loads(line)) for line in sources if line != "-"]
    except (OSError, ValueError, KeyError, AttributeError, PositionError) as error:
        raise PositionError(f"position of micro-batch {number} cannot be read from {path}: {error}") from error
    merged = Position()
    for position in positions:
        lowest = {p: min(offset, merged.offsets.get(p, offset)) for p, offset in position.offsets.items()}
        merged = merged.moved_to(replace(position, offsets=lowest, epochs={}))
    return merged
