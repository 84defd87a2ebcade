"""Dead letters again: batches that did not decode are landed by what decodes them now, and stop being dead letters.

A release may unpack what an earlier one refused, a broker may hold a good copy of what came damaged, and an operator
may settle for header names that are no text.  One commit puts the records in and the dead letters out.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from pylog.client.raw import RawClient, RawConfig
from pylog.client.security import ClientSecurity
from pylog.errors import PylogError, StorageError
from pylog.ingest.decode import whole_batches
from pylog.ingest.fetch import Fetched, read_range
from pylog.ingest.lake import Kind, Lake, State
from pylog.ingest.landing import WINDOW_MS, Landing, Task, report
from pylog.ingest.plan import Range
from pylog.model import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryConfig:
    """Which dead letters, and how.

    Attributes:
        lake: directory.
        topic: only this one's; None for all.
        bootstrap: brokers that are asked for the offsets again; empty for the stored batches alone.
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


def retry(config: RetryConfig) -> Retried:
    """Land what decodes now of a lake's dead letters.

    Raises:
        Lost: another retry was faster.
        StorageError: the lake cannot be read or written.
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
            window_ms=WINDOW_MS,
            fail_on_data_loss=True,
            header_errors=config.header_errors,
        )
    )
    raw_config = RawConfig()
    client = RawClient(config.bootstrap, raw_config, config.security) if config.bootstrap else None
    try:
        for wanted, batch in _letters(lake, state, paths):
            task.begin(wanted)
            topic_id = state.position.topic_ids.get(wanted.partition.topic)
            fetches = None if client is None else _fetched_again(client, wanted, raw_config, topic_id)
            for fetched in fetches or [Fetched(memoryview(batch), whole_batches(batch), wanted.start)]:
                task.take(fetched)
    finally:
        if client is not None:
            client.close()
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


def _letters(lake: Lake, state: State, paths: list[str]) -> Iterator[tuple[Range, bytes]]:
    for path in paths:
        topic = state.dead_letters[path].topic
        try:
            rows = pq.read_table(lake.root / path).to_pylist()
        except OSError as error:
            raise StorageError(f"{lake.root / path} cannot be read: {error}") from error
        for row in rows:
            yield (
                Range(TopicPartition(topic, row["partition"]), row["first_offset"], row["last_offset"] + 1),
                row["batch"],
            )


def _fetched_again(client: RawClient, wanted: Range, config: RawConfig, topic_id: str | None) -> list[Fetched] | None:
    """Return what the brokers hold of a range now; None if they hold it no more, or not whole."""
    try:
        return list(read_range(client, wanted, config, None, topic_id))
    except PylogError:
        return None
