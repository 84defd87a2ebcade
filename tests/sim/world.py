"""Virtual time: what happens next, in which process, and a fingerprint of everything that happened.

One thread runs at any moment.  Broker code that blocks (the cluster agent, disk jobs) runs in threads of its own that
are switched by hand (`tests.sim.threads`), so that the same seed gives the same run.
"""

import heapq
import random
from collections import Counter, deque
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from zlib import crc32

EPOCH_MS = 1_600_000_000_000
"""What the wall clocks say when a run begins."""

MAX_EVENTS_AT_ONCE = 200_000
"""Events without time going on, after which something must be going round in circles."""

MAX_EVENTS = 250_000
"""Of a run, which has some 30,000: somebody asks the same thing again and again."""

BESIDE_S = 1.0
"""An event and a crash are a pair if no more time than this lies between them."""

SLOW_STEP_S = 0.4
"""Longest step of a broker's loop or threads in runs in which some are slow."""

CRASH = "crash"
"""Kind of event: a process ended that was not told to, or its host lost power."""

Step = Callable[[], None]


class Violation(Exception):
    """An invariant does not hold."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant


class ProcessEnded(BaseException):
    """A process ended itself; nothing of it runs any more."""


@dataclass(eq=False, slots=True)
class Process:
    """One process of the run: a broker from start to end, or a client.

    Attributes:
        host: machine it runs on, which outlives it.
        held: what came while it was paused.
        skew_ms: how far its wall clock is off.
        busy_until_us: its last step takes so long; the next begins then.
        kept: what belonged to it when it was killed; a killed process cleans nothing up, so nothing may be collected.
    """

    host: str
    is_broker: bool = False
    is_alive: bool = True
    is_paused: bool = False
    skew_ms: int = 0
    busy_until_us: int = 0
    held: deque["_Event"] = field(default_factory=deque)
    kept: list[object] = field(default_factory=list)
    fds: set[int] = field(default_factory=set)


CURRENT: ContextVar[Process | None] = ContextVar("process", default=None)
"""Whose code runs; travels with every callback, task and thread."""

_Event = tuple[int, int, Process | None, Step]


class World:
    """The run.

    Attributes:
        now_us: virtual microseconds since the beginning.
        random: the only source of chance.
        after_step: called after every event with its process; the checks.
        watches: called after that; those who wait for the very step in which something happens.
        is_over: nothing more is to happen.
        failure: what went wrong; the run ends with it.
        slow_share: chance that a step of a broker takes up to `SLOW_STEP_S`, in which nothing else of it is done.
    """

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now_us = 0
        self.events = 0
        self.after_step: Callable[[Process | None], None] = lambda process: None
        self.watches: list[Step] = []
        self.is_over = False
        self.failure: BaseException | None = None
        self.trace: deque[str] = deque(maxlen=200_000)
        self.is_tracing = trace
        self.slow_share = 0.0
        self._happened: list[tuple[int, str]] = []
        self._queue: list[_Event] = []
        self._order = 0
        self._at_once = 0
        self._fingerprint = 0
        self._unread: list[bytes] = []  # what happened since the fingerprint was taken

    @property
    def fingerprint(self) -> int:
        """CRC of everything that happened, in order."""
        self._fingerprint = crc32(b"".join(self._unread), self._fingerprint)
        self._unread.clear()
        return self._fingerprint

    @property
    def now_s(self) -> float:
        """Seconds since the beginning."""
        return self.now_us / 1e6

    @property
    def true_ms(self) -> int:
        """Milliseconds since 1970, by a clock that nobody sets."""
        return EPOCH_MS + self.now_us // 1000

    def wall_ns(self) -> int:
        """What the clock on the wall of the running process says."""
        process = CURRENT.get()
        skew_ms = process.skew_ms if process is not None else 0
        return (EPOCH_MS + skew_ms) * 1_000_000 + self.now_us * 1000

    def note(self, kind: str, *facts: object) -> None:
        """Write down what happened: into the fingerprint, and into the trace if there is one."""
        line = " ".join([kind, *map(str, facts)]) if facts else kind
        self._unread.append(line.encode())
        if self.is_tracing:
            process = CURRENT.get()
            self.trace.append(f"{self.now_s:10.6f} {process.host if process else '-':<9} {line}")

    def happened(self, kind: str) -> None:
        """Count an event of *kind*, such as `trim`; `kinds` and `pairs` tell how a run was spent."""
        self.note("happened", kind)
        self._happened.append((self.now_us, kind))

    @property
    def kinds(self) -> Counter[str]:
        """How often each kind of event happened."""
        return Counter(kind for _, kind in self._happened)

    @property
    def pairs(self) -> Counter[str]:
        """How many events of each kind had a crash beside them."""
        crashes_us = [time_us for time_us, kind in self._happened if kind == CRASH]
        return Counter(
            kind
            for time_us, kind in self._happened
            if kind != CRASH and any(abs(time_us - crash_us) <= BESIDE_S * 1e6 for crash_us in crashes_us)
        )

    def at(self, time_us: int, process: Process | None, step: Step) -> None:
        """Run *step* at *time_us*, as *process*; never if that was killed by then."""
        self._order = order = self._order + 1
        now_us = self.now_us
        heapq.heappush(self._queue, (time_us if time_us > now_us else now_us, order, process, step))

    def after(self, delay_s: float, process: Process | None, step: Step) -> None:
        """Run *step* in *delay_s* seconds."""
        self.at(self.now_us + int(delay_s * 1e6), process, step)

    def fail(self, error: BaseException) -> None:
        """End the run with *error*; the first one counts."""
        if self.failure is None:
            self.failure = error

    def pause(self, process: Process) -> None:
        """Stop a process as SIGSTOP does."""
        process.is_paused = True

    def resume(self, process: Process) -> None:
        """Let it go on; what came meanwhile happens now, in order."""
        process.is_paused = False
        held, process.held = process.held, deque()
        for _, _, owner, step in held:
            self.at(self.now_us, owner, step)

    def run(self, until_s: float) -> None:
        """Let things happen until `is_over`, raising what went wrong.

        Raises:
            Violation: an invariant broke, or the time is up.
        """
        limit_us = int(until_s * 1e6)
        queue, unread, after_step = self._queue, self._unread, self.after_step
        while not self.is_over:
            if not queue:
                raise Violation("progress", "nothing is left to happen")
            event = heapq.heappop(queue)
            time_us, order, process, step = event
            if process is not None:
                if not process.is_alive:
                    process.kept.append(step)
                    continue
                if process.is_paused:
                    process.held.append(event)
                    continue
            if time_us > limit_us:
                raise Violation("progress", f"not done after {until_s:g} s")
            if process is not None and process.busy_until_us > time_us:
                self.at(process.busy_until_us, process, step)
                continue
            self._at_once = self._at_once + 1 if time_us == self.now_us else 0
            if self._at_once > MAX_EVENTS_AT_ONCE or self.events > MAX_EVENTS:
                raise Violation("progress", f"going round in circles at {self.now_s:.6f}")
            self.now_us = time_us
            self.events += 1
            unread.append(order.to_bytes(8, "big"))
            step()
            if self.slow_share and process is not None and process.is_broker and self.random.random() < self.slow_share:
                process.busy_until_us = time_us + int(self.random.uniform(0, SLOW_STEP_S) * 1e6)
                self.happened("slow step")
            after_step(process)
            for watch in self.watches:
                watch()
            if self.failure is not None:
                raise self.failure
