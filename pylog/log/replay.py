"""Learn from the batches themselves what idempotent producers have written.

A start does it while nobody waits for the log.  After a truncation it would hold up everything else, so a job does it
in a thread, and only for the producers of which nothing else is known; see `Producers.truncate`.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from pylog.errors import ApiError, CorruptRecords, StorageError
from pylog.log.batch_file import NO_DESCRIPTORS, OutOfDescriptors
from pylog.log.jobs import Breath, patiently
from pylog.log.producers import UNKNOWN, Producers
from pylog.log.segment import Segment
from pylog.model import Offset
from pylog.wire.markers import Marker, decode_marker
from pylog.wire.records import BatchHeader

_logger = logging.getLogger(__name__)


def read_marker(segment: Segment, position: int, header: BatchHeader) -> Marker | None:
    """Return what the batch at *position* says of a transaction; None if it ends none.

    Raises:
        OutOfDescriptors: not now.
        StorageError: the file cannot be read, or the marker contradicts itself.
    """
    if not header.is_control:
        return None
    try:
        return decode_marker(segment.read_batch(position, header.size_bytes), header)
    except CorruptRecords as error:
        raise StorageError(f"{segment.path}: {error}") from error


def replay_producers(producers: Producers, segments: Sequence[Segment], start: Offset, until: Offset) -> None:
    """Note every idempotent batch from offset *start* up to *until*.

    Raises:
        StorageError: a file cannot be read or holds no batch where one must be.
    """
    for segment in segments:
        if segment.next_offset <= start or segment.base_offset >= until:
            continue
        boundary = segment.find(start) if start > segment.base_offset else None
        for position, header in segment.batches(boundary.position if boundary else 0):
            if header.producer_id >= 0 and start <= header.base_offset < until:
                producers.note(header, header.base_offset, UNKNOWN, read_marker(segment, position, header))


def last_marker(segments: Sequence[Segment], producer_id: int, until: Offset) -> Marker | None:
    """Return what ended a producer's last transaction below offset *until*; None if the log no longer says.

    For a job's thread: the caller holds the segments open.

    Raises:
        OutOfDescriptors: not now.
        StorageError: a file cannot be read.
    """
    breath = Breath()
    for segment in reversed(segments):
        if segment.base_offset >= until:
            continue
        patiently(segment.open)
        last: tuple[int, BatchHeader] | None = None
        for position, header in segment.batches():
            if header.base_offset >= until:
                break
            if header.is_control and header.producer_id == producer_id:
                last = position, header
            breath.take()
        if last is not None:
            return read_marker(segment, *last)
    return None


class ReplayJob:
    """Read the batches below a truncation for the producers in `Producers.unsure`.

    Attributes:
        is_cancelled: set to have `run` end soon; the next start reads the batches.
    """

    def __init__(
        self,
        producers: Producers,
        earlier: Producers,
        segments: Sequence[Segment],
        until: Offset,
        *,
        is_current: Callable[[], bool],
        is_kept: Callable[[Segment], bool],
        retry: Callable[["ReplayJob"], None],
        on_error: Callable[[StorageError], None],
    ) -> None:
        """Hold *segments* open until `finish`, or the one of the last retry.

        Args:
            producers: those of the log, which `finish` completes.
            earlier: an empty one of the same directory, which `run` fills.
            segments: of the log, oldest first.
            until: offset at which the log was cut.
            is_current: whether nothing was cut off since, and the log is still in use; asked in any thread.
            is_kept: whether the log has a segment still; asked in any thread.
            retry: called by `finish` where `run` found no descriptor for a minute; puts the job into the queue again.
            on_error: called by `finish` where a file cannot be read.
        """
        self.is_cancelled = False
        self._producers = producers
        self._earlier = earlier
        self._unsure = producers.unsure
        self._segments = list(segments)
        self._until = until
        self._is_current = is_current
        self._is_kept = is_kept
        self._retry = retry
        self._on_error = on_error
        self._error: StorageError | None = None
        self._is_run = self._is_out_of_descriptors = False
        for segment in self._segments:
            segment.acquire()

    def run(self) -> None:
        """Read the headers of all batches since the newest snapshot, at a pace that leaves the loop its turns."""
        self._is_out_of_descriptors = False
        try:
            start, breath = patiently(partial(self._earlier.read, self._until)), Breath()
            for segment, position, header in self._batches(start):
                if header.producer_id in self._unsure:
                    self._earlier.note(header, header.base_offset, UNKNOWN, read_marker(segment, position, header))
                breath.take()
                if self.is_cancelled or not self._is_current():
                    return
            self._is_run = True
        except OutOfDescriptors:
            self._is_out_of_descriptors = True
        except OSError as error:
            if error.errno in NO_DESCRIPTORS:
                self._is_out_of_descriptors = True
                return
            self._error = StorageError(f"{error.filename}: {error.strerror}")
        except (ApiError, StorageError) as error:
            self._error = error if isinstance(error, StorageError) else StorageError(str(error))

    def _batches(self, start: Offset) -> Iterator[tuple[Segment, int, BatchHeader]]:
        for segment in self._segments:
            if segment.next_offset <= start:
                continue
            try:
                patiently(segment.open)
            except StorageError:
                if self._is_kept(segment):
                    raise
                continue  # retention took it before it was opened, and what it held is no longer there to be known
            # From the first batch on: the index is the loop's, which may be adding to it now.
            for position, header in segment.batches():
                if header.base_offset >= self._until:
                    return
                if header.base_offset >= start:
                    yield segment, position, header

    def finish(self) -> None:
        """Tell the log's producers, unless another truncation has overtaken this.

        Without descriptors the job is tried again, for as long as its producers wait: that passes (rule 7), and `run`
        waits a minute for it each time.
        """
        if self._is_out_of_descriptors and not self.is_cancelled and self._is_current():
            _logger.warning("replay tried again reason=%r segments=%d", "no descriptors", len(self._segments))
            self._retry(self)
            return
        for segment in self._segments:
            segment.release()
        self._segments = []
        if not self._is_current():
            return
        if self._error is not None:
            _logger.error("replay failed reason=%s", self._error)
            self._on_error(self._error)
        elif self._is_run:
            self._producers.restore(self._earlier)
