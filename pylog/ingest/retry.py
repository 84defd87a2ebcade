"""Dead letters again: batches that did not decode are landed by what decodes them now, and stop being dead letters.

A release may unpack what an earlier one refused, a broker may hold a good copy of what came damaged, and an operator
may settle for header names that are no text.  Brokers are asked only while they have the topic that the letter is of:
one that was made again under the same name has other records at these offsets.  One commit puts the records in and the
dead letters out.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from pylog.client.raw import RawClient, RawConfig
from pylog.client.security import ClientSecurity
from pylog.errors import ConfigError, PylogError, StorageError
from pylog.ingest.decode import whole_batches
from pylog.ingest.fetch import DeadLetter, Fetched, decoded, read_range
from pylog.ingest.lake import Kind, Lake, State
from pylog.ingest.landing import Landing, Origin, Task, report
from pylog.ingest.plan import Range
from pylog.model import IsolationLevel, OnProgress, TopicPartition, nobody


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryConfig:
    """Which dead letters, and how.

    Attributes:
        lake: directory.
        topic: only this one's; None for all.
        bootstrap: brokers that are asked for the offsets of batches that do not decode as stored; empty asks nobody.
        security: encryption and login at these brokers.
        header_errors: ``replace`` lands header names that are not UTF-8 with U+FFFD in place of what is none.
    """

    lake: Path
    topic: str | None = None
    bootstrap: str = ""
    header_errors: str = "strict"
    security: ClientSecurity = field(default_factory=ClientSecurity)


class Retried(NamedTuple):
    """What came of it.

    Attributes:
        records: landed.
        before: dead letters there were.
        after: dead letters that are left of them.
    """

    records: int
    before: int
    after: int


def retry(config: RetryConfig, on_progress: OnProgress = nobody) -> Retried:
    """Land what decodes now of a lake's dead letters.

    Args:
        config: which, and how.
        on_progress: told how many dead letters were tried.

    Raises:
        Lost: another retry was faster.
        StorageError: the lake cannot be read or written.
        ConfigError: a file of the connection to the brokers cannot be used.
    """
    lake = Lake.open(config.lake)
    state = lake.finish()
    lake.clean(state)
    paths = [path for path, file in state.dead_letters.items() if config.topic in (None, file.topic)]
    before = sum(state.dead_letters[path].rows for path in paths)
    if not before:
        return Retried(0, 0, 0)
    attempt = lake.begin(Kind.RETRY, state)
    task = Task(
        Landing(
            bootstrap=config.bootstrap,
            directory=attempt.directory,
            prefix=f"{attempt.plan:08}",
            fail_on_data_loss=True,
            header_errors=config.header_errors,
        )
    )
    brokers = None if not config.bootstrap else _Brokers(config)
    try:
        for done, letter in enumerate(_letters(lake, state, paths), 1):
            stored = [Fetched(memoryview(letter.batch), whole_batches(letter.batch), letter.range.start)]
            fetches = stored
            # A stored batch that decodes is what was written.  The brokers' copy may have lost records to compaction.
            if brokers is not None and not _decodes(stored, letter, config):
                fetches = brokers.fetch(letter) or stored
            task.begin(letter.range, letter.origin)
            for fetched in fetches:
                task.take(fetched)
            on_progress(done, before)
    finally:
        if brokers is not None:
            brokers.close()
    landed = task.end()
    records = sum(landed.rows.values())
    after = sum(file.rows for file in landed.dead_letters)
    if not records and after >= before:
        lake.abandon(attempt)
        return Retried(0, before, before)
    lake.commit(
        attempt, landed.files, dead_letters=landed.dead_letters, replaces=paths, more=report([landed], [])
    )  # fmt: skip
    return Retried(records, before, after)


class _Letter(NamedTuple):
    range: Range
    origin: Origin
    batch: bytes


def _letters(lake: Lake, state: State, paths: list[str]) -> Iterator[_Letter]:
    for path in paths:
        topic = state.dead_letters[path].topic
        try:
            rows = pq.read_table(lake.root / path).to_pylist()
        except OSError as error:
            raise StorageError(f"{lake.root / path} cannot be read: {error}") from error
        for row in rows:
            # The release before wrote neither id nor level.
            level = row.get("isolation_level")
            yield _Letter(
                Range(TopicPartition(topic, row["partition"]), row["first_offset"], row["last_offset"] + 1),
                Origin(row.get("topic_id"), None if level is None else IsolationLevel(level)),
                row["batch"],
            )


def _decodes(fetches: Iterable[Fetched], letter: _Letter, config: RetryConfig) -> bool:
    """Return whether all that *fetches* hold of the letter's range decodes."""
    return not any(isinstance(found, DeadLetter) for found in _found(fetches, letter, config))


def _found(fetches: Iterable[Fetched], letter: _Letter, config: RetryConfig) -> Iterator[pa.RecordBatch | DeadLetter]:
    for fetched in fetches:
        yield from decoded(fetched, letter.range.end, with_headers=True, header_errors=config.header_errors)


class _Brokers:
    """Asks brokers for the offsets of dead letters, each as the load asked that made it."""

    def __init__(self, config: RetryConfig) -> None:
        self._config = config
        self._clients: dict[IsolationLevel, RawClient] = {}

    def fetch(self, letter: _Letter) -> list[Fetched] | None:
        """Return what the brokers hold of a letter's range; None if that is not its topic's, or brings no record.

        Offsets say nothing without the id of their topic: one that was made again has other records there.

        Raises:
            ConfigError: a file of the connection cannot be used.
        """
        topic_id, level = letter.origin
        if topic_id is None or level is None:
            return None
        raw = RawConfig(isolation_level=level)
        try:
            if level not in self._clients:
                self._clients[level] = RawClient(self._config.bootstrap, raw, self._config.security)
            fetches = list(read_range(self._clients[level], letter.range, raw, None, topic_id))
        except ConfigError:
            raise  # none of the letters could be asked for
        except PylogError:
            return None
        # The letter is the only copy where compaction took the records since.
        has_records = any(not isinstance(one, DeadLetter) for one in _found(fetches, letter, self._config))
        return fetches if has_records else None

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients.values():
            client.close()
