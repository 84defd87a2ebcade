"""Writing to one partition of `__consumer_offsets`."""

import logging
from collections.abc import Callable

from pylog.broker.data.acks import Acknowledgements
from pylog.broker.data.partitions import Appended, Partitions
from pylog.errors import ApiError, ErrorCode, StorageError
from pylog.group import records as group_records
from pylog.wire import records
from pylog.wire.records import Record

_logger = logging.getLogger(__name__)

COMMIT_TIMEOUT_MS = 5_000
"""How long the in-sync replicas may take to replicate what a group wrote; Kafka's `offsets.commit.timeout.ms`."""


class ShardLog:
    """Appends the records of one shard and waits until every in-sync replica has them."""

    def __init__(
        self,
        number: int,
        partitions: Partitions,
        acknowledgements: Acknowledgements,
        wall_ms: Callable[[], int],
    ) -> None:
        """Write to partition *number*."""
        self._number = number
        self._partitions = partitions
        self._acknowledgements = acknowledgements
        self._wall_ms = wall_ms

    def append(self, rows: list[Record]) -> Appended | ErrorCode:
        """Append *rows* in one batch.

        Returns:
            NONE when every in-sync replica has them already, what to wait for when not, or why they are not written.
        """
        if not rows:
            return ErrorCode.NONE
        for offset, row in enumerate(rows):
            row.offset = offset
        batch = memoryview(bytearray(records.encode_batch(rows)))
        try:
            partition, log = self._partitions.leader(group_records.TOPIC, self._number)
            if partition.leading is not None and partition.leading.is_only_member:
                # Nobody's fetch would show that another broker coordinates by now.
                self._partitions.check_in_touch(partition, "no session with the store")
            header = records.parse_header(batch)
            _, wait = self._partitions.append(partition, log, batch, header, self._wall_ms(), acks=-1)
        except (ApiError, StorageError) as error:
            _logger.error("group not written partition=%d reason=%s", self._number, error)
            is_moved = isinstance(error, ApiError) and error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
            return ErrorCode.NOT_COORDINATOR if is_moved else ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE if wait is None else wait

    async def wait_replicated(self, appended: Appended) -> ErrorCode:
        """Return NONE once every in-sync replica has what was appended, or why that is not certain."""
        key = (group_records.TOPIC, self._number)
        error = await self._acknowledgements.wait_for(key, appended, COMMIT_TIMEOUT_MS)
        if error is ErrorCode.NONE:
            return error
        # The log may have the records or not; the group's members repeat the request, which comes to the same.
        _logger.warning("group not acknowledged partition=%d error=%s", self._number, error.name)
        is_moved = error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NOT_COORDINATOR if is_moved else ErrorCode.COORDINATOR_NOT_AVAILABLE

    async def write(self, rows: list[Record]) -> ErrorCode:
        """Append *rows*; return NONE once every in-sync replica has them, or why not."""
        appended = self.append(rows)
        return await self.wait_replicated(appended) if isinstance(appended, Appended) else appended
