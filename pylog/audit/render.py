"""A judgement as text, as plain data, and as a picture for each topic.  Decides; waits for nothing."""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from html import escape
from typing import Any

from pylog.audit.judge import Finding, Judgement, Kind, Passage, WindowRow
from pylog.audit.reports import Tier

_CELL, _LEFT, _TOP = 14, 90, 46
_COLOURS = {"complete": "#2e8b57", "doubled": "#d9a400", "lost": "#c0392b", "pending": "#c8c8c8", "unknown": "#7d3c98"}
MAX_COLUMNS = 240
"""Windows in a picture, the newest: four hours of minutes fit a screen."""


def moment(time_ms: int) -> str:
    """Return a time as people and programs read it, in UTC."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def as_data(judgement: Judgement) -> dict[str, Any]:
    """Return plain lists, dictionaries, texts and numbers."""
    return {
        "version": 1,
        "at": moment(judgement.at_ms),
        "window_ms": judgement.window_ms,
        "is_complete": not judgement.alarms and not any(one.kind is Kind.UNKNOWN for one in judgement.findings),
        "topics": {topic: [_row(row) for row in rows] for topic, rows in judgement.rows.items()},
        "all_records": {topic: _passage(one) for topic, one in judgement.passages.items()},
        "findings": [_finding(one) for one in judgement.findings],
    }


def as_text(judgement: Judgement, *, is_wide: bool) -> str:
    """Return totals for each topic, the windows if *is_wide*, and every finding."""
    lines = []
    at = by_window(judgement.findings)
    for topic, rows in judgement.rows.items():
        tiers = [tier for tier in Tier if any(tier in row.arrived for row in rows)]
        heads = ["window", "produced", *tiers, "copies", "state"]
        table = [
            [
                moment(row.window_ms),
                str(row.produced),
                *(str(row.arrived.get(tier, 0)) for tier in tiers),
                str(max(row.doubled.values(), default=0)),
                _state_of(at, topic, row),
            ]
            for row in rows
        ]
        total = [
            "all",
            str(sum(row.produced for row in rows)),
            *(str(sum(row.arrived.get(tier, 0) for row in rows)) for tier in tiers),
            str(sum(max(row.doubled.values(), default=0) for row in rows)),
            worst(_state_of(at, topic, row) for row in rows),
        ]
        shown = [heads, *(table if is_wide else []), total]
        widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
        lines.append(topic)
        lines += ["  " + "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in shown]
    for topic, passage in judgement.passages.items():
        said = [f"{tier} has {passage.seen[tier]} of {due}" for tier, due in passage.due.items()]
        said += [f"{tier} is behind" for tier in sorted(passage.pending)]
        lines.append(f"all records of {topic}, stamped or not: {', '.join(said)}")
    lines += [sentence(one) for one in judgement.findings]
    if not judgement.findings:
        lines.append("nothing is missing")
    return "\n".join(lines) + "\n"


def as_picture(judgement: Judgement, topic: str) -> str:
    """Return an SVG: a row for each tier, a column for each window, a colour for how complete it is."""
    rows = judgement.rows[topic][-MAX_COLUMNS:]
    at = by_window(judgement.findings)
    tiers = [tier for tier in Tier if any(tier in row.arrived for row in rows)]
    width, height = _LEFT + _CELL * max(len(rows), 44), _TOP + _CELL * len(tiers) + 44
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        'font-size="11">',
        f"<title>Completeness of {escape(topic)}</title>",
        f'<text x="4" y="16" font-size="14">{escape(topic)}</text>',
    ]
    if rows:
        out.append(
            f'<text x="{_LEFT}" y="34">{moment(rows[0].window_ms)} to {moment(rows[-1].window_ms)}, '
            f"a column is {judgement.window_ms // 1000} s</text>"
        )
    for line, tier in enumerate(tiers):
        y = _TOP + line * _CELL
        out.append(f'<text x="4" y="{y + 11}">{tier}</text>')
        for column, row in enumerate(rows):
            state = tier_state(at.get((topic, row.window_ms), ()), row, tier)
            out.append(
                f'<rect x="{_LEFT + column * _CELL}" y="{y}" width="{_CELL - 1}" height="{_CELL - 1}" '
                f'fill="{_COLOURS[state]}"><title>{moment(row.window_ms)} {tier}: {row.arrived.get(tier, 0)} '
                f"of {row.produced}, {state}</title></rect>"
            )
    for place, (state, colour) in enumerate(_COLOURS.items()):
        x, y = _LEFT + place * 100, _TOP + _CELL * len(tiers) + 20
        out.append(
            f'<rect x="{x}" y="{y}" width="11" height="11" fill="{colour}"/>'
            f'<text x="{x + 16}" y="{y + 10}">{state}</text>'
        )
    return "\n".join([*out, "</svg>"]) + "\n"


def _row(row: WindowRow) -> dict[str, Any]:
    return {
        "window": moment(row.window_ms),
        "produced": row.produced,
        "arrived": dict(row.arrived),
        "doubled": dict(row.doubled),
        "pending": sorted(row.pending),
    }


def _passage(one: Passage) -> dict[str, Any]:
    return {"due": dict(one.due), "seen": dict(one.seen), "pending": sorted(one.pending)}


def _finding(one: Finding) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "is_alarm": one.is_alarm,
        "topic": one.topic,
        "tier": one.tier,
        "window": moment(one.window_ms),
        "producer": one.producer,
        "host": one.host,
        "count": one.count,
        "ranges": [list(each) for each in one.ranges],
        "partition": one.partition,
        "topic_id": one.topic_id,
        "found_in": one.found_in,
    }


def sentence(one: Finding) -> str:
    """Return a finding in words."""
    named = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in one.ranges)
    if one.found_in is not None:
        return (
            f"{one.kind}: topic {one.topic}, tier {one.tier}, window {moment(one.window_ms)}, partition "
            f"{one.partition}: {one.count} records (offsets in {one.found_in} {named})"
        )
    return (
        f"{one.kind}: topic {one.topic}, tier {one.tier}, window {moment(one.window_ms)}, "
        f"producer {one.producer} on {one.host}: {one.count} records{f' (numbers {named})' if named else ''}"
    )


def by_window(findings: Iterable[Finding]) -> dict[tuple[str, int], list[Finding]]:
    """Return findings by topic and window."""
    at: dict[tuple[str, int], list[Finding]] = {}
    for finding in findings:
        at.setdefault((finding.topic, finding.window_ms), []).append(finding)
    return at


def tier_state(here: Collection[Finding], row: WindowRow, tier: Tier) -> str:
    """Return how complete a window is at a tier: lost, pending, unknown, doubled or complete.

    Args:
        here: the findings of this topic and window.
        row: the window.
        tier: which.
    """
    if any(one.tier is tier and one.kind in ("lost", "altered") for one in here):
        return "lost"
    if tier in row.pending:
        return "pending"
    if any(one.kind == "unknown" for one in here):
        return "unknown"
    return "doubled" if row.doubled.get(tier) else "complete"


def worst(states: Iterable[str]) -> str:
    """Return the worst of several states of `tier_state`."""
    kept = set(states)
    return next((state for state in ("lost", "unknown", "pending", "doubled") if state in kept), "complete")


def _state_of(at: Mapping[tuple[str, int], Collection[Finding]], topic: str, row: WindowRow) -> str:
    here = at.get((topic, row.window_ms), ())
    return worst(tier_state(here, row, tier) for tier in row.arrived)
