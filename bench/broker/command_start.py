"""How long short commands take from the shell's point of view, against a broker of this machine.

python -m bench.broker.command_start [--runs 20]
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pylog.testing import BrokerProcess

COMMANDS = (["--help"], ["topic", "list"], ["topic", "list", "--format", "json"], ["group", "list"])


def seconds(arguments: list[str], bootstrap: str) -> float:
    """Run one command and return how long it took."""
    environment = os.environ | {"PYLOG_BOOTSTRAP": bootstrap}
    command = [str(Path(sys.executable).with_name("pylog")), *arguments]
    started_s = time.perf_counter()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started_s


def main() -> None:
    """Print minimum, median and maximum of each command, and the load beside it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as directory, BrokerProcess(Path(directory)) as broker:
        found: dict[str, list[float]] = {" ".join(one): [] for one in COMMANDS}
        for _ in range(runs):  # by turns, so that a busy neighbour is everybody's
            for arguments in COMMANDS:
                found[" ".join(arguments)].append(seconds(arguments, broker.bootstrap))
    print(f"{runs} runs, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; min / median / max in ms")
    for command, took in found.items():
        print(
            f"pylog {command:28}",
            " / ".join(f"{value * 1000:.0f}" for value in (min(took), statistics.median(took), max(took))),
        )


if __name__ == "__main__":
    main()
