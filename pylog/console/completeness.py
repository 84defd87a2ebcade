"""Models of the completeness pages: did every record arrive at each tier, and which is the first that did not.

Values in, plain data out.  The judgement is that of ``pylog audit report``.
"""

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pylog.audit.counting import WindowCount
from pylog.audit.judge import Finding, Judgement, Kind, WindowRow
from pylog.audit.render import by_window, moment, sentence, tier_state, worst
from pylog.audit.reports import Tier
from pylog.audit.sequences import Sequences
from pylog.client.rows import Row
from pylog.console.counts import Look
from pylog.console.screens import missing, paged

LANE_CELLS = 180
"""Cells in a lane; of more windows the newest are drawn."""

MAX_FINDINGS = 50
"""Findings that a page lists; it counts them all."""

MAX_RANGES = 10
"""Ranges of missing numbers that are named for one producer and tier."""


@dataclass(frozen=True, slots=True)
class Span:
    """Which windows were asked for.

    Attributes:
        from_text: as the person wrote it; empty for the latest.
        hours: how long.
        to_text: when it ends; empty for the latest.
    """

    from_text: str
    hours: int
    to_text: str = ""


def overview(look: Look, span: Span, visible: Collection[str] | None, page: int) -> Row:
    """Return the verdict over all topics, and a row a topic.

    Args:
        look: what the reports say.
        span: as it was asked for.
        visible: topics that the person may see; None for all.
        page: from 1.
    """
    judgement = _visible(look, visible)
    verdict, words = verdict_of(look, judgement)
    rows: list[Row] = []
    if judgement is not None:
        at = by_window(judgement.findings)
        for topic in judgement.rows.keys() | judgement.passages.keys():
            windows = judgement.rows.get(topic, [])
            states = [_state(at, topic, row) for row in windows]
            first = next((one for one in judgement.findings if one.topic == topic and one.is_alarm), None)
            rows.append(
                {
                    "topic": topic,
                    "windows": len(windows),
                    "state": _topic_state(states, first),
                    "produced": sum(row.produced for row in windows),
                    "tiers": _tier_totals(at, topic, windows),
                    "cells": [
                        {"window": moment(row.window_ms), "state": state}
                        for row, state in list(zip(windows, states, strict=True))[-LANE_CELLS:]
                    ],
                    "all_records": _passage(judgement, topic),
                    "first_missing": first and _finding(first, look),
                }
            )
    order = ("lost", "unknown", "pending", "doubled", "complete")
    rows.sort(key=lambda row: (order.index(row["state"]), row["topic"]))
    shown, pages = paged(rows, page)
    alarms = judgement.alarms if judgement else []
    return {
        **_head(look, span, judgement, verdict, words),
        "query": "",
        "total": len(rows),
        **pages,
        "topics": shown,
        "findings": [_finding(one, look) for one in alarms[:MAX_FINDINGS]],
        "finding_count": len(alarms),
    }


def latest(look: Look | None, visible: Collection[str] | None) -> Row:
    """Return verdict and sentence of the latest windows, for the overview; *look* is None before the first reading."""
    if look is None:
        return {"verdict": "unknown", "sentence": "Reports are being read. Reload the page in a moment."}
    verdict, words = verdict_of(look, _visible(look, visible))
    return {"verdict": verdict, "sentence": words}


def topic(look: Look, span: Span, name: str, page: int) -> Row:
    """Return one topic: a lane a tier, its windows with the newest first, and what is missing.

    Args:
        look: what the reports say.
        span: as it was asked for.
        name: of the topic.
        page: from 1.
    """
    judgement = _visible(look, {name})
    verdict, words = verdict_of(look, judgement)
    windows = judgement.rows.get(name, []) if judgement else []
    # What somebody should act on first, whatever its window.
    findings = sorted(judgement.findings, key=lambda one: not one.is_alarm) if judgement else []
    at = by_window(findings)
    tiers = _tiers(windows)
    rows, pages = paged(windows[::-1], page)
    return {
        **_head(look, span, judgement, verdict, words),
        "topic": name,
        "query": "",
        **pages,
        "tiers": tiers,
        "lanes": [
            {
                "tier": tier,
                "cells": [
                    {
                        "window": moment(row.window_ms),
                        "state": tier_state(at.get((name, row.window_ms), ()), row, tier),
                        "arrived": row.arrived.get(tier, 0),
                        "produced": row.produced,
                    }
                    for row in windows[-LANE_CELLS:]
                ],
            }
            for tier in tiers
        ],
        "windows": [
            {
                "window": moment(row.window_ms),
                "produced": row.produced,
                "arrived": [row.arrived.get(tier, 0) for tier in tiers],
                "copies": max(row.doubled.values(), default=0),
                "state": _state(at, name, row),
            }
            for row in rows
        ],
        "all_records": _passage(judgement, name) if judgement else [],
        "findings": [_finding(one, look) for one in findings[:MAX_FINDINGS]],
        "finding_count": len(findings),
    }


def window(
    look: Look,
    judgement: Judgement | None,
    name: str,
    start_ms: int,
    producers: Mapping[str, Mapping[Tier, WindowCount]],
) -> Row:
    """Return one window of a topic: what each tier counted of each producer, and the first missing record.

    Args:
        look: what the reports say.
        judgement: of this window and topic alone; None if nothing is known.
        name: of the topic.
        start_ms: when the window begins.
        producers: by instance and tier.
    """
    rows = judgement.rows.get(name, []) if judgement else []
    row = next((one for one in rows if one.window_ms == start_ms), WindowRow(start_ms))
    findings = sorted(judgement.findings, key=lambda one: not one.is_alarm) if judgement else []
    verdict, words = verdict_of(look, judgement)
    tiers = [tier for tier in Tier if any(tier in counts for counts in producers.values())]
    return {
        "from_ms": start_ms,
        "to_ms": start_ms + (judgement.window_ms if judgement else 0),
        "judged_ms": judgement and judgement.at_ms,
        "progress": look.progress,
        "verdict": verdict,
        "sentence": words,
        "topic": name,
        "window": moment(start_ms),
        "tiers": [
            {
                "tier": tier,
                "arrived": row.produced if tier is Tier.PRODUCER else row.arrived.get(tier, 0),
                "copies": row.doubled.get(tier, 0),
                "state": tier_state(findings, row, tier),
            }
            for tier in tiers
        ],
        "producers": [
            {
                "producer": producer,
                "host": next(iter(counts.values())).host,
                "counts": [_count(counts, tier) for tier in tiers],
            }
            for producer, counts in sorted(producers.items())
        ],
        "findings": [_finding(one, look) for one in findings[:MAX_FINDINGS]],
        "finding_count": len(findings),
        "unknown": missing_counts(look),
    }


def verdict_of(look: Look, judgement: Judgement | None) -> tuple[str, str]:
    """Return complete, incomplete, pending or unknown, and why in words."""
    if judgement is None:
        if look.progress:
            return "unknown", f"Reports are still being read: {look.progress}. Reload the page to read on."
        return "unknown", "Unknown: no cluster's counts could be read."
    if alarms := judgement.alarms:
        first = alarms[0]
        count = sum(one.count for one in alarms)
        said = f"Not complete: {count:,} {'record is' if count == 1 else 'records are'} lost or altered. "
        return "incomplete", f"{said}The first: {first_missing(first)}."
    topics = judgement.rows.keys() | judgement.passages.keys()
    if not topics:
        return "unknown", "Unknown: no record was counted in this time."
    if away := [name for name, reading in look.readings.items() if reading.error]:
        known = "Nothing is missing in the counts that are known"
        return "unknown", f"Unknown: the counts of {', '.join(away)} could not be read. {known}."
    if unknown := [one for one in judgement.findings if one.kind is Kind.UNKNOWN]:
        first = unknown[0]
        others = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        return "unknown", (
            f"Unknown: producer {first.producer} on {first.host}{others} ended before it said what it had sent. "
            "Nothing else is missing."
        )
    return _complete(judgement, len(topics))


def _complete(judgement: Judgement, topics: int) -> tuple[str, str]:
    windows = [row for rows in judgement.rows.values() for row in rows]
    closed = [row for row in windows if not row.pending]
    tiers = {tier for row in windows for tier in row.arrived} | {
        tier for one in judgement.passages.values() for tier in one.due
    }
    if not tiers:
        return "unknown", "Unknown: only producers counted; no tier behind them did."
    *others, last = [tier.value for tier in Tier if tier in tiers]
    where = f"{', '.join(others)} and {last}" if others else last
    named = "1 topic" if topics == 1 else f"{topics:,} topics"
    waiting = [one for one in judgement.passages.values() if one.pending]
    if windows and not closed:
        return "pending", f"Not judged yet: {where} still read what was sent. Nothing is missing so far."
    late = len(windows) - len(closed)
    said = f"Complete: nothing is missing at {where} in {named}"
    if closed:
        said += f", {len(closed):,} {'window' if len(closed) == 1 else 'windows'} judged"
    if late:
        said += f"; {late:,} {'is' if late == 1 else 'are'} not judged yet"
    if waiting and not late:
        said += "; the newest records are not judged yet"
    return "complete", said + "."


def first_missing(finding: Finding) -> str:
    """Return the first record of a finding in words."""
    place = f"topic {finding.topic}, window {moment(finding.window_ms)}"
    if finding.kind is Kind.ALTERED:
        return f"{place}: bytes that producer {finding.producer} on {finding.host} sent differ at tier {finding.tier}"
    first = finding.ranges[0][0] if finding.ranges else 0
    if finding.found_in is not None:
        return f"{place}, partition {finding.partition}, offset {first} of {finding.found_in}, is not at {finding.tier}"
    return f"{place}, record {first} of producer {finding.producer} on {finding.host}, is not at {finding.tier}"


def missing_counts(look: Look) -> list[Row]:
    """Return a row for each cluster whose reports could not be read."""
    return missing(**{f"counts of {name}": reading for name, reading in look.readings.items()})


def span_command(clusters: Sequence[str], span: Span, topic_name: str | None) -> str:
    """Return the command line that says the same."""
    words = ["pylog", "audit", "report"]
    for one in clusters:
        words += ["--ledger", one]
    if span.from_text:
        words += ["--from", span.from_text, "--to", span.to_text]
    else:
        words += ["--since", f"{span.hours}h"]
    if topic_name is not None:
        words += ["--topic", topic_name]
    return shlex.join([*words, "--format", "wide"])


def _head(look: Look, span: Span, judgement: Judgement | None, verdict: str, words: str) -> Row:
    return {
        "from_ms": look.from_ms,
        "to_ms": look.to_ms,
        "from_text": span.from_text,
        "hours": span.hours,
        "window_ms": judgement and judgement.window_ms,
        "judged_ms": judgement and judgement.at_ms,
        "progress": look.progress,
        "verdict": verdict,
        "sentence": words,
        "unknown": missing_counts(look),
    }


def _visible(look: Look, visible: Collection[str] | None) -> Judgement | None:
    judgement = look.judgement
    if judgement is None:
        return None
    if look.to_ms is not None:
        judgement = judgement.between(look.from_ms, look.to_ms)
    return judgement if visible is None else judgement.only(visible)


def _tiers(windows: Sequence[WindowRow]) -> list[Tier]:
    return [tier for tier in Tier if any(tier in row.arrived for row in windows)]


def _state(at: Mapping[tuple[str, int], Collection[Finding]], name: str, row: WindowRow) -> str:
    here = at.get((name, row.window_ms), ())
    return worst(tier_state(here, row, tier) for tier in row.arrived)


def _topic_state(states: Sequence[str], first: Finding | None) -> str:
    if first is not None:
        return "lost"
    settled = [state for state in states if state != "pending"]
    return worst(settled) if settled or not states else "pending"


def _tier_totals(
    at: Mapping[tuple[str, int], Collection[Finding]], name: str, windows: Sequence[WindowRow]
) -> list[Row]:
    return [
        {
            "tier": tier,
            "arrived": sum(row.arrived.get(tier, 0) for row in windows),
            "state": _topic_state([tier_state(at.get((name, row.window_ms), ()), row, tier) for row in windows], None),
        }
        for tier in _tiers(windows)
    ]


def _passage(judgement: Judgement, name: str) -> list[Row]:
    passage = judgement.passages.get(name)
    if passage is None:
        return []
    return [
        {"tier": tier, "due": due, "seen": passage.seen.get(tier, 0), "is_behind": tier in passage.pending}
        for tier, due in passage.due.items()
    ]


def _count(counts: Mapping[Tier, WindowCount], tier: Tier) -> Row:
    """Return what one tier counted of one producer, and what it lacks of what the tiers before it had."""
    here = counts.get(tier)
    before = Sequences()
    for other in Tier:
        if other is tier:
            break
        if other in counts:
            before = Sequences(counts[other].sequences.ranges())
    lacking = before.without(here.sequences if here else Sequences())
    return {
        "arrived": len(here.sequences) if here else 0,
        "copies": here.doubled if here else 0,
        "missing": len(lacking),
        "ranges": [list(each) for each, _ in zip(lacking.ranges(), range(MAX_RANGES), strict=False)],
    }


def _finding(finding: Finding, look: Look) -> Row:
    first = finding.ranges[0][0] if finding.ranges else None
    has_offset = finding.found_in is not None and finding.found_in in look.own_tiers
    return {
        "kind": finding.kind,
        "is_alarm": finding.is_alarm,
        "topic": finding.topic,
        "tier": finding.tier,
        "window": moment(finding.window_ms),
        "count": finding.count,
        "sentence": sentence(finding),
        "producer": finding.producer,
        "host": finding.host,
        "first": first,
        "ranges": [list(each) for each in finding.ranges],
        # Where the first missing record can be read in the cluster that this console shows.
        "partition": finding.partition if has_offset else None,
        "offset": first if has_offset else None,
        # The text in the stamp of that record, which a search finds where the record still is.
        "stamp": f"{finding.producer} {first} " if finding.producer and first is not None else None,
    }
