"""Run faults against a real cluster: python -m tests.chaos --minutes 30 [--seed N]; --clean RUN after a killed run.

--planted shows that the checker finds faults of the code.
"""

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.hunt import VIOLATIONS, chosen, hunt, table
from tests.chaos.ledger import clean_run, note_runner
from tests.chaos.page import page
from tests.chaos.run import PATIENCE_S, Options, Run, current_sources, remove_data
from tests.chaos.schedule import World, plan
from tests.servers.previous import previous_commit, previous_sources

_CHECKOUT = Path(__file__).resolve().parents[2]
_NAME_PREFIX = "pylog-chaos-"


def main() -> int:
    """Do what the command line asks for; 1 if the checker found something, 2 if nothing could be run."""
    arguments = _arguments()
    if arguments.clean is not None:
        return _clean(arguments.clean)
    seed = arguments.seed if arguments.seed is not None else int(time.time()) % 1_000_000
    world = World(brokers=arguments.brokers, has_swaps=not arguments.one_release)
    duration_s = arguments.minutes * 60
    try:
        faults = plan(seed, duration_s, world)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if arguments.schedule:
        for fault in faults:
            print(
                f"{fault.at_s:7.1f} s  {fault.kind}  target={fault.target} lasts_s={fault.lasts_s} value={fault.value}"
            )
        return 0
    missing = [tool for tool in ("ip", "tc", "nft", "mkfs.ext4", "faketime", "java") if shutil.which(tool) is None]
    if missing:
        print(f"error: not installed: {', '.join(missing)}; local/setup.sh installs what is needed", file=sys.stderr)
        return 2
    if arguments.planted is not None:
        return _hunt(arguments)
    return _run(arguments, seed, duration_s, world)


def _hunt(arguments: argparse.Namespace) -> int:
    try:
        faults = list(chosen(arguments.planted))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    options = [f"--minutes={arguments.minutes}", f"--rate={arguments.rate}", f"--brokers={arguments.brokers}"]
    found = []
    for planted in faults:
        found.append(hunt(planted, options))
        print(found[-1], flush=True)
        for kept in found[-1].kept:
            print(f"{planted.name}: not explained by the fault, kept: {kept}", flush=True)
    text = table(found, arguments.minutes)
    print(text)
    if arguments.page is not None:
        arguments.page.write_text(text)
    return 0 if all(one.is_found for one in found) else 1


def _run(arguments: argparse.Namespace, seed: int, duration_s: float, world: World) -> int:
    directory = Path(tempfile.mkdtemp(prefix=_NAME_PREFIX))
    note_runner(directory)
    # As Ctrl-C does: what was made is removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    print(f"seed={seed} directory={directory}; after a kill: python -m tests.chaos --clean {directory}", flush=True)
    previous = arguments.previous or previous_commit()
    options = Options(
        directory=directory,
        seed=seed,
        duration_s=duration_s,
        world=world,
        previous=previous_sources(previous),
        current=current_sources(directory / "current"),
        rate=arguments.rate,
        mutant=arguments.mutant,
        patience_s=arguments.patience,
    )
    commit = _commit()  # the checkout may move on while the run works with its copy
    report = Run(options)()
    command = f"local/test/chaos.sh --minutes {arguments.minutes:g} --seed {seed} --rate {arguments.rate}"
    text = page(report, commit, previous, command)
    (directory / "page.md").write_text(text)
    rows = ["\t".join(violation) for violation in report.violations]
    (directory / VIOLATIONS).write_text("".join(f"{row}\n" for row in rows))
    print(text)
    if arguments.page is not None:
        arguments.page.write_text(text)
    if report.is_clean:
        remove_data(directory)
        print(f"nothing was violated; logs, and the histories of producers that gave up: {directory}")
        return 0
    print(f"VIOLATED: {len(report.violations)}, not settled: {len(report.unsettled)}; everything is in {directory}")
    return 1


def _clean(directory: Path) -> int:
    try:
        left = clean_run(directory)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for what in left:
        print(f"could not be removed: {what}", file=sys.stderr)
    return 1 if left else 0


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--abbrev=10", "--dirty"],
        cwd=_CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="length of the schedule")
    parser.add_argument("--seed", type=int, help="what decides the schedule; by the clock unless given")
    parser.add_argument("--brokers", type=int, choices=(3, 4, 5), default=4)
    parser.add_argument("--rate", type=int, default=1000, help="records a second of all producers")
    parser.add_argument("--previous", default="", metavar="COMMIT", help="the release that all brokers begin with")
    parser.add_argument(
        "--patience", type=float, default=PATIENCE_S, metavar="S", help="how long the cluster may take to come to rest"
    )
    parser.add_argument("--one-release", action="store_true", help="the brokers run this release from the start")
    parser.add_argument(
        "--mutant", default="", help="a fault of tests/chaos/planted.py or tests/sim/mutants.py that every broker gets"
    )
    parser.add_argument(
        "--planted", nargs="*", metavar="NAME", help="find these faults of tests/chaos/planted.py, or all of them"
    )
    parser.add_argument("--page", type=Path, metavar="FILE", help="where the page of results goes")
    parser.add_argument("--schedule", action="store_true", help="print the schedule and run nothing")
    parser.add_argument("--clean", type=Path, metavar="RUN", help="remove what the killed run in this directory left")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
