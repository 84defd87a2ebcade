"""Where the broker's CPU goes: pylog under one row of the paper's workload, sampled from outside by py-spy.

python -m bench.paper.profile_broker p50a1 | p1a1 | c50 ... [--count 2000000] [--top 25] [--native]

Prints the share of samples that each line was running, and that each function was on the stack with what it called.
The event loop's own work (epoll, wake-ups) shows as `Runner.run`, below which uvloop is C.  Needs py-spy on
the path: ``uv tool install py-spy``.
"""

import argparse
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from bench.harness.clients import WORK_DIR
from bench.harness.contenders import Contender, contender, measure
from bench.harness.measure import Row
from bench.paper.paper import ROWS, SIZE_BYTES

_RATE_HZ = 500
_MAIN = "pylog/broker/process.py"
"""On the stack of the thread that serves, and of no other."""


def record(broker: Contender, row: Row, count: int, output: Path, is_native: bool) -> None:
    """Run *row* once and keep the broker's stacks meanwhile in *output* (py-spy's raw format).

    Raises:
        RuntimeError: py-spy is missing.
    """
    py_spy = shutil.which("py-spy")
    if py_spy is None:
        raise RuntimeError("py-spy is needed: uv tool install py-spy")
    topic = "profiled"
    broker.begin(topic)
    if row.acks is None:
        fill = Row(label="fill", batch=row.batch, acks=1)
        print(measure(broker, fill, topic, count, SIZE_BYTES, None, 0))
    command = [
        py_spy,
        "record",
        "--pid",
        str(broker.pid),
        "--format",
        "raw",
        "--rate",
        str(_RATE_HZ),
        "--output",
        str(output),
        "--duration",
        "unlimited",
    ]
    spy = subprocess.Popen(
        [*command, "--native"] if is_native else command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        print(measure(broker, row, topic, count, SIZE_BYTES, None, 0))
    finally:
        spy.send_signal(signal.SIGINT)
        spy.wait(60)


def shares(raw: str) -> tuple[Counter[str], Counter[str]]:
    """Return how many samples each line was running, and each function of pylog's was on the stack."""
    own, total = Counter[str](), Counter[str]()
    for line in raw.splitlines():
        stack, _, samples = line.rpartition(" ")
        if _MAIN not in stack:
            continue  # a helper thread that waits; py-spy takes some for busy
        frames = [re.sub(r"\(.*/(pylog|site-packages)/", r"(\1/", frame) for frame in stack.split(";")]
        own[frames[-1]] += int(samples)
        # The same function may stand twice on a stack; the command line stands below all of it and says nothing.
        functions = {re.sub(r":\d+\)$", ")", frame) for frame in frames if "(pylog/" in frame}
        for function in functions:
            if not re.search(r"pylog/(__main__|cli/)", function):
                total[function] += int(samples)
    return own, total


def show(title: str, counted: Counter[str], all_samples: int, top: int) -> None:
    """Print the *top* frames with their shares."""
    print(f"\n{title}")
    for frame, samples in counted.most_common(top):
        print(f"  {100 * samples / all_samples:5.1f} %  {frame}")


def main(arguments: Sequence[str]) -> int:
    """Profile one row."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.paper.profile_broker",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    rows = {row.label: row for row in ROWS}
    parser.add_argument("row", choices=rows)
    parser.add_argument("--count", type=int, default=2_000_000)
    parser.add_argument("--top", type=int, default=25)
    parser.add_argument("--native", action="store_true", help="show C functions as well; slower")
    parser.add_argument("--work-dir", type=Path, default=WORK_DIR)
    options = parser.parse_args(arguments)
    output = options.work_dir / f"profile-{options.row}.txt"
    with contender("pylog", options.work_dir, None) as broker:
        record(broker, rows[options.row], options.count, output, options.native)
    own, total = shares(output.read_text())
    show("line running", own, own.total(), options.top)
    show("function and what it called", total, own.total(), options.top)
    print(f"\n{own.total()} samples; stacks for a flame graph: {output}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
