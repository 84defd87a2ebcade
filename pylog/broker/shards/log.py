"""Writing to one partition of a coordinator's topic."""

import logging
from collections.abc import Callable

from pylog.broker.data.acks import Acknowledgements
from pylog.broker.data.partitions import Appended, Partitions
from pylog.errors import ApiError, ErrorCode, StorageError
from pylog.model import Offset
from pylog.wire import records
from pylog.wire.records import TRANSACTIONAL, Record

_logger = logging.getLogger(__name__)

COMMIT_TIMEOUT_MS = 5_000
"""How long the in-sync replicas may take to replicate what a coordinator wrote; Kafka's `offsets.commit.timeout.ms`."""


_TOLD = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.MESSAGE_TOO_LARGE})


class ShardLog:
    """Appends the records of one shard and waits until every in-sync replica has them.

    Attributes:
        end_offset: of the log, as the last append left it.
    """

    def __init__(
        self,
        topic: str,
        number: int,
        partitions: Partitions,
        acknowledgements: Acknowledgements,
        wall_ms: Callable[[], int],
        allowed_bytes: int,
    ) -> None:
        """Write to partition *number* of *topic* batches of up to *allowed_bytes*, or more if the topic allows it."""
        self.end_offset: Offset = 0
        self._topic = topic
        self._number = number
        self._partitions = partitions
        self._acknowledgements = acknowledgements
        self._wall_ms = wall_ms
        self._allowed_bytes = allowed_bytes

    def append(self, rows: list[Record], producer: tuple[int, int] | None = None) -> Appended | ErrorCode:
        """Append *rows* in one batch.

        Args:
            rows: to write.
            producer: id and epoch of the producer whose transaction they belong to; None if they belong to none.

        Returns:
            NONE when every in-sync replica has them already, what to wait for when not, or why they are not written:
            MESSAGE_TOO_LARGE, or an error after which members look for the coordinator and try again.
        """
        if not rows:
            return ErrorCode.NONE
        for offset, row in enumerate(rows):
            row.offset = offset
        if producer is None:
            encoded = records.encode_batch(rows)
        else:
            encoded = records.encode_batch(
                rows, attributes=TRANSACTIONAL, producer_id=producer[0], producer_epoch=producer[1], base_sequence=0
            )
        batch = memoryview(bytearray(encoded))
        try:
            partition, log = self._partitions.leader(self._topic, self._number)
            if partition.leading is not None and partition.leading.is_only_member:
                # Nobody's fetch would show that another broker coordinates by now.
                self._partitions.check_in_touch(partition, "no session with the store")
            header = records.parse_header(batch)
            result, wait = self._partitions.append(
                partition,
                log,
                batch,
                header,
                self._wall_ms(),
                acks=-1,
                is_coordinators=producer is not None,
                allowed_bytes=self._allowed_bytes,
            )
        except (ApiError, StorageError) as error:
            _logger.error("not written partition=%s-%d reason=%s", self._topic, self._number, error)
            if isinstance(error, ApiError) and error.code in _TOLD:
                return error.code
            is_moved = isinstance(error, ApiError) and error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
            return ErrorCode.NOT_COORDINATOR if is_moved else ErrorCode.COORDINATOR_NOT_AVAILABLE
        self.end_offset = result.last_offset + 1
        return ErrorCode.NONE if wait is None else wait

    async def wait_replicated(self, appended: Appended) -> ErrorCode:
        """Return NONE once every in-sync replica has what was appended, or why that is not certain."""
        key = (self._topic, self._number)
        error = await self._acknowledgements.wait_for(key, appended, COMMIT_TIMEOUT_MS)
        if error is ErrorCode.NONE:
            return error
        # The log may have the records or not; a group's members repeat the request, which comes to the same.
        _logger.warning("not acknowledged partition=%s-%d error=%s", self._topic, self._number, error.name)
        is_moved = error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NOT_COORDINATOR if is_moved else ErrorCode.COORDINATOR_NOT_AVAILABLE

    async def write(self, rows: list[Record]) -> ErrorCode:
        """Append *rows*; return NONE once every in-sync replica has them, or why not."""
        appended = self.append(rows)
        return await self.wait_replicated(appended) if isinstance(appended, Appended) else appended
