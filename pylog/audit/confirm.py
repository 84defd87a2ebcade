"""Whether what is missing of a compacted topic was compacted away or lost: the log that it was written to knows."""

from collections.abc import Iterable
from dataclasses import replace

from pylog.audit.judge import MAX_NAMED_RANGES, Finding, Judgement, Kind
from pylog.audit.sequences import Sequences
from pylog.client.connection import Connection
from pylog.client.consumer import Consumer
from pylog.client.raw import topic_ids
from pylog.errors import PylogError
from pylog.model import OnProgress, TopicPartition, nobody

MAX_RECORDS = 100_000
"""Read for one finding: what is missing beyond is looked at once this much is mended."""


def confirm(judgement: Judgement, clusters: Iterable[Connection], on_progress: OnProgress = nobody) -> None:
    """Turn findings of compacted topics into losses where the record is still in the log that it was written to.

    A cluster that does not answer proves nothing, and the finding stays what it is.

    Args:
        judgement: its findings are replaced.
        clusters: where records may be.
        on_progress: told how many findings were looked at.
    """
    open_ = [one for one in judgement.findings if one.kind is Kind.COMPACTED and one.found_in is not None]
    if not open_:
        return
    homes: dict[str, Connection] = {}
    for cluster in clusters:
        try:
            names = sorted({one.topic for one in open_})
            homes |= dict.fromkeys(
                topic_ids(cluster.bootstrap, names, cluster.timeout_s, cluster.security()).values(), cluster
            )
        except PylogError:
            continue
    confirmed = {}
    for done, one in enumerate(open_, 1):
        if one.topic_id in homes:
            confirmed[one] = _confirmed(one, homes[one.topic_id])
        on_progress(done, len(open_))
    judgement.findings = sorted(confirmed.get(one, one) for one in judgement.findings)


def _confirmed(finding: Finding, home: Connection) -> Finding:
    try:
        held = _held(finding, home)
    except PylogError:
        return finding
    if not len(held):
        return finding
    named = tuple(one for one, _ in zip(held.ranges(), range(MAX_NAMED_RANGES), strict=False))
    return replace(finding, kind=Kind.LOST, count=len(held), ranges=named)


def _held(finding: Finding, home: Connection) -> Sequences:
    """Return those of a finding's named offsets that are in the log."""
    missing, found, read = Sequences(finding.ranges), Sequences(), 0
    with Consumer(home) as consumer:
        consumer.assign({TopicPartition(finding.topic, finding.partition): next(missing.ranges())[0]})
        for record in consumer.records_to_end():
            read += 1
            if record.offset > missing.last or read > MAX_RECORDS:
                break
            if record.offset in missing:
                found.add(record.offset)
    return found
