"""A log against a list: whatever is appended, cut, deleted, crashed and recovered, both hold the same batches."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pylog.errors import ApiError, ErrorCode, OffsetOutOfRange
from pylog.log.config import LogConfig
from pylog.log.log import Log
from pylog.wire.records import iter_batches, parse_header

from .batches import PARTITION, append, batch, content, read_all, segment_files, tear

CONFIG = LogConfig(segment_bytes=1024, index_interval_bytes=150, retention_bytes=2_500, retention_ms=-1)
PRODUCER_ID = 5


@dataclass(frozen=True)
class Stored:
    """What the model knows of a batch."""

    base_offset: int
    last_offset: int
    data: bytes
    stamps: tuple[int, ...]
    epoch: int
    sequence: int


class LogMachine(RuleBasedStateMachine):
    """Attributes: `batches` are what the log holds, `end` its end, `start` its log start, `epoch` the leader's."""

    @initialize()
    def begin(self) -> None:
        self.directory = Path(tempfile.mkdtemp())
        self.batches: list[Stored] = []
        self.end = self.start = self.epoch = self.sequence = 0
        self.open(clean=False, recovery_point=0)

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            self.log.abandon()
            shutil.rmtree(self.directory)

    def open(self, *, clean: bool, recovery_point: int) -> None:
        self.log = Log.open(
            self.directory, PARTITION, CONFIG, now_ms=0, clean=clean, recovery_point=recovery_point,
            log_start_offset=self.start, high_watermark=self.end,
        )  # fmt: skip

    @rule(
        count=st.integers(1, 4), size=st.integers(0, 225), timestamp=st.integers(0, 50),
        epochs=st.sampled_from((0, 0, 0, 0, 0, 1, 2)), is_idempotent=st.booleans(),
    )  # fmt: skip
    def append(self, count: int, size: int, timestamp: int, epochs: int, is_idempotent: bool) -> None:
        self.epoch += epochs
        producer = {"producer_id": PRODUCER_ID, "producer_epoch": 0, "base_sequence": self.sequence}
        fields = producer if is_idempotent else {}
        view = batch(count, timestamp=timestamp, value=b"v" * size, **fields)
        result = append(self.log, view, epoch=self.epoch)
        assert (result.base_offset, result.last_offset) == (self.end, self.end + count - 1)
        stamps = tuple(range(timestamp, timestamp + count))
        sequence = self.sequence if is_idempotent else -1
        self.batches.append(Stored(self.end, self.end + count - 1, bytes(view), stamps, self.epoch, sequence))
        self.end += count
        self.sequence += count if is_idempotent else 0

    @rule(back=st.integers(0, 4) | st.integers(5, 30))
    def append_again(self, back: int) -> None:
        sent = [stored for stored in self.batches if stored.sequence >= 0]
        if len(sent) > back:
            stored = sent[-1 - back]
            view = memoryview(bytearray(stored.data))
            code, result = ErrorCode.NONE, None
            try:
                result = append(self.log, view, epoch=self.epoch)
            except ApiError as error:
                code = error.code
            if result is None:
                # A cut leaves fewer than five in the window, and a start knows nothing of those before it.
                assert (back > 0, code) == (True, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
                return
            assert result.is_duplicate
            if result.base_offset < 0:
                assert back > 0
                assert stored.last_offset <= result.last_offset < sent[-1].base_offset
            else:
                assert (result.base_offset, result.last_offset) == (stored.base_offset, stored.last_offset)

    @rule(offset=st.integers(-2, 120), max_bytes=st.integers(0, 3_000), behind=st.integers(0, 8), first=st.booleans())
    def read(self, offset: int, max_bytes: int, behind: int, first: bool) -> None:
        offset += self.start
        bounds = [stored.base_offset for stored in self.batches if stored.base_offset >= self.start] + [self.end]
        upper_bound = bounds[max(0, len(bounds) - 1 - behind)]
        try:
            found = self.log.read(offset, max_bytes, upper_bound_offset=upper_bound, min_one_batch=first)
        except OffsetOutOfRange:
            assert not self.start <= offset <= self.end
            return
        assert self.start <= offset <= self.end
        whole = b"".join(s.data for s in self.batches if s.last_offset >= offset and s.base_offset < upper_bound)
        if found is None:
            assert not whole or offset >= upper_bound or (not first and parse_header(whole).size_bytes > max_bytes)
            return
        data = content(found)
        assert whole.startswith(data)
        assert len(data) <= max(max_bytes, parse_header(whole).size_bytes if first else 0)
        # Never across segments, else as much as fits.
        is_end_of_segment = found.position + found.size_bytes == found.segment.size_bytes
        assert len(data) == min(max(max_bytes, parse_header(whole).size_bytes), len(whole)) or is_end_of_segment

    @rule(timestamp=st.integers(-1, 60))
    def find_by_timestamp(self, timestamp: int) -> None:
        expected = None
        for stored in self.batches:
            for number, stamp in enumerate(stored.stamps):
                if expected is None and stamp >= timestamp and stored.base_offset + number >= self.start:
                    expected = stamp, stored.base_offset + number
        assert self.log.offset_for_timestamp(timestamp) == expected

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def sync(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.end

    @rule()
    def finish_jobs(self) -> None:
        while self.log.jobs:
            job = self.log.jobs.popleft()
            job.run()
            job.finish()
        self.forget(self.start)  # a deletion may have waited for a sync

    @rule(offset=st.integers(0, 120))
    def delete_records(self, offset: int) -> None:
        self.log.delete_records_before(min(self.start + offset, self.end))
        self.forget(min(self.start + offset, self.end))

    @rule()
    def retain(self) -> None:
        self.log.delete_expired(now_ms=0)
        self.finish_jobs()
        assert self.log.size_bytes <= CONFIG.retention_bytes + CONFIG.segment_bytes
        self.forget(self.log.log_start_offset)

    def forget(self, start: int) -> None:
        self.start = start
        first = self.log.segments[0].base_offset
        self.batches = [stored for stored in self.batches if stored.base_offset >= first]

    @rule(back=st.integers(0, 40))
    def truncate(self, back: int) -> None:
        offset = max(self.end - back, self.start)
        self.log.truncate_to(offset)
        self.keep([stored for stored in self.batches if stored.last_offset < offset])

    def keep(self, batches: list[Stored]) -> None:
        self.batches = batches
        if self.log.log_end_offset < self.end:
            self.end = batches[-1].last_offset + 1 if batches else self.log.log_end_offset
        self.start = min(self.start, self.end)
        self.epoch = max(self.epoch, *(stored.epoch for stored in batches), 0)
        sent = [stored for stored in batches if stored.sequence >= 0]
        if sent:
            self.sequence = sent[-1].sequence + len(sent[-1].stamps)
        else:
            self.sequence = 0
            # What a producer may know of deleted batches is not the matter here.
            self.log.producers.begin_at(self.log.log_end_offset, b"")

    @rule()
    def stop_and_start(self) -> None:
        self.log.close()
        self.open(clean=True, recovery_point=self.log.recovery_point)

    @rule(lost=st.sets(st.sampled_from([".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint"])))
    def be_killed_and_start(self, lost: set[str]) -> None:
        recovery_point = self.log.recovery_point
        self.log.abandon()
        self.lose(lost)
        self.open(clean=False, recovery_point=recovery_point)
        assert self.log.log_end_offset == self.end

    @precondition(lambda self: self.log.log_end_offset > self.log.recovery_point)
    @rule(
        share=st.floats(0, 1), lost=st.sets(st.sampled_from([".index", ".timeindex", ".snapshot"])),
        tail=st.binary(max_size=90),
    )  # fmt: skip
    def lose_power_and_start(self, share: float, lost: set[str], tail: bytes) -> None:
        """The disk forgets what was not synced, from any byte on, and may hold garbage instead."""
        recovery_point = self.log.recovery_point
        segments = self.log.segments
        self.log.abandon()
        synced = sum(len(stored.data) for stored in self.batches if stored.base_offset < recovery_point)
        total = sum(len(stored.data) for stored in self.batches)
        cut = synced + int(share * (total - synced))
        tear(segments, cut, tail)
        self.lose(lost)
        self.open(clean=False, recovery_point=recovery_point)
        kept_batches, size = [], 0
        for stored in self.batches:
            size += len(stored.data)
            if size <= cut:
                kept_batches.append(stored)
        if kept_batches and kept_batches[-1].last_offset + 1 < self.start:
            kept_batches = []  # all that is left was deleted before, and the log begins anew at its start
        start = self.start
        self.keep(kept_batches)
        if self.end < start:
            self.end = self.start = start

    def lose(self, names: set[str]) -> None:
        for name in names:
            for path in [self.directory / name] if "-" in name else segment_files(self.directory, name):
                path.unlink(missing_ok=True)

    @invariant()
    def both_hold_the_same(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
        assert log.recovery_point <= log.log_end_offset
        assert log.size_bytes == sum(len(stored.data) for stored in self.batches)
        readable = b"".join(stored.data for stored in self.batches if stored.last_offset >= self.start)
        assert read_all(log) == readable
        for stored in self.batches:
            if stored.base_offset >= self.start:
                assert log.offset_for_leader_epoch(stored.epoch)[1] > stored.last_offset
        assert [header.base_offset for _, header in iter_batches(readable)] == [
            stored.base_offset for stored in self.batches if stored.last_offset >= self.start
        ]


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
