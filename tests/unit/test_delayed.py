"""Waiting requests: found by key, over at their deadline, never twice."""

from pylog.delayed import DelayedRequests


def test_a_request_is_found_under_each_of_its_keys_until_it_is_finished() -> None:
    waiting: DelayedRequests[str, str] = DelayedRequests()
    waiting.watch("fetch", ["a", "b"], deadline_ms=10)
    assert waiting.under("a") == waiting.under("b") == ["fetch"]
    assert waiting.finish("fetch")
    assert not waiting.finish("fetch")
    assert not waiting.is_awaited("a")
    assert waiting.expire(now_ms=99) == []


def test_requests_expire_in_order_of_their_deadlines() -> None:
    waiting: DelayedRequests[str, str] = DelayedRequests()
    waiting.watch("late", ["a"], deadline_ms=20)
    waiting.watch("early", ["a"], deadline_ms=10)
    assert waiting.next_deadline_ms() == 10
    assert waiting.expire(now_ms=9) == []
    assert waiting.expire(now_ms=20) == ["early", "late"]
    assert waiting.next_deadline_ms() is None
    assert len(waiting) == 0


def test_a_finished_request_no_longer_sets_the_next_deadline() -> None:
    waiting: DelayedRequests[str, str] = DelayedRequests()
    waiting.watch("first", ["a"], deadline_ms=10)
    waiting.watch("second", ["a"], deadline_ms=20)
    waiting.finish("first")
    assert waiting.next_deadline_ms() == 20


def test_finished_requests_are_not_kept_until_their_deadline() -> None:
    waiting: DelayedRequests[str, int | str] = DelayedRequests()
    waiting.watch("stays", ["a"], deadline_ms=5_000)
    for number in range(10_000):
        waiting.watch(number, ["a"], deadline_ms=30_000)
        waiting.finish(number)
    assert len(waiting._deadlines) < 200, "a producer with acks=all leaves one behind with every request"
    assert waiting.expire(now_ms=30_000) == ["stays"]
