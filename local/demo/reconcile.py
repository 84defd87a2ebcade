"""Three readers, one table: what was produced, what the brokers store, what landed in the lake.

produced  the source's own account: a generator's report, or the host's journal
stored    kcat over the brokers
mirrored  kcat over the brokers of the other datacenter, where there is one and the lake is loaded from it
landed    pyarrow over the Parquet files

Each is counted by key (a journal entry by its cursor), each key once, beside a sum of key hashes that does not depend
on the order; copies stand in a column of their own.  Equal means: the same distinct keys everywhere, and not one copy
more in the lake than on the brokers that it is loaded from.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from rich.console import Console
from rich.table import Table

from local.demo import readers
from local.demo.journal import Window, read_cursors
from pylog.audit.counting import Count, Counter, read_report
from pylog.errors import ConfigError, PylogError
from pylog.faults import COUNTS_DIFFER, code_of

JOURNAL_TOPIC = "host.journal"
_PAUSE_S = 5.0


@dataclass(frozen=True, slots=True)
class Row:
    """One source's records at each place; `Count.count` and `Count.key_hash` take each key once."""

    source: str
    produced: Count
    stored: Count
    landed: Count
    mirrored: Count | None = None

    @property
    def places(self) -> dict[str, Count]:
        """Counts by place, in the order in which records pass."""
        mirrored = {} if self.mirrored is None else {"mirrored": self.mirrored}
        return {"produced": self.produced, "stored": self.stored, **mirrored, "landed": self.landed}

    def differences(self) -> list[str]:
        """Return what differs, in words; nothing when all is equal."""
        places = list(self.places.items())
        found = [text for one, other in pairwise(places) for text in _compare(*one, *other)]
        loaded_from, loaded = places[-2]
        if loaded.duplicates != self.landed.duplicates:
            found.append(f"{loaded.duplicates} duplicates {loaded_from}, {self.landed.duplicates} landed")
        return [f"{self.source}: {difference}" for difference in found]


def _compare(one: str, a: Count, other: str, b: Count) -> list[str]:
    if a.count != b.count:
        kind = "missing from" if a.count > b.count else "too many in"
        return [f"{a.count} {one}, {b.count} {other}: {abs(a.count - b.count)} {kind} {other}"]
    if a.key_hash != b.key_hash:
        return [f"{a.count} {one} and {other}, but not the same keys"]
    return []


@dataclass(frozen=True, slots=True)
class Report:
    """What a generator says it produced.

    Attributes:
        path: its report.
        run: what its keys begin with, before a hyphen; None when the topics hold nothing but reported records.
    """

    path: Path
    run: str | None


def topic_rows(given: Sequence[Report], bootstrap: str, lake: Path, mirror: str | None = None) -> list[Row]:
    """Return a row for each topic of the reports, which are added up; *mirror* is the other datacenter's brokers.

    With runs named, only their records count: a run that was interrupted leaves records and no report.
    """
    runs = tuple(f"{report.run}-".encode() for report in given if report.run is not None)

    def counted(keys: Iterable[bytes | None]) -> Count:
        return _counted((key for key in keys if key is not None and key.startswith(runs)) if runs else keys)

    return [
        Row(
            topic,
            count,
            counted(readers.stored_keys(bootstrap, topic)),
            counted(readers.landed_keys(lake, topic)),
            None if mirror is None else counted(readers.stored_keys(mirror, topic)),
        )
        for topic, count in sorted(total([report.path for report in given]).items())
    ]


def journal_rows(
    journals: Mapping[str, Sequence[str]], bootstrap: str, lake: Path, topic: str, mirror: str | None = None
) -> list[Row]:
    """Return a row for each host.

    Args:
        journals: by host, the cursors its journal listed, oldest first.
        bootstrap: brokers.
        lake: directory.
        topic: where the journals were shipped.
        mirror: the other datacenter's brokers.
    """
    if not journals:
        return []
    windows = {host: Window(cursors) for host, cursors in journals.items()}
    stored = _counted_by_host(windows, readers.stored_cursors(bootstrap, topic))
    landed = _counted_by_host(windows, readers.landed_cursors(lake, topic))
    mirrored = None if mirror is None else _counted_by_host(windows, readers.stored_cursors(mirror, topic))
    return [
        Row(
            f"{topic} {host}",
            _counted(c.encode() for c in journals[host]),
            stored[host],
            landed[host],
            None if mirrored is None else mirrored[host],
        )
        for host in sorted(windows)
    ]


def _counted(keys: Iterable[bytes | None]) -> Count:
    counter = Counter()
    counter.update(keys)
    return counter.distinct()


def _counted_by_host(windows: Mapping[str, Window], entries: Iterable[tuple[bytes | None, str]]) -> dict[str, Count]:
    counters = {host: Counter() for host in windows}
    for key, cursor in entries:
        host = (key or b"").decode(errors="replace")
        # A host that nobody asked about is not an error: it may have joined since its journal was to be listed.
        if host in windows and cursor in windows[host]:
            counters[host].add(cursor.encode())
    return {host: counter.distinct() for host, counter in counters.items()}


def as_table(rows: Sequence[Row]) -> Table:
    """Return the rows for a terminal."""
    names = list(rows[0].places) if rows else []
    table = Table(title=", ".join(names).capitalize())
    table.add_column("source", overflow="fold")
    for name in (*names, *(f"dup. {name}" for name in names[1:])):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("keys", overflow="fold")
    table.add_column("", no_wrap=True)
    for row in rows:
        places = list(row.places.values())
        counts = [f"{c.count:,}" for c in places]
        copies = [f"{c.duplicates or 0:,}" for c in places[1:]]
        hashes = dict.fromkeys(f"{c.key_hash:016x}" for c in places)
        table.add_row(row.source, *counts, *copies, " ".join(hashes), "differs" if row.differences() else "equal")
    return table


def as_json(rows: Sequence[Row]) -> str:
    """Return the rows for a program."""

    def count(c: Count) -> dict[str, object]:
        return {"count": c.count, "duplicates": c.duplicates, "key_hash": f"{c.key_hash:016x}"}

    return json.dumps(
        {
            "is_equal": not any(row.differences() for row in rows),
            "rows": [
                {
                    "source": row.source,
                    **{place: count(c) for place, c in row.places.items()},
                    "differences": row.differences(),
                }
                for row in rows
            ],
        },
        indent=1,
    )


def total(paths: Sequence[Path]) -> dict[str, Count]:
    """Return the sum of several reports, such as those of repeated runs of a generator.

    Raises:
        ConfigError: one cannot be read.
    """
    counts: dict[str, Count] = {}
    for path in paths:
        try:
            found = read_report(path)
        except (OSError, ValueError) as error:
            raise ConfigError(str(error)) from error
        for topic, count in found.items():
            counts[topic] = counts.get(topic, Count()) + count
    return counts


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m local.demo.reconcile",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Exit code: 0 all equal, 1 something differs or cannot be read, 2 the command line is wrong.",
    )
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT[,...]")
    parser.add_argument("--mirror", metavar="HOST:PORT[,...]", help="brokers that the lake is loaded from, if others")
    parser.add_argument("--lake", required=True, type=Path, metavar="DIR")
    parser.add_argument(
        "--report", action="append", default=[], type=_report, metavar="[RUN=]FILE",
        help="what a generator says it produced; several are added up. With RUN only keys that begin with RUN- count; "
        "name it for all reports or for none",
    )  # fmt: skip
    parser.add_argument(
        "--journal", action="append", default=[], metavar="HOST=FILE", type=_journal,
        help="what `journalctl -o json --output-fields=__CURSOR` listed on HOST before counting began",
    )  # fmt: skip
    parser.add_argument("--journal-topic", default=JOURNAL_TOPIC, metavar="NAME", help="(default: %(default)s)")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    parser.add_argument(
        "--wait", type=float, default=0, metavar="SECONDS", help="count again until all is equal or time is up"
    )
    given = parser.parse_args(arguments)
    if not given.report and not given.journal:
        parser.error("nothing to count: give --report or --journal")
    if len({report.run is None for report in given.report}) > 1:
        parser.error("--report names a run for some files and not for others")
    return given


def _report(text: str) -> Report:
    run, equals, path = text.rpartition("=")
    return Report(Path(path), run if equals else None)


def _journal(text: str) -> tuple[str, Path]:
    host, equals, path = text.partition("=")
    if not (host and equals and path):
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST=FILE")
    return host, Path(path)


def count_until_equal(count: Callable[[], list[Row]], wait_s: float) -> list[Row]:
    """Return the rows once they are equal, or as they are when *wait_s* is over."""
    deadline = time.monotonic() + wait_s
    while True:
        rows = count()
        if not any(row.differences() for row in rows) or time.monotonic() + _PAUSE_S > deadline:
            return rows
        time.sleep(_PAUSE_S)


def main(arguments: Sequence[str] | None = None) -> int:
    """Count, compare, print; 1 when anything differs."""
    given = parse(arguments)
    try:
        journals = {host: read_cursors(path) for host, path in given.journal}

        def count() -> list[Row]:
            rows = topic_rows(given.report, given.bootstrap, given.lake, given.mirror)
            return rows + journal_rows(journals, given.bootstrap, given.lake, given.journal_topic, given.mirror)

        rows = count_until_equal(count, given.wait)
    except PylogError as error:
        print(f"pylog reconcile: {error} [{code_of(error)}]", file=sys.stderr)
        return 1
    if given.format == "json":
        print(as_json(rows))
    else:
        Console(width=None if sys.stdout.isatty() else 140).print(as_table(rows))
    differences = [difference for row in rows for difference in row.differences()]
    for difference in differences:
        print(difference, file=sys.stderr)
    if differences:
        print(f"pylog reconcile: {COUNTS_DIFFER.what} [{COUNTS_DIFFER.code}]", file=sys.stderr)
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
