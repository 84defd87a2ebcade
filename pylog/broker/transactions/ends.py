"""Writing the end of a transaction to the partitions led here."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence

from pylog.broker.data.acks import Acknowledgements
from pylog.broker.data.partitions import Appended, Partition, Partitions
from pylog.broker.groups.coordinator import GroupCoordinator
from pylog.errors import ApiError, ErrorCode, StorageError
from pylog.group import records as group_records
from pylog.log.replay import last_marker
from pylog.model import Key
from pylog.wire import records
from pylog.wire.internal import MarkerWish
from pylog.wire.markers import Marker, encode_marker

_logger = logging.getLogger(__name__)

MARKER_TIMEOUT_MS = 5_000
"""How long the in-sync replicas may take to replicate a marker before its coordinator sends it again.

Well below the time in which the answer to a request must have come, see `pylog.broker.transactions.markers.TIMEOUT_S`.
"""


class TransactionEnds:
    """See the module."""

    def __init__(
        self,
        partitions: Partitions,
        groups: GroupCoordinator,
        acknowledgements: Acknowledgements,
        wall_ms: Callable[[], int],
    ) -> None:
        """Make it; *groups* has the offsets that transactions commit."""
        self._partitions = partitions
        self._groups = groups
        self._acknowledgements = acknowledgements
        self._wall_ms = wall_ms
        self._searching = asyncio.Lock()

    async def write(self, wishes: Sequence[MarkerWish]) -> list[ErrorCode]:
        """Write markers; return for each, in order, NONE once every in-sync replica has it, or why that is not certain.

        All are appended before anything is waited for: a marker that comes later from the same coordinator is later in
        the log.  All wait at the same time: however many partitions are stuck, the others' answers come in time.
        Offsets that a transaction commits count before the answer.
        """
        appended: list[Appended | ErrorCode | None] = [
            None if wish.is_restored else self._append(wish) for wish in wishes
        ]
        waits: list[Coroutine[None, None, ErrorCode]] = []
        for wish, one in zip(wishes, appended, strict=True):
            if one is None:
                waits.append(self._write_restored(wish))
            elif isinstance(one, Appended):
                waits.append(self._wait(wish, one))
        waited = iter(await asyncio.gather(*waits))
        return [one if isinstance(one, ErrorCode) else next(waited) for one in appended]

    async def _write_restored(self, wish: MarkerWish) -> ErrorCode:
        """Write a marker where a later transaction of its producer may be open, which nobody has decided: abort that.

        The producer has another id after this transaction, so none begins while the log is searched.
        """
        async with self._searching:  # when it is sent again meanwhile, the first search is the only one
            try:
                wish = await self._for_what_is_open(wish)
            except (ApiError, StorageError) as error:
                _logger.warning("marker not written topic_id=%s-%d reason=%s", wish.topic_id, wish.partition, error)
                return ErrorCode.KAFKA_STORAGE_ERROR
            appended = self._append(wish)
        return await self._wait(wish, appended) if isinstance(appended, Appended) else appended

    async def _for_what_is_open(self, wish: MarkerWish) -> MarkerWish:
        """Return *wish*, or the end of a later transaction of its producer, if that is open.

        Raises:
            ApiError: OutOfDescriptors.
            StorageError: the log cannot be read.
        """
        topic = self._partitions.image.topic_by_id(wish.topic_id)
        partition = None if topic is None else self._partitions.get(topic.name, wish.partition)
        log = None if partition is None else partition.log
        if log is None or log.producers.transactions is None:
            return wish
        epoch = log.producers.progress(wish.producer_id).epoch
        first_offset = log.producers.transactions.first_offset(wish.producer_id)
        if first_offset is None or epoch < wish.producer_epoch:
            return wish
        if epoch == wish.producer_epoch:
            segments = list(log.segments)
            for segment in segments:
                segment.acquire()
            try:
                marker = await asyncio.to_thread(last_marker, segments, wish.producer_id, first_offset)
            finally:
                for segment in segments:
                    segment.release()
            if marker is None or marker.decided_ms != wish.decided_ms:
                return wish
        message = "a transaction that a restoration lost is aborted topic_id=%s partition=%d producer=%d epoch=%d"
        _logger.warning(message, wish.topic_id, wish.partition, wish.producer_id, epoch)
        return wish._replace(producer_epoch=epoch, is_commit=False)

    def _append(self, wish: MarkerWish) -> Appended | ErrorCode:
        """Append one marker; return what to wait for, NONE if nothing, or why it is not written."""
        topic = self._partitions.image.topic_by_id(wish.topic_id)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            partition, log = self._partitions.leader(topic.name, wish.partition)
            if partition.leader_epoch != wish.leader_epoch:
                # Sent under another leader epoch, perhaps long ago: who sent it may have been answered by another
                # leader since, and the producer may have begun its next transaction.
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
            is_group = topic.name == group_records.TOPIC
            if is_group and not self._groups.is_loaded(wish.partition):
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
            progress = log.producers.progress(wish.producer_id)
            if wish.has_own_epoch and progress.is_open and progress.epoch == wish.producer_epoch:
                # The producer's next transaction: the one that is meant has its marker already.
                message = f"producer {wish.producer_id} began its next transaction under epoch {progress.epoch}"
                raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, message)
            marker = Marker(wish.is_commit, wish.coordinator_epoch, wish.decided_ms)
            now_ms = self._wall_ms()
            batch = memoryview(bytearray(encode_marker(wish.producer_id, wish.producer_epoch, marker, now_ms)))
            header = records.parse_header(batch)
            _, wait = self._partitions.append(partition, log, batch, header, now_ms, -1, marker)
        except ApiError as error:
            if error.code is ErrorCode.INVALID_PRODUCER_EPOCH and not log.producers.progress(wish.producer_id).is_open:
                # Nothing is left to end, and a later epoch is fenced off already: a coordinator that waited for the
                # partition would wait for ever.
                is_replicated = log.high_watermark >= log.log_end_offset
                end = Appended(partition, log.log_end_offset - 1, partition.leader_epoch)
                return ErrorCode.NONE if is_replicated else end
            _logger.info("marker not written partition=%s-%d reason=%s", topic.name, wish.partition, error)
            return error.code
        except StorageError as error:
            _logger.error("marker not written partition=%s-%d reason=%s", topic.name, wish.partition, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        if is_group:
            self._groups.end_transaction(wish.partition, wish.producer_id, is_commit=wish.is_commit, wait=wait)
        return ErrorCode.NONE if wait is None else wait

    async def _wait(self, wish: MarkerWish, appended: Appended) -> ErrorCode:
        partition: Partition = appended.partition
        key: Key = partition.key
        code = await self._acknowledgements.wait_for(key, appended, MARKER_TIMEOUT_MS)
        if code is ErrorCode.NONE and key[0] == group_records.TOPIC:
            self._groups.marker_replicated(wish.partition, appended)
        return code
