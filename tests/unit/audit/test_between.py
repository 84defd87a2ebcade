"""A time that is asked for by name: its windows alone, and what nobody can tell of them."""

from pylog.audit.judge import Finding, Judgement, Kind, WindowRow
from pylog.audit.reports import Tier

MINUTE_MS = 60_000


def judgement() -> Judgement:
    rows = [
        WindowRow(0, 10, {Tier.LIVE: 10, Tier.LAKE: 9}),
        WindowRow(MINUTE_MS, 10, {Tier.LIVE: 10, Tier.LAKE: 10}),
        WindowRow(2 * MINUTE_MS, 10, {Tier.LIVE: 10}, pending={Tier.LAKE}),
    ]
    lost = Finding(0, "clicks", Tier.LAKE, "p", "h", Kind.LOST, 1)
    return Judgement(9 * MINUTE_MS, MINUTE_MS, {"clicks": rows, "alone": [WindowRow(0, 5)]}, {}, [lost])


def test_only_the_windows_that_were_asked_for_are_judged() -> None:
    found = judgement().between(MINUTE_MS, 2 * MINUTE_MS)
    assert [row.window_ms for row in found.rows["clicks"]] == [MINUTE_MS]
    assert (found.findings, found.alarms, found.unknown([])) == ([], [], [])
    assert [one.count for one in judgement().between(0, MINUTE_MS).alarms] == [1]


def test_what_nobody_can_tell_is_named() -> None:
    assert judgement().unknown(["clicks", "gone"]) == [
        "topic gone: no record was counted",
        "topic clicks: tier lake is not counted to the end",
        "topic alone: no tier behind the producer is counted",
    ]
