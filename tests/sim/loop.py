"""An event loop in virtual time that all simulated processes share.

Every callback belongs to the process in whose context it was made: a paused process gets it later, a killed one never.
"""

import asyncio
import contextvars
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

from tests.sim.network import Network
from tests.sim.threads import Turns
from tests.sim.world import CURRENT, ProcessEnded, World

THREAD_DELAYS_S = (0.0001, 0.002)
"""How long a job given to a thread waits before it runs."""

SLOW_THREAD_SHARES = (0.02, 0.02, 0.3)
SLOW_THREAD_S = 0.3
"""Some jobs meet a slow disk; in some runs many do."""


class SimLoop(asyncio.AbstractEventLoop):
    """What asyncio and `pylog.net` ask of a loop, and nothing else.

    Attributes:
        late_s: how much later jobs run that a host gives to a thread now.
    """

    def __init__(self, world: World, turns: Turns, network: Network) -> None:
        self._world = world
        self._turns = turns
        self._network = network
        self._slow_share = world.random.choice(SLOW_THREAD_SHARES)
        self._readers: dict[int, _Callback] = {}
        self.late_s: dict[str, float] = {}

    # -- callbacks -------------------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._world.now_us / 1e6

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        now_us = self._world.now_us
        return self._push(now_us, now_us / 1e6, callback, args, context)

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self._push(int(when * 1e6) + 1, when, callback, args, context)

    def _push(
        self,
        time_us: int,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> "_Callback":
        if context is None:
            context = contextvars.copy_context()
        step = _Callback(self, when, callback, args, context)
        self._world.at(time_us, context.get(CURRENT), step)
        return step

    # -- tasks -----------------------------------------------------------------------------------------------------

    def create_future(self) -> "asyncio.Future[Any]":
        return _Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: contextvars.Context | None = None
    ) -> "asyncio.Task[Any]":
        return _Task(coro, loop=self, name=name or "task", context=context)

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        """Run *func* in a simulated thread after a while, whatever the executor."""
        future = self.create_future()
        chance = self._world.random
        delay_s = chance.uniform(*THREAD_DELAYS_S)
        if chance.random() < self._slow_share:
            delay_s += chance.uniform(0, SLOW_THREAD_S)
        process = CURRENT.get()
        if process is not None:
            delay_s += self.late_s.get(process.host, 0.0)

        def work() -> None:
            try:
                result = func(*args)
            except BaseException as error:  # as a real executor does: it is the caller's
                self.call_soon(_settle, future, None, error)
            else:
                self.call_soon(_settle, future, result, None)

        self._turns.start(work, process, delay_s)
        return future

    # -- sockets ---------------------------------------------------------------------------------------------------

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        handle = _Callback(self, self.time(), callback, args, contextvars.copy_context())
        process = CURRENT.get()
        self._network.on_readable(
            fd, lambda: self._world.at(self._world.now_us, process, lambda: self._read(fd, handle))
        )
        self._readers[fd] = handle
        self._network.look(fd)

    def remove_reader(self, fd: Any) -> bool:
        handle = self._readers.pop(fd, None)
        if handle is not None:
            handle.cancel()
            self._network.on_readable(fd, None)
        return handle is not None

    def add_writer(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        raise AssertionError("simulated sockets take everything at once")

    def remove_writer(self, fd: Any) -> bool:
        return False

    def _read(self, fd: int, handle: "_Callback") -> None:
        handle()
        if not handle.cancelled():
            self._network.look(fd)

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int, **options: object
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        connected: asyncio.Future[asyncio.Transport] = self.create_future()
        protocol = protocol_factory()
        attempt = self._network.connect(self, host, port, protocol, connected)
        try:
            return await connected, protocol
        finally:
            attempt.is_over = True

    # -- what asyncio asks by the way ------------------------------------------------------------------------------

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """End the run: an exception nobody caught is a bug."""
        error = context.get("exception")
        message = context.get("message", "")
        if isinstance(error, ProcessEnded):
            return
        if isinstance(error, BaseException):
            self._world.fail(error)
        elif "never retrieved" not in message and "was destroyed" not in message:
            self._world.fail(AssertionError(message))


class _Callback(asyncio.TimerHandle):
    """A callback of the loop, which is a step of the world: the loop makes half of all steps.

    `asyncio.Handle` would do; it asks the loop for its debug mode again and again, and runs in one more frame.
    """

    __slots__ = ()

    def __init__(
        self,
        loop: SimLoop,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context,
    ) -> None:
        self._loop = loop
        self._when = when
        self._callback: Callable[..., object] | None = callback
        self._args = args
        self._context = context
        self._cancelled = False

    def __call__(self) -> None:
        """Run it, unless it was cancelled."""
        if self._cancelled:
            return
        assert self._callback is not None
        try:
            self._context.run(self._callback, *self._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._loop.call_exception_handler({"exception": error})

    def cancel(self) -> None:
        self._cancelled = True
        self._callback, self._args = None, ()


_numbers = itertools.count()


class _Future(asyncio.Future[Any]):
    """A future that stands at the same place of a set in every run."""

    def __init__(self, *, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._number = next(_numbers)

    def __hash__(self) -> int:
        return self._number


class _Task(asyncio.Task[Any]):
    """A task that stands at the same place of a set in every run."""

    _number = -1

    def __hash__(self) -> int:
        if self._number < 0:
            self._number = next(_numbers)
        return self._number


def _settle(future: "asyncio.Future[Any]", result: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
