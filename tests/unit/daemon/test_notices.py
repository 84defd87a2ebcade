"""Lines on stderr are few."""

import io

from pylog.daemon.notices import Notices


def test_one_line_a_cause_and_interval_and_a_count_of_those_held_back() -> None:
    stream = io.StringIO()
    notices = Notices(stream, interval_s=60)
    for now_s in (0.0, 1.0, 59.9, 60.0):
        notices.tell(now_s, "warning", "truncated", bytes=5)
    notices.tell(1.0, "warning", "session_ended", reason='h:1 "refused"\nagain')
    assert stream.getvalue().splitlines() == [
        "level=warning event=truncated bytes=5",
        "level=warning event=truncated bytes=5 held_back=2",
        """level=warning event=session_ended reason="h:1 'refused' again\"""",
    ]


def test_a_notice_is_one_line_that_steers_no_terminal() -> None:
    out = io.StringIO()
    Notices(out).tell(0, "info", "named", topic="a\rb\x1b[2J\u202ec", reason="x\ny\tz")
    assert out.getvalue() == 'level=info event=named topic=a\\rb\\x1b[2J\\u202ec reason="x y\\tz"\n'
