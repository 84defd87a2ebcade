"""What every client under test can do."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMEOUT_S = 30.0
"""How long any client may take; far above what a healthy broker needs, so that only a fault meets it."""

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """One record as a test writes it and as a reader hands it back.

    Attributes:
        timestamp_ms: None when the writer leaves it to its client; a reader always fills it.
        offset: -1 until a reader fills it.
    """

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None
    offset: int = -1

    @property
    def content(self) -> tuple[bytes | None, bytes | None, Headers]:
        """What must come back from every reader whatever client wrote it."""
        return self.key, self.value, self.headers


class Client(Protocol):
    """A producer and a consumer that reads partitions by assignment.

    Attributes:
        name: as tests are named after it.
        sets_timestamps: whether a producer of it can be told a record's timestamp.
    """

    name: str
    sets_timestamps: bool

    def can_write(self, record: Record) -> bool:
        """Whether the client's interface can express *record* at all."""

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> None:
        """Write *records* to partition 0, in order, and return when they are acknowledged.

        Raises:
            Exception: the client's own, when any record was not written.
        """

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Record]:
        """Read *count* records of partition 0 from the beginning."""
