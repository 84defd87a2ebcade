"""The log of decisions, as lines: bounded, however often and with whatever names a client asks.

The first denial of a client, an operation and a resource is a line at once.  Those that follow within a minute are one
line after it, with their count.  A client that asks for ever other names gets so many lines a second, and then only
their count.
"""

import json
import logging
from collections import OrderedDict
from collections.abc import Callable

from pylog.broker.logs import DECISIONS
from pylog.security.authorizer import Decision
from pylog.token_bucket import TokenBucket

REPEAT_MS = 60_000
"""How long further decisions of one kind are only counted."""

MAX_KINDS = 10_000
"""Kinds of decisions that are counted at once; about 5 MB."""

LINES_PER_S = 100
"""Lines a second, with a burst of ten seconds; beyond them decisions are counted only."""

_BURST_MS = 10_000
MAX_NAME_CHARS = 250
"""A topic has at most 249; group ids may be longer, and are cut."""

_logger = logging.getLogger(DECISIONS)


class DecisionLog:
    """See the module."""

    def __init__(self, now_ms: Callable[[], int], write: Callable[[str], None] | None = None) -> None:
        """Make it.

        Args:
            now_ms: a steady clock.
            write: takes a line; the logger DECISIONS by default.
        """
        self._now_ms = now_ms
        self._write = write or (lambda line: _logger.info("%s", line))
        self._bucket = TokenBucket(LINES_PER_S, now_ms(), _BURST_MS)
        # When the last line of a kind was written, and how often it was decided since; the oldest first.
        self._kinds: OrderedDict[tuple[Decision, bool], tuple[int, int]] = OrderedDict()
        self._dropped = 0

    def note(self, decision: Decision, *, is_report_only: bool) -> None:
        """Write *decision* down, or count it."""
        now_ms = self._now_ms()
        self.flush(now_ms)
        if len(decision.name) > MAX_NAME_CHARS:  # no more is kept than is written
            decision = decision._replace(name=decision.name[:MAX_NAME_CHARS] + "…")
        kind = decision, is_report_only
        known = self._kinds.get(kind)
        if known is not None:
            self._kinds[kind] = known[0], known[1] + 1
            return
        if len(self._kinds) >= MAX_KINDS:
            oldest, (_, count) = self._kinds.popitem(last=False)
            self._line(oldest, count, now_ms)
        self._kinds[kind] = now_ms, 0
        self._line(kind, 1, now_ms)

    def flush(self, now_ms: int, *, is_end: bool = False) -> None:
        """Write what was only counted for long enough; at the *is_end* of the process everything."""
        while self._kinds:
            kind, (since_ms, count) = next(iter(self._kinds.items()))
            if now_ms - since_ms < REPEAT_MS and not is_end:
                return
            del self._kinds[kind]
            self._line(kind, count, now_ms)
            if count and not is_end:
                self._kinds[kind] = now_ms, 0

    def _line(self, kind: tuple[Decision, bool], count: int, now_ms: int) -> None:
        if not count:
            return
        if self._bucket.left(now_ms) < 1:
            self._dropped += count
            return
        self._bucket.take(1, now_ms)
        dropped = f" dropped_before={self._dropped}" if self._dropped else ""
        self._dropped = 0
        self._write(decision_line(kind[0], count, is_report_only=kind[1]) + dropped)


def decision_line(decision: Decision, count: int, *, is_report_only: bool) -> str:
    """Return the line for a decision that was made *count* times."""
    event = "allowed" if decision.is_allowed else "would deny" if is_report_only else "denied"
    client = decision.client
    return (
        f"{event} principal={_field(client.principal)} host={_field(client.host)} "
        f"operation={decision.operation.name} resource={decision.resource_type.name}:{_field(decision.name)} "
        f"request={decision.request} count={count}"
    )


def _field(text: str) -> str:
    """Return *text* as one field of a line: names are whatever bytes a client sent."""
    cut = text if len(text) <= MAX_NAME_CHARS + 1 else text[:MAX_NAME_CHARS] + "…"
    is_plain = cut.isprintable() and cut.isascii() and not set(cut) & set(' "=\\')
    return cut if is_plain and cut else json.dumps(cut)
