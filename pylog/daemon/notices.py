"""One key=value line on stderr, at most once in a while for each cause.

A shipper that logged once a record would ship its own lines for ever.
"""

import sys
from typing import TextIO

from pylog.errors import one_line

INTERVAL_S = 60.0
"""Between two lines of one cause."""


class Notices:
    """Writes lines, and counts those it held back.

    Args:
        stream: where to.
        interval_s: between two lines of one cause.
    """

    def __init__(self, stream: TextIO | None = None, interval_s: float = INTERVAL_S) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._interval_s = interval_s
        self._last_s: dict[str, float] = {}
        self._held_back: dict[str, int] = {}

    def tell(self, now_s: float, level: str, event: str, *, about: str = "", **facts: object) -> None:
        """Write a line, unless one of the same event, about the same, was written less than the interval ago.

        Args:
            now_s: any clock that does not go back.
            level: info, warning or error.
            event: the cause, a fixed word.
            about: what happens to each of several things is told of each: one of a bounded number of names.
            facts: what to say about it.
        """
        cause = f"{event} {about}"
        if cause in self._last_s and now_s - self._last_s[cause] < self._interval_s:
            self._held_back[cause] = self._held_back.get(cause, 0) + 1
            return
        self._last_s[cause] = now_s
        if held_back := self._held_back.pop(cause, 0):
            facts["held_back"] = held_back
        words = [f"level={level}", f"event={event}", *(f"{name}={_quoted(value)}" for name, value in facts.items())]
        self._stream.write(" ".join(words) + "\n")
        self._stream.flush()


def _quoted(value: object) -> str:
    text = one_line(str(value).replace("\n", " "))
    return '"' + text.replace('"', "'") + '"' if " " in text or not text else text
