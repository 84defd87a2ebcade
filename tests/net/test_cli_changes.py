"""Commands that change settings and partitions, that watch, and that help, against a real broker."""

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from pylog.testing import BrokerProcess
from tests.command import Command


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), config={"log.retention.hours": 5}) as running:
        yield running


@pytest.fixture(scope="module")
def pylog(broker: BrokerProcess) -> Command:
    return Command(broker.bootstrap)


def own_settings(pylog: Command, topic: str) -> dict[str, str]:
    found = pylog("topic", "describe", topic, "--format", "json").json
    return {name: found["config"][name] for name in found["own_config"]}


def test_a_topic_grows_and_changes_its_settings(pylog: Command) -> None:
    pylog("topic", "create", "grows", "--partitions", "2", "--config", "segment.ms=60000")
    dry = pylog("topic", "alter", "grows", "-p", "5", "--set", "retention.ms=1000", "--dry-run")
    assert (dry.output, dry.notes) == (b"", "would alter topic grows: 5 partitions instead of 2\n")
    assert (partitions(pylog, "grows"), own_settings(pylog, "grows")) == (2, {"segment.ms": "60000"})
    ended = pylog(
        "topic", "alter", "grows", "-p", "5", "--set", "retention.ms=1000", "--delete", "segment.ms", "--format", "json"
    )
    assert ended.json == {
        "topic": "grows",
        "partitions": 5,
        "set": {"retention.ms": "1000"},
        "deleted": ["segment.ms"],
        "dry_run": False,
    }
    assert (partitions(pylog, "grows"), own_settings(pylog, "grows")) == (5, {"retention.ms": "1000"})


def partitions(pylog: Command, topic: str) -> int:
    return len(pylog("topic", "describe", topic, "--format", "json").json["partitions"])


@pytest.mark.parametrize(
    ("arguments", "exit_code", "told"),
    [
        (["grown"], 2, "--partitions, --set, --delete"),
        (["grown", "-p", "1"], 1, "PYLOG-1037"),
        (["grown", "--set", "no.such=1"], 1, "PYLOG-1040"),
        (["grown", "--set", "retention.ms=soon"], 1, "PYLOG-1040"),
        (["nowhere", "-p", "3"], 1, "PYLOG-1003"),
    ],
)
def test_what_cannot_be_altered_says_why(pylog: Command, arguments: list[str], exit_code: int, told: str) -> None:
    pylog("topic", "create", "grown", "--partitions", "1", "--if-not-exists")
    assert told in pylog("topic", "alter", *arguments, exit_code=exit_code).notes


def test_settings_show_who_says_so(pylog: Command) -> None:
    pylog("topic", "create", "told", "--partitions", "1")
    altered = pylog("config", "alter", "topic", "told", "--set", "max.message.bytes=2000")
    assert altered.notes == "altered topic told\n"
    rows = {row["setting"]: row for row in pylog("config", "describe", "topic", "told", "--format", "json").json}
    assert rows["max.message.bytes"] == {
        "setting": "max.message.bytes",
        "value": "2000",
        "source": "topic",
        "read_only": False,
    }
    assert (rows["retention.ms"]["value"], rows["retention.ms"]["source"]) == (str(5 * 3_600_000), "broker's file")
    assert rows["segment.bytes"]["source"] == "default"
    text = pylog("config", "describe", "topic", "told").text
    assert "max.message.bytes" in text
    assert "segment.bytes" not in text
    assert "segment.bytes" in pylog("config", "describe", "topic", "told", "--format", "wide").text
    pylog("config", "alter", "topic", "told", "--delete", "max.message.bytes")
    assert "max.message.bytes" not in pylog("config", "describe", "topic", "told").text


def test_a_brokers_settings_are_read_and_not_changed(pylog: Command) -> None:
    rows = yaml.safe_load(pylog("config", "describe", "broker", "0", "--format", "yaml").output)
    assert {"setting": "num.partitions", "value": "1", "source": "default", "read_only": True} in rows
    refused = pylog("config", "alter", "broker", "0", "--set", "num.partitions=3", exit_code=1).notes
    assert "PYLOG-10" in refused
    assert "at least one" in pylog("config", "alter", "topic", "told", exit_code=2).notes


def test_leaders_that_need_no_election_are_no_failure(pylog: Command) -> None:
    pylog("topic", "create", "led", "--partitions", "2")
    ended = pylog("partition", "elect", "--topic", "led:0,1")
    assert (ended.output, ended.notes) == (b"", "every partition is led as it should be\n")
    assert pylog("partition", "elect", "--format", "json").json == []
    assert "0 to 1" in pylog("partition", "elect", "-t", "led:7", exit_code=1).notes
    assert "--topic with it" in pylog("partition", "elect", "--unclean", exit_code=2).notes


def test_top_tells_rates_and_lag(pylog: Command, broker: BrokerProcess) -> None:
    pylog("topic", "create", "busy", "--partitions", "2")
    pylog("group", "reset-offsets", "behind", "--topic", "busy", "--to", "earliest", "--execute")
    pylog("produce", "busy", stdin=b"x\n" * 3000)
    command = [sys.executable, "-m", "pylog", "top", "--once", "--format", "json", "-i", "3", "-b", broker.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as top:
        while top.poll() is None:
            pylog("produce", "busy", stdin=b"x\n" * 10)
        assert top.stdout is not None
        found = json.loads(top.stdout.read())
    busiest = found["topics"][0]
    assert (busiest["topic"], busiest["partitions"]) == ("busy", 2)
    assert busiest["written_a_second"] > 0
    assert found["lag"] >= 3000
    assert (found["groups"][0]["group"], found["groups"][0]["lag"]) == ("behind", found["lag"])
    assert "__consumer_offsets" not in str(found["topics"])
    hottest = found["hot_partitions"][0]
    assert (hottest["topic"], hottest["leader"]) == ("busy", 0)
    assert hottest["times_mean"] >= 1
    assert found["groups"][0]["lag_seconds"] == pytest.approx(found["seconds"], abs=0.5), (
        "since the first look at least"
    )
    text = pylog("top", "--once", "-i", "0.1", "--internal").text
    assert "WRITTEN-A-SECOND" in text
    assert "__consumer_offsets" in text


def test_top_needs_a_terminal_to_be_watched(pylog: Command) -> None:
    assert "next:   pylog top --once" in pylog("top", exit_code=2).notes
    assert "PYLOG-0012" in pylog("top", "--format", "json", exit_code=2).notes


def test_top_draws_on_a_terminal_until_interrupted_also_while_nobody_answers(
    pylog: Command, broker: BrokerProcess
) -> None:
    pylog("topic", "create", "drawn", "--partitions", "1")
    child, terminal = pty.fork()
    if child == 0:
        os.environ["TERM"] = "xterm"
        command = [sys.executable, "-m", "pylog", "top", "-i", "0.2", "--timeout", "2", "-b", broker.bootstrap]
        os.execv(sys.executable, command)

    def see(*texts: bytes) -> None:
        seen, deadline_s = b"", time.monotonic() + 60
        while not all(text in seen for text in texts):
            assert time.monotonic() < deadline_s, seen
            if select.select([terminal], [], [], 1)[0]:
                seen += os.read(terminal, 65536)

    see(b"drawn", b"records a second", "▁".encode())
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        see(b"NOT UP TO DATE", b"drawn")
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    os.kill(child, signal.SIGINT)
    while True:
        try:
            if not os.read(terminal, 65536):
                break
        except OSError:  # how Linux says that nobody is at the other end
            break
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(terminal)


def on_a_terminal(broker: BrokerProcess, *arguments: str, stdin: bytes = b"") -> tuple[bytes, bytes]:
    """Run a command whose stderr is a terminal; return what came on stdout and what the terminal showed."""
    terminal, inside = pty.openpty()
    command = [sys.executable, "-m", "pylog", *arguments, "-b", broker.bootstrap]
    environment = os.environ | {"TERM": "xterm"}
    ended = subprocess.run(
        command, input=stdin, stdout=subprocess.PIPE, stderr=inside, check=True, timeout=60, env=environment
    )
    os.close(inside)
    shown = b""
    with contextlib.suppress(OSError):  # EIO: so a terminal says that nothing more comes
        while part := os.read(terminal, 1 << 16):
            shown += part
    os.close(terminal)
    return ended.stdout, shown


def test_bars_are_on_the_terminal_and_nowhere_else(pylog: Command, broker: BrokerProcess) -> None:
    pylog("topic", "create", "barred", "--partitions", "1")
    slow = ("top", "--once", "-i", "2.5")  # longer than a bar waits before it shows
    output, shown = on_a_terminal(broker, *slow)
    assert b"barred" in output
    assert b"looking twice" in shown
    assert on_a_terminal(broker, "--no-progress", *slow)[1] == b""
    assert pylog(*slow).notes == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script(pylog: Command, shell: str) -> None:
    assert "_PYLOG_COMPLETE" in pylog("completion", shell).text


COMPLETIONS = [
    ("pylog to", ["topic", "top"]),
    ("pylog topic d", ["describe", "delete"]),
    ("pylog topic describe comp", ["completed-a", "completed-b"]),
    ("pylog group describe compl", ["completing"]),
    ("pylog topic list --form", ["--format"]),
    ("pylog topic list --format j", ["json"]),
]


@pytest.fixture(scope="module")
def at_the_shell(pylog: Command, broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Topics and a group to complete, and the environment of somebody who has set a cluster."""
    home = tmp_path_factory.mktemp("home")  # fish makes directories in it
    for name in ("completed-a", "completed-b"):
        pylog("topic", "create", name, "--partitions", "1", "--if-not-exists")
    pylog("group", "reset-offsets", "completing", "--topic", "completed-a", "--to", "latest", "--execute")
    return os.environ | {
        "PYLOG_BOOTSTRAP": broker.bootstrap,
        "HOME": str(home),
        "TERM": "dumb",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }


@pytest.mark.parametrize(("line", "found"), COMPLETIONS)
def test_bash_completes(at_the_shell: dict[str, str], line: str, found: list[str]) -> None:
    words = line.split()
    assigned = " ".join(f"'{word}'" for word in words)
    # The shell itself sources the script and asks its function, as it does when the key is pressed.
    script = (
        f"source <(pylog completion bash); COMP_WORDS=({assigned}); COMP_CWORD={len(words) - 1}; "
        'COMP_LINE="${COMP_WORDS[*]}"; _pylog_completion pylog; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    ended = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, env=at_the_shell)
    assert ended.stdout.split() == found


@pytest.mark.parametrize(("line", "found"), COMPLETIONS)
def test_fish_completes(at_the_shell: dict[str, str], line: str, found: list[str]) -> None:
    script = f"pylog completion fish | source; complete --do-complete '{line}'"
    ended = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True, check=True,
                           env=at_the_shell)  # fmt: skip
    shown = [row.split("\t") for row in ended.stdout.splitlines()]
    assert sorted(row[0] for row in shown) == sorted(found)
    assert len(shown[0]) == 2 or line != "pylog topic d", "commands come with what they do"


def test_zsh_completes(at_the_shell: dict[str, str]) -> None:
    """Press the key on a terminal, and have the shell show what stands on its line then."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe("zsh", ["zsh", "-f", "-i"], at_the_shell)

    def wait_for(mark: str) -> str:
        shown, deadline = b"", time.monotonic() + 60
        while mark.encode() not in shown:
            assert time.monotonic() < deadline, f"{mark} not in {shown!r}"
            if select.select([terminal], [], [], 0.1)[0]:
                shown += os.read(terminal, 65536)
        return shown.decode()

    try:
        os.write(
            terminal,
            b"PROMPT=; autoload -Uz compinit && compinit -u -D; source <(pylog completion zsh); "
            b"show() { print -r -- \"<$BUFFER>\"; BUFFER= }; zle -N show; bindkey '^X' show; "
            b"setopt menu_complete; echo rea''dy\n",
        )
        wait_for("ready")
        for line, found in COMPLETIONS:
            os.write(terminal, line.encode() + b"\t\x18")
            words = wait_for(">").rpartition("<")[2].partition(">")[0].split()
            assert words[:-1] == line.split()[:-1]
            assert words[-1] in found
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def test_explain_lists_all_and_tells_one(pylog: Command) -> None:
    rows = pylog("explain", "--format", "json").json
    assert {"PYLOG-0100", "PYLOG-1003"} <= {row["code"] for row in rows}
    one = pylog("explain", "pylog-1003", "--format", "json").json
    assert one["exit_code"] == 1
    assert "`pylog topic list`" in one["remedy"]
