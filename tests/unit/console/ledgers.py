"""Accounts with something missing, for tests of the console."""

import json
from dataclasses import asdict, replace

from pylog.audit.counting import WindowCount
from pylog.audit.judge import judge
from pylog.audit.ledger import Ledger
from pylog.audit.places import Places
from pylog.audit.reports import Progress, Report, Tier
from pylog.console.counts import Look
from pylog.console.readings import Reading

WINDOW_MS = 60_000
T0 = 1_893_456_000_000
"""2030-01-01T00:00:00Z, the first window."""

NOW_MS = T0 + 20 * WINDOW_MS


def count(host: str, first: int, last: int, *, without: tuple[int, ...] = (), copies: int = 0) -> WindowCount:
    found = WindowCount(host, content=None)
    for number in range(first, last + 1):
        if number not in without:
            found.add(number, 0)
    found.count += copies
    return found


def reports(
    topic: str,
    producer: str = "p1",
    host: str = "web1",
    *,
    lost: tuple[int, ...] = (107,),
    closed: bool = True,
    windows: int = 5,
    mirror_ms: int | None = None,
    t0: int = T0,
    until_ms: int = NOW_MS,
) -> list[Report | Progress]:
    """Return reports of 100 stamped records a window, of which the mirror's cluster lacks *lost*.

    Args:
        topic: which.
        producer: instance.
        host: of the producer.
        lost: numbers.
        closed: whether the producer said that it ended.
        windows: how many.
        mirror_ms: up to when the mirror's cluster has everything; *until_ms* unless given.
        t0: when the first window begins.
        until_ms: up to when the live cluster has everything.
    """
    mirror_ms = until_ms if mirror_ms is None else mirror_ms

    def counts(without: tuple[int, ...] = (), copies: int = 0) -> dict[tuple[str, int], WindowCount]:
        return {
            (producer, t0 + n * WINDOW_MS): count(host, n * 100, n * 100 + 99, without=without, copies=copies)
            for n in range(windows)
        }

    total = windows * 100
    sent = Report(
        tier=Tier.PRODUCER, topic=topic, who=producer, number=0, at_ms=t0, complete_ms=t0, is_closed=closed,
        windows=counts(),
    )  # fmt: skip
    live = Report(
        tier=Tier.LIVE, topic=topic, who="live", number=0, at_ms=until_ms, complete_ms=until_ms, offsets={0: total},
        topic_id="live-id", windows=counts(),
    )  # fmt: skip
    mirror = replace(
        live, tier=Tier.MIRROR, who="mirror", topic_id="mirror-id", windows=counts(lost, 3), complete_ms=mirror_ms
    )
    return [sent, live, Progress(topic, 0, mirror_ms), mirror]


def unstamped(topic: str, lost: tuple[int, ...] = ()) -> list[Report | Progress]:
    """Return reports of 50 records without stamps, of which the mirror's cluster lacks the offsets *lost*."""
    at_live, at_mirror = Places(), Places()
    at_live.add("live-id", 0, 0, 49)
    for offset in range(50):
        if offset not in lost:
            at_mirror.add("live-id", 0, offset, offset, floor=0)
    live = Report(
        tier=Tier.LIVE, topic=topic, who="live", number=0, at_ms=NOW_MS, complete_ms=NOW_MS, offsets={0: 50},
        topic_id="live-id", unstamped=50, places=at_live,
    )  # fmt: skip
    mirror = replace(
        live, tier=Tier.MIRROR, who="mirror", topic_id="mirror-id", places=at_mirror, offsets={0: 50 - len(lost)}
    )
    return [live, Progress(topic, 0, NOW_MS), mirror]


def progress_of_the_mirror(progress: Progress) -> bytes:
    """Return the record that a mirror writes for *progress*."""
    return json.dumps({"version": 1, "kind": "progress", "source": "live", **asdict(progress)}).encode()


def ledger_of(*written: Report | Progress) -> Ledger:
    ledger = Ledger(T0)
    for report in written:
        ledger.add(report, T0 + 10 * WINDOW_MS)
    return ledger


def look_of(ledger: Ledger, readings: dict[str, Reading[int]] | None = None) -> Look:
    known = {"log-a1:9092": Reading(1, NOW_MS, "", None, NOW_MS)} if readings is None else readings
    return Look(
        T0, None, judge(ledger, NOW_MS, WINDOW_MS, WINDOW_MS), None, known, "", frozenset({Tier.LIVE})
    )  # fmt: skip
