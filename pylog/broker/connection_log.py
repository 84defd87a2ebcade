"""The log of connections that were refused or closed for a fault, as lines: one a minute for each address and fault.

A client that is configured wrongly comes back several times a second, for days.
"""

import re
from collections import OrderedDict
from collections.abc import Callable

REPEAT_MS = 60_000
"""How long further connections of one address with one fault are only counted."""

MAX_KINDS = 10_000
"""Addresses and faults that are counted at once; about 3 MB."""

_NUMBERS = re.compile(r"\d+")  # sizes in a reason differ from one connection to the next


class ConnectionLog:
    """See the module."""

    def __init__(self, listener: str, now_ms: Callable[[], int], write: Callable[[str], None]) -> None:
        """Make it for one listener; *now_ms* is a steady clock, *write* takes a line."""
        self._listener = listener
        self._now_ms = now_ms
        self._write = write
        # When a line was last written, and how many were not since; the oldest first.
        self._kinds: OrderedDict[tuple[str, str, str], tuple[int, int]] = OrderedDict()

    def note(self, event: str, peer: str, reason: str) -> None:
        """Write a line about the connection of *peer*, an address and a port, or count it."""
        now_ms = self._now_ms()
        kind = event, peer.rpartition(":")[0], _NUMBERS.sub("", reason)
        since_ms, count = self._kinds.pop(kind, (now_ms - REPEAT_MS, 0))
        if now_ms - since_ms < REPEAT_MS:
            self._kinds[kind] = since_ms, count + 1
            return
        if len(self._kinds) >= MAX_KINDS:
            self._kinds.popitem(last=False)
        self._kinds[kind] = now_ms, 0
        repeated = f" repeated_before={count}" if count else ""
        self._write(f"{event} listener={self._listener} peer={peer} reason={reason}{repeated}")
