"""Lines of a broker's log."""

import logging

from pylog.broker.logs import _Formatter


def test_a_line_of_the_log_is_one_line_that_steers_no_terminal() -> None:
    record = logging.LogRecord("pylog.x", logging.INFO, "x.py", 1, "client id %s", ("a\r\n\x1b[1Ab\u2028\x9b",), None)
    assert _Formatter("%(message)s").format(record) == "client id a\\r\\n\\x1b[1Ab\\u2028\\x9b"
