"""The model of each page, from facts: plain data, which the page shows and its twin under /api answers.

Every model has `unknown`: what the page does not know, why, and since when.  No clock and no socket.
"""

import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, TypeVar

from pylog.client.admin.cluster import ClusterView, ConfigValue, OffsetRange, TopicView
from pylog.client.admin.configs import Setting
from pylog.client.admin.disks import BrokerDisks
from pylog.client.admin.groups import GroupListing, GroupView, Progress
from pylog.client.admin.health import Problem, Wanted, judge
from pylog.client.admin.lag import Status
from pylog.client.admin.reassignment import Reassignment
from pylog.client.commits import Verdict
from pylog.client.rows import Row, broker_row, group_data, health_data, topic_data, topic_row
from pylog.console.readings import Reading
from pylog.console.why import ReplicaFacts, explain
from pylog.errors import ApiError, ErrorCode
from pylog.model import NodeAddress, TopicPartition
from pylog.probe.lag import LagReport

PAGE_ROWS = 100
"""Rows of one page of a list."""

MAX_PROBLEMS = 100
"""Problems that the overview lists; it counts them all."""

DISK_FULL_RATIO = 0.85
"""Used share of a file system from which on the overview names it."""

_Labels = TypeVar("_Labels", bound=tuple[Any, ...])
_EMPTY = ClusterView("", -1, (), {})
_STATUSES = list(Status)

_ORDER = ("no_leader", "no_controller", "broker_missing", "broker_silent", "disk_full", "not_in_sync")
"""Kinds of problems, the most urgent first."""

_PHRASES = {
    "no_leader": ("{n} of {total} has no leader", "{n} of {total} have no leader"),
    "no_controller": ("there is no controller", "there is no controller"),
    "broker_missing": ("a broker is missing", "{n} brokers are missing"),
    "broker_silent": ("{first} does not answer", "{n} brokers do not answer"),
    "disk_full": ("the disk of {first} is nearly full", "the disks of {n} brokers are nearly full"),
    "not_in_sync": ("{n} of {total} is not in sync", "{n} of {total} are not in sync"),
}


def missing(**readings: Reading[Any]) -> list[Row]:
    """Return what the page does not know: a row for each reading whose last attempt failed."""
    return [
        {
            "what": name.replace("_", " "),
            "reason": reading.error,
            "since_ms": reading.unknown_since_ms,
            "shown_from_ms": reading.read_ms,
        }
        for name, reading in readings.items()
        if reading.error
    ]


def problems_of(view: ClusterView, answering: Set[int], disks: Mapping[int, BrokerDisks]) -> list[Problem]:
    """Return everything that is wrong, the most urgent first."""
    found = judge(view, answering, Wanted())
    for broker, one in disks.items():
        for directory in one.dirs:
            if (used := _used_ratio(directory.total_bytes, directory.usable_bytes)) >= DISK_FULL_RATIO:
                detail = f"{directory.path}: {used:.0%} of the file system is used"
                found.append(Problem("disk_full", f"broker {broker}", detail))
    places = {kind: place for place, kind in enumerate(_ORDER)}
    return sorted(found, key=lambda one: places.get(one.kind, len(places)))


def overview(
    view: Reading[ClusterView],
    answering: Reading[set[int]],
    disks: Reading[dict[int, BrokerDisks]],
    groups: Reading[list[GroupListing]],
    first_seen_ms: Mapping[Problem, int],
    problems: Sequence[Problem],
    completeness: Row,
    *,
    is_all: bool = True,
) -> Row:
    """Return the verdict in one sentence, and its reasons.

    Args:
        view: brokers and topics.
        answering: ids of brokers that answer themselves.
        disks: what the brokers said of their disks.
        groups: of all brokers.
        first_seen_ms: since when a problem is known here.
        problems: of `problems_of`.
        completeness: verdict and sentence of the latest windows.
        is_all: whether the person sees all topics; somebody who logged in need not.
    """
    known = view.value or _EMPTY
    partitions = {
        str(TopicPartition(topic.name, one.partition)): TopicPartition(topic.name, one.partition)
        for topic in known.topics.values()
        for one in topic.partitions
    }
    verdict, sentence = _verdict(view, answering, problems, "" if is_all else " that you may see")
    rows = [
        {
            "kind": one.kind,
            "subject": one.subject,
            "detail": one.detail,
            "seen_since_ms": first_seen_ms.get(one),
            "topic": (at := partitions.get(one.subject)) and at.topic,
            "partition": at and at.partition,
        }
        for one in problems[:MAX_PROBLEMS]
    ]
    return {
        **health_data(known, problems),
        "verdict": verdict,
        "sentence": sentence,
        "completeness": completeness,
        "problems": rows,
        "problem_count": len(problems),
        "group_count": None if groups.value is None else len(groups.value),
        "unknown": missing(cluster=view, answers_of_brokers=answering, disks=disks, groups=groups),
    }


def _verdict(
    view: Reading[ClusterView], answering: Reading[set[int]], problems: Sequence[Problem], which: str
) -> tuple[str, str]:
    if view.value is None:
        return "unknown", f"Unknown: {view.error}."
    known = view.value
    total = sum(len(topic.partitions) for topic in known.topics.values())
    if problems:
        said = _said(problems, f"{total} partitions{which}")
        state, sentence = "unhealthy", f"{said[0].upper()}{said[1:]}."
    else:
        brokers = "1 broker answers" if len(known.brokers) == 1 else f"all {len(known.brokers)} brokers answer"
        state, sentence = "healthy", f"Healthy: {brokers}, and {_all(total, which)} led and in sync."
    if view.error or answering.error:
        return "unknown", f"Unknown: {view.error or answering.error}. The last complete answer was: {sentence}"
    return state, sentence


def _all(total: int, which: str) -> str:
    few = {0: f"there is no partition{which} to be", 1: f"the only partition{which} is"}
    return few.get(total, f"all {total} partitions{which} are")


def _said(problems: Sequence[Problem], total: str) -> str:
    first: dict[str, str] = {}
    for one in problems:
        first.setdefault(one.kind, one.subject)
    counts = Counter(one.kind for one in problems)
    return "; ".join(
        _PHRASES[kind][counts[kind] > 1].format(n=counts[kind], total=total, first=first[kind])
        for kind in first
        if kind in _PHRASES
    )


def topics(view: Reading[ClusterView], disks: Reading[dict[int, BrokerDisks]], query: str, page: int) -> Row:
    """Return one page of the topics whose names contain *query*, with the bytes of all their replicas.

    Args:
        view: brokers and topics.
        disks: what the brokers said of their disks.
        query: part of the name; empty for all.
        page: from 1.
    """
    known = view.value or _EMPTY
    found = [topic for name, topic in known.topics.items() if query in name]
    sizes = _topic_sizes(disks.value or {})
    rows, pages = paged(found, page)
    return {
        "query": query,
        "total": len(found),
        **pages,
        "topics": [topic_row(topic) | {"size_bytes": sizes.get(topic.name)} for topic in rows],
        "unknown": missing(cluster=view, sizes=disks) + _silent_disks(disks),
    }


def topic(
    found: TopicView,
    offsets: Reading[dict[TopicPartition, OffsetRange]],
    settings: Reading[list[Setting]],
    disks: Reading[dict[int, BrokerDisks]],
) -> Row:
    """Return one topic: partitions with offsets and sizes, and its settings with their sources."""
    data = topic_data(found, offsets.value or {}, _config(settings))
    sizes = _replica_sizes(disks.value or {})
    for row, partition in zip(data["partitions"], found.partitions, strict=True):
        place = TopicPartition(found.name, partition.partition)
        row["size_bytes"] = sizes.get((place, partition.leader))
        row["is_in_sync"] = partition.is_in_sync
    data["settings"] = [
        {"name": one.name, "value": one.value, "source": one.source, "is_own": one.name in data["own_config"]}
        for one in settings.value or []
    ]
    data["unknown"] = missing(offsets=offsets, settings=settings, sizes=disks) + _silent_disks(disks)
    return data


def partition(
    found: TopicView,
    number: int,
    view: Reading[ClusterView],
    answering: Reading[set[int]],
    disks: Reading[dict[int, BrokerDisks]],
    moves: Reading[dict[TopicPartition, Reassignment]],
    offsets: Reading[dict[TopicPartition, OffsetRange]],
    settings: Reading[list[Setting]],
) -> Row:
    """Return why one partition is not in sync, in words, and what holds for each replica."""
    one = next(row for row in found.partitions if row.partition == number)
    place = TopicPartition(found.name, number)
    known = view.value or _EMPTY
    move = (moves.value or {}).get(place)
    min_isr = _config(settings).get("min.insync.replicas", ConfigValue(None, False)).value or ""
    said = {broker: answer for broker, answer in (disks.value or {}).items() if answer.error is None}
    facts = ReplicaFacts(
        registered={broker.node_id for broker in known.brokers},
        answering=answering.value,
        adding=frozenset(move.adding) if move else frozenset(),
        replicas={broker: answer.replica(place) for broker, answer in said.items()},
        min_isr=int(min_isr) if min_isr.isdecimal() else None,
    )
    held = (offsets.value or {}).get(place)
    return {
        "topic": found.name,
        "partition": number,
        "leader": one.leader if one.has_leader else None,
        "isr": list(one.isr),
        "start_offset": held and held.start,
        "end_offset": held and held.end,
        **explain(one, facts),
        "unknown": missing(
            cluster=view,
            answers_of_brokers=answering,
            disks=disks,
            reassignments=moves,
            offsets=offsets,
            settings=settings,
        )
        + _silent_disks(disks),
    }


def groups(listed: Reading[list[GroupListing]], lags: Reading[LagReport], query: str, page: int) -> Row:
    """Return one page of groups whose ids contain *query*, those that are worst first.

    Args:
        listed: the groups that the person may see.
        lags: what is known of the lag of all groups.
        query: part of the id; empty for all.
        page: from 1.
    """
    report = lags.value
    by_group: dict[str, list[Row]] = {}
    for row in _lag_rows(report):
        by_group.setdefault(row["group"], []).append(row)
    found: list[Row] = []
    for one in listed.value or []:
        if query not in one.group_id:
            continue
        rows = by_group.get(one.group_id, [])
        members = None if report is None else report.members.get((one.group_id,))
        found.append(
            {
                "group": one.group_id,
                "state": one.state,
                "members": None if members is None else int(members),
                "lag": sum(row["lag"] for row in rows) if rows else None,
                "seconds_behind": max((row["seconds_behind"] for row in rows), default=None),
                "status": _worst(row["status"] for row in rows),
            }
        )
    found.sort(key=lambda row: (-_severity(row["status"]), -(row["seconds_behind"] or 0), row["group"]))
    shown, pages = paged(found, page)
    return {
        "query": query,
        "total": len(found),
        **pages,
        "groups": shown,
        "unknown": missing(groups=listed, lag_of_all_groups=lags),
    }


def seen_lags(lags: Reading[LagReport], topics: Collection[str] | None) -> Reading[LagReport]:
    """Return what is known of lag without topics that the person may not see; *topics* None is for all.

    The console asks for lag as its own user, which sees all topics; who sees a group need not see what it reads.
    """
    report = lags.value
    if report is None or topics is None:
        return lags

    def of(samples: Mapping[_Labels, float]) -> dict[_Labels, float]:
        return {labels: value for labels, value in samples.items() if labels[1] in topics}

    return replace(
        lags,
        value=replace(
            report,
            records=of(report.records),
            seconds=of(report.seconds),
            status=of(report.status),
            stuck=of(report.stuck),
        ),
    )


def group(
    view: GroupView,
    progress: Reading[dict[TopicPartition, Progress]],
    verdicts: Reading[dict[TopicPartition, Verdict]],
    lags: Reading[LagReport],
    now_ms: int,
) -> Row:
    """Return one group: verdict, how far behind, and who reads what."""
    data = group_data(view, progress.value or {}, verdicts.value or {}, now_ms)
    rows = [row for row in _lag_rows(lags.value) if row["group"] == view.group_id]
    data["topics"] = rows
    data["seconds_behind"] = max((row["seconds_behind"] for row in rows), default=None)
    data["status"] = data["status"] or _worst(row["status"] for row in rows)
    data["sentence"] = _group_sentence(data)
    data["unknown"] = missing(offsets=progress, status_of_partitions=verdicts, lag_of_all_groups=lags)
    return data


_MEANINGS = {
    Status.OK: "It keeps up, or is about to.",
    Status.WARN: "It reads, but its lag did not become smaller over its last commits.",
    Status.STALL: "It commits the same offset again and again, although there is something to read.",
    Status.STOP: "It commits no longer, although there is something to read.",
}


def _group_sentence(data: Row) -> str:
    if data["status"] is None:
        return "Whether it keeps up is not known." if data["lag"] else "It has committed no offset."
    behind = ""
    if data["lag"]:
        behind = f" {data['lag']:,} records are left to read"
        seconds = data["seconds_behind"]
        behind += f"; the oldest has waited for {seconds:,.0f} s." if seconds else "."
    empty = " It has no members." if not data["members"] else ""
    return f"{data['status']}: {_MEANINGS[Status(data['status'])]}{behind}{empty}"


def brokers(view: Reading[ClusterView], answering: Reading[set[int]], disks: Reading[dict[int, BrokerDisks]]) -> Row:
    """Return the brokers with what they lead and hold, and how full their disks are."""
    known = view.value or _EMPTY
    rows = []
    for broker in known.brokers:
        said = (disks.value or {}).get(broker.node_id)
        rows.append(
            {
                **broker_row(broker, known),
                "answers": None if answering.value is None else broker.node_id in answering.value,
                "dirs": [_dir_row(broker, one) for one in (said.dirs if said else ())],
            }
        )
    return {
        "cluster_id": known.cluster_id,
        "controller_id": known.controller_id,
        "brokers": rows,
        "unknown": missing(cluster=view, answers_of_brokers=answering, disks=disks) + _silent_disks(disks),
    }


def _dir_row(broker: NodeAddress, one: Any) -> Row:  # noqa: ANN401  # a LogDir
    is_known = one.total_bytes > 0
    return {
        "broker": broker.node_id,
        "path": one.path,
        "total_bytes": one.total_bytes if is_known else None,
        "usable_bytes": one.usable_bytes if is_known else None,
        "used_ratio": round(_used_ratio(one.total_bytes, one.usable_bytes), 4) if is_known else None,
        "replica_count": len(one.replicas),
        "size_bytes": sum(row.size_bytes for row in one.replicas.values()),
    }


def moves(
    reading: Reading[dict[TopicPartition, Reassignment]],
    disks: Reading[dict[int, BrokerDisks]],
    topics: Mapping[str, TopicView],
) -> Row:
    """Return the partitions of *topics* that are being moved, and how far each new replica is.

    Args:
        reading: all that is on the move.
        disks: what the brokers said of their disks.
        topics: those that the person may see.
    """
    sizes = _replica_sizes(disks.value or {})
    shown = {place: one for place, one in sorted((reading.value or {}).items()) if place.topic in topics}
    rows: list[Row] = []
    for place, one in list(shown.items())[:MAX_PROBLEMS]:
        leader = next((p.leader for p in topics[place.topic].partitions if p.partition == place.partition), None)
        rows.append(
            {
                "topic": place.topic,
                "partition": place.partition,
                "target": list(one.target),
                "removing": list(one.removing),
                "size_bytes": sizes.get((place, leader)) if leader is not None else None,
                "adding": [{"broker": broker, "size_bytes": sizes.get((place, broker))} for broker in one.adding],
            }
        )
    return {"moves": rows, "move_count": len(shown)}


def topic_of(view: Reading[ClusterView], name: str) -> TopicView:
    """Return a topic that the person may see.

    Raises:
        ApiError: UNKNOWN_TOPIC_OR_PARTITION; also for one that the person may not see.
    """
    found = (view.value or _EMPTY).topics.get(name)
    if found is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
    return found


def command(*words: str) -> str:
    """Return a command line for a shell: what needs quotes has them."""
    return shlex.join(("pylog", *words))


def _config(settings: Reading[list[Setting]]) -> dict[str, ConfigValue]:
    return {one.name: ConfigValue(one.value, one.source == "topic") for one in settings.value or []}


def _used_ratio(total_bytes: int, usable_bytes: int) -> float:
    return 1 - usable_bytes / total_bytes if total_bytes > 0 else 0.0


def _silent_disks(disks: Reading[dict[int, BrokerDisks]]) -> list[Row]:
    return [
        {"what": f"disk of broker {broker}", "reason": str(one.error), "since_ms": None, "shown_from_ms": None}
        for broker, one in sorted((disks.value or {}).items())
        if one.error is not None
    ]


def _topic_sizes(disks: Mapping[int, BrokerDisks]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for (place, _), size_bytes in _replica_sizes(disks).items():
        sizes[place.topic] = sizes.get(place.topic, 0) + size_bytes
    return sizes


def _replica_sizes(disks: Mapping[int, BrokerDisks]) -> dict[tuple[TopicPartition, int], int]:
    return {
        (place, broker): row.size_bytes
        for broker, said in disks.items()
        for one in said.dirs
        for place, row in one.replicas.items()
    }


def _lag_rows(report: LagReport | None) -> list[Row]:
    if report is None:
        return []
    return [
        {
            "group": name,
            "topic": of_topic,
            "lag": int(report.records[name, of_topic]),
            "seconds_behind": seconds,
            "status": _STATUSES[int(report.status[name, of_topic])].value,
        }
        for (name, of_topic), seconds in report.seconds.items()
    ]


def _worst(statuses: Iterable[str]) -> str | None:
    return max(statuses, key=_severity, default=None)


def _severity(status: str | None) -> int:
    return -1 if status is None else _STATUSES.index(Status(status))


def paged(rows: Collection[Any], page: int) -> tuple[list[Any], Row]:
    """Return the rows of one page, and where it is among the others; a page beyond the last is the last."""
    pages = max(1, -(-len(rows) // PAGE_ROWS))
    number = min(max(1, page), pages)
    return list(rows)[(number - 1) * PAGE_ROWS : number * PAGE_ROWS], {"page": number, "pages": pages}
