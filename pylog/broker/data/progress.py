"""What a follower's fetch says of its log, taken in only once it is known to speak of ours."""

from pylog.broker.data.partitions import Partition, Partitions
from pylog.log.log import Log
from pylog.replica.divergence import diverging_epoch, is_unproven
from pylog.replica.leader import Alive
from pylog.wire.fetch import FetchPartition, FetchRequest


class FollowerFetches:
    """How far followers are in the partitions led here; what one fetches from is what it has."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def note(self, request: FetchRequest, now_ms: int, alive: Alive | None = None) -> None:
        """Take in the partitions that *request* names; *alive* stands for the later requests of its connection."""
        registered = self._partitions.image.brokers.get(request.replica_id)
        if registered is not None and 0 <= request.broker_epoch < registered.epoch:
            return  # of a process that another one has replaced
        if alive is not None:
            alive.heard(now_ms)
        for part in request.partitions:
            partition = self._partitions.get(part.topic, part.partition)
            if partition is None or partition.leading is None or partition.log is None:
                continue
            log = partition.log
            if part.topic_id != partition.topic_id.bytes and (part.topic_id or self._partitions.needs_topic_ids):
                continue  # it follows another topic of that name, or does not say which
            if part.topic_id and part.current_leader_epoch > partition.leader_epoch:
                self._partitions.suspend(partition, request.replica_id, part.current_leader_epoch)
                continue
            if part.current_leader_epoch != partition.leader_epoch or divergence(log, part):
                continue  # its log end says nothing about this epoch's log yet
            if must_begin_anew(request, part, partition, log):
                continue  # nor do records that may never have been in this log; the follower will begin anew
            if not log.log_start_offset <= part.fetch_offset <= log.log_end_offset:
                continue  # nor does one that this log does not have; the follower will begin anew
            if not partition.leading.is_replica(request.replica_id):
                continue
            follower = partition.leading.progress(request.replica_id)
            start_before = follower.log_start_offset
            partition.leading.fetched(
                request.replica_id,
                request.broker_epoch,
                part.fetch_offset,
                log.log_end_offset,
                now_ms,
                alive,
                log_start_offset=part.log_start_offset,
                takes_every_start=bool(part.topic_id),  # release 0.1.0 sends none
            )
            self._partitions.advance(partition)
            if follower.log_start_offset != start_before:
                self._partitions.on_follower_start(partition.key)


def divergence(log: Log, part: FetchPartition) -> tuple[int, int] | None:
    """Return (epoch, end offset) of our log if a follower's is not a prefix of it; see `diverging_epoch`."""
    if part.last_fetched_epoch < 0:
        return None
    return diverging_epoch(
        part.last_fetched_epoch, part.fetch_offset, *log.offset_for_leader_epoch(part.last_fetched_epoch)
    )


def must_begin_anew(request: FetchRequest, part: FetchPartition, partition: Partition, log: Log) -> bool:
    """Return whether a follower must begin anew although its offset is in our log; see `is_unproven`.

    A process whose fetch was counted in this leader epoch has shown since when its log is a copy of ours.
    """
    is_in_doubt = is_unproven(
        part.last_fetched_epoch, part.fetch_offset, part.log_start_offset, log.epochs.oldest, log.log_start_offset
    )
    if not is_in_doubt or partition.leading is None or not partition.leading.is_replica(request.replica_id):
        return is_in_doubt
    return not partition.leading.is_proven(request.replica_id, request.broker_epoch)
