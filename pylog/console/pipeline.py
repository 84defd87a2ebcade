"""Asks about what comes after the brokers, as the console's own user: mirrors and the lake.

A mirror is known by the topics that it keeps in the cluster that it writes to.  The lake is a directory: a console that
sees it, on the lake's host or where the directory is mounted, reads its commits, and writes nothing there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pylog.client.admin.cluster import Admin
from pylog.client.connection import Connection
from pylog.console.readings import Question, Reading
from pylog.errors import PylogError, StorageError
from pylog.ingest.lake import Lake, State
from pylog.ingest.status import Status, StatusFiles
from pylog.mirror.offsets import MAP_TOPIC_PREFIX
from pylog.mirror.plan import PARKED_TOPIC_PREFIX
from pylog.model import TopicPartition

READ_MS = 5_000
"""How long an answer counts, or that there was none."""

COMMITS = 200
"""The newest commits that are read; one every 30 s makes that the last hour and a half."""


@dataclass(frozen=True, slots=True)
class MirrorFacts:
    """A mirror as the cluster that it writes to shows it.

    Attributes:
        source: the name that its records carry as their origin.
        parked: records that the target refused in their own topics, and that wait in a topic of the mirror.
    """

    source: str
    parked: int


@dataclass(frozen=True, slots=True)
class CommitFacts:
    """One commit of the lake.

    Attributes:
        at_ms: when it was made; ms since the Unix epoch.
        body: as it is on disk (`pylog.ingest.lake`).
    """

    at_ms: int
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class LakeFacts:
    """The lake at one moment.

    Attributes:
        id: what tells it from every other.
        state: what its commits add up to.
        status: how the last load ended.
        commits: the newest ones, the newest first; at most `COMMITS`.
    """

    id: str
    state: State
    status: Status
    commits: Sequence[CommitFacts] = field(default_factory=tuple)


class Pipeline:
    """Mirrors and the lake, for everybody; answers are kept for `READ_MS`.

    Args:
        clusters: where mirrors may write to.
        lake: directory of the lake; None if the console sees none.
        clock_ms: ms since the Unix epoch.
    """

    def __init__(self, clusters: Sequence[Connection], lake: Path | None, clock_ms: Callable[[], int]) -> None:
        self.directory = lake
        self._clusters = clusters
        self._asked: dict[str, Question[list[MirrorFacts]]] = {
            one.bootstrap: Question(READ_MS, clock_ms) for one in clusters
        }
        self._admins: dict[str, Admin] = {}
        self._lake: Lake | None = None
        self._loaded: Question[LakeFacts] = Question(READ_MS, clock_ms)

    def mirrors(self) -> dict[str, Reading[list[MirrorFacts]]]:
        """Return the mirrors that write to each cluster, by its address."""
        return {one.bootstrap: self._asked[one.bootstrap].read(partial(self._mirrors, one)) for one in self._clusters}

    def _mirrors(self, cluster: Connection) -> list[MirrorFacts]:
        # One question at a time is asked of each cluster, so nobody else makes its client meanwhile.
        admin = self._admins.setdefault(cluster.bootstrap, Admin(cluster))
        topics = admin.cluster().topics
        found = []
        for name in sorted(topics):
            if not name.startswith(MAP_TOPIC_PREFIX):
                continue
            source = name.removeprefix(MAP_TOPIC_PREFIX)
            parked = topics.get(PARKED_TOPIC_PREFIX + source)
            places = [TopicPartition(parked.name, one.partition) for one in parked.partitions] if parked else []
            held = admin.offsets(places) if places else {}
            found.append(MirrorFacts(source, sum(one.end - one.start for one in held.values())))
        return found

    def lake(self) -> Reading[LakeFacts] | None:
        """Return what is known of the lake; None if the console sees none."""
        directory = self.directory
        return None if directory is None else self._loaded.read(lambda: self._read(directory))

    def _read(self, directory: Path) -> LakeFacts:
        try:
            if self._lake is None:
                self._lake = Lake.open(directory)
            facts = LakeFacts(
                self._lake.id(),
                self._lake.visible(),
                StatusFiles(directory).read(),
                [CommitFacts(at_ms, body) for body, at_ms in self._lake.recent(COMMITS)],
            )
        except (OSError, PylogError) as error:
            self._lake = None  # it may be another one when it is back
            if isinstance(error, PylogError):
                raise
            raise StorageError(f"lake {directory} cannot be read: {error}") from error
        return facts
