"""The load job: topics -> Parquet, exactly once; all that is there now, then exit, or again every few seconds.

Spark only schedules: the driver splits what is new into ranges, each task lands its share (`pylog.ingest.landing`), and
the driver commits what they report (`pylog.ingest.lake`).  The last load's commit says where the next one begins.
"""

import argparse
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from pylog.client.admin.groups import GroupAdmin
from pylog.client.connection import Connection
from pylog.client.raw import RawClient, RawConfig
from pylog.client.security import security_of
from pylog.errors import ApiError, ConfigError, ErrorCode, PylogError, StorageError
from pylog.faults import code_of
from pylog.ingest import landing, plan
from pylog.ingest.checkpoint import Checkpoint
from pylog.ingest.event_time import EventTimes
from pylog.ingest.fetch import deleted, epoch_ends, is_meant, names_of, positions_of_present, with_read_uncommitted
from pylog.ingest.lake import COMMITS_KEPT_S, Kind, Lake, State
from pylog.ingest.landing import Landed, Landing, report
from pylog.ingest.plan import Load, Position, PositionError, Range
from pylog.ingest.spark import DEFAULT_MASTER, context, error_of, wait_for_executors
from pylog.ingest.status import Status, StatusFiles, Stop, metrics_of, replace_text
from pylog.model import IsolationLevel, Offset, TopicPartition
from pylog.wire.api.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

_FIRST_ANSWER_MS = 15_000
"""How long brokers may take to answer before Spark is started at all: a restart's worth."""

DEFAULT_OFFSETS_PER_COMMIT = 2_000_000
DEFAULT_BYTES_PER_COMMIT = 4 << 30
DEFAULT_OFFSETS_PER_TASK = 500_000
DEFAULT_GROUP = "pylog-ingest"
DEFAULT_GRACE_S = 3600
DEFAULT_BELIEVED_DAYS = 3660
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JobConfig:
    """What to land where.

    Attributes:
        bootstrap: brokers, ``host:port`` separated by commas.
        topics: names; empty with a pattern.
        topic_pattern: regular expression for the whole name of a topic; topics that come up later are loaded too.
        lake: directory; every host of Spark must see it under this path.
        checkpoint: directory in which the driver remembers the lake; belongs to this lake alone.
        master: Spark's master URL; None for that of ``spark-submit``.
        parallelism: tasks that a load is split into if it is large; None for as many as Spark says it runs at once.
        max_offsets_per_batch: bounds what one commit holds; between two of them the job may be stopped for free.
        max_bytes_per_batch: bounds it too, by what offsets of each topic took in this driver's commits before.
        max_offsets_per_task: bounds what one task reads, so that one fat partition does not hold the job.
        fail_on_data_loss: whether offsets that retention deleted before they were read stop their topic.
        recreated: topics that may have been deleted and made again; they are read from their new beginning.
        group: consumer group that is told the offsets after each commit; empty for none.
        every_s: pause between runs; None to run once.
        table_format: ``parquet``, or ``iceberg`` to register the files in the lake's Iceberg tables too.
        grace_s: how long files that a compaction replaced stay for readers that have listed them.
        believed_days: records older than this, or more than a day ahead, have no hour of their own.
        event_times: by topic, the field of its payload that says when a record happened.
        registry: URLs of the registry whose schemas have these fields; empty for payloads in JSON.
        security: how to connect to the brokers: keys of `pylog.client.security.SECURITY_KEYS`, whose files are on each
            host of Spark.
        isolation_level: whether records of open and aborted transactions are landed.
        metrics_file: written after each run, in Prometheus's text format; None for none.
    """

    bootstrap: str
    topics: tuple[str, ...]
    lake: Path
    checkpoint: Path
    topic_pattern: re.Pattern[str] | None = None
    master: str | None = None
    parallelism: int | None = None
    max_offsets_per_batch: int = DEFAULT_OFFSETS_PER_COMMIT
    max_bytes_per_batch: int = DEFAULT_BYTES_PER_COMMIT
    max_offsets_per_task: int = DEFAULT_OFFSETS_PER_TASK
    fail_on_data_loss: bool = True
    recreated: frozenset[str] = frozenset()
    group: str = DEFAULT_GROUP
    every_s: float | None = None
    table_format: str = "parquet"
    grace_s: float = DEFAULT_GRACE_S
    metrics_file: Path | None = None
    believed_days: int = DEFAULT_BELIEVED_DAYS
    event_times: Mapping[str, str] = field(default_factory=dict)
    registry: tuple[str, ...] = ()
    security: Mapping[str, str] = field(default_factory=dict)
    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED


def run(config: JobConfig) -> int:
    """Land all that the topics hold now; return how many records that was.

    Raises:
        PylogError: the message says what is wrong and what to do.  Where that is one topic's, the others have landed.
    """
    with Loader(config) as loader:
        count = loader.load()
        if loader.stopped:
            raise _stopped_error(loader.stopped)
        return count


class Loader:
    """One driver: loads as often as it is told to, on one Spark.

    Attributes:
        stopped: topics that the last load could not go on with, and why.
    """

    def __init__(self, config: JobConfig) -> None:
        self._config = config
        raw = RawConfig(retry_ms=_FIRST_ANSWER_MS, isolation_level=config.isolation_level)
        self._client = RawClient(config.bootstrap, raw, security_of(config.security))
        self._checkpoint = Checkpoint(config.checkpoint)
        self._told: dict[TopicPartition, Offset] = {}
        self._seen: set[str] = set()
        self._ended: set[str] = set()
        self._warned: set[tuple[str, str]] = set()
        self._rates: dict[str, float] = {}
        self._lake: Lake | None = None
        self._event_times = EventTimes(config.event_times, config.registry, config.security)
        self.stopped: dict[str, PylogError] = {}

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    @cached_property
    def _spark(self) -> SparkContext:
        # At the first record: a timer finds nothing new most of the time, and starting Spark costs it seconds.
        spark = context(self._config.master)
        if self._config.parallelism is None:
            wait_for_executors(spark)
        return spark

    @cached_property
    def _groups(self) -> GroupAdmin:
        return GroupAdmin(Connection(bootstrap=self._config.bootstrap).secured(self._config.security))

    def load(self) -> int:
        """Land all that the topics hold now, commit by commit; return how many records that was.

        A topic that was deleted has ended: what was not loaded of it is told and stands in the commit as a hole.  One
        that cannot be gone on with stops alone: it stands in `stopped`, and its position stays where it is.

        Raises:
            Lost: another driver loads the same lake; this one must stop.
            PylogError: the message says what is wrong and what to do.
        """
        config = self._config
        self.stopped = {}
        latest = self._latest()
        lake = self._lake = Lake.create(config.lake, self._lake)
        state = lake.finish()
        self._checkpoint.check(lake, state)
        lake.clean(state)
        lake.purge(state, config.grace_s)
        lake.prune(max(config.grace_s, COMMITS_KEPT_S))
        status = StatusFiles(lake.root)
        accepted = self._accepted(status)
        count = 0
        ends = latest
        log_starts = dict.fromkeys(latest.offsets, 0)  # all that is known of a topic deleted before it is asked for
        while True:
            now = positions_of_present(self._client, latest.topic_ids, EARLIEST_TIMESTAMP, self.stopped)
            log_starts.update(now.offsets)
            gone = latest.topic_ids.keys() - now.topic_ids.keys() - self.stopped.keys()
            load = self._planned(state.position, latest, log_starts, gone, accepted)
            latest = load.latest
            if not (load.ranges or load.holes):
                # Also when nothing is new: a driver may have died between its commit and this.
                self._publish(state.position, latest)
                self._register(lake)
                self._checkpoint.remember(lake, state)
                self._tell(status, state, ends, count)
                status.carried_out(accepted - self.stopped.keys())
                return count
            landed, load, state = self._commit(lake, state, load, accepted)
            latest = load.latest
            self._checkpoint.remember(lake, state)
            self._publish(state.position, latest)
            count += sum(sum(one.rows.values()) for one in landed)

    def _accepted(self, files: StatusFiles) -> frozenset[str]:
        try:
            return files.accepted()
        except StorageError as error:  # these topics stay stopped, the others are loaded
            print(f"pylog ingest: {error} [{code_of(error)}]", file=sys.stderr)
            return frozenset()

    def _latest(self) -> Position:
        """Return where the topics end now; those that were deleted are left out.

        A name that no topic ever had stops like a topic, unless there is nothing else to load.

        Raises:
            ApiError: UNKNOWN_TOPIC_OR_PARTITION, where no topic exists of those that are named.
            PositionError: all of them were deleted.
        """
        config = self._config
        known: Collection[str] = ()
        if Lake.is_at(config.lake):
            known = Lake(config.lake).state().position.topic_ids.keys()
        names = set(config.topics)
        if config.topic_pattern is not None:
            names = {name for name in {*known, *self._seen} if is_meant(name, config.topic_pattern)}
            names |= set(names_of(self._client, config.topic_pattern))
        latest = positions_of_present(self._client, names, LATEST_TIMESTAMP, self.stopped)
        gone = names - latest.topic_ids.keys() - self.stopped.keys()
        unknown = gone - self._seen - set(known)
        gone -= unknown
        if config.topic_pattern is None:  # else it was deleted since the brokers listed it: nobody asked for its name
            self._stop_unknown(unknown, is_all=not latest.topic_ids and not gone and not self.stopped)
        if gone and not latest.topic_ids and not self.stopped:
            raise PositionError(
                f"nothing is left to load: {', '.join(map(repr, sorted(gone)))} was there and is not any more; it was "
                f"deleted, or {config.bootstrap} is another cluster than before"
            )
        self._seen |= latest.topic_ids.keys()
        self._ended -= latest.topic_ids.keys()
        self._tell_ended(gone, ())
        return latest

    def _stop_unknown(self, topics: Collection[str], *, is_all: bool) -> None:
        for topic in sorted(topics):
            error = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} does not exist")
            if is_all:
                raise error
            self.stopped[topic] = error

    def _planned(
        self,
        position: Position,
        latest: Position,
        log_starts: Mapping[TopicPartition, Offset],
        gone: Collection[str],
        accepted: Collection[str],
    ) -> Load:
        config = self._config
        start = _accepting(config.recreated, position, latest)
        # Whatever is asked may find that one more topic was deleted since the last answer.
        failed: dict[TopicPartition, ApiError] = {}
        latest = with_read_uncommitted(self._client, start.without({*gone, *self.stopped}), latest, failed)
        ends = epoch_ends(self._client, start, latest.without({*gone, *self.stopped}), failed)
        gone = {*gone, *deleted(self._client, failed, self.stopped)}
        # Of a topic that cannot be read now nobody knows the end; what was accepted of it waits for the next run.
        start = plan.accepting(start, latest, {*accepted} - self.stopped.keys(), ends)
        load = Load(start=start, latest=latest, log_starts=log_starts, position=start)
        if gone:
            load = load.without_ended(gone)
            self._tell_ended(gone, load.holes)
        self.stopped |= plan.stopped(
            load, accepted, fail_on_data_loss=config.fail_on_data_loss, epoch_ends=ends
        )  # fmt: skip
        load = load.without_stopped(self.stopped)
        if unclear := self._event_times.learn(load.topics()):
            self.stopped |= unclear
            load = load.without_stopped(unclear)
        # Whatever may not be missing stopped its topic just now.
        most = min(config.max_offsets_per_batch, load.offsets_in(config.max_bytes_per_batch, self._rates))
        return load.up_to(most, fail_on_data_loss=False)

    def _tell(self, files: StatusFiles, state: State, latest: Position, count: int) -> None:
        """Leave word of how the run went: what stopped, and how far behind the lake is."""
        before, now_ms = files.read().stopped, int(time.time() * 1000)
        stopped = {}
        for topic, error in sorted(self.stopped.items()):
            since = before[topic].since_ms if topic in before else now_ms
            stop = stopped[topic] = Stop(code_of(error), str(error), since)
            if (topic, stop.reason) not in self._warned:
                self._warned.add((topic, stop.reason))
                print(f"pylog ingest: {stop.describe(topic, files.root)}", file=sys.stderr)
        lag = dict.fromkeys(latest.topic_ids, 0)
        for partition, end in latest.offsets.items():
            lag[partition.topic] += max(0, end - state.position.offsets.get(partition, 0))
        status = Status(at_ms=now_ms, commit=state.number, records=count, lag=lag, stopped=stopped)
        files.write(status)
        if self._config.metrics_file is not None:
            try:
                replace_text(self._config.metrics_file, metrics_of(status, state))
            except StorageError as error:  # what was loaded is loaded
                print(f"pylog ingest: {error} [{code_of(error)}]", file=sys.stderr)

    def _tell_ended(self, topics: Iterable[str], holes: Iterable[Range]) -> None:
        """Say once of each topic that it has ended, and what is missing of it."""
        for topic in sorted(set(topics) - self._ended):
            self._ended.add(topic)
            missing = plan.named(hole for hole in holes if hole.partition.topic == topic)
            print(
                f"pylog ingest: topic {topic!r} was deleted: the lake keeps what it has of it, and loads the others on"
                f"{f'; not loaded: {missing}' if missing else ''}; take it off --topics",
                file=sys.stderr,
            )

    def _commit(
        self, lake: Lake, state: State, load: Load, accepted: frozenset[str]
    ) -> tuple[list[Landed], Load, State]:
        config = self._config
        attempt = lake.begin(Kind.LOAD, state)
        how = Landing(
            bootstrap=config.bootstrap, directory=attempt.directory, prefix=f"{attempt.plan:08}",
            fail_on_data_loss=config.fail_on_data_loss, topic_ids=load.latest.topic_ids,
            accepted=accepted, event_times=self._event_times.known,
            believed_ms=_believed_ms(config, int(time.time() * 1000)),
            security=config.security, isolation_level=config.isolation_level,
        )  # fmt: skip
        try:
            shares = self._shares(load)
            landed = self._spark.parallelize(shares, len(shares)).map(_task(how)).collect() if shares else []
        except (Py4JError, PySparkException) as error:
            raise error_of(str(error)) from error
        self._learn(landed)
        gone = {topic for one in landed for topic in one.gone}
        if gone:
            # Nothing of what was read of them either: by its name alone nobody can tell one topic from the next.
            landed = [one.without(gone) for one in landed]
            load = load.without_ended(gone)
            self._tell_ended(gone, load.holes)
        failed = {topic: error_of(text) for one in landed for topic, text in one.failed.items() if topic not in gone}
        if failed:
            self.stopped |= failed
            landed = [one.without(failed) for one in landed]
            load = load.without_stopped(failed)
            if not (load.ranges or load.holes):
                lake.abandon(attempt)
                return [], load, state
        state = lake.commit(
            attempt,
            [file for one in landed for file in one.files],
            dead_letters=[file for one in landed for file in one.dead_letters],
            more={**report(landed, load.holes), "position": load.position.to_json()},
        )
        return landed, load, state

    def _learn(self, landed: Iterable[Landed]) -> None:
        """Note how many bytes an offset of each topic takes, for the limit in bytes of the next commit."""
        sizes: Counter[str] = Counter()
        counts: Counter[str] = Counter()
        for one in landed:
            sizes += one.fetched_bytes
            for r in one.rows:
                counts[r.partition.topic] += r.offset_count
        self._rates |= {topic: sizes[topic] / count for topic, count in counts.items() if sizes[topic]}

    def _shares(self, load: Load) -> list[list[Range]]:
        if not load.ranges:
            return []
        at_once = self._config.parallelism or self._spark.defaultParallelism
        return plan.pack(load.ranges, at_once, self._config.max_offsets_per_task)

    def _register(self, lake: Lake) -> None:
        if self._config.table_format == "iceberg":
            # Imported here: it takes half a second, and most lakes are Parquet alone.
            from pylog.ingest.iceberg import register

            register(lake)

    def _publish(self, position: Position, there: Position) -> None:
        """Tell the group's coordinator, so that whoever watches lag sees this job like any consumer."""
        wanted = {p: offset for p, offset in position.offsets.items() if p.topic in there.topic_ids}
        if not self._config.group or not wanted or wanted == self._told:
            return
        try:
            self._groups.commit(self._config.group, wanted)
            self._told = wanted
        except PylogError as error:
            # The lake knows better than the group; the next run tells it again.
            print(f"pylog ingest: group {self._config.group} was not told the offsets: {error}", file=sys.stderr)


def _task(how: Landing) -> Any:  # noqa: ANN401  Spark's map takes any function
    def run_task(share: list[Range]) -> Landed:
        return landing.land(share, how)

    return run_task


def _believed_ms(config: JobConfig, now_ms: int) -> tuple[int, int]:
    return now_ms - config.believed_days * _DAY_MS, now_ms + _DAY_MS


def _stopped_error(stopped: Mapping[str, PylogError]) -> PylogError:
    """Return the first topic's error, which names the others too."""
    first, *others = sorted(stopped)
    error = stopped[first]
    if not others:
        return error
    kind = PylogError if isinstance(error, ApiError) else type(error)
    return kind(f"{error}; stopped too: {', '.join(map(repr, others))}")


def _accepting(recreated: Iterable[str], start: Position, latest: Position) -> Position:
    """Return *start* without those of *recreated* whose id is another one now."""
    return start.without(
        [t for t in recreated if t in latest.topic_ids and start.topic_ids.get(t) != latest.topic_ids[t]]
    )


def parse(arguments: Sequence[str] | None = None) -> JobConfig:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m pylog.ingest.job",
        description="Land all that topics hold now as Parquet, exactly once, and exit.",
    )
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT[,...]")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--topics", default=(), metavar="NAME[,...]", type=_names)
    which.add_argument(
        "--topic-pattern", type=_pattern, metavar="REGEX",
        help="all topics whose whole name it matches, also those that come up later; pylog's own (__…, _audit, "
        "_schemas, …) never",
    )  # fmt: skip
    parser.add_argument("--lake", required=True, type=Path, metavar="DIR")
    parser.add_argument("--checkpoint", required=True, type=Path, metavar="DIR", help="belongs to this lake alone")
    parser.add_argument("--master", help=f"Spark's master (default: that of spark-submit, or {DEFAULT_MASTER})")
    parser.add_argument(
        "--parallelism", type=_count, metavar="N",
        help="tasks that a large load is split into (default: as many as Spark says it runs at once)",
    )  # fmt: skip
    parser.add_argument(
        "--max-offsets-per-batch", type=_count, default=DEFAULT_OFFSETS_PER_COMMIT, metavar="N",
        help="most offsets of one commit (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--max-bytes-per-batch", type=_count, default=DEFAULT_BYTES_PER_COMMIT, metavar="N",
        help="about the most bytes of record batches of one commit (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--max-offsets-per-task", type=_count, default=DEFAULT_OFFSETS_PER_TASK, metavar="N",
        help="most offsets of one Spark task (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--allow-data-loss", action="store_true",
        help="go on behind offsets that retention deleted before they were read, instead of stopping their topic",
    )  # fmt: skip
    parser.add_argument(
        "--recreated", default=(), metavar="NAME[,...]", type=_names,
        help="topics that may have been deleted and made again: read the new ones from their beginning",
    )  # fmt: skip
    parser.add_argument(
        "--group", default=DEFAULT_GROUP, metavar="NAME",
        help="consumer group that is told the offsets, for tools that watch lag; empty for none (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--every", type=float, metavar="SECONDS", help="go on loading with this pause between runs, until stopped"
    )
    parser.add_argument(
        "--table-format", choices=("parquet", "iceberg"), default="parquet",
        help="iceberg: register the files in Iceberg tables too (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--grace", type=float, default=DEFAULT_GRACE_S, metavar="SECONDS",
        help="how long files that a compaction replaced stay (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--metrics-file", type=Path, metavar="FILE", help="written after each run, in Prometheus's text format"
    )
    parser.add_argument(
        "--believed-days", type=_count, default=DEFAULT_BELIEVED_DAYS, metavar="DAYS",
        help="records older than this, or more than a day ahead, share one directory (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--event-time", type=_fields, default={}, metavar="TOPIC=FIELD[,...]",
        help="hours of these topics follow from a field of the payload: Avro with --schema-registry, JSON without",
    )  # fmt: skip
    parser.add_argument("--schema-registry", type=_names, default=(), metavar="URL[,...]", help="for --event-time")
    parser.add_argument(
        "--security", type=_security, default={}, metavar="FILE",
        help="YAML file with the keys of a block security: (protocol, mechanism, user, password_file, ca_file); "
        "the files that it names are on each host of Spark",
    )  # fmt: skip
    parser.add_argument(
        "--isolation-level", choices=tuple(IsolationLevel), type=IsolationLevel, default=IsolationLevel.READ_COMMITTED,
        help="read_uncommitted: land records of open and aborted transactions too (default: %(default)s)",
    )  # fmt: skip
    given = parser.parse_args(arguments)
    if not given.topics and given.topic_pattern is None:
        parser.error("--topics names no topic")
    if given.every is not None and given.every <= 0:
        parser.error(f"--every is {given.every}; a number of seconds above 0 is wanted")
    return JobConfig(
        bootstrap=given.bootstrap,
        topics=given.topics,
        topic_pattern=given.topic_pattern,
        lake=given.lake.absolute(),
        checkpoint=given.checkpoint.absolute(),
        master=given.master,
        parallelism=given.parallelism,
        max_offsets_per_batch=given.max_offsets_per_batch,
        max_bytes_per_batch=given.max_bytes_per_batch,
        max_offsets_per_task=given.max_offsets_per_task,
        fail_on_data_loss=not given.allow_data_loss,
        recreated=frozenset(given.recreated),
        group=given.group,
        every_s=given.every,
        table_format=given.table_format,
        grace_s=given.grace,
        metrics_file=given.metrics_file,
        believed_days=given.believed_days,
        event_times=given.event_time,
        registry=given.schema_registry,
        security=given.security,
        isolation_level=given.isolation_level,
    )


def _security(file: str) -> dict[str, str]:
    try:
        block = yaml.safe_load(Path(file).read_text()) or {}
        if not isinstance(block, dict):
            raise ConfigError("must have keys and values")
        found = {str(key): str(value) for key, value in block.items()}
        security_of(found)
    except (OSError, UnicodeDecodeError, ConfigError) as error:
        raise argparse.ArgumentTypeError(f"{file}: {error}") from error
    except yaml.YAMLError as error:
        raise argparse.ArgumentTypeError(f"{file}: no YAML") from error
    return found


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, text.split(","))))


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from error


def _fields(text: str) -> dict[str, str]:
    found = {topic: name for topic, _, name in (one.partition("=") for one in _names(text))}
    if not all(found) or not all(found.values()):
        raise argparse.ArgumentTypeError(f"{text!r} is given; TOPIC=FIELD, with commas between them, is wanted")
    return found


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is given; a number from 1 is wanted")
    return int(text)


def load_every(config: JobConfig, stopped: threading.Event) -> None:
    """Load again and again until *stopped*; what one run could not reach, the next one tries.

    Raises:
        PylogError: as `run`; a service manager starts the job again, or a human reads why not.
    """
    assert config.every_s is not None, "the caller asked for it"
    with Loader(config) as loader:
        while not stopped.is_set():
            began = time.monotonic()
            _say(config, loader.load(), time.monotonic() - began)
            stopped.wait(config.every_s)


def _say(config: JobConfig, count: int, elapsed_s: float) -> None:
    if count or config.every_s is None:
        topics = ",".join(config.topics) if config.topic_pattern is None else config.topic_pattern.pattern
        print(f"landed records={count} topics={topics} elapsed_s={elapsed_s:.1f}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; 0 when everything landed, 1 with one line on stderr when not."""
    config = parse(arguments)
    began = time.monotonic()
    try:
        if config.every_s is None:
            _say(config, run(config), time.monotonic() - began)
        else:
            stopped = threading.Event()
            signal.signal(signal.SIGTERM, lambda *_: stopped.set())
            load_every(config, stopped)
    except PylogError as error:
        print(f"pylog ingest: {error} [{code_of(error)}]", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
