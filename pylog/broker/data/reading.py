"""What a fetch gets of each partition as of now: bytes, or why not.  Nothing here waits."""

import logging
from typing import NamedTuple
from uuid import UUID

from pylog.broker.data.partitions import Partition, Partitions
from pylog.broker.data.progress import divergence, must_begin_anew
from pylog.broker.data.throttles import Share, Throttles
from pylog.cluster.image import topic_id_text
from pylog.errors import ApiError, ErrorCode, StorageError
from pylog.log.log import Log
from pylog.log.segment import FileSlice
from pylog.model import Key
from pylog.replica.leader import Leader
from pylog.replica.selector import Candidate, nearer_replica
from pylog.security.authorizer import Subject
from pylog.wire.api.schema import NO_TOPIC_ID
from pylog.wire.fetch import FIRST_VERSION_BY_ID, READ_COMMITTED, FetchPartition, FetchRequest, FetchResult
from pylog.wire.internal import Beginning

_logger = logging.getLogger(__name__)

_NONE, _DENIED = ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED
_KNOWS_ZSTD = 10
"""First version of Fetch that came after zstd."""
_READS_FOLLOWERS = 11
"""First version whose consumers can be sent to another replica, and may be here because they were (KIP-392)."""

MAX_UNKNOWN_IDS = 1_000
"""How many topic ids that consumers asked for in vain are remembered, so that each is logged once."""


class Reading(NamedTuple):
    """What a request finds.

    Attributes:
        results: one for each of its partitions, in order.
        found_bytes: of records, with those found before.
        is_final: whether waiting cannot change it.
    """

    results: list[FetchResult[FileSlice]]
    found_bytes: int
    is_final: bool


def _is_denied(subject: Subject, topic: str) -> bool:
    # "" is a topic id that no topic has; an id is no secret, and the answer says so.
    return topic != "" and not subject.may_read(topic)


class Reader:
    """Reads for consumers and followers.

    Attributes:
        near: where consumers are sent to; None keeps them at the leader.
        max_bytes: most bytes of one reply.
    """

    def __init__(
        self, partitions: Partitions, throttles: Throttles, *, max_bytes: int, near: "NearReplicas | None" = None
    ) -> None:
        self._partitions = partitions
        self._throttles = throttles
        self.max_bytes = max_bytes
        self.near = near
        # Topic ids that followers asked for in vain, by follower and partition: each is logged once.
        self._mistaken: dict[tuple[int, Key], bytes] = {}
        self._unknown_ids: set[bytes] = set()

    def image_applied(self) -> None:
        """Drop what is kept of partitions that are not hosted any more."""
        hosted = self._partitions.get
        self._mistaken = {place: one for place, one in self._mistaken.items() if hosted(*place[1]) is not None}

    def read(
        self,
        request: FetchRequest,
        subject: Subject | None = None,
        partitions: list[FetchPartition] | None = None,
        found_before_bytes: int = 0,
    ) -> Reading:
        """Return what *request* finds now.

        Args:
            request: what is asked for.
            subject: what it may read is read; None may read everything.
            partitions: those of *request* to look at, None for all.
            found_before_bytes: in others of its partitions; they count for its limits.
        """
        if partitions is None:
            partitions = request.partitions
        if request.version >= FIRST_VERSION_BY_ID:
            self._find_names(partitions)
        budget = min(request.max_bytes, self.max_bytes)
        share = self._throttles.share() if request.replica_id >= 0 else None
        results: list[FetchResult[FileSlice]] = []
        found_bytes = found_before_bytes
        is_final = not request.partitions
        result: FetchResult[FileSlice]
        for part in partitions:
            if subject is not None and part.topic not in subject.readable and _is_denied(subject, part.topic):
                result = FetchResult(part.topic, part.partition, _DENIED, topic_id=part.topic_id)
            else:
                result = self.read_partition(request, part, budget - found_bytes, share, is_first=not found_bytes)
            results.append(result)
            found_bytes += result.records_bytes
            is_final = (
                is_final
                or result.error is not _NONE
                or result.diverging is not None
                or result.preferred_read_replica >= 0
            )
        if not is_final and request.replica_id >= 0 and self.near is not None:
            is_final = self._is_news(request.replica_id, results)
        return Reading(results, found_bytes, is_final)

    def beginning(self, topic_id: UUID, number: int, leader_epoch: int) -> Beginning:
        """Return what a follower takes over that begins anew.

        Raises:
            ApiError: this broker does not lead the partition under that epoch, or does not know its producers now.
        """
        topic = self._partitions.image.topic_by_id(topic_id)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id_text(topic_id)}")
        partition, log = self._partitions.leader(topic.name, number)
        check_leader_epoch(leader_epoch, partition.leader_epoch)
        if log.offline is not None or log.producers.unsure:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"the producers of {partition.key} are not known now")
        start = log.log_start_offset
        return Beginning(start, log.tombstones.offset, log.tombstones.last_pass(), log.producers.encode(start))

    def has_more(self, part: FetchPartition) -> bool:
        """Whether the log goes on behind what is asked for."""
        partition = self._partitions.get(part.topic, part.partition)
        return partition is not None and partition.log is not None and partition.log.log_end_offset > part.fetch_offset

    def told(self, replica_id: int, results: list[FetchResult[FileSlice]]) -> None:
        """Take note of what a follower is answered."""
        for result in results:
            leading = self._leading(result, replica_id)
            if leading is None:
                continue
            if self.near is not None:
                leading.progress(replica_id).high_watermark_told = result.high_watermark
            if result.records_bytes:
                key = (result.topic, result.partition)
                self._throttles.sent(key, result.records_bytes, is_awaited=leading.waits_for(replica_id))

    def _is_news(self, replica_id: int, results: list[FetchResult[FileSlice]]) -> bool:
        """Whether a follower does not know a high watermark yet, for which consumers wait there."""
        for result in results:
            leading = self._leading(result, replica_id)
            if leading is not None and leading.progress(replica_id).high_watermark_told < result.high_watermark:
                return True
        return False

    def _leading(self, result: FetchResult[FileSlice], replica_id: int) -> Leader | None:
        partition = self._partitions.get(result.topic, result.partition)
        leading = None if partition is None else partition.leading
        return leading if leading is not None and leading.is_replica(replica_id) else None

    def read_partition(
        self, request: FetchRequest, part: FetchPartition, budget: int, share: Share | None, *, is_first: bool
    ) -> FetchResult[FileSlice]:
        """Return what there is of one partition, at most *budget* bytes unless it *is_first* and its batch larger."""
        result: FetchResult[FileSlice] = FetchResult(part.topic, part.partition)
        try:
            is_follower = request.replica_id >= 0
            may_follow = request.version >= _READS_FOLLOWERS and not is_follower
            find = self._partitions.replica if may_follow else self._partitions.leader
            partition, log = find(part.topic, part.partition)
            if part.topic_id or (is_follower and self._partitions.needs_topic_ids):
                self._check_topic_id(request.replica_id, part, partition)
                result.topic_id = part.topic_id
            check_leader_epoch(part.current_leader_epoch, partition.leader_epoch)
            if request.version < _KNOWS_ZSTD and log.config.compression_type == "zstd":
                # Asked of the topic, not of its batches, as Apache Kafka does: nothing of the segment is read for it.
                raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"{part.topic} is kept in zstd; fetch by v10")
            result.high_watermark = result.last_stable_offset = log.high_watermark
            result.log_start_offset = log.log_start_offset
            if is_follower:
                if must_begin_anew(request, part, partition, log):
                    message = f"nothing shows that the follower's records before {part.fetch_offset} are the leader's"
                    raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
                result.diverging = divergence(log, part)
                if part.topic_id and log.tombstones.offset >= part.fetch_offset:
                    result.removed_tombstone = log.tombstones.offset
                    result.removing_pass = log.tombstones.last_pass(part.fetch_offset)
                if share is not None and not _is_out_of(share, request.replica_id, partition):
                    share = None
                if result.diverging is not None or (share is not None and share.left <= 0):
                    return result
            elif part.fetch_offset > log.log_end_offset:
                self._check_known_offset(part.fetch_offset, partition, log)
            elif self.near is not None and request.rack_id:
                result.preferred_read_replica = self.near.replica_for(request.rack_id, partition, part.fetch_offset)
                if result.preferred_read_replica >= 0:
                    return result
            upper_bound = log.log_end_offset if is_follower else log.high_watermark
            if log.producers.transactions is not None:
                result.last_stable_offset = log.last_stable_offset
                if request.isolation_level == READ_COMMITTED and not is_follower:
                    upper_bound, result.aborted = result.last_stable_offset, ()
            limit = min(part.max_bytes, budget)
            # The first batch of the first partition that has one goes whole, whatever the limits, so that no
            # consumer is stuck before a batch larger than its buffer (trap 26).
            is_whole = is_first
            if share is not None:
                limit = min(limit, share.left)
                is_whole |= limit > 0  # nor a follower before one larger than its share
            found = (
                log.read(part.fetch_offset, limit, upper_bound_offset=upper_bound, min_one_batch=is_whole)
                if is_whole or limit > 0
                else None
            )
            if found is not None:
                if result.aborted is not None:
                    result.aborted = log.aborted_transactions(part.fetch_offset, found)
                if share is not None:
                    share.left -= found.size_bytes
                result.records = found
                result.records_bytes = found.size_bytes
        except ApiError as error:
            result.error = error.code
            if request.version >= FIRST_VERSION_BY_ID:
                result.topic_id = part.topic_id
                result.error = self._fault_by_id(part, error.code)
        except StorageError as error:
            _logger.error("read failed partition=%s-%d reason=%s", part.topic, part.partition, error)
            result.error, result.topic_id = ErrorCode.KAFKA_STORAGE_ERROR, part.topic_id
            self._partitions.failed(part.topic, part.partition)
        return result

    def _find_names(self, parts: list[FetchPartition]) -> None:
        """Look up the names of topics that are known by id alone; "" stays where there is no such topic."""
        image = self._partitions.image
        for part in parts:
            if not part.topic:
                found = image.topic_by_id_bytes(part.topic_id)
                part.topic = "" if found is None else found.name

    def _fault_by_id(self, part: FetchPartition, code: ErrorCode) -> ErrorCode:
        """Return why a topic that is named by its id is not read: the id is unknown, or what was found by its name."""
        topic_id = UUID(bytes=part.topic_id)
        if self._partitions.image.topic_by_id(topic_id) is not None:
            return code
        if part.topic_id not in self._unknown_ids:
            if len(self._unknown_ids) >= MAX_UNKNOWN_IDS:
                self._unknown_ids.clear()
            self._unknown_ids.add(part.topic_id)  # the client asks again and again until it has new metadata
            _logger.warning("fetch refused reason=unknown topic id topic_id=%s", topic_id_text(topic_id))
        return ErrorCode.UNKNOWN_TOPIC_ID

    def _check_known_offset(self, offset: int, partition: Partition, log: Log) -> None:
        """Refuse an offset beyond the end of a log that may be behind; the client then asks the leader (trap 34).

        Raises:
            ApiError: OFFSET_NOT_AVAILABLE from a follower, NOT_LEADER_OR_FOLLOWER from a leader that is out of touch.
        """
        if partition.leading is None:
            message = f"offset {offset} is beyond {log.log_end_offset}, where this follower's log ends for now"
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, message)
        self._partitions.check_in_touch(partition, f"offset {offset} is beyond the log end {log.log_end_offset}")

    def _check_topic_id(self, replica_id: int, part: FetchPartition, partition: Partition) -> None:
        """Refuse a reader that means another topic of this name.

        Raises:
            ApiError: INCONSISTENT_TOPIC_ID if the topic that it means has another name, else UNKNOWN_TOPIC_ID: one of
                us has not heard yet that the topic was deleted and made again.
        """
        if part.topic_id == partition.topic_id.bytes:
            if self._mistaken:
                self._mistaken.pop((replica_id, partition.key), None)
            return
        if replica_id < 0:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"{partition.key} was made again")
        place = (replica_id, partition.key)
        meant = UUID(bytes=part.topic_id or NO_TOPIC_ID.bytes)
        message = f"{partition.key} has topic id {topic_id_text(partition.topic_id)}, not {topic_id_text(meant)}"
        if self._mistaken.get(place) != part.topic_id:
            self._mistaken[place] = part.topic_id  # it asks again and again until one of us has heard
            _logger.warning("fetch refused follower=%d reason=%s", replica_id, message)
        named = self._partitions.image.topic_by_id(meant)
        is_elsewhere = named is not None and named.name != part.topic
        raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID if is_elsewhere else ErrorCode.UNKNOWN_TOPIC_ID, message)


def _is_out_of(share: Share, replica_id: int, partition: Partition) -> bool:
    leading = partition.leading
    return leading is not None and share.covers(partition.key, is_awaited=leading.waits_for(replica_id))


class NearReplicas:
    """Which follower is nearer to a consumer than we, its partition's leader, are."""

    def __init__(self, broker_id: int, partitions: Partitions) -> None:
        self._broker_id = broker_id
        self._partitions = partitions

    def replica_for(self, rack: str, partition: Partition, fetch_offset: int) -> int:
        """Return the broker to read from, -1 for us."""
        leading, brokers = partition.leading, self._partitions.image.brokers
        if leading is None or self._broker_id not in brokers:
            return -1
        followers = (
            Candidate(one, brokers[one].rack, progress.log_start_offset, progress.log_end_offset)
            for one in leading.isr
            if one in brokers and leading.is_replica(one)
            for progress in (leading.progress(one),)
        )
        found = nearer_replica(rack, brokers[self._broker_id].rack, followers, fetch_offset)
        return -1 if found is None else found


def check_leader_epoch(claimed: int, actual: int) -> None:
    """Compare the leader epoch a client has in mind with ours; -1 means that it does not care (trap 32).

    Raises:
        ApiError: it is behind, or ahead of us.
    """
    if claimed == -1 or claimed == actual:
        return
    if claimed < actual:
        raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {claimed} is over, now {actual}")
    raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch {claimed} is not known here yet, now {actual}")
