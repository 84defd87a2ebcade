"""Log lines: one key=value line each, to stderr, at most so many of a kind.

time level logger event key=value ...
"""

import logging
import sys
import time

from pylog.errors import one_line

MAX_LINES_PER_CAUSE = 10
"""Lines of one cause within one period; a client that sends garbage in a loop must not fill the disk."""

PERIOD_S = 10.0

DECISIONS = "pylog.authorizer"
"""The logger of decisions about clients' rights; see `pylog.broker.decision_log`."""


class RateLimit(logging.Filter):
    """Drops what one place in the code says too often, and says how much was dropped."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether *record* goes out."""
        if record.name == DECISIONS:
            return True  # bounded where they are made, by what they say
        cause = (record.pathname, record.lineno)
        now_s = time.monotonic()
        began_s, count = self._seen.get(cause, (now_s, 0))
        if now_s - began_s >= PERIOD_S:
            dropped = count - MAX_LINES_PER_CAUSE
            began_s, count = now_s, 0
            if dropped > 0:
                record.msg = f"{record.msg} dropped_before={dropped}"
        self._seen[cause] = (began_s, count + 1)
        return count < MAX_LINES_PER_CAUSE


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        # One line each: a traceback follows as one field, so that nothing in a log is a line of its own.
        # Names of clients are in it: none may steer the terminal of whoever reads the log.
        return one_line(text)


def configure(level: int = logging.INFO) -> None:
    """Send all log lines of this process to stderr in our format."""
    handler = logging.StreamHandler(sys.stderr)
    formatter = _Formatter("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    handler.addFilter(RateLimit())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.getLogger("kazoo").setLevel(logging.WARNING)
