"""Delivery is at least once; an application that must not act twice asks here whether it has seen a message.

What was seen is kept in a file (SQLite), bounded, and read again after a restart.  A message counts as seen when the
application asks for the next one: if it dies before, the message comes again and is new, so none is ever dropped that
was not acted upon.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Self

from pylog.client.message import ReceivedMessage
from pylog.errors import ConfigError

OFFSET = "offset"
KEY = "key"

_DIGEST_BYTES = 16
_TRIM_EVERY = 1_000
"""Keys added before the oldest beyond the capacity are removed."""


class Deduplicate:
    """Passes each message on once.

    ::

        with Deduplicate("seen.db", by="key") as new:
            for message in new(stream):
                act(message)

    By offset, one number a partition is kept, the last offset seen: what is behind it is a repetition.  That finds what
    a consumer group delivers twice, and needs no more room with time.  A topic that was deleted and made anew, or a
    replay that is meant, needs a new file.

    By key, the last *capacity* keys are kept: that also finds what a producer sent twice, under the key that names the
    event.  A message without a key is always new.

    Args:
        path: the file; made if missing, ":memory:" to keep nothing.
        by: "offset", "key", or a function that returns what identifies a message (None: it is always new).
        capacity: keys to keep at least; a few more are kept between two clean-ups.
        survives_power_loss: whether each message is synced to the disk; otherwise a killed process forgets nothing,
            and a machine without power perhaps the last moments, whose messages may then pass twice.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        by: str | Callable[[ReceivedMessage], bytes | None] = OFFSET,
        capacity: int = 1_000_000,
        survives_power_loss: bool = False,
    ) -> None:
        if capacity < 1:
            raise ConfigError(f"capacity: {capacity}; wanted at least 1")
        if isinstance(by, str) and by not in (OFFSET, KEY):
            raise ConfigError(f"by: {by!r}; wanted {OFFSET!r}, {KEY!r} or a function")
        self._identify = None if by == OFFSET else ReceivedMessage.key if isinstance(by, str) else by
        self._capacity = capacity
        self._since_trim = 0
        # Whatever thread iterates; the application gives each its own or locks.
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode = WAL")
        # NORMAL syncs at checkpoints only, which keeps the file whole but not its last entries.
        self._database.execute(f"PRAGMA synchronous = {'FULL' if survives_power_loss else 'NORMAL'}")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS positions "
            "(topic TEXT, part INTEGER, seen INTEGER, PRIMARY KEY (topic, part)) WITHOUT ROWID"
        )
        self._database.execute("CREATE TABLE IF NOT EXISTS keys (number INTEGER PRIMARY KEY, digest BLOB UNIQUE)")
        self._positions: dict[tuple[str, int], int] = {
            (topic, part): seen for topic, part, seen in self._database.execute("SELECT * FROM positions")
        }
        self._trim()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __call__(self, messages: Iterable[ReceivedMessage]) -> Iterator[ReceivedMessage]:
        """Yield those of *messages* that were not seen, and note each as seen when the next is asked for."""
        for message in messages:
            if not self.has_seen(message):
                yield message
                self.mark(message)

    def has_seen(self, message: ReceivedMessage) -> bool:
        """Return whether *message* is a repetition."""
        if self._identify is None:
            return message.offset() <= self._positions.get((message.topic(), message.partition()), -1)
        identity = self._identify(message)
        if identity is None:
            return False
        found = self._database.execute("SELECT 1 FROM keys WHERE digest = ?", (_digest(message, identity),))
        return found.fetchone() is not None

    def mark(self, message: ReceivedMessage) -> None:
        """Note *message* as seen."""
        if self._identify is None:
            place = (message.topic(), message.partition())
            self._database.execute("REPLACE INTO positions VALUES (?, ?, ?)", (*place, message.offset()))
            self._positions[place] = message.offset()
            return
        identity = self._identify(message)
        if identity is None:
            return
        self._database.execute("INSERT OR IGNORE INTO keys (digest) VALUES (?)", (_digest(message, identity),))
        self._since_trim += 1
        if self._since_trim >= _TRIM_EVERY:
            self._trim()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _trim(self) -> None:
        """Forget the oldest keys beyond the capacity."""
        self._since_trim = 0
        self._database.execute("DELETE FROM keys WHERE number <= (SELECT max(number) FROM keys) - ?", (self._capacity,))


def _digest(message: ReceivedMessage, identity: bytes) -> bytes:
    """Return what stands for *identity* within its topic; no topic's name has a NUL."""
    return blake2b(message.topic().encode() + b"\0" + identity, digest_size=_DIGEST_BYTES).digest()
