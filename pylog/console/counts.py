"""Reads what the audit counted, as the console's own user: on demand, a few seconds at a time, for everybody.

Reports of a day may take minutes to read.  A look reads on where the last one stopped and then says how far it came, so
no page waits for all of it.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from pylog.audit.confirm import confirm
from pylog.audit.counting import WindowCount
from pylog.audit.judge import Judgement, judge
from pylog.audit.ledger import Ledger
from pylog.audit.load import LedgerReader
from pylog.audit.reports import FOR_EVER_MS, Tier
from pylog.client.connection import Connection
from pylog.console.readings import Reading, reason_of
from pylog.errors import ApiError, ErrorCode, PylogError, Unreachable

READ_S = 3.0
"""How long one look reads."""

WAIT_S = 0.2
"""How long a look waits for another one, if it has something to show."""

FIRST_WAIT_S = 2 * READ_S
"""The same, if it has nothing to show."""

MAX_WAITERS = 4
"""Looks that wait with nothing to show: each holds one of the forty threads that answer requests."""

COUNTS_S = 10.0
"""How long a judgement counts, and a cluster that failed is left alone."""

WATCHED_S = 300.0
"""How long after the last look `latest` is kept up to date."""

MAX_SPANS = 3
"""Spans of time whose reports are kept in memory."""

LATEST_MS = 2 * 3_600_000
"""How far back the latest windows go."""

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Look:
    """What the reports of a span of time say.

    Attributes:
        from_ms: windows that begin at this time or later; ms since the Unix epoch.
        to_ms: ... and before this one; None for all up to now.
        judgement: None while reports are still being read, and where nobody counts.
        producers: by topic and window, what each tier counted of each producer.
        readings: when the reports of each cluster were read, by its address.
        progress: how far reading came; empty once all reports are read.
        own_tiers: the tiers of the cluster that the console shows.
        complete_ms: by topic and tier, up to when the tier has everything that passed the tier before it.
    """

    from_ms: int
    to_ms: int | None
    judgement: Judgement | None = None
    producers: "Producers | None" = None
    readings: Mapping[str, Reading[int]] = field(default_factory=dict)
    progress: str = ""
    own_tiers: frozenset[Tier] = frozenset()
    complete_ms: Mapping[str, Mapping[Tier, int]] = field(default_factory=dict)


def complete_of(ledger: Ledger) -> dict[str, dict[Tier, int]]:
    """Return, by topic and tier, up to when a tier has everything; ms since the Unix epoch."""
    return {
        topic: {tier: ledger.complete_ms(topic, tier) for tier in ledger.tiers(topic) if tier is not Tier.PRODUCER}
        for topic in ledger.topics()
    }


class Counts:
    """The reports of all clusters that keep an account.

    Args:
        clusters: the console's own one first.
        window_ms: how long a window is, as the producers and the readers have it.
        clock_ms: ms since the Unix epoch.
        clock_s: seconds of a clock that does not go back.
    """

    def __init__(
        self,
        clusters: Sequence[Connection],
        window_ms: int,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.clusters = clusters
        self.window_ms = window_ms
        self._clock_ms = clock_ms
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._waiters = threading.BoundedSemaphore(MAX_WAITERS)
        self._spans: dict[tuple[int, int | None], _Span] = {}
        self._latest: Look | None = None
        self._looked_s: float | None = None
        self._keeper: threading.Thread | None = None

    def look(self, from_ms: int | None, to_ms: int | None) -> Look:
        """Return what is known of a span of time, after reading for at most `READ_S`; waits a while if others read.

        Args:
            from_ms: first window; None for the latest two hours.
            to_ms: windows before this time; None for all up to now.

        Raises:
            Unreachable: nothing is known of this span yet, and others read for too long or too many wait.
        """
        if from_ms is None:
            now_ms = self._clock_ms()
            from_ms, to_ms = now_ms - now_ms % _HOUR_MS - LATEST_MS, None
        key = (from_ms - from_ms % self.window_ms, to_ms)
        known = self._spans.get(key)
        # Who asks for a cluster that is away waits for it; the others are shown what is known meanwhile.
        if not (self._wait_first() if known is None else self._lock.acquire(timeout=WAIT_S)):
            if known is None:
                raise Unreachable("the counts of other times are being read; load this page again in a few seconds")
            return known.last
        try:
            span = self._spans.pop(key, None) or _Span(*key, self.clusters)
            self._spans[key] = span
            while len(self._spans) > MAX_SPANS:
                del self._spans[self._oldest_look()]
            return span.look(self.window_ms, self._clock_ms, self._clock_s)
        finally:
            self._lock.release()

    def _oldest_look(self) -> tuple[int, int | None]:
        """Return the span that was looked at least recently, but for the latest one: the overview is for everybody."""
        latest = max((key for key in self._spans if key[1] is None), default=None)
        return next(key for key in self._spans if key != latest)

    def _wait_first(self) -> bool:
        """Take the lock for a span of which nothing is known; return whether that worked."""
        if not self._waiters.acquire(blocking=False):
            return False
        try:
            return self._lock.acquire(timeout=FIRST_WAIT_S)
        finally:
            self._waiters.release()

    def latest(self) -> Look | None:
        """Return what is known of the latest two hours, without waiting; None before anything is known.

        A thread keeps it up to date for `WATCHED_S` after the last call.
        """
        self._looked_s = self._clock_s()
        if self._keeper is None or not self._keeper.is_alive():
            self._keeper = threading.Thread(target=self._keep, name="counts", daemon=True)
            self._keeper.start()
        return self._latest

    def _keep(self) -> None:
        while (looked_s := self._looked_s) is not None and self._clock_s() - looked_s < WATCHED_S:
            with suppress(Unreachable):  # others read other spans
                self._latest = self.look(None, None)
            time.sleep(COUNTS_S if self._latest is not None and not self._latest.progress else 0.1)

    def confirmed(self, judgement: Judgement) -> Judgement:
        """Return *judgement* after asking the clusters which compacted records are lost; waits."""
        copy = Judgement(
            judgement.at_ms, judgement.window_ms, judgement.rows, judgement.passages, list(judgement.findings)
        )
        confirm(copy, self.clusters)
        return copy


class Producers:
    """What each tier counted of each producer."""

    def __init__(self, ledger: Ledger, lock: threading.Lock) -> None:
        self._ledger = ledger
        self._lock = lock

    def of(self, topic: str, window_ms: int) -> dict[str, dict[Tier, WindowCount]]:
        """Return the counts of one window by producer and tier."""
        found: dict[str, dict[Tier, WindowCount]] = {}
        with self._lock:
            if topic not in self._ledger.topics():
                return {}
            for tier in self._ledger.tiers(topic):
                for (producer, start_ms), count in self._ledger.counts(topic, tier).windows.items():
                    if start_ms == window_ms:
                        copy = WindowCount(count.host)
                        copy.merge(count)
                        found.setdefault(producer, {})[tier] = copy
        return found


class _Span:
    """A span of time whose reports are kept; `last` is what the last look found."""

    def __init__(self, from_ms: int, to_ms: int | None, clusters: Sequence[Connection]) -> None:
        self._clusters = clusters
        self._lock = threading.Lock()
        self.last = Look(from_ms, to_ms)
        self._begin()

    def _begin(self) -> None:
        to_ms = self.last.to_ms
        self._ledger = Ledger(self.last.from_ms, FOR_EVER_MS if to_ms is None else to_ms)
        self._readers = [LedgerReader(one, self._ledger, lambda _: None) for one in self._clusters]
        self._readings: dict[str, Reading[int]] = {one.bootstrap: Reading() for one in self._clusters}
        self._done_s: float | None = None

    def look(self, window_ms: int, clock_ms: Callable[[], int], clock_s: Callable[[], float]) -> Look:
        if self._done_s is not None and clock_s() - self._done_s < COUNTS_S:
            return self.last
        deadline_s = clock_s() + READ_S
        with self._lock:
            for reader in self._readers:
                self._read(reader, clock_ms, lambda: clock_s() >= deadline_s)
            left = sum(reader.left_count for reader in self._readers)
            judgement, complete_ms = None, {}
            if not left and any(one.value is not None for one in self._readings.values()):
                judgement = judge(self._ledger, clock_ms(), window_ms, window_ms)
                complete_ms = complete_of(self._ledger)
        if not left:
            self._done_s = clock_s()
        read = sum(reader.read_count for reader in self._readers)
        self.last = Look(
            self.last.from_ms,
            self.last.to_ms,
            judgement,
            Producers(self._ledger, self._lock),
            dict(self._readings),
            f"{read:,} of {read + left:,} reports have been read" if left else "",
            frozenset(self._readers[0].tiers),
            complete_ms,
        )
        return self.last

    def _read(self, reader: LedgerReader, clock_ms: Callable[[], int], is_enough: Callable[[], bool]) -> None:
        name = reader.cluster.bootstrap
        reading = self._readings[name]
        try:
            reader.read_on(is_enough)
        except PylogError as error:
            if isinstance(error, ApiError) and error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                self._begin()  # of an account that is no more; the next look reads the new one
            self._readings[name] = reading.failed(_reason(error), clock_ms())
            reader.left_count = 0
        else:
            self._readings[name] = reading.answered(reader.read_count, clock_ms())


def _reason(error: PylogError) -> str:
    if isinstance(error, ApiError) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return "nobody counts there: the topic _audit does not exist"
    return reason_of(error)
