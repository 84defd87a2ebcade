"""`pylog produce` and `pylog consume` with format strings, and as members of a group."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from pylog.testing import BrokerProcess
from tests.command import Command

DEADLINE_S = 40.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    config = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}
    with BrokerProcess(tmp_path_factory.mktemp("broker"), config=config) as running:
        yield running


@pytest.fixture(scope="module")
def pylog(broker: BrokerProcess) -> Command:
    return Command(broker.bootstrap)


@contextmanager
def member(bootstrap: str, output: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``pylog consume`` as a process of its own, and stop it in any state."""
    with output.open("wb") as file:
        command = [sys.executable, "-m", "pylog", "consume", *arguments, "-b", bootstrap]
        process = subprocess.Popen(command, stdout=file)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def wait_for_lines(count: int, *outputs: Path) -> list[bytes]:
    deadline_s = time.monotonic() + DEADLINE_S
    while len(lines := b"".join(path.read_bytes() for path in outputs).splitlines()) < count:
        assert time.monotonic() < deadline_s, f"{len(lines)} of {count} lines"
        time.sleep(0.05)
    return lines


def test_a_line_gives_key_partition_time_and_headers(pylog: Command) -> None:
    pylog("topic", "create", "formed", "--partitions", "3")
    pylog("produce", "formed", "-f", r"%p %T %h %k=%s\n", "-H", "z=9", stdin=b"2 1700000000000 a=1,b=2 k=v=w\n")
    assert pylog("consume", "formed", "-e", "-f", r"%t %p %o %T %D %k %v %h\n").text == (
        "formed 2 0 1700000000000 2023-11-14T22:13:20.000+00:00 k v=w a=1,b=2,z=9\n"
    )


def test_options_fill_in_what_lines_leave_out(pylog: Command) -> None:
    pylog("topic", "create", "filled", "--partitions", "2")
    pylog("produce", "filled", "--key", "k", "--timestamp", "1700000000000", "-p", "1", stdin=b"v\n")
    pylog("produce", "filled", "-k", ":", "--key", "none", "-p", "1", stdin=b"own:v\nv\n")
    assert pylog("consume", "filled", "-p", "1", "-e", "-f", r"%k \n").text == "k \nown \nnone \n"
    assert pylog("consume", "filled", "-e", "-n", "1", "-f", "%T").text == "1700000000000"


def test_json_goes_round(pylog: Command) -> None:
    pylog("topic", "create", "from", "--partitions", "2")
    pylog("topic", "create", "to", "--partitions", "2")
    pylog("produce", "from", "-k", ":", "-H", "h=1", stdin=b"".join(b"k%d:\xff%d\n" % (n, n) for n in range(50)))
    copied = pylog("consume", "from", "-e", "-f", "json").output
    pylog("produce", "to", "-f", "json", stdin=copied)

    def seen(lines: bytes) -> list[object]:
        return sorted((row | {"topic": ""} for row in map(json.loads, lines.splitlines())), key=str)

    assert seen(pylog("consume", "to", "-e", "-f", "json").output) == seen(copied)


def test_a_line_that_does_not_fit_ends_it_after_those_before(pylog: Command) -> None:
    pylog("topic", "create", "cut", "--partitions", "1")
    ended = pylog("produce", "cut", "-f", "%k:%s", stdin=b"a:1\nb:2\nnothing\nc:3\n", exit_code=2)
    assert "where:  line 3" in ended.notes
    assert "[PYLOG-0015]" in ended.notes
    assert pylog("consume", "cut", "-e", "-f", "%k").text == "ab"


def test_whole_words_stand_for_formats(pylog: Command) -> None:
    pylog("topic", "create", "words", "--partitions", "1")
    pylog("produce", "words", "--key", "k", "--timestamp", "1700000000000", stdin=b"v\n")
    consume = ["consume", "words", "-e", "-f"]
    assert pylog(*consume, "text").text == "v\n"
    assert pylog(*consume, "wide").text == "words-0@0 2023-11-14T22:13:20.000+00:00 k v\n"
    [found] = yaml.safe_load_all(pylog(*consume, "yaml").text)
    assert found == pylog(*consume, "json").json


def test_several_topics_are_read_at_once(pylog: Command) -> None:
    for name in ("one", "two"):
        pylog("topic", "create", name, "--partitions", "1")
        pylog("produce", name, stdin=name.encode() + b"\n")
    assert sorted(pylog("consume", "one", "two", "-e").text.split()) == ["one", "two"]


def test_members_share_a_topic_and_leave_their_offsets(pylog: Command, broker: BrokerProcess, tmp_path: Path) -> None:
    pylog("topic", "create", "shared", "--partitions", "6")
    outputs = [tmp_path / name for name in "abc"]
    arguments = ("shared", "-g", "readers", "-f", r"%p %s\n")
    with (
        member(broker.bootstrap, outputs[0], *arguments) as a,
        member(broker.bootstrap, outputs[1], *arguments) as b,
        member(broker.bootstrap, outputs[2], *arguments) as c,
    ):
        deadline_s = time.monotonic() + DEADLINE_S
        while [row["partition_count"] for row in describe(pylog, "readers")["members"]] != [2, 2, 2]:
            assert time.monotonic() < deadline_s
            time.sleep(0.1)
        pylog("produce", "shared", "-k", ":", stdin=b"".join(b"k%d:%d\n" % (n, n) for n in range(300)))
        lines = wait_for_lines(300, *outputs)
        assert sorted(int(line.split()[1]) for line in lines) == list(range(300))
        owned = [{line.split()[0] for line in path.read_bytes().splitlines()} for path in outputs]
        assert [len(partitions) for partitions in owned] == [2, 2, 2]
        assert len(set.union(*owned)) == 6
        for process in (a, b, c):
            process.send_signal(signal.SIGTERM)
            assert process.wait(DEADLINE_S) == 0
    found = describe(pylog, "readers")
    assert (found["state"], found["lag"], found["status"]) == ("Empty", 0, "OK")


def describe(pylog: Command, group: str) -> dict[str, list[dict[str, int]]]:
    code = "import sys; from pylog.cli.app import run; sys.exit(run(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "group", "describe", group, "--format", "json", "-b", pylog.bootstrap]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return json.loads(ended.stdout) if ended.returncode == 0 else {"members": []}


def test_a_group_goes_on_where_it_was(pylog: Command, broker: BrokerProcess) -> None:
    pylog("topic", "create", "parts", "--partitions", "1")
    pylog("produce", "parts", stdin=b"0\n1\n2\n3\n4\n")

    def read(*options: str) -> str:
        command = [sys.executable, "-m", "pylog", "consume", "parts", "-g", "g", *options, "-b", broker.bootstrap]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE_S).stdout

    assert read("-n", "2") == "0\n1\n"
    assert read("-e") == "2\n3\n4\n"
    assert read("-e") == ""


@pytest.mark.parametrize(
    ("arguments", "exit_code", "told"),
    [
        (["parts", "-g", "g", "-p", "0"], 2, "found:  --partition"),
        (["parts", "-g", "g", "--from", "5"], 2, "pylog group reset-offsets g"),
        (["nowhere", "-g", "g"], 1, "topic 'nowhere' does not exist"),
    ],
)
def test_what_a_member_cannot_do_is_refused(pylog: Command, arguments: list[str], exit_code: int, told: str) -> None:
    assert told in pylog("consume", *arguments, exit_code=exit_code).notes
