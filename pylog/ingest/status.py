"""What the load job tells about itself beside the lake's commits, and what an operator tells it: which topics stopped.

status   => <lake>/_status/load.json      {"version", "at_ms", "commit", "records", "lag": {topic: offsets},
                                            "stopped": {topic: {"code", "reason", "since_ms"}}}
accepted => <lake>/_status/accepted/<topic>   empty; what is missing of the topic is accepted by the next load

Nothing here decides what is loaded twice or not: it may be deleted, and is written again.
"""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from pylog.errors import StorageError
from pylog.faults import CATALOGUE
from pylog.ingest.lake import File, LakeError, State
from pylog.ingest.plan import DataLoss, PositionError
from pylog.metrics import Metrics

VERSION = 1

_ACCEPTABLE = frozenset(CATALOGUE[kind.fault].code for kind in (DataLoss, PositionError))
"""Codes of what is gone for good; every other fault has to be mended, or passes."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a topic is not loaded.

    Attributes:
        code: of the fault, as `pylog explain` knows it.
        reason: text of the error.
        since_ms: when it was first found.
    """

    code: str
    reason: str
    since_ms: int

    @property
    def can_be_accepted(self) -> bool:
        """Whether a load can go on without what is missing."""
        return self.code in _ACCEPTABLE

    def describe(self, topic: str, lake: Path) -> str:
        """Return the line that tells of it, with the command that accepts it where there is something to accept."""
        remedy = f"; `pylog lake accept {lake} {topic}` goes on without what is missing" if self.can_be_accepted else ""
        return f"topic {topic!r} is stopped, the others are loaded: {self.reason} [{self.code}]{remedy}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How the last run ended.

    Attributes:
        at_ms: when.
        commit: number of the lake's last commit.
        records: landed by the run.
        lag: by topic, offsets that the topics held and the lake does not.
        stopped: by topic, those that the run could not go on with.
    """

    at_ms: int = 0
    commit: int = 0
    records: int = 0
    lag: Mapping[str, int] = field(default_factory=dict)
    stopped: Mapping[str, Stop] = field(default_factory=dict)


class StatusFiles:
    """The files below one lake.

    Args:
        root: the lake's directory.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._directory = root / "_status"
        self._path = self._directory / "load.json"
        self._accepted = self._directory / "accepted"

    def read(self) -> Status:
        """Return how the last run ended; an empty status where none has, or where the file is not usable."""
        try:
            body = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return Status()
        if not isinstance(body, dict) or body.pop("version", None) != VERSION:
            return Status()
        stopped = {topic: Stop(**stop) for topic, stop in body.pop("stopped").items()}
        return Status(**body, stopped=stopped)

    def write(self, status: Status) -> None:
        """Replace the status.

        Raises:
            StorageError: the lake cannot be written.
        """
        replace_text(self._path, json.dumps({"version": VERSION, **asdict(status)}, indent=1))

    def accepted(self) -> frozenset[str]:
        """Return the topics of which an operator accepts what is missing.

        Raises:
            StorageError: these could not be forgotten once they are carried out, so that whatever a later load misses
                of them would be accepted too.
        """
        try:
            found = frozenset(path.name for path in self._accepted.iterdir())
        except FileNotFoundError:
            return frozenset()
        except OSError as error:
            raise StorageError(f"{self._accepted} cannot be read: {error}") from error
        if found and not os.access(self._accepted, os.W_OK | os.X_OK, effective_ids=True):
            raise StorageError(
                f"{self._accepted} cannot be written by uid {os.geteuid()}: what is accepted there "
                f"({', '.join(map(repr, sorted(found)))}) is not carried out; give the directory to the lake's owner"
            )
        return found

    def accept(self, topic: str) -> Stop:
        """Accept what is missing of a topic that stopped; return what that was.

        Raises:
            LakeError: the topic did not stop, or nothing is missing of it.
            StorageError: the lake cannot be written.
        """
        stop = self.read().stopped.get(topic)
        if stop is None:
            raise LakeError(f"topic {topic!r} did not stop in the last load: there is nothing to accept")
        if not stop.can_be_accepted:
            raise LakeError(
                f"topic {topic!r} did not stop for missing records: there is nothing to accept; it goes on once its "
                f"fault is mended: {stop.reason} [{stop.code}]"
            )
        replace_text(self._accepted / topic, "")
        return stop

    def carried_out(self, topics: Iterable[str]) -> None:
        """Forget what was accepted of *topics*: it was accepted once, and not for ever.

        Raises:
            StorageError: one of them stays accepted; the others are forgotten.
        """
        failures = []
        for topic in sorted(topics):
            try:
                (self._accepted / topic).unlink(missing_ok=True)
            except OSError as error:
                failures.append(str(error))
        if failures:
            raise StorageError(
                f"what is missing of a topic stays accepted, also in later loads, until its file is deleted: "
                f"{'; '.join(failures)}"
            )


def topic_rows(state: State, status: Status, only: str | None = None) -> list[dict[str, Any]]:
    """Return what ``pylog lake status`` says of each topic.

    Args:
        state: of the lake.
        status: how the last run ended.
        only: this topic alone; None for all that the lake knows.
    """
    every = [*state.files.values(), *state.dead_letters.values()]
    names = sorted({file.topic for file in every} | set(state.position.topic_ids) | set(status.stopped))
    files, dead = _by_topic(state.files), _by_topic(state.dead_letters)
    return [
        {
            "topic": name,
            "records": sum(file.rows for file in files.get(name, ())),
            "files": len(files.get(name, ())),
            "size_bytes": sum(file.size_bytes for file in files.get(name, ())),
            "dead_batches": sum(file.rows for file in dead.get(name, ())),
            "lag": status.lag.get(name),
            "stopped": asdict(status.stopped[name]) if name in status.stopped else None,
            "topic_id": state.position.topic_ids.get(name),
            "next_offsets": [
                f"{p.partition}:{offset}" for p, offset in sorted(state.position.offsets.items()) if p.topic == name
            ],
        }
        for name in (names if only is None else [only])
    ]


def _by_topic(files: Mapping[str, File]) -> dict[str, list[File]]:
    found: dict[str, list[File]] = {}
    for file in files.values():
        found.setdefault(file.topic, []).append(file)
    return found


def metrics_of(status: Status, state: State) -> str:
    """Return a run and its lake in Prometheus's text format."""
    metrics = Metrics()
    metrics.gauge("pylog_ingest_last_run_timestamp_seconds", "When the load job ended last.").value = (
        status.at_ms / 1000
    )
    metrics.gauge("pylog_ingest_records", "Records that the last load landed.").value = status.records
    stopped = metrics.gauge("pylog_ingest_stopped_topics", "Topics that the last load could not go on with.")
    stopped.value = len(status.stopped)
    metrics.gauge("pylog_lake_commit", "Number of the lake's last commit.").value = state.number
    metrics.gauge("pylog_lake_files", "Parquet files of the lake that count.").value = len(state.files)
    size = metrics.gauge("pylog_lake_bytes", "Bytes of the lake's files that count.")
    size.value = sum(file.size_bytes for file in state.files.values())
    replaced = metrics.gauge("pylog_lake_replaced_files", "Files that a compaction replaced and that are still there.")
    replaced.value = sum(map(len, state.replaced.values()))
    for topic, stop in status.stopped.items():
        metrics.gauge(
            "pylog_ingest_topic_stopped_timestamp_seconds", "Since when a topic is not loaded; code says why.",
            topic=topic, code=stop.code,
        ).value = stop.since_ms / 1000  # fmt: skip
    for topic, offsets in status.lag.items():
        metrics.gauge(
            "pylog_ingest_lag_offsets",
            "Offsets that a topic held and the lake did not when the load ended.",
            topic=topic,
        ).value = offsets
    dead: dict[str, int] = {}
    for file in state.dead_letters.values():
        dead[file.topic] = dead.get(file.topic, 0) + file.rows
    for topic, batches in dead.items():
        metrics.gauge("pylog_lake_dead_letters", "Batches of a topic that do not decode.", topic=topic).value = batches
    return metrics.render()


def compaction_metrics(at_ms: int) -> str:
    """Return that a compaction ended well, in Prometheus's text format; one with nothing to do ends well too."""
    metrics = Metrics()
    last = metrics.gauge("pylog_lake_compacted_timestamp_seconds", "When the lake's compaction last ended well.")
    last.value = at_ms / 1000
    return metrics.render()


def replace_text(path: Path, text: str) -> None:
    """Put *text* in place of *path*, whole or not at all, on disk when this returns.

    Raises:
        StorageError: it cannot be written.
    """
    temporary = path.parent / f".{path.name}.{uuid4().hex[:8]}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("x") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
        fd = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error}") from error
