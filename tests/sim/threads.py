"""Threads that run one at a time, by hand: what blocks in a broker blocks here in virtual time.

A simulated thread is a real one that waits for its turn.  It gets it when something it waits for happened, and gives it
back when it blocks again or ends; the world's own thread waits meanwhile.
"""

import os
import queue
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Generic, TypeVar

from tests.sim.world import CURRENT, Process, ProcessEnded, World

T = TypeVar("T")


class _Signal:
    """Lets a real thread wait for another one.

    Turns change hands thousands of times in a run.  A `threading.Semaphore` takes three times as long: whoever it wakes
    has to wait at once again, for the interpreter's lock, which the other gives up only when it waits itself.
    """

    def __init__(self) -> None:
        self._fd = os.eventfd(0)

    def give(self) -> None:
        """Let the one who waits, or the next one, go on."""
        os.eventfd_write(self._fd, 1)

    def wait(self) -> None:
        """Wait until it is given."""
        os.eventfd_read(self._fd)


class Turns:
    """Hands the turn from the world's thread to one simulated thread and back."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.running: SimThread | None = None
        self._back = _Signal()
        self._idle: list[_Worker] = []

    def start(self, work: Callable[[], None], process: Process | None, delay_s: float = 0.0) -> "SimThread":
        """Run *work* in a thread of *process*, from *delay_s* on."""
        thread = SimThread(self, work, process)
        self.world.after(delay_s, process, thread.begin)
        return thread

    def give(self, thread: "SimThread", worker: "_Worker") -> None:
        """Let *thread* run in *worker* until it blocks or ends; in the world's thread."""
        assert self.running is None, "two at a time"
        self.running = thread
        worker.turn.give()
        self._back.wait()
        self.running = None

    def take_back(self) -> None:
        """Let the world go on."""
        self._back.give()

    def worker(self) -> "_Worker":
        """Return a real thread that has nothing to do."""
        return self._idle.pop() if self._idle else _Worker()

    def end(self, worker: "_Worker") -> None:
        """Let the world go on, and *worker* run something else when its next turn comes."""
        self._idle.append(worker)
        self._back.give()


class _Worker:
    """A real thread that runs one simulated thread after another.

    Attributes:
        turn: it may run until it gives the turn back.
        work: what it does in its first turn.
    """

    def __init__(self) -> None:
        self.turn = _Signal()
        self.work: Callable[[], None] = lambda: None
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            self.turn.wait()
            self.work()


class SimThread:
    """One simulated thread."""

    def __init__(self, turns: Turns, work: Callable[[], None], process: Process | None) -> None:
        self.process = process
        self.is_done = False
        self._turns = turns
        self._work = work
        self._worker: _Worker | None = None
        self._parking = 0
        self._is_parked = False
        self._was_woken = False
        self._joining: list[SimThread] = []

    def begin(self) -> None:
        """Run for the first time; in the world's thread."""
        self._worker = self._turns.worker()
        self._worker.work = self._run
        self._turns.give(self, self._worker)

    def park(self, timeout_s: float | None = None) -> bool:
        """Give up the turn until `wake`, or for *timeout_s*; return whether it was woken.  In this very thread."""
        assert self._worker is not None
        self._parking += 1
        self._is_parked, self._was_woken = True, False
        if timeout_s is not None:
            parking = self._parking
            self._turns.world.after(timeout_s, self.process, lambda: self._return(parking, False))
        self._turns.take_back()
        self._worker.turn.wait()
        return self._was_woken

    def wake(self) -> None:
        """End its parking, if it is parked; from any thread that has the turn."""
        if self._is_parked:
            parking = self._parking
            self._turns.world.after(0.0, self.process, lambda: self._return(parking, True))

    def wait_for(self, other: "SimThread") -> None:
        """Park until *other* has ended."""
        while not other.is_done:
            other._joining.append(self)
            self.park()

    def _return(self, parking: int, was_woken: bool) -> None:
        if self._is_parked and parking == self._parking:
            assert self._worker is not None
            self._is_parked, self._was_woken = False, was_woken
            self._turns.give(self, self._worker)

    def _run(self) -> None:
        assert self._worker is not None
        CURRENT.set(self.process)
        try:
            self._work()
        except ProcessEnded:
            pass
        except BaseException as error:
            self._turns.world.fail(error)
        self.is_done = True
        for thread in self._joining:
            thread.wake()
        self._turns.end(self._worker)


class Threading:
    """What `pylog.broker.control.agent` takes from `queue`, `threading` and `concurrent.futures`, in virtual time."""

    Empty = queue.Empty
    Event = threading.Event

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def SimpleQueue(self) -> "SimQueue[Any]":  # stands for the class
        """Return a queue whose `get` waits in virtual time."""
        return SimQueue(self._turns)

    def Thread(self, *, target: Callable[[], None], name: str, daemon: bool) -> "StartableThread":
        """Return a thread that runs when its turn comes."""
        assert daemon, name
        return StartableThread(self._turns, target)

    def Future(self) -> "Future[Any]":
        """Return a future whose `result` waits in virtual time."""
        return SimFuture(self._turns)

    def __getitem__(self, item: object) -> object:
        """Allow ``Future[int]`` in annotations that are evaluated."""
        return self


class StartableThread:
    """`threading.Thread`, as far as the agent uses it."""

    def __init__(self, turns: Turns, target: Callable[[], None]) -> None:
        self._turns = turns
        self._target = target
        self._thread: SimThread | None = None

    @property
    def ident(self) -> int | None:
        """None before the start."""
        return None if self._thread is None else 1

    def start(self) -> None:
        """Begin, soon."""
        self._thread = self._turns.start(self._target, CURRENT.get())

    def join(self) -> None:
        """Wait for its end."""
        assert self._turns.running is not None
        assert self._thread is not None
        self._turns.running.wait_for(self._thread)


class SimQueue(Generic[T]):
    """`queue.SimpleQueue` with one reader."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._items: deque[T] = deque()
        self._reader: SimThread | None = None

    def put(self, item: T) -> None:
        """Add, and wake the reader."""
        self._items.append(item)
        if self._reader is not None:
            self._reader.wake()

    def get_nowait(self) -> T:
        """Return the next item or raise `queue.Empty`."""
        if not self._items:
            raise queue.Empty
        return self._items.popleft()

    def get(self, timeout: float | None = None) -> T:
        """Return the next item; raise `queue.Empty` when none came in time."""
        reader = self._turns.running
        deadline_us = None if timeout is None else self._turns.world.now_us + int(timeout * 1e6)
        while not self._items:
            assert reader is not None, "the loop must not wait for a queue"
            left_s = None if deadline_us is None else (deadline_us - self._turns.world.now_us) / 1e6
            if left_s is not None and left_s <= 0:
                raise queue.Empty
            self._reader = reader  # only now: parked elsewhere it waits for something else
            reader.park(left_s)
            self._reader = None
        return self._items.popleft()

    def qsize(self) -> int:
        """Return how many wait."""
        return len(self._items)


class SimFuture(Future[T]):
    """A `concurrent.futures.Future` that is waited for in virtual time."""

    def __init__(self, turns: Turns) -> None:
        super().__init__()
        self._turns = turns

    def result(self, timeout: float | None = None) -> T:
        """Return the result, or raise its exception; a simulated thread parks until there is one."""
        if not self.done():
            reader = self._turns.running
            assert reader is not None, "the loop must not wait for a future"
            is_waiting = True

            def wake(_: object) -> None:
                if is_waiting:
                    reader.wake()

            self.add_done_callback(wake)
            reader.park(timeout)
            is_waiting = False
            if not self.done():
                raise FutureTimeoutError
        return super().result(0)
