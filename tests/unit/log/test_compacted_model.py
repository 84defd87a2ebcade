"""A compacted log against all that was ever written to it: whatever happens in between, the last of each key is there.

The machine of `test_model.py` has the log that only deletes; this one compacts too, and loses power at any byte.
"""

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pylog.errors import OffsetOutOfRange
from pylog.log.config import LogConfig
from pylog.log.log import Log
from pylog.wire.records import Record, decode_records, encode_batch, iter_batches

from .batches import PARTITION, append, content, segment_files, tear
from .test_compaction import compact, finish_jobs, records

CONFIG = LogConfig(
    segment_bytes=1024, index_interval_bytes=150, cleanup_policy="compact,delete", retention_ms=-1,
    delete_retention_ms=1 << 40,
)  # fmt: skip
KEYS = [b"a", b"b", b"c", b"d"]


class CompactedLogMachine(RuleBasedStateMachine):
    """Attributes: `written` has every record by its offset, `start` is the log's."""

    @initialize()
    def begin(self) -> None:
        self.directory = Path(tempfile.mkdtemp())
        self.written: list[Record] = []
        self.start = 0
        self.open(clean=False, recovery_point=0, compacted_offset=0)

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            self.log.abandon()
            shutil.rmtree(self.directory)

    def open(self, *, clean: bool, recovery_point: int, compacted_offset: int) -> None:
        self.log = Log.open(
            self.directory, PARTITION, CONFIG, now_ms=0, clean=clean, recovery_point=recovery_point,
            log_start_offset=self.start, high_watermark=len(self.written),
        )  # fmt: skip
        self.log.compacted_offset = min(compacted_offset, self.log.log_end_offset)

    @property
    def end(self) -> int:
        return len(self.written)

    @rule(
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=4), size=st.integers(0, 120),
        is_tombstone=st.booleans(), codec=st.sampled_from(("none", "none", "lz4", "zstd")),
    )  # fmt: skip
    def append(self, keys: list[bytes], size: int, is_tombstone: bool, codec: str) -> None:
        made = [
            Record(number, 1_000 + number, key, None if is_tombstone and not number else b"%d" % self.end + b"v" * size)
            for number, key in enumerate(keys)
        ]
        append(self.log, memoryview(bytearray(encode_batch(made, compression_type=codec))))
        self.written += [Record(self.end + one.offset, one.timestamp, one.key, one.value) for one in made]

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def sync(self) -> None:
        self.log.flush()

    @rule()
    def finish_jobs(self) -> None:
        finish_jobs(self.log)

    @rule()
    def compact(self) -> None:
        finish_jobs(self.log)
        compact(self.log)
        held = [one.key for one in records(self.log) if one.offset < self.log.compacted_offset]
        assert len(held) == len(set(held))

    @rule(offset=st.integers(0, 60))
    def delete_records(self, offset: int) -> None:
        self.start = self.log.delete_records_before(min(self.start + offset, self.end))

    @rule(offset=st.integers(-2, 60), max_bytes=st.integers(0, 3_000), behind=st.integers(0, 10), first=st.booleans())
    def read(self, offset: int, max_bytes: int, behind: int, first: bool) -> None:
        offset += self.start
        upper_bound = max(self.end - behind, self.start)
        try:
            found = self.log.read(offset, max_bytes, upper_bound_offset=upper_bound, min_one_batch=first)
        except OffsetOutOfRange:
            assert not self.start <= offset <= self.end
            return
        assert self.start <= offset <= self.end
        wanted = [one for one in records(self.log) if offset <= one.offset]
        if found is None:
            return
        data = content(found)
        read = [
            record
            for position, header in iter_batches(data)
            for record in decode_records(data, header, position)
            if record.offset >= offset
        ]
        assert read == wanted[: len(read)], "nothing is left out on the way"
        assert all(one.offset < upper_bound for one in read)

    @rule()
    def stop_and_start(self) -> None:
        compacted_offset = self.log.compacted_offset
        self.log.close()
        self.open(clean=True, recovery_point=self.log.recovery_point, compacted_offset=compacted_offset)

    @rule(lost=st.sets(st.sampled_from([".index", ".timeindex", ".snapshot"])))
    def be_killed_and_start(self, lost: set[str]) -> None:
        recovery_point, compacted_offset = self.log.recovery_point, self.log.compacted_offset
        self.log.abandon()
        self.lose(lost)
        self.open(clean=False, recovery_point=recovery_point, compacted_offset=compacted_offset)
        assert self.log.log_end_offset == self.end

    @precondition(lambda self: self.log.log_end_offset > self.log.recovery_point)
    @rule(share=st.floats(0, 1), tail=st.binary(max_size=40))
    def lose_power_and_start(self, share: float, tail: bytes) -> None:
        """The disk forgets what was not synced, from any byte on."""
        recovery_point, compacted_offset = self.log.recovery_point, self.log.compacted_offset
        segments = [one for one in self.log.segments if one.next_offset > recovery_point]
        # Where each batch that is not synced ends, over all their segments.
        ends: list[tuple[int, int]] = []
        total = 0
        for segment in segments:
            for position, header in segment.batches():
                ends.append((total + position + header.size_bytes, header.last_offset))
            total += segment.size_bytes
        synced = max((end for end, last in ends if last < recovery_point), default=0)
        cut = synced + int(share * (total - synced))
        self.log.abandon()
        tear(segments, cut, tail)
        kept = max([recovery_point, *(last + 1 for end, last in ends if end <= cut)])
        del self.written[max(kept, 0) :]
        self.start = min(self.start, self.end)
        start_before = self.start
        self.open(clean=False, recovery_point=recovery_point, compacted_offset=compacted_offset)
        assert self.log.log_end_offset == self.end
        assert self.log.log_start_offset == start_before

    def lose(self, suffixes: set[str]) -> None:
        for suffix in suffixes:
            for path in segment_files(self.directory, suffix):
                path.unlink(missing_ok=True)

    @invariant()
    def the_last_of_each_key_is_there(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        assert log.compacted_offset <= log.log_end_offset
        found = {one.offset: one for one in records(log)}
        assert list(found) == sorted(found)
        assert all(self.written[offset] == one for offset, one in found.items())
        last: dict[bytes | None, int] = {one.key: one.offset for one in self.written}
        assert all(offset in found for offset in last.values() if offset >= self.start)
        # Above what was compacted nothing is missing.
        above = range(max(log.compacted_offset, self.start), self.end)
        assert all(offset in found for offset in above)


TestCompactedLogMachine = CompactedLogMachine.TestCase
TestCompactedLogMachine.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
