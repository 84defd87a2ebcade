"""What comes of a bug in a task that the broker runs beside its requests."""

import asyncio
import os
import re
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import pylog.broker
from pylog.broker.tasks import Tasks, end_process, end_process_of_thread
from pylog.wire.records import parse_header

Context = dict[str, Any]


@pytest.fixture
def codes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Exit codes the process would have ended with."""
    found: list[int] = []
    monkeypatch.setattr(os, "_exit", found.append)
    return found


def run(story: Callable[[Tasks], Coroutine[None, None, None]], handler: Any = None) -> list[Context]:
    """Run *story*; return what reached the loop's exception handler, which is *handler* or only keeps it."""
    seen: list[Context] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(handler or (lambda _, context: seen.append(context)))
        tasks = Tasks()
        async with asyncio.timeout(30):
            await story(tasks)
        await tasks.stop()

    asyncio.run(main())
    return seen


async def fail() -> None:
    raise ZeroDivisionError("a bug")


async def one_turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_rule_11_a_bug_in_a_task_reaches_the_loop_though_nobody_awaits_it() -> None:
    async def story(tasks: Tasks) -> None:
        tasks.spawn(fail())
        await one_turn()

    [context] = run(story)
    assert isinstance(context["exception"], ZeroDivisionError)


def test_rule_11_it_ends_the_process_with_its_code_in_the_log(
    codes: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    async def story(tasks: Tasks) -> None:
        tasks.spawn(fail())
        await one_turn()

    run(story, end_process)
    assert codes == [1]
    [record] = [record for record in caplog.records if record.levelname == "CRITICAL"]
    assert "code=PYLOG-0211 reason=ZeroDivisionError('a bug')" in record.getMessage()
    assert record.exc_info is not None, "without the place nobody can mend it"


@pytest.mark.parametrize(("callback", "expected"), [(parse_header, [1]), (int, [])], ids=["ours", "a library's"])
def test_a_callback_of_ours_that_fails_ends_it_too(
    codes: list[int], callback: Callable[[memoryview], object], expected: list[int]
) -> None:
    async def story(tasks: Tasks) -> None:
        asyncio.get_running_loop().call_soon(callback, memoryview(b"x"))
        await one_turn()

    run(story, end_process)
    assert codes == expected


def test_rule_11_a_bug_that_ends_a_thread_ends_the_process(
    codes: list[int], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", end_process_of_thread)
    thread = threading.Thread(target=int, args=("x",), name="a library's")
    thread.start()
    thread.join()
    assert codes == [1]
    [record] = [record for record in caplog.records if record.levelname == "CRITICAL"]
    assert "code=PYLOG-0211 thread=a library's reason=ValueError" in record.getMessage()


def test_what_a_connection_to_another_broker_tells_does_not(codes: list[int]) -> None:
    async def story(tasks: Tasks) -> None:
        context = {"message": "Fatal write error on socket transport", "exception": TimeoutError(), "transport": None}
        asyncio.get_running_loop().call_exception_handler(context)

    run(story, end_process)
    assert codes == []


def test_tasks_that_end_or_are_ended_are_no_bugs() -> None:
    async def story(tasks: Tasks) -> None:
        waiting = tasks.spawn(asyncio.sleep(3600))
        assert await tasks.spawn(asyncio.sleep(0, "done")) == "done"
        await tasks.stop()
        assert waiting.cancelled()

    assert run(story) == []


AWAITED = {"images.py": 1, "process.py": 2, "replication.py": 1}
"""Tasks whose end is waited for where they are started."""


def test_every_other_task_of_the_broker_is_one_of_these() -> None:
    found = {
        path.name: count
        for path in Path(pylog.broker.__path__[0]).rglob("*.py")
        if (count := len(re.findall(r"create_task\(|ensure_future\(|TaskGroup\(", path.read_text())))
    }
    assert found == {"tasks.py": 1, **AWAITED}
