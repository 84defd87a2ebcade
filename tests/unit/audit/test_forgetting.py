"""What a ledger that is kept from one comparison to the next forgets, it forgets as if it had never read it."""

import json

from pylog.audit.ledger import Ledger
from pylog.audit.reports import Progress, Report, Tier

HOUR_MS = 3_600_000


def reader(tier: Tier, at_ms: int, number: int, complete_ms: int = 0, partitions: int = 1) -> Report:
    """Return a reader's report that continues its former one."""
    offsets = dict.fromkeys(range(partitions), number)
    return Report(
        tier=tier,
        topic="clicks",
        who=tier,
        number=number,
        at_ms=at_ms,
        complete_ms=complete_ms or at_ms,
        offsets=offsets,
    )


def kept(ledger: Ledger, silent_ms: int) -> Ledger:
    """Return the ledger as the next comparison finds it in the file."""
    ledger.move_to(silent_ms, silent_ms)
    return Ledger.from_json(json.loads(json.dumps(ledger.to_json())))


def test_partitions_of_a_topic_that_was_made_again_with_fewer_hold_nothing_up() -> None:
    ledger = Ledger()
    for partition in range(2):
        ledger.add(Progress(topic="clicks", partition=partition, complete_ms=1), 1)
    for number, hour in enumerate(range(1, 9)):
        at_ms = hour * HOUR_MS
        # From the second hour on the mirror says nothing of the second partition, which the topic has no more.
        ledger.add(Progress(topic="clicks", partition=0, complete_ms=at_ms), at_ms)
        for tier in (Tier.LIVE, Tier.MIRROR):
            ledger.add(reader(tier, at_ms, number), at_ms)
    assert ledger.complete_ms("clicks", Tier.MIRROR) == 1
    ledger = kept(ledger, 4 * HOUR_MS)
    assert ledger.complete_ms("clicks", Tier.MIRROR) == 8 * HOUR_MS


def test_a_clock_that_was_ahead_is_forgotten_with_its_reports() -> None:
    ledger = Ledger()
    ledger.add(reader(Tier.LIVE, HOUR_MS, 0, complete_ms=1000 * HOUR_MS), HOUR_MS)
    ledger.add(reader(Tier.LIVE, 8 * HOUR_MS, 1), 8 * HOUR_MS)
    assert ledger.complete_ms("clicks", Tier.LIVE) == 1000 * HOUR_MS
    assert kept(ledger, 4 * HOUR_MS).complete_ms("clicks", Tier.LIVE) == 8 * HOUR_MS
