"""Models of the pages about what comes after the brokers: the mirror, the lake, and where one record went.

Values in, plain data out.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from pylog.audit.render import moment
from pylog.audit.reports import Tier
from pylog.client.admin.cluster import OffsetRange
from pylog.client.rows import Row
from pylog.console.counts import Look
from pylog.console.pipeline import CommitFacts, LakeFacts, MirrorFacts
from pylog.console.readings import Reading
from pylog.console.records import Found
from pylog.console.screens import command, missing
from pylog.ingest.lake import Kind
from pylog.ingest.plan import Position
from pylog.ingest.status import topic_rows
from pylog.model import Offset, TopicPartition

LATE_S = 300.0
"""From which age on a tier is called late."""

SHOWN_COMMITS = 50
"""Commits that a page lists."""


def mirror(
    found: Mapping[str, Reading[list[MirrorFacts]]], look: Look | None, visible: Collection[str] | None, now_ms: int
) -> Row:
    """Return the mirrors of each cluster, and up to when each topic has arrived.

    Args:
        found: mirrors by the address of the cluster that they write to.
        look: what the reports of the audit say; None before the first reading.
        visible: topics that the person may see; None for all.
        now_ms: the time.
    """
    topics = _fresh(look, Tier.MIRROR, visible, now_ms)
    mirrors: list[Row] = [
        {"target": target, "source": one.source, "parked": one.parked}
        for target, reading in found.items()
        for one in reading.value or ()
    ]
    parked = sum(one["parked"] for one in mirrors)
    words = _freshness(topics, "the mirror")
    if parked:
        words += f" {parked:,} records were refused by the target, and wait in a topic of their own."
    return {
        "verdict": "warn" if parked and _verdict(topics) == "healthy" else _verdict(topics),
        "sentence": words,
        "mirrors": mirrors,
        "topics": topics,
        "unknown": _unread(look) + missing(**{f"mirrors that write to {name}": one for name, one in found.items()}),
    }


def lake(
    directory: Path | None,
    found: Reading[LakeFacts] | None,
    look: Look | None,
    visible: Collection[str] | None,
    now_ms: int,
) -> Row:
    """Return how fresh the lake is, its newest commits, and what did not decode.

    Args:
        directory: of the lake; None if the console sees none.
        found: what the lake says; None if the console sees none.
        look: what the reports of the audit say; None before the first reading.
        visible: topics that the person may see; None for all.
        now_ms: the time.
    """
    fresh = _fresh(look, Tier.LAKE, visible, now_ms)
    model: Row = {
        "directory": None if directory is None else str(directory),
        "fresh": fresh,
        "id": None,
        "commit": None,
        "loaded_at_ms": None,
        "topics": [],
        "commits": [],
        "verdict": _verdict(fresh),
        "sentence": _freshness(fresh, "the lake"),
        "unknown": _unread(look),
    }
    if found is None:
        return model
    model["unknown"] += missing(lake=found)
    facts = found.value
    if facts is None:
        return model
    rows = [row for row in topic_rows(facts.state, facts.status) if visible is None or row["topic"] in visible]
    loads = [one for one in facts.commits if one.body["kind"] == Kind.LOAD]
    stopped = [row["topic"] for row in rows if row["stopped"]]
    dead = sum(row["dead_batches"] for row in rows)
    said = [f"The last load was commit {loads[0].body['number']:,}, {_ago(loads[0].at_ms, now_ms)}."] if loads else []
    if stopped:
        said.append(f"Not loaded, because its load stopped: {', '.join(stopped)}.")
    if dead:
        said.append(f"{dead:,} {'batch' if dead == 1 else 'batches'} did not decode.")
    model |= {
        "id": facts.id,
        "commit": facts.state.number,
        "loaded_at_ms": facts.status.at_ms or None,
        "topics": rows,
        "commits": [_commit_row(one, visible) for one in facts.commits[:SHOWN_COMMITS]],
        "sentence": " ".join([model["sentence"], *said]),
    }
    if stopped:
        model["verdict"] = "unhealthy"
    elif dead and model["verdict"] == "healthy":
        model["verdict"] = "warn"
    return model


def went(
    place: TopicPartition,
    offset: Offset,
    held: OffsetRange | None,
    read: Found | None,
    topic_id: Reading[str],
    found: Reading[LakeFacts] | None,
    window_ms: int,
) -> Row:
    """Return where one record went, step by step.

    Args:
        place: its partition.
        offset: of the record.
        held: log start offset and end of the partition; None if nobody can say.
        read: what reading this offset alone brought; None if the person may not read, or nobody could.
        topic_id: of the topic.
        found: what the lake says; None if the console sees none.
        window_ms: length of the audit's windows.
    """
    steps = [{"step": "Log", **_in_log(offset, held, read)}]
    if found is not None:
        steps.append({"step": "Lake", **_in_lake(place, offset, topic_id.value, found.value)})
    at_ms = read.records[0].timestamp_ms if read and read.records else -1
    timestamp_ms = at_ms if at_ms >= 0 else None
    window = None if timestamp_ms is None else moment(timestamp_ms - timestamp_ms % window_ms)
    return {
        "topic": place.topic,
        "partition": place.partition,
        "offset": offset,
        "timestamp_ms": timestamp_ms,
        "window": window,
        "steps": steps,
        "unknown": missing(topic_id=topic_id, **({} if found is None else {"lake": found})),
    }


def _in_log(offset: Offset, held: OffsetRange | None, read: Found | None) -> Row:
    if held is None:
        return {"state": "unknown", "words": "Nobody can say what the partition holds."}
    if offset >= held.end:
        return {"state": "waiting", "words": f"Not written yet: the partition ends before offset {held.end:,}."}
    if offset < held.start:
        words = f"Deleted by retention or by request: the partition begins at offset {held.start:,}."
        return {"state": "gone", "words": words}
    if read is None:
        words = (
            "The partition's offsets reach over it. Whether compaction has deleted the record, only reading it tells."
        )
        return {"state": "unknown", "words": words}
    if read.open_at:
        words = f"Not committed yet: an open transaction begins at offset {min(read.open_at.values()):,}."
        return {"state": "waiting", "words": words}
    if not read.records:
        words = (
            "No record is there: compaction deleted it, its transaction was aborted, or it is a transaction's marker."
        )
        return {"state": "gone", "words": words}
    return {"state": "there", "words": f"Held: {held.end - offset - 1:,} offsets were written after it."}


def _in_lake(place: TopicPartition, offset: Offset, topic_id: str | None, facts: LakeFacts | None) -> Row:
    if facts is None or topic_id is None:
        return {"state": "unknown", "words": "Not known at the moment."}
    position = facts.state.position
    if place.topic not in position.topic_ids:
        return {"state": "absent", "words": "The lake does not load this topic."}
    if position.topic_ids[place.topic] != topic_id:
        words = (
            "The lake is loaded from another cluster, where the record has another offset. "
            "Whether all records of its window arrived there, the window's page says."
        )
        return {"state": "elsewhere", "words": words}
    loaded = position.offsets.get(place, 0)
    if offset >= loaded:
        words = f"Not loaded yet: the lake has this partition up to before offset {loaded:,}."
        return {"state": "waiting", "words": words}
    return {"state": "there", "words": _loaded_by(place, offset, facts.commits)}


def _loaded_by(place: TopicPartition, offset: Offset, commits: Sequence[CommitFacts]) -> str:
    """Return which of *commits*, the newest first, was the first whose position is beyond *offset*."""
    first: CommitFacts | None = None
    before = False
    for one in commits:
        if one.body["kind"] != Kind.LOAD:
            continue
        if Position.from_json(one.body["position"]).offsets.get(place, 0) <= offset:
            before = True
            break
        first = one
    if first is None or not before:
        oldest = f"commit {commits[-1].body['number']:,}" if commits else "the commits that are still kept"
        return f"Loaded with or before {oldest}, the oldest that this page reads."
    files = [file["path"] for file in first.body["files"] if f"/topic={place.topic}/" in f"/{file['path']}"]
    named = f" Its files of the topic: {', '.join(files[:5])}" if files else " It landed no file of the topic"
    more = f" and {len(files) - 5:,} more" if len(files) > 5 else ""
    return f"Loaded with commit {first.body['number']:,} at {moment(first.at_ms)}.{named}{more}."


def _commit_row(one: CommitFacts, visible: Collection[str] | None) -> Row:
    body = one.body
    files = [file for file in body["files"] if visible is None or _topic_of(file["path"]) in visible]
    dead = [file for file in body["dead_letters"] if visible is None or _topic_of(file["path"]) in visible]
    return {
        "number": body["number"],
        "kind": body["kind"],
        "at_ms": one.at_ms,
        "records": sum(file["rows"] for file in files),
        "files": len(files),
        "size_bytes": sum(file["size_bytes"] for file in files),
        "dead_batches": sum(file["rows"] for file in dead),
        "replaced_files": len(body["replaces"]),
        "topics": sorted({_topic_of(file["path"]) for file in [*files, *dead]}),
    }


def _topic_of(path: str) -> str:
    return next((part.removeprefix("topic=") for part in path.split("/") if part.startswith("topic=")), "")


def _fresh(look: Look | None, tier: Tier, visible: Collection[str] | None, now_ms: int) -> list[Row]:
    rows: list[Row] = [
        {
            "topic": topic,
            "complete_ms": tiers[tier] or None,
            "behind_s": max(0, now_ms - tiers[tier]) / 1000 if tiers[tier] else None,
        }
        for topic, tiers in (look.complete_ms if look else {}).items()
        if tier in tiers and (visible is None or topic in visible)
    ]
    for row in rows:
        row["is_late"] = row["behind_s"] is None or row["behind_s"] > LATE_S
    return sorted(rows, key=lambda row: (-(row["behind_s"] or float("inf")), row["topic"]))


def _verdict(topics: Sequence[Row]) -> str:
    if not topics:
        return "unknown"
    return "warn" if any(row["is_late"] for row in topics) else "healthy"


def _freshness(topics: Sequence[Row], where: str) -> str:
    if not topics:
        return f"Nobody counts what arrives in {where}, so nobody knows whether it is late."
    late = [row for row in topics if row["is_late"]]
    named = "1 topic" if len(topics) == 1 else f"{len(topics):,} topics"
    if not late:
        return (
            f"Everything of {named} has arrived in {where} up to {max(row['behind_s'] for row in topics):,.0f} s ago."
        )
    worst = late[0]
    since = f"since {moment(worst['complete_ms'])}" if worst["complete_ms"] else "so far"
    return f"{len(late):,} of {named} are late in {where}: not all of {worst['topic']} has arrived {since}."


def _unread(look: Look | None) -> list[Row]:
    if look is None or look.progress:
        reason = f"reports are being read: {look.progress}" if look else "reports are being read"
        return [{"what": "counts of the audit", "reason": reason, "since_ms": None, "shown_from_ms": None}]
    return missing(**{f"counts of {name}": one for name, one in look.readings.items()})


def _ago(at_ms: int, now_ms: int) -> str:
    return f"{max(0, now_ms - at_ms) / 1000:,.0f} s ago"


def lake_command(directory: Path | None) -> str:
    """Return the command that says what the page of the lake says."""
    return command("lake", "status", "LAKE" if directory is None else str(directory), "--format", "wide")
