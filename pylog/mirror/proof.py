"""Whether a group that moves skips anything, and what it reads again: by the records themselves, not by offsets."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b

from pylog.client.connection import Connection
from pylog.client.consumer import ConsumedRecord, Consumer
from pylog.errors import PylogError
from pylog.mirror.config import MirrorConfig
from pylog.mirror.move import Move, Way, wait_arrived
from pylog.model import Offset, OnProgress, TopicPartition, nobody


class NotArrived(PylogError):
    """The mirror did not bring everything in time, so there is nothing to compare."""

    fault = 212


@dataclass(frozen=True, slots=True)
class Proof:
    """One partition of a group that moves.

    Attributes:
        unread: records that the group has not read in the cluster that it leaves.
        reread: records that it reads in the other although it had read them, or reads twice.
        lost: records that it had not read and that the other does not have from there on.
    """

    unread: int
    reread: int
    lost: int


def prove(
    config: MirrorConfig, planned: Iterable[Move], way: Way, stall_s: float, on_progress: OnProgress = nobody
) -> dict[TopicPartition, Proof]:
    """Read what the group has not read, in both clusters, and compare.

    Args:
        config: the mirror's.
        planned: the group's moves.
        way: where it moves.
        stall_s: how long nothing may arrive of what is in the source now before the mirror counts as stuck.
        on_progress: told how many records were read in the one cluster, how many arrived, how many were read there.

    Raises:
        NotArrived: it is.
    """
    leaves, enters = way.ends(config)
    planned = list(planned)
    here = _tails(leaves.connection, {one.partition: one.left for one in planned}, on_progress)
    if way is Way.OVER and (missing := wait_arrived(config, stall_s, on_progress)):
        partition, count = max(missing.items(), key=lambda one: one[1])
        raise NotArrived(
            f"nothing arrived for {stall_s:g} s, and {sum(missing.values())} offsets of {len(missing)} partitions are "
            f"missing in {config.target.name}, {count} of them of {partition}"
        )
    starts = {one.partition: one.entered for one in planned if one.entered is not None}
    there = _tails(enters.connection, starts, on_progress)
    # Of a partition that is not there, everything that the group has not read would be lost.
    return {one.partition: compare(here[one.partition], there.get(one.partition, Counter())) for one in planned}


def compare(here: Counter[bytes], there: Counter[bytes]) -> Proof:
    """Return how two tails of one partition differ; each counts records by what they are."""
    return Proof(here.total(), (there - here).total(), (here - there).total())


def _tails(
    cluster: Connection, starts: dict[TopicPartition, Offset], on_progress: OnProgress
) -> dict[TopicPartition, Counter[bytes]]:
    found: dict[TopicPartition, Counter[bytes]] = {one: Counter() for one in starts}
    for record in _read(cluster, starts, on_progress):
        found[TopicPartition(record.topic, record.partition)][identity(record)] += 1
    return found


def _read(
    cluster: Connection, starts: dict[TopicPartition, Offset], on_progress: OnProgress
) -> Iterator[ConsumedRecord]:
    with Consumer(cluster) as consumer:
        consumer.assign(starts)
        yield from consumer.records_to_end(on_progress)


def identity(record: ConsumedRecord) -> bytes:
    """Return what a record and its copy have in common: key, value and time; the copy has one header more."""
    digest = blake2b(digest_size=16)
    for part in (record.key, record.value):
        digest.update(b"-" if part is None else b"%d:" % len(part))
        digest.update(part or b"")
    digest.update(b"%d" % record.timestamp_ms)
    return digest.digest()
