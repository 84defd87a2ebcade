"""What the rules would deny, or have denied: kept as a list that a person can read before rules are enforced.

The log of decisions has every denial as a line; this has one row for each kind, with when it was seen last.  Rows are
bounded, since a client chooses the names: the row that was not seen for the longest time goes first, and is counted.
"""

from collections import OrderedDict
from typing import Any

from pylog.broker.decision_log import MAX_NAME_CHARS
from pylog.security.authorizer import Decision

MAX_ROWS = 1_000
"""Kinds of denials that are kept; about 1 MB."""


class Denials:
    """See the module."""

    def __init__(self) -> None:
        # Decision -> how often, when last; those seen last at the end.
        self._rows: OrderedDict[Decision, tuple[int, int]] = OrderedDict()
        self._dropped = 0
        self._dropped_ms = 0

    def note(self, decision: Decision, now_ms: int) -> None:
        """Keep a decision against a client; *now_ms* is wall-clock time."""
        if len(decision.name) > MAX_NAME_CHARS:
            decision = decision._replace(name=decision.name[:MAX_NAME_CHARS] + "…")
        count, _ = self._rows.pop(decision, (0, 0))
        self._rows[decision] = count + 1, now_ms
        if len(self._rows) > MAX_ROWS:
            _, (_, self._dropped_ms) = self._rows.popitem(last=False)
            self._dropped += 1

    def report(self) -> dict[str, Any]:
        """Return the rows, those seen last first, how many kinds had no room, and when the last of these was seen."""
        rows = [
            {
                "principal": decision.client.principal,
                "host": decision.client.host,
                "operation": decision.operation.name,
                "resource": decision.resource_type.name,
                "name": decision.name,
                "request": decision.request,
                "count": count,
                "last_ms": last_ms,
            }
            for decision, (count, last_ms) in reversed(self._rows.items())
        ]
        return {"denials": rows, "dropped": self._dropped, "dropped_ms": self._dropped_ms}
