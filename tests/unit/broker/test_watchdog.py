"""How late the event loop runs is counted by the loop itself."""

import asyncio

from pylog.broker.watchdog import Watchdog
from pylog.metrics import Metrics

LATE_S = 5


class _Clock(asyncio.SelectorEventLoop):
    """A loop whose clock can be set forward, as it seems to one that was held up."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


def test_a_loop_that_was_held_up_counts_how_late_it_is() -> None:
    metrics = Metrics()
    delay = metrics.histogram("pylog_loop_delay_seconds", "")

    async def story(loop: _Clock) -> None:
        watchdog = Watchdog(60, metrics)
        watchdog.start()
        await asyncio.sleep(0)  # it begins to wait
        loop.ahead_s = LATE_S
        while not sum(delay.counts):
            await asyncio.sleep(0)
        watchdog.stop()

    with asyncio.Runner(loop_factory=_Clock) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, _Clock)
        runner.run(story(loop))
    assert LATE_S - 1 < delay.sum_ns / 1e9 < LATE_S + 60
