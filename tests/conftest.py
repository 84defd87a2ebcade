"""For every test: the last lines say what was passed, failed and skipped, and why."""

import signal
from collections import Counter

import pytest
from hypothesis import settings

# A busy machine makes any example slow; how fast code is belongs to bench/.
settings.register_profile("pylog", deadline=None)
settings.load_profile("pylog")


def pytest_configure() -> None:
    """Have Ctrl-C reach what tests start, also where a shell started them in the background: there it is ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the three counts, and each reason for a skip with how often it was given."""
    stats = terminalreporter.stats
    failed = len(stats.get("failed", ())) + len(stats.get("error", ()))
    skipped = Counter(
        str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        for report in stats.get("skipped", ())
    )
    reasons = "".join(f"; {count} x {reason}" for reason, count in skipped.most_common())
    terminalreporter.write_line(
        f"passed={len(stats.get('passed', ()))} failed={failed} skipped={skipped.total()}{reasons}"
    )
