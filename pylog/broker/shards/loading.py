"""Reading one partition of a coordinator's topic: nothing of it is answered before all of it is known.

What was read counts once every in-sync replica has it: until then a successor may lack it.
"""

import asyncio
import logging
import os
from abc import ABC, abstractmethod

from pylog.broker.data.partitions import Partitions
from pylog.errors import ApiError, CorruptRecords, ProtocolError, PylogError, StorageError
from pylog.faults import DISK_FAILED, LOG_DAMAGED, code_of
from pylog.log.batch_file import OutOfDescriptors
from pylog.log.log import Log
from pylog.log.segment import FileSlice
from pylog.model import Offset
from pylog.wire import records
from pylog.wire.records import BatchHeader

_logger = logging.getLogger(__name__)

RELOAD_S = 1.0
"""How long a shard rests whose log could not be read for want of descriptors."""

LOAD_BYTES = 1 << 20
"""Read at a time when a partition is loaded."""


class LoadedShard(ABC):
    """One partition of a coordinator's topic, from the moment when this broker leads it.

    Attributes:
        is_loaded: whether it may be answered from, see `finish_loading`.
        is_unreadable: its log does not decode, on no replica.
    """

    def __init__(self, topic: str, number: int, partitions: Partitions) -> None:
        """Begin with partition *number* of *topic* not loaded."""
        self.is_loaded = self.is_unreadable = False
        self._topic = topic
        self._number = number
        self._partitions = partitions
        self._is_killed = False
        self._is_read = False
        self._end_offset: Offset = 0

    @abstractmethod
    def _forget_read(self) -> None:
        """Forget what was read: it will be read again from the start."""

    @abstractmethod
    def _take_in(self, data: memoryview, position: int, header: BatchHeader) -> None:
        """Take in a batch that was read; for a thread.

        Raises:
            ApiError: its records do not unpack.
            ProtocolError: its records do not decode.
        """

    @abstractmethod
    def _decode_read(self) -> None:
        """Decode what was read, as far as `_take_in` did not.

        Raises:
            ProtocolError: it does not decode.
        """

    @abstractmethod
    def _take_over(self) -> None:
        """Every in-sync replica has what was read: it counts from now on."""

    async def load(self, log: Log) -> None:
        """Read what clients may have been told, which may be all of the log.

        None is answered until all can be read: half of a group's offsets would send its members back.  A batch whose
        CRC is wrong is damaged on this disk alone, so another replica is to lead.  One that is whole and does not
        decode is the same everywhere: nobody else can read it either.
        """
        while not self._is_killed:
            try:
                await self._read_all(log)
                return
            except OutOfDescriptors as error:
                _logger.warning("not loaded yet partition=%s-%d reason=%s", self._topic, self._number, error)
                await asyncio.sleep(RELOAD_S)
            except (ApiError, StorageError, ProtocolError, OSError) as error:
                message = "not loaded code=%s partition=%s-%d reason=%s"
                _logger.error(message, _code_of(error), self._topic, self._number, error)
                if isinstance(error, OSError):
                    log.go_offline(f"{log.directory}: {error.strerror}")
                elif isinstance(error, CorruptRecords):
                    log.go_offline(f"{log.directory}: {error}")
                self.is_unreadable = isinstance(error, ProtocolError)
                if log.offline is not None:
                    # Another replica may be readable: who is in sync leads, and coordinates then (rule 7).
                    self._partitions.failed(self._topic, self._number)
                return

    async def _read_all(self, log: Log) -> None:
        offset, end = log.log_start_offset, log.log_end_offset
        self._end_offset = end
        self._forget_read()
        while offset < end:
            part = log.read(offset, LOAD_BYTES, upper_bound_offset=end, min_one_batch=True)
            if part is None:
                break
            part.acquire()
            try:
                offset = await asyncio.to_thread(self._read_slice, part, offset)
            finally:
                part.release()
        self._decode_read()
        self._is_read = True

    def _read_slice(self, part: FileSlice, offset: int) -> Offset:
        """Take in the records of *part* and return the offset after its last whole batch; for a thread.

        Raises:
            CorruptRecords: a batch is damaged.
            ProtocolError: a batch is whole and does not decode.
            OSError: the disk fails.
        """
        data = memoryview(os.pread(part.fd, part.size_bytes, part.position))
        for position, header in records.iter_batches(data):
            records.check_stored_batch(data, position)
            try:
                self._take_in(data, position, header)
            except (ApiError, ProtocolError) as error:
                message = f"the batch at offset {header.base_offset} is whole and does not decode: {error}"
                raise ProtocolError(message) from error
            offset = header.last_offset + 1
        return offset

    def finish_loading(self) -> bool:
        """Return whether the shard is loaded, which it is as soon as every in-sync replica has what was read.

        Until then a successor may lack it: what a client was told from it would be gone, and a generation that has
        begun would begin again.  Nothing announces the moment: every request checks for it, and so does the sweep.
        """
        if not self.is_loaded and self._is_read and self._is_everywhere():
            self.is_loaded = True
            self._take_over()
        return self.is_loaded

    def _is_everywhere(self) -> bool:
        partition = self._partitions.get(self._topic, self._number)
        if partition is None or partition.log is None or partition.leading is None:
            return False
        log = partition.log
        # Not the high watermark alone: under min.insync.replicas it stands still, and what can be written no more
        # shall be readable.  A replica that comes back in sync has at least what was there when this leader began.
        in_sync = partition.leading.common_end_offset(log.countable_end_offset)
        return max(in_sync, log.high_watermark) >= self._end_offset


def _code_of(error: PylogError | OSError) -> str:
    if isinstance(error, CorruptRecords | ProtocolError):
        return LOG_DAMAGED.code
    return code_of(error) if isinstance(error, PylogError) else DISK_FAILED.code
