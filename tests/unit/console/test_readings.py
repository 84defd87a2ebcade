"""Readings: what is kept of the last answer, and since when there is none."""

import threading
from collections.abc import Callable

from pylog.console.readings import MAX_QUESTIONS, FirstSeen, Question, Questions, Reading, reason_of
from pylog.errors import ApiError, ErrorCode, Unreachable


class Source:
    """Answers a number that grows; fails while it is away."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_away = False
        self.now_ms = 1_000

    def __call__(self) -> int:
        self.asked += 1
        if self.is_away:
            raise Unreachable("nobody answers")
        return self.asked

    def clock(self) -> int:
        return self.now_ms


class Asker:
    """Reads one question, always by the same function."""

    def __init__(self, source: Source, max_age_ms: int, ask: Callable[[], int] | None = None) -> None:
        self._question: Question[int] = Question(max_age_ms, source.clock)
        self._ask = ask or source

    def read(self) -> Reading[int]:
        return self._question.read(self._ask)


def test_an_answer_is_kept_for_its_age_limit() -> None:
    source = Source()
    question = Asker(source, 5_000)
    assert question.read() == Reading(1, 1_000, "", None, 1_000)
    source.now_ms = 5_999
    assert question.read().value == 1
    source.now_ms = 6_000
    assert question.read().value == 2


def test_a_failure_keeps_the_value_and_the_time_of_the_first_failure() -> None:
    source = Source()
    question = Asker(source, 1_000)
    question.read()
    source.is_away = True
    for source.now_ms in (2_000, 3_000, 4_000):
        question.read()
    assert question.read() == Reading(1, 1_000, "nobody answers", 2_000, 4_000)
    source.is_away, source.now_ms = False, 5_000
    assert question.read() == Reading(5, 5_000, "", None, 5_000)


def test_a_failure_is_not_tried_again_before_its_time() -> None:
    source = Source()
    source.is_away = True
    question = Asker(source, 1_000)
    question.read()
    source.now_ms = 1_999
    assert question.read().value is None
    assert source.asked == 1


def test_while_one_thread_asks_the_others_get_the_last_reading() -> None:
    source = Source()
    is_asked, may_answer = threading.Event(), threading.Event()
    answers = iter((False, True))

    def ask() -> int:
        if next(answers):
            is_asked.set()
            assert may_answer.wait(10)
        return source()

    question = Asker(source, 1_000, ask)
    question.read()
    source.now_ms = 3_000
    slow = threading.Thread(target=question.read)
    slow.start()
    assert is_asked.wait(10)
    assert question.read().value == 1
    may_answer.set()
    slow.join()
    assert question.read().value == 2


def test_questions_are_bounded_and_the_least_recent_goes() -> None:
    source = Source()
    questions = Questions(source.clock)
    for number in range(MAX_QUESTIONS):
        questions.read(number, 1_000, source)
    questions.read(0, 1_000, source)
    questions.read("one more", 1_000, source)
    asked = source.asked
    questions.read(0, 1_000, source)
    assert source.asked == asked
    questions.read(1, 1_000, source)
    assert source.asked == asked + 1


def test_what_is_mended_and_breaks_again_begins_anew() -> None:
    seen = FirstSeen()
    assert seen.note({"a"}, 1) == {"a": 1}
    assert seen.note({"a", "b"}, 2) == {"a": 1, "b": 2}
    assert seen.note({"b"}, 3) == {"b": 2}
    assert seen.note({"a"}, 4) == {"a": 4}


def test_a_refusal_is_named_by_its_code() -> None:
    refused = ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not allowed")
    assert reason_of(refused) == "CLUSTER_AUTHORIZATION_FAILED: not allowed"


def test_a_question_is_asked_with_what_is_known_now() -> None:
    source = Source()
    questions = Questions(source.clock)
    assert questions.read("k", 1_000, lambda: "then").value == "then"
    source.now_ms += 1_000
    assert questions.read("k", 1_000, lambda: "now").value == "now"
