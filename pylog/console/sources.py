"""Asks the cluster as one person, within budgets; every answer is kept for a moment and shared by all pages.

A page asks for the cluster first: when no broker answers, nothing else is asked, and the page costs one time-out.
"""

import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pylog.client.admin.acls import AclAdmin
from pylog.client.admin.cluster import ClusterView, OffsetRange, TopicView
from pylog.client.admin.configs import ConfigAdmin, Holder, Setting
from pylog.client.admin.disks import BrokerDisks, broker_disks
from pylog.client.admin.groups import GroupAdmin, GroupListing, GroupView, Progress
from pylog.client.admin.health import Problem
from pylog.client.admin.reassignment import Reassignment
from pylog.client.admin.transactions import OpenTransaction, TransactionAdmin, TransactionView
from pylog.client.admin.users import UserView, scram_users
from pylog.client.commits import CommitHistory, Verdict
from pylog.client.connection import Connection
from pylog.client.consumer import ConsumedRecord, Consumer
from pylog.client.producer import Producer
from pylog.client.raw import topic_ids
from pylog.console.changes import WRITE_S, Target, new_offsets
from pylog.console.readings import FirstSeen, Questions, Reading
from pylog.console.records import SEARCH, Budget, Found, Hide, Left, collect
from pylog.console.screens import problems_of
from pylog.daemon.attempts import Attempts
from pylog.errors import ApiError, ErrorCode, PylogError, Unreachable
from pylog.model import Offset, TopicPartition
from pylog.probe.lag import LagReport
from pylog.probe.reader import LagReader
from pylog.security.acl import Binding, BindingFilter

CLIENT_ID = "pylog-console"

VIEW_MS = 3_000
"""How long brokers, topics, offsets and groups count."""

SLOW_MS = 10_000
"""How long answers of single brokers and settings count."""

DISKS_MS = 30_000
"""How long sizes count: each broker names all its replicas."""

MAX_READERS = 4
"""Pages of records and searches that read at once, of everybody."""

MAX_READERS_OF_PERSON = 2
"""Those that read at once for one person who logged in."""

READER_WAIT_S = 1.0
"""How long a page waits for its turn to read: most take less."""

MAX_TIMES = 20
"""Questions for offsets by time that one person may ask in a minute: each makes the leaders read their indexes."""

COMMITS_MS = 600_000
"""How far back commits count for the status of a partition, as in ``pylog group describe``."""


_T = TypeVar("_T")

_FETCH: dict[str, Any] = {
    # A page of records shows a few megabytes; librdkafka would fetch 64 MB ahead.
    "fetch__message__max__bytes": 1 << 20,
    "queued__max__messages__kbytes": 8 << 10,
}


class TooManyReaders(PylogError):
    """Others read records at the moment: try again."""


class _Admin(GroupAdmin, ConfigAdmin, AclAdmin):
    """One client for everything that is asked."""


@dataclass(frozen=True, slots=True)
class Lags:
    """What the console reads as its own user, for everybody.

    Attributes:
        reader: reads all commits.
    """

    reader: LagReader

    def read(self) -> Reading[LagReport]:
        """Return the lag of all groups, as far as it is known."""
        latest = self.reader.latest
        if latest.judged_ms is None:
            reason = latest.failure or "commits are still being read"
            return Reading(None, None, reason, latest.failed_ms, latest.failed_ms)
        return Reading(latest.report, latest.judged_ms, latest.failure, latest.failed_ms, latest.judged_ms)


@contextmanager
def _turn(places: threading.BoundedSemaphore, refusal: str) -> Iterator[None]:
    """Hold one of *places*.

    Raises:
        TooManyReaders: none became free in `READER_WAIT_S`.
    """
    if not places.acquire(timeout=READER_WAIT_S):
        raise TooManyReaders(refusal)
    try:
        yield
    finally:
        places.release()


def clock_ms() -> int:
    """Return the time in ms since the Unix epoch."""
    return time.time_ns() // 1_000_000


class ClusterSource:
    """The cluster as one person sees it.

    Args:
        cluster: how the person connects.
        lags: lag of all groups; shown only for groups that the brokers list for the person.
        is_everybody: whether all visitors look as this person, because there is no login.
    """

    _readers = threading.BoundedSemaphore(MAX_READERS)

    def __init__(self, cluster: Connection, lags: Lags, *, is_everybody: bool = False) -> None:
        self.connection = replace(cluster, properties={"client.id": CLIENT_ID, **cluster.properties})
        self._lags = lags
        self._questions = Questions(clock_ms)
        self._seen = FirstSeen()
        self._lock = threading.Lock()
        self._own_readers = threading.BoundedSemaphore(MAX_READERS if is_everybody else MAX_READERS_OF_PERSON)
        self._times = None if is_everybody else Attempts()
        self._made: _Admin | None = None

    def view(self) -> Reading[ClusterView]:
        """Return brokers and topics."""
        return self._questions.read("view", VIEW_MS, lambda: self._admin().cluster())

    def answering(self) -> Reading[set[int]]:
        """Return the ids of brokers that answer a request themselves."""
        return self._questions.read("answering", SLOW_MS, lambda: self._admin().answering(self._known().brokers))

    def disks(self) -> Reading[dict[int, BrokerDisks]]:
        """Return what each broker says of its disks."""
        return self._questions.read("disks", DISKS_MS, lambda: broker_disks(self.connection, self._known().brokers))

    def moves(self) -> Reading[dict[TopicPartition, Reassignment]]:
        """Return what is on the move."""
        return self._questions.read("moves", SLOW_MS, lambda: self._when_known().reassignments())

    def settings(self, topic: str) -> Reading[list[Setting]]:
        """Return the settings of a topic."""
        return self._questions.read(
            ("settings", topic), SLOW_MS, lambda: self._when_known().settings(Holder.TOPIC, topic)
        )

    def offsets(self, topic: TopicView) -> Reading[dict[TopicPartition, OffsetRange]]:
        """Return the offsets of the partitions of *topic* that have a leader."""
        led = [TopicPartition(topic.name, one.partition) for one in topic.partitions if one.has_leader]
        return self._questions.read(("offsets", topic.name, *led), VIEW_MS, lambda: self._when_known().offsets(led))

    def groups(self) -> Reading[list[GroupListing]]:
        """Return the groups of all brokers."""
        return self._questions.read("groups", VIEW_MS, lambda: self._when_known().groups())

    def group(self, group_id: str) -> tuple[GroupView, Reading[dict[TopicPartition, Progress]]]:
        """Return a group and how far it is.

        Raises:
            ApiError: GROUP_ID_NOT_FOUND, or the person may not see it.
            Unreachable: nobody answers, and nobody has yet.
        """
        view = self._questions.read(("group", group_id), VIEW_MS, lambda: self._group(group_id))
        if view.value is None:
            raise Unreachable(view.error)
        if isinstance(view.value, ApiError):
            raise view.value
        found = view.value
        progress = self._questions.read(("progress", group_id), VIEW_MS, lambda: self._when_known().progress(found))
        if found.state == "Dead" and progress.value == {}:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} does not exist")
        return found, replace(progress, error=progress.error or view.error)

    def verdicts(
        self, group_id: str, progress: Reading[dict[TopicPartition, Progress]]
    ) -> Reading[dict[TopicPartition, Verdict]]:
        """Return how the group consumes each partition, by its last commits."""
        return self._questions.read(
            ("verdicts", group_id),
            DISKS_MS,
            lambda: CommitHistory(self.connection).verdicts(group_id, progress.value or {}, clock_ms(), COMMITS_MS),
        )

    def rehearse(
        self, group_id: str, target: Target | None
    ) -> tuple[str, dict[TopicPartition, Offset], dict[TopicPartition, Offset]]:
        """Return a group's state, what it has committed, and where it would go on at *target*; changes nothing.

        Raises:
            ApiError: GROUP_ID_NOT_FOUND, or the person may not see it.
            Unreachable: nobody answers.
        """
        self._known()
        admin = self._admin()
        state, committed = admin.group(group_id).state, admin.committed(group_id)
        if state == "Dead" and not committed:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} does not exist")
        if target is None or not committed:
            return state, committed, {}
        held = admin.offsets(sorted(committed))
        if target.kind == "time":
            self._take_time()
        by_time = admin.offsets_at(sorted(committed), target.number) if target.kind == "time" else {}
        return state, committed, new_offsets(target, held, by_time)

    def rehearsal(
        self, group_id: str, target: Target | None
    ) -> tuple[str, dict[TopicPartition, Offset], dict[TopicPartition, Offset]]:
        """Return what `rehearse` does, kept for `SLOW_MS`."""
        return self._answer(("rehearse", group_id, target), SLOW_MS, lambda: self.rehearse(group_id, target))

    def move_group(self, group_id: str, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Have a group go on at *offsets*.

        Raises:
            ApiError: it has members by now, or the person may not.
        """
        self._when_known().commit(group_id, offsets)
        self._questions.forget()

    def produce(self, topic: str, partition: int | None, key: bytes | None, value: bytes | None) -> tuple[int, Offset]:
        """Write one record, and return its partition and offset once all replicas that are in sync have it.

        Raises:
            PylogError: it was not written, or nobody said that it was.
        """
        written: list[tuple[int, Offset]] = []
        timeout_ms = int(WRITE_S * 1000)
        # Not idempotent, which takes a right of its own; so nothing is tried again, and no record is written twice.
        limits: dict[str, Any] = {"enable__idempotence": False, "retries": 0}
        with Producer(self.connection, reports_success=True, delivery_timeout_ms=timeout_ms, **limits) as producer:

            def told(error: Any, record: Any) -> None:  # noqa: ANN401  # librdkafka's KafkaError and Message
                if error is None:
                    written.append((record.partition(), record.offset()))
                else:
                    producer.note_failure(error)

            producer.hand_over(topic, value, key, -1 if partition is None else partition, [], told)
            producer.flush()
            if producer.first_error is not None:
                raise producer.first_error
        self._questions.forget()
        [place] = written
        return place

    def lags(self) -> Reading[LagReport]:
        """Return the lag of all groups, whoever may see them."""
        return self._lags.read()

    def transactions(self) -> Reading[list[TransactionView]]:
        """Return the transactional ids that the person may see."""
        return self._questions.read("transactions", VIEW_MS, lambda: self._transaction_admin().ids())

    def transaction(self, transactional_id: str) -> TransactionView:
        """Return one transactional id.

        Raises:
            ApiError: TRANSACTIONAL_ID_NOT_FOUND, or the person may not see it.
            Unreachable: nobody answers.
        """
        return self._answer(
            ("transaction", transactional_id), VIEW_MS, lambda: self._transaction_admin().describe(transactional_id)
        )

    def hanging(self, older_than_ms: int) -> Reading[list[OpenTransaction]]:
        """Return what is open in partitions and that no coordinator will end; it asks every leader."""
        return self._questions.read(
            ("hanging", older_than_ms),
            DISKS_MS,
            lambda: self._transaction_admin().hanging(older_than_ms, clock_ms()),
        )

    def users(self) -> Reading[list[UserView]]:
        """Return who may log in by SCRAM."""

        def ask() -> list[UserView]:
            self._known()
            return scram_users(self.connection)

        return self._questions.read("users", SLOW_MS, ask)

    def rules(self) -> Reading[list[Binding]]:
        """Return the ACLs."""
        return self._questions.read("rules", SLOW_MS, lambda: self._when_known().acls(BindingFilter()))

    def describes_cluster(self) -> bool:
        """Return whether the brokers let the person describe the cluster, as far as they say so now."""
        reading = self.rules()
        return reading.value is not None and not reading.error

    def problems(self) -> tuple[list[Problem], dict[Problem, int]]:
        """Return what is wrong, and since when this person's pages have shown it."""
        view, answering, disks = self.view(), self.answering(), self.disks()
        if view.value is None:
            return [], {}
        everybody = {broker.node_id for broker in view.value.brokers}
        alive = everybody if answering.value is None else answering.value
        found = problems_of(view.value, alive, disks.value or {})
        since = self._seen.note({(one.kind, one.subject) for one in found}, clock_ms())
        return found, {one: since[one.kind, one.subject] for one in found}

    def offset_at(self, place: TopicPartition, timestamp_ms: int) -> Offset:
        """Return the first offset of that time or later; kept for `SLOW_MS`.

        Raises:
            PylogError: the leader did not say.
        """
        return self.offsets_at([place], timestamp_ms)[place]

    def offsets_at(self, places: Sequence[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, Offset]:
        """Return the first offset of that time or later in each partition; kept for `SLOW_MS`.

        Raises:
            PylogError: a leader did not say.
        """

        def ask() -> dict[TopicPartition, Offset]:
            self._take_time()
            return self._when_known().offsets_at(places, timestamp_ms)

        return self._answer(("times", *places, timestamp_ms), SLOW_MS, ask)

    def _answer(self, key: Hashable, max_age_ms: int, ask: Callable[[], _T]) -> _T:
        """Return what *ask* returned; a refusal is kept like an answer, and raised as what it is.

        Raises:
            ApiError: the brokers refuse.
            TooManyReaders: the person asked too often.
            Unreachable: nobody answers.
        """

        def answer() -> _T | ApiError | TooManyReaders:
            try:
                return ask()
            except (ApiError, TooManyReaders) as error:
                return error

        reading = self._questions.read(key, max_age_ms, answer)
        if reading.value is None or reading.error:
            raise Unreachable(reading.error)
        if isinstance(reading.value, ApiError | TooManyReaders):
            raise reading.value
        return reading.value

    def _take_time(self) -> None:
        if self._times is not None and not self._times.take("", MAX_TIMES, time.monotonic()):
            raise TooManyReaders(f"you looked offsets up by time {MAX_TIMES} times within a minute; wait a minute")

    def topic_id(self, topic: str) -> Reading[str]:
        """Return the id of a topic, as text: one that is made again has another."""

        def ask() -> str:
            self._known()
            one = self.connection
            return topic_ids(one.bootstrap, [topic], one.timeout_s, one.security())[topic]

        return self._questions.read(("id", topic), SLOW_MS, ask)

    def read(
        self,
        topic: str,
        spans: Mapping[int, tuple[Offset, Offset]],
        needle: bytes,
        budget: Budget = SEARCH,
        hide: Hide | None = None,
    ) -> Found:
        """Read partitions from their first offset to before their second, within *budget*.

        Args:
            topic: the topic.
            spans: by partition.
            needle: bytes that a record must contain; empty for all records.
            budget: when to stop, whatever is left.
            hide: hides what is masked, before a record is searched; None to hide nothing.

        Raises:
            TooManyReaders: others read.
            PylogError: the cluster refuses, or nobody answers.
        """
        left = Left(spans)
        with (
            _turn(self._own_readers, "you are reading other pages of records; try again when one has come"),
            _turn(self._readers, f"{MAX_READERS} pages of records are being read; try again in a moment"),
        ):
            batches = self._batches(topic, spans, left)
            return collect(batches, spans, needle, budget, time.monotonic, left.open_at, hide)

    def _batches(
        self, topic: str, spans: Mapping[int, tuple[Offset, Offset]], left: Left
    ) -> Iterator[Sequence[ConsumedRecord]]:
        if not left.ends:
            return
        with Consumer(self.connection, **_FETCH) as consumer:
            consumer.assign({TopicPartition(topic, partition): spans[partition][0] for partition in left.ends})
            while left.ends:
                batch = consumer.read(0.1)
                yield batch
                for partition in left.note(batch, consumer.at_end):
                    consumer.pause(TopicPartition(topic, partition))

    def _group(self, group_id: str) -> GroupView | ApiError:
        try:
            return self._when_known().group(group_id)
        except ApiError as error:
            return error

    def _transaction_admin(self) -> TransactionAdmin:
        self._known()
        return TransactionAdmin(self.connection)

    def _known(self) -> ClusterView:
        reading = self.view()
        if reading.value is None or reading.error:
            raise Unreachable(reading.error)
        return reading.value

    def _when_known(self) -> _Admin:
        """Return the admin client while brokers answer; else a page would wait a time-out for each of its questions."""
        self._known()
        return self._admin()

    def _admin(self) -> _Admin:
        with self._lock:
            if self._made is None:
                self._made = _Admin(self.connection)
            return self._made
