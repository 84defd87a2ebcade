"""Results of many runs of one tree of product and simulator, kept in a file, and the page that is made of them.

Each run's result is appended as soon as it is there, so that a survey may be stopped at any time, gone on with later,
and made by several processes at once, each with seeds of its own.  Another tree is another survey: the simulator's
files, and those of pylog that they import, directly or by others.

A record is smaller: a line for each range of seeds. It is kept in the repository, and may come from several machines.
"""

import ast
import hashlib
import json
import subprocess
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from tests.sim.run import Result
from tests.sim.world import CRASH

ROOT = Path(__file__).parents[2]
SIMULATOR = "tests/sim"
WITHOUT = ("mutants.py", "survey.py", "__main__.py")
"""Of the simulator, as are its tests: they choose runs and tell of them."""

PAGE = ROOT / "docs/results/simulation.md"
MUTANTS_PAGE = ROOT / "docs/results/simulation-mutants.md"

PAGE_SEEDS = 5_000
"""A survey of at least so many seeds is worth a page."""

LEAST_SHARE, LEAST_PAIRS = 5.0, 50
"""Of each kind of event: percent of runs that have one, and how many of them a crash is beside."""


@dataclass(frozen=True, slots=True)
class Row:
    """One run, as it is kept.

    Attributes:
        invariant: that broke, "" if none did; *detail* tells how.
        ended: when, in UTC, as ISO 8601 has it.
    """

    seed: int
    invariant: str
    detail: str
    ended: str
    cpu_s: float
    events: int
    virtual_s: float
    counts: Mapping[str, int]
    kinds: Mapping[str, int]
    pairs: Mapping[str, int]


@dataclass(slots=True)
class Totals:
    """What many runs add up to.

    Attributes:
        seeds: that were run, as they were.
        broken: those in which an invariant broke.
        runs_with: runs that have an event of a kind.
        pairs: events of a kind that have a crash beside them.
    """

    seeds: list[int] = field(default_factory=list)
    broken: list[int] = field(default_factory=list)
    cpu_s: float = 0.0
    runs_with: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    pairs: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, one: Result | Row) -> None:
        """Count one run."""
        self.seeds.append(one.seed)
        if one.invariant:
            self.broken.append(one.seed)
        self.cpu_s += one.cpu_s
        self.runs_with.update(one.kinds.keys())
        self.kinds.update(one.kinds)
        self.pairs.update(one.pairs)
        self.counts.update(one.counts)

    def add_range(self, one: "Range") -> None:
        """Count the runs of a range.

        Raises:
            ValueError: some of them are counted already.
        """
        seeds = numbers(one.seeds)
        if again := sorted(set(seeds) & set(self.seeds)):
            raise ValueError(f"seeds {ranges(again)} of tree {one.tree} are recorded twice")
        self.seeds += seeds
        self.broken += one.broken
        self.cpu_s += one.cpu_s
        self.runs_with.update(one.runs_with)
        self.pairs.update(one.pairs)

    @property
    def runs(self) -> int:
        """How many."""
        return len(self.seeds)

    def unmet(self) -> list[str]:
        """Return what is missing before a tree may be said to have no known fault."""
        missing = []
        if self.runs < PAGE_SEEDS:
            missing.append(f"{PAGE_SEEDS - self.runs:,} seeds are left of {PAGE_SEEDS:,}")
        if self.broken:
            missing.append(f"an invariant broke: seeds {ranges(sorted(self.broken))}")
        missing += [
            f"{kind}: in {self.share(kind):.1f} % of the runs, {self.pairs[kind]} beside a crash"
            for kind in sorted(self.runs_with)
            if self.is_short(kind)
        ]
        return missing

    def table(self) -> str:
        """Return a row for each kind: events, runs with one in percent, and events beside a crash."""
        rows = [f"{'event':<28} {'events':>8} {'% of runs':>9} {'beside a crash':>14}"]
        rows += [
            f"{kind:<28} {events:>8} {self.share(kind):>9.1f} {self.pairs[kind]:>14}"
            for kind, events in sorted(self.kinds.items())
        ]
        return "\n".join(rows)

    def share(self, kind: str) -> float:
        """Return in how many runs of a hundred an event of a kind happened."""
        return 100 * self.runs_with[kind] / self.runs

    def is_short(self, kind: str) -> bool:
        """Whether there are fewer events of a kind than there should be."""
        return self.share(kind) < LEAST_SHARE or (kind != CRASH and self.pairs[kind] < LEAST_PAIRS)


@dataclass(frozen=True, slots=True)
class Range:
    """What the seeds of one command came to: a line of a record.

    Attributes:
        tree: its digest.
        seeds: as `ranges` tells them.
        ended: the day, in UTC.
    """

    tree: str
    seeds: str
    broken: list[int]
    cpu_s: float
    ended: str
    runs_with: Mapping[str, int]
    pairs: Mapping[str, int]

    @classmethod
    def of(cls, totals: Totals, tree: str) -> "Range":
        """Return what is recorded of runs that end now."""
        return cls(
            tree=tree,
            seeds=ranges(sorted(totals.seeds)),
            broken=sorted(totals.broken),
            cpu_s=round(totals.cpu_s, 1),
            ended=datetime.now(UTC).date().isoformat(),
            runs_with=dict(sorted(totals.runs_with.items())),
            pairs=dict(sorted(totals.pairs.items())),
        )

    def line(self) -> str:
        """Return the line; `read_record` reads it."""
        return json.dumps(asdict(self))


def read_record(path: Path) -> list[Range]:
    """Return the ranges of a record.

    Raises:
        ValueError: a line is not one of a record; names it.
    """
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            found.append(Range(**json.loads(line)))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}, line {number}: not a range of seeds: {error}") from error
    return found


def summed_up(record: Sequence[Range]) -> tuple[str, bool]:
    """Return what the ranges of each tree add up to, and what is missing yet; and whether one tree lacks nothing.

    Raises:
        ValueError: a seed of a tree is recorded twice.
    """
    trees: dict[str, Totals] = {}
    for one in record:
        trees.setdefault(one.tree, Totals()).add_range(one)
    lines = []
    for tree, totals in trees.items():
        days = sorted(one.ended for one in record if one.tree == tree)
        lines.append(
            f"tree {tree}: {totals.runs:,} seeds ({ranges(sorted(totals.seeds))}), {len(totals.broken) or 'none'} "
            f"broke, {totals.cpu_s:,.0f} s of processor time, {days[0]} to {days[-1]}"
        )
        lines += [f"  {one}" for one in totals.unmet() or ["nothing is missing"]]
    return "\n".join(lines), any(not totals.unmet() for totals in trees.values())


class Survey:
    """The results of one tree.

    Attributes:
        tree: short digest of all its files.
    """

    def __init__(self, directory: Path) -> None:
        """Keep results below *directory*, in a file for each tree."""
        self.tree = digest()
        self._path = directory / f"{self.tree}.jsonl"
        directory.mkdir(parents=True, exist_ok=True)

    def rows(self) -> list[Row]:
        """Return what is kept by now, in the order of the seeds; of a seed that was run twice, the last run."""
        found = []
        for line in self._path.read_text().splitlines() if self._path.exists() else []:
            with suppress(ValueError):  # a stop cut it off
                found.append(Row(**json.loads(line)))
        return sorted({row.seed: row for row in found}.values(), key=lambda row: row.seed)

    def add(self, result: Result) -> None:
        """Keep the result of a run."""
        row = {
            "seed": result.seed,
            "invariant": result.invariant,
            "detail": result.detail,
            "ended": datetime.now(UTC).isoformat(timespec="seconds"),
            "cpu_s": round(result.cpu_s, 2),
            "events": result.events,
            "virtual_s": result.virtual_s,
            "counts": result.counts,
            "kinds": result.kinds,
            "pairs": result.pairs,
        }
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def write_page(self) -> Path | None:
        """Write the page, if enough seeds were run; return where it is."""
        rows = self.rows()
        if len(rows) < PAGE_SEEDS:
            return None
        PAGE.write_text(page(self.tree, _commit(), rows))
        return PAGE


def digest() -> str:
    """Return a digest of all files that decide how a run goes, as they are on the disk."""
    found = hashlib.sha256()
    for path in _files():
        content = path.read_bytes()
        found.update(f"{path.relative_to(ROOT)} {len(content)}\n".encode() + content)
    return found.hexdigest()[:12]


def _files() -> list[Path]:
    """Return the simulator's files and what they import of pylog and of the tests, inside of functions too."""
    simulator = (ROOT / SIMULATOR).rglob("*.py")
    left = [path for path in simulator if path.name not in WITHOUT and not path.name.startswith("test_")]
    found = set(left)
    while left:
        imported = set(_imported(left.pop())) - found
        found |= imported
        left += imported
    return sorted(found)


def _imported(path: Path) -> Iterator[Path]:
    """Yield the files of pylog and of the tests that the one at *path* imports, and the packages around them."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                modules = [module, *(f"{module}.{one.name}" for one in names)]
            case ast.Import(names=names):
                modules = [one.name for one in names]
            case _:
                continue
        for module in modules:
            parts = module.split(".") if module.split(".")[0] in ("pylog", "tests") else []
            for end in range(1, len(parts) + 1):
                one = ROOT.joinpath(*parts[:end])
                yield from filter(Path.is_file, (one / "__init__.py", one.with_suffix(".py")))


def _commit() -> str:
    """Return the commit that is checked out, and whether files were changed since."""
    commit = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("status", "--porcelain", "--", *(str(path.relative_to(ROOT)) for path in _files()))
    return commit + (" with changes" if changed else "")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def ranges(seeds: Sequence[int]) -> str:
    """Return sorted numbers as ranges, such as `1-20, 31`."""
    ends = [at for at, (one, other) in enumerate(pairwise(seeds)) if other != one + 1]
    firsts, lasts = [0, *(at + 1 for at in ends)], [*ends, len(seeds) - 1]
    pairs = [(seeds[first], seeds[last]) for first, last in zip(firsts, lasts, strict=True)] if seeds else []
    return ", ".join(f"{first}-{last}" if first != last else str(first) for first, last in pairs)


def numbers(told: str) -> list[int]:
    """Return the numbers that `ranges` tells."""
    ends = [part.split("-") for part in told.split(", ") if part]
    return [number for pair in ends for number in range(int(pair[0]), int(pair[-1]) + 1)]


def left(seeds: Iterable[int], rows: Collection[Row]) -> list[int]:
    """Return those of *seeds* that were not run yet."""
    done = {row.seed for row in rows}
    return [seed for seed in seeds if seed not in done]


def page(tree: str, commit: str, rows: Sequence[Row]) -> str:
    """Return the page about a survey."""
    totals = Totals()
    for row in rows:
        totals.add(row)
    failed = [row for row in rows if row.invariant]
    short = [kind for kind in sorted(totals.kinds) if totals.is_short(kind)]
    ended = sorted(row.ended for row in rows)
    hours = sum(row.cpu_s for row in rows) / 3600
    counts = totals.counts
    lines = [
        "# Simulated runs",
        "",
        "Written by `make sim SEEDS=5000`; [what a run is](../design/simulation.md).",
        "",
        "| | |",
        "|---|---|",
        f"| commit | {commit} |",
        f"| digest of `{SIMULATOR}` and of what it imports | {tree} |",
        f"| seeds | {ranges([row.seed for row in rows])} ({len(rows):,}) |",
        f"| run | {ended[0]} to {ended[-1]}, {hours:.1f} hours of processor time |",
        f"| runs in which an invariant broke | {len(failed)} |",
        f"| virtual time | {sum(row.virtual_s for row in rows) / 3600:.1f} hours |",
        f"| records acknowledged | {counts['acknowledged']:,} |",
        f"| records served | {counts['served']:,} |",
        f"| offsets committed | {counts['committed']:,} |",
        f"| elections | {counts['elections']:,} |",
        f"| generations of groups | {counts['generations']:,} |",
        f"| moves that ended | {counts['moves']:,} |",
        "",
    ]
    if failed:
        lines += ["## What broke", "", "| seed | how |", "|---|---|"]
        lines += [f"| {row.seed} | {row.detail.splitlines()[0].replace('|', '/')} |" for row in failed]
        lines.append("")
    lines += [
        "## Events",
        "",
        f"Each kind of event should happen in {LEAST_SHARE:g} % of the runs at least, and {LEAST_PAIRS} times within a "
        "second of a crash.",
        f"Short of that: {', '.join(short) or 'none'}.",
        "",
        "| event | events | % of runs | within a second of a crash |",
        "|---|---|---|---|",
    ]
    for kind, events in sorted(totals.kinds.items()):
        beside = "" if kind == CRASH else f"{totals.pairs[kind]:,}"
        lines.append(f"| {kind} | {events:,} | {totals.share(kind):.1f} | {beside} |")
    return "\n".join([*lines, ""])


def mutants_page(rows: Sequence[tuple[str, str, str]], first: int, last: int) -> Path:
    """Write the page about faults put into the code: what found each, and by which invariant; return where it is."""
    missed = sum(not by for _, by, _ in rows)
    today = datetime.now(UTC).date().isoformat()
    lines = [
        "# Faults put into the code",
        "",
        f"Written by `make sim-mutants` on {today}, commit {_commit()}; [what a run is](../design/simulation.md).",
        f"{len(rows)} faults, of which {missed} were found neither by their story nor by seeds {first} to {last}.",
        "",
        "| fault | found by | invariant |",
        "|---|---|---|",
        *(f"| {name} | {f'seed {by}' if by.isdecimal() else by} | {invariant} |" for name, by, invariant in rows),
        "",
    ]
    MUTANTS_PAGE.write_text("\n".join(lines))
    return MUTANTS_PAGE
