"""Transactions in the log of a broker that is down, batch by batch: any history, whatever clients would write."""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from pylog.client.admin.cluster import Admin
from pylog.log.config import LogConfig
from pylog.log.log import Log
from pylog.model import Offset, TopicPartition
from pylog.testing import BrokerProcess
from pylog.wire.markers import Marker, encode_marker
from pylog.wire.records import TRANSACTIONAL, Record, check_stored_batch, encode_batch, parse_header

_COORDINATOR_EPOCH = 0


class History:
    """Writes into one partition's directory; leaving the context closes it as a clean stop does.

    Attributes:
        committed: values that readers of committed records get, in their order, once all is decided before them.
        written: values of all records, in their order.
    """

    def __init__(self, directory: Path, partition: TopicPartition, now_ms: int | None = None) -> None:
        self._now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        config = LogConfig(segment_bytes=1 << 20)
        self._log = Log.open(directory, partition, config, now_ms=self._now_ms, clean=True, recovery_point=0)
        self._log.high_watermark = self._log.log_end_offset
        entries = self._log.epochs.entries()
        self._leader_epoch = entries[-1][0] if entries else 0
        self._sequences: dict[int, int] = {}
        self._open: dict[int, list[Offset]] = {}
        self._values: dict[Offset, bytes] = {}
        self._aborted: set[Offset] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._log.high_watermark = self._log.log_end_offset
        self._log.close()

    @property
    def end(self) -> Offset:
        """The log end offset."""
        return self._log.log_end_offset

    @property
    def stable(self) -> Offset:
        """The last stable offset, once every replica has all of this."""
        return min((offsets[0] for offsets in self._open.values()), default=self.end)

    @property
    def written(self) -> list[bytes]:
        return [value for _, value in sorted(self._values.items())]

    @property
    def committed(self) -> list[bytes]:
        return [
            value
            for offset, value in sorted(self._values.items())
            if offset < self.stable and offset not in self._aborted
        ]

    def plain(self, *values: bytes) -> Self:
        """Append records outside of transactions."""
        self._append(-1, values)
        return self

    def send(self, producer_id: int, *values: bytes) -> Self:
        """Append records of a producer's transaction, which begins with the first of them."""
        first = self._append(producer_id, values)
        self._open.setdefault(producer_id, []).extend(range(first, first + len(values)))
        return self

    def commit(self, producer_id: int) -> Self:
        """Append the marker that commits a producer's transaction."""
        self._mark(producer_id, is_commit=True)
        return self

    def abort(self, producer_id: int) -> Self:
        """Append the marker that aborts a producer's transaction."""
        self._aborted |= set(self._mark(producer_id, is_commit=False))
        return self

    def _append(self, producer_id: int, values: Sequence[bytes]) -> Offset:
        is_transactional = producer_id >= 0
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + len(values)
        data = encode_batch(
            [Record(number, self._now_ms, b"key", value) for number, value in enumerate(values)],
            attributes=TRANSACTIONAL if is_transactional else 0,
            producer_id=producer_id,
            producer_epoch=0 if is_transactional else -1,
            base_sequence=sequence if is_transactional else -1,
        )
        view = memoryview(bytearray(data))
        first = self._log.append_as_leader(view, check_stored_batch(view), self._leader_epoch, self._now_ms).base_offset
        self._values |= {first + number: value for number, value in enumerate(values)}
        return first

    def _mark(self, producer_id: int, *, is_commit: bool) -> Iterable[Offset]:
        marker = Marker(is_commit, _COORDINATOR_EPOCH)
        view = memoryview(bytearray(encode_marker(producer_id, 0, marker, self._now_ms)))
        self._log.append_as_leader(view, parse_header(view), self._leader_epoch, self._now_ms, marker)
        return self._open.pop(producer_id, ())


def history(broker: BrokerProcess, topic: str, partition: int = 0) -> History:
    """Return the history of a partition that *broker*, which must be stopped, has the only replica of."""
    assert broker.has_ended, "a broker that runs owns its logs"
    return History(broker.data_dir / f"{topic}-{partition}", TopicPartition(topic, partition))


def create(broker: BrokerProcess, topic: str, write: Callable[[History], object]) -> History:
    """Make a topic of one partition with a history, for which *broker* is stopped and started again."""
    Admin(broker.bootstrap).create_topic(topic, partitions=1, replication_factor=1, config={})
    broker.stop()
    with history(broker, topic) as made:
        write(made)
    broker.start()
    return made


def write_all_kinds(history: History) -> None:
    """Write what readers may meet: committed, aborted and mixed transactions, plain records, and one that is open."""
    history.plain(b"plain 0")
    history.send(1, b"committed 0", b"committed 1").send(2, b"aborted 0", b"aborted 1").plain(b"plain 1")
    history.commit(1).send(1, b"aborted 2").abort(2).send(2, b"committed 2").abort(1).commit(2)
    # Offsets at the end that hold no record for readers: two markers and an aborted batch.
    history.send(3, b"committed 3").commit(3).send(3, b"aborted 3").abort(3)


def write_undecided(history: History) -> None:
    """Write what `write_all_kinds` does, an open transaction, and records that wait behind its beginning."""
    write_all_kinds(history)
    history.send(4, b"open 0").plain(b"behind").send(1, b"committed behind").commit(1)
