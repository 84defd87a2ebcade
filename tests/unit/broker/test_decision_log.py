"""The lines about decisions: each kind at once, repetitions counted, and never more than so many."""

from pylog.broker.decision_log import LINES_PER_S, REPEAT_MS, DecisionLog, decision_line
from pylog.security.acl import Operation, ResourceType
from pylog.security.authorizer import Decision
from pylog.security.rules import Client


class Pen:
    def __init__(self) -> None:
        self.now_ms = 0
        self.lines: list[str] = []
        self.log = DecisionLog(lambda: self.now_ms, self.lines.append)

    def note(self, name: str = "orders", *, is_report_only: bool = False) -> None:
        self.log.note(denial(name), is_report_only=is_report_only)


def denial(name: str = "orders", principal: str = "User:alice") -> Decision:
    return Decision(False, Client(principal, "10.0.0.1"), Operation.READ, ResourceType.TOPIC, name, "fetch")


def test_the_first_is_a_line_at_once_and_the_others_one_after_a_minute() -> None:
    pen = Pen()
    for _ in range(5):
        pen.note()
    first = "denied principal=User:alice host=10.0.0.1 operation=READ resource=TOPIC:orders request=fetch count=1"
    assert pen.lines == [first]
    pen.log.flush(REPEAT_MS - 1)
    assert pen.lines == [first]
    pen.log.flush(REPEAT_MS)
    assert pen.lines == [first, first.replace("count=1", "count=4")]
    pen.log.flush(3 * REPEAT_MS)
    assert len(pen.lines) == 2


def test_the_end_of_the_process_writes_what_was_counted() -> None:
    pen = Pen()
    for _ in range(3):
        pen.note()
    pen.log.flush(1, is_end=True)
    assert [line.rpartition("count=")[2] for line in pen.lines] == ["1", "2"]


def test_ever_other_names_get_so_many_lines_and_are_counted_beyond() -> None:
    pen = Pen()
    for number in range(20_000):
        pen.note(f"topic-{number}")
    assert len(pen.lines) == 10 * LINES_PER_S
    pen.now_ms = 1_000
    pen.note("last")
    assert pen.lines[-1].endswith(f"count=1 dropped_before={20_000 - 10 * LINES_PER_S}")


def test_a_report_says_would_deny() -> None:
    pen = Pen()
    pen.note(is_report_only=True)
    assert pen.lines[0].startswith("would deny principal=User:alice ")
    assert decision_line(denial()._replace(is_allowed=True), 1, is_report_only=False).startswith("allowed ")


def test_names_cannot_forge_a_line() -> None:
    line = decision_line(denial("a\nallowed principal=x", "User:b c=\x1b[2J"), 1, is_report_only=False)
    assert "\n" not in line
    assert "\x1b" not in line
    assert 'resource=TOPIC:"a\\nallowed principal=x"' in line
    assert len(decision_line(denial("x" * 30_000), 1, is_report_only=False)) < 500
