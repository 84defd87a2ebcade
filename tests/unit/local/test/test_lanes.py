"""Stages of `make test`: what each records, and lanes of them side by side."""

import os
import select
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
HEAD = """
. local/lib.sh
. local/test/lanes.sh
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return os.environ | {"STAGES": str(tmp_path / "stages.tsv"), "RESULTS": str(tmp_path), "T": str(tmp_path)}


def bash(script: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", HEAD + script],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def rows(tmp_path: Path) -> list[list[str]]:
    return [line.split("\t") for line in (tmp_path / "stages.tsv").read_text().splitlines()]


def test_a_stage_records_its_exit_code_and_returns_it(tmp_path: Path, environment: dict[str, str]) -> None:
    done = bash(
        "status=0; stage 'three words here' 5 bash -c 'echo out; exit 3' || status=$?; exit $status", environment
    )
    assert done.returncode == 3
    assert done.stdout == "out\n"
    assert "FAILED with exit code 3" in done.stderr
    [[name, seconds, budget, status, cpu]] = rows(tmp_path)
    assert (name, budget, status) == ("three words here", "5", "3")
    assert float(seconds) >= 0
    assert float(cpu) >= 0


def test_a_stage_runs_in_the_shell_that_calls_it(environment: dict[str, str]) -> None:
    # make up sets there what its trap ends.
    assert bash("work() { worker=42; }; stage work 5 work; echo $worker", environment).stdout == "42\n"


def test_processor_time_of_children_and_of_others_is_added_up(tmp_path: Path, environment: dict[str, str]) -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    others = tmp_path / "others"
    script = f"""
        work() {{ python3 -c '{busy}'; printf '1000\\n200.5\\n' >>"$STAGE_CPU"; }}
        : >"$STAGE_CPU"; stage work 5 work
    """
    assert bash(script, environment | {"STAGE_CPU": str(others)}).returncode == 0
    [row] = rows(tmp_path)
    assert 1200.8 <= float(row[4]) < 1230


def test_nothing_that_a_stage_leaves_running_keeps_its_output_open(environment: dict[str, str]) -> None:
    # `make test | tee` would wait for it.
    done = bash("work() { sleep 300 >/dev/null 2>&1 </dev/null & echo $!; }; stage work 5 work", environment)
    os.kill(int(done.stdout), signal.SIGKILL)


def test_lanes_run_side_by_side_and_show_each_stage_whole(tmp_path: Path, environment: dict[str, str]) -> None:
    # Each waits for the other to be there: one after the other, they would never end.
    script = """
        mkfifo "$T/meet"
        work() { echo "$1 begins"; "$1_meets"; echo "$1 ends"; }
        left_meets() { echo here >"$T/meet"; }
        right_meets() { read -r _ <"$T/meet"; }
        left() { lane_stage left 5 work left; }
        right() { lane_stage right 5 work right; }
        run_lanes left right
        echo closing
    """
    done = bash(script, environment)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == "closing"
    for lane in ("left", "right"):
        first = lines.index(f"==> {lane}")
        assert lines[first : first + 3] == [f"==> {lane}", f"{lane} begins", f"{lane} ends"]
        assert lines[first + 3].startswith(f"<== {lane}:")


def test_a_stage_that_fails_ends_neither_its_lane_nor_the_other(tmp_path: Path, environment: dict[str, str]) -> None:
    script = """
        left() { lane_stage broken 5 false; lane_stage after 5 true; }
        right() { lane_stage beside 5 true; }
        run_lanes left right
    """
    assert bash(script, environment).returncode == 0
    assert {(row[0], row[3]) for row in rows(tmp_path)} == {("broken", "1"), ("after", "0"), ("beside", "0")}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_run_ends_what_both_lanes_started(
    number: signal.Signals, tmp_path: Path, environment: dict[str, str]
) -> None:
    fifo = tmp_path / "started"
    os.mkfifo(fifo)
    script = """
        work() { bash -c 'echo $$ >"$T/started"; exec sleep 300'; }
        left() { lane_stage left 5 work; }
        right() { lane_stage right 5 work; }
        run_lanes left right
    """
    run = subprocess.Popen(
        ["bash", "-c", HEAD + script], cwd=ROOT, env=environment, stderr=subprocess.DEVNULL, start_new_session=True
    )
    workers: list[str] = []
    while len(workers) < 2:
        workers += fifo.read_text().split()
    run.send_signal(number)
    assert run.wait(30) == 128 + number
    assert [worker for worker in workers if not ends(int(worker))] == []


def ends(pid: int) -> bool:
    """Return whether a process that got its signal ends; where nobody reaps it, it stays as a zombie."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    poll = select.poll()  # select() takes no descriptor from 1,024 on
    poll.register(process, select.POLLIN)
    with os.fdopen(process):
        return bool(poll.poll(30_000))
