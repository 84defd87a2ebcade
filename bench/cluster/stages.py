"""Where a message of acks=all is between its sender and its reader, and where the slowest of them wait.

python -m bench.cluster.stages [--seconds 8] [--rate 1000] [--real-time]

Three brokers, one partition with three replicas; every process notes the time by the machine's one clock:

send      from `produce()` until the leader has written it
copy      until the second follower has written it
settle    until the leader has heard of that, and shows the message to readers
deliver   until the reader that waits has it

Beside it, how long each broker's loop ran, and how long it could have but waited for a processor.  With --real-time
(root only) brokers and client go before every other process for these seconds: what they are like on a machine where
nobody else is at work, as far as a busy one can tell.
"""

import argparse
import atexit
import json
import os
import statistics
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.cluster.replicated import RATE, SESSION_MS, WARM_UP_S, create, paced
from pylog.replica.leader import Leader
from pylog.testing import BrokerProcess
from tests.cluster.conftest import write_config
from tests.servers.zookeeper import ZooKeeper

TOPIC = "paced"
NOTES = "PYLOG_BENCH_STAGES"
"""Variable that names the directory for what brokers noted."""

STAGES = ("send", "copy", "settle", "deliver")
SLOWEST = 100
"""One in so many messages counts as slow."""

Notes = dict[str, list[tuple[float, int]]]
"""By step, when it was taken and the offset after what it was taken with."""


def run_broker() -> None:
    """Be the command `pylog`, and note when the leader writes, a follower writes, and the high watermark moves."""
    from pylog.__main__ import main
    from pylog.broker.data.partitions import Partitions
    from pylog.log.log import AppendResult, Log

    notes: Notes = {"led": [], "followed": [], "settled": []}
    append_as_leader, append_as_follower, advance = Log.append_as_leader, Log.append_as_follower, Partitions._advance

    def note(step: str, topic: str, offset: int) -> None:
        if topic == TOPIC:
            notes[step].append((time.perf_counter(), offset))

    def leader_appends(log: Log, *given: Any, **named: Any) -> AppendResult:  # noqa: ANN401
        done = append_as_leader(log, *given, **named)
        note("led", log.topic_partition.topic, log.log_end_offset)
        return done

    def follower_appends(log: Log, *given: Any) -> AppendResult:  # noqa: ANN401
        done = append_as_follower(log, *given)
        note("followed", log.topic_partition.topic, log.log_end_offset)
        return done

    def advances(partitions: Partitions, log: Log, leading: Leader) -> bool:
        has_moved = advance(partitions, log, leading)
        if has_moved:
            note("settled", log.topic_partition.topic, log.high_watermark)
        return has_moved

    Log.append_as_leader, Log.append_as_follower = leader_appends, follower_appends  # type: ignore[method-assign, assignment]
    Partitions._advance = advances  # type: ignore[method-assign, assignment]
    path = Path(os.environ[NOTES]) / f"{os.getpid()}.json"
    atexit.register(lambda: path.write_text(json.dumps(notes)))
    main()


def run_and_wait_s(pid: int) -> tuple[float, float]:
    """Return how long the main thread of *pid* has run so far, and how long it has waited for a processor."""
    ran_ns, waited_ns, _ = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()
    return int(ran_ns) / 1e9, int(waited_ns) / 1e9


def go_first(pids: Iterable[int]) -> None:
    """Let every thread of *pids*, and those that they will start, run before all other processes."""
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setscheduler(int(thread.name), os.SCHED_RR, os.sched_param(1))


def stages_ms(times: Sequence[tuple[float, float]], brokers: Sequence[Notes]) -> list[tuple[float, ...]]:
    """Return how long each message was in each stage."""
    leader = max(brokers, key=lambda notes: len(notes["led"]))
    led, settled = _when(leader["led"]), _when(leader["settled"])
    followed = [_when(notes["followed"]) for notes in brokers if notes is not leader]
    found = []
    for number, (sent_s, arrived_s) in enumerate(times):
        steps = (sent_s, led(number + 1), max(when(number + 1) for when in followed), settled(number + 1), arrived_s)
        found.append(tuple((after - before) * 1e3 for before, after in pairwise(steps)))
    return found


def _when(noted: Sequence[tuple[float, int]]) -> Callable[[int], float]:
    times, offsets = zip(*noted, strict=True)
    return lambda offset: float(times[bisect_left(offsets, offset)])


def measure(seconds: float, rate: int, directory: Path, *, is_real_time: bool) -> list[tuple[float, ...]]:
    """Run it all; return the stages of each message, and print what the brokers' loops did."""
    with ZooKeeper(directory / "zookeeper") as zookeeper:
        with ExitStack() as stack:
            brokers = []
            for number in (1, 2, 3):
                home = directory / str(number)
                config = write_config(home, number, zookeeper, session_timeout_ms=SESSION_MS)
                brokers.append(
                    stack.enter_context(
                        BrokerProcess(
                            home, config_file=config, module="bench.cluster.stages", env={NOTES: str(directory)}
                        )
                    )
                )
            bootstrap = ",".join(one.bootstrap for one in brokers)
            create(bootstrap, TOPIC, 1)
            if is_real_time:
                go_first([os.getpid(), *(one.pid for one in brokers)])
            before = [run_and_wait_s(one.pid) for one in brokers]
            times = paced(bootstrap, TOPIC, seconds, rate)
            for one, (ran_s, waited_s) in zip(brokers, before, strict=True):
                ran_now_s, waited_now_s = run_and_wait_s(one.pid)
                print(
                    f"broker {one.pid}: ran {ran_now_s - ran_s:.2f} s, waited for a processor "
                    f"{waited_now_s - waited_s:.2f} s of {times[-1][1] - times[0][0]:.1f}"
                )
        notes = [json.loads(path.read_text()) for path in directory.glob("*.json")]
    return stages_ms(times, notes)[int(WARM_UP_S * rate) :]


def main(arguments: Sequence[str]) -> int:
    """Print a line for each stage."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.cluster.stages", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rate", type=int, default=RATE)
    parser.add_argument("--real-time", action="store_true")
    options = parser.parse_args(arguments)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as directory:
        found = measure(options.seconds, options.rate, Path(directory), is_real_time=options.real_time)
    slow = sorted(found, key=sum)[-(len(found) // SLOWEST) :]
    print(f"load average {load:.1f} before it; ms\n{'':8} {'p50':>7} {'p99':>7} {'p99.9':>7}  mean of the slowest 1 %")
    for name, pick in [("all", sum), *((name, lambda row, at=at: row[at]) for at, name in enumerate(STAGES))]:
        cuts = statistics.quantiles(map(pick, found), n=1_000)
        print(f"{name:8} {cuts[499]:7.2f} {cuts[989]:7.2f} {cuts[998]:7.2f}  {statistics.mean(map(pick, slow)):7.2f}")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["broker"]:
        run_broker()
    else:
        sys.exit(main(sys.argv[1:]))
