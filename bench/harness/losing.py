"""Where pylog loses, or falls short of what it aimed at: one table out of the newest result of each benchmark.

python -m bench.harness.losing     writes docs/bench/where-pylog-loses.md; measures nothing itself
"""

import csv
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.harness import pages

_PAGE = """\
# Where pylog loses

Written by `python -m bench.harness.losing` from the newest result of each benchmark, medians throughout; a row that no
longer falls short goes by itself. Ratios are pylog's figure over Apache Kafka 3.9's from the same run. First what Kafka
does better, then what pylog does better than Kafka but not as much as it aimed at.

| what | found | wanted | why | what would change it | measured in |
|---|---|---|---|---|---|
{rows}

Beyond figures: no Kerberos, one data directory an instance, and one process a core: see
[when not to use pylog](../comparison.md#when-not-to-use-pylog).
"""

Line = dict[str, str]


@dataclass(frozen=True, slots=True)
class Loss:
    """One way to look at one result.

    Attributes:
        bench: whose newest result is looked at.
        what: what is compared.
        find: what was found, or None where it does not fall short.
        wanted: what was aimed at.
        why: the reason.
        change: what would change it.
    """

    bench: str
    what: str
    find: Callable[[list[Line]], str | None]
    wanted: str
    why: str
    change: str


def newest(bench: str) -> Path | None:
    """Return the newest result file of *bench*; None before its first."""
    return max(pages.RESULTS.glob(f"{bench}-20*.csv"), default=None)


def medians(
    lines: list[Line], value: Callable[[Line], float], ours_is: str = "pylog", **only: str
) -> tuple[float, float]:
    """Return the medians of pylog and of Kafka over the lines in which these columns have these values."""
    chosen = [line for line in lines if all(line[name] == wanted for name, wanted in only.items())]
    ours, theirs = ([value(line) for line in chosen if line["system"] == system] for system in (ours_is, "kafka"))
    return statistics.median(ours), statistics.median(theirs)


def column(name: str) -> Callable[[Line], float]:
    """Return what reads a column."""
    return lambda line: float(line[name])


def _cost(line: Line) -> float:
    return float(line["broker_cpu_s"]) / float(line["count"]) * 1e6


def more(value: Callable[[Line], float], aim: float, **only: str) -> Callable[[list[Line]], str | None]:
    """Look for a figure, larger is better, of which pylog has less than *aim* times Kafka's."""

    def find(lines: list[Line]) -> str | None:
        ours, theirs = medians(lines, value, **only)
        return None if ours >= aim * theirs else f"{ours:,.0f} and {theirs:,.0f}: {ours / theirs:.2f}"

    return find


def less(
    value: Callable[[Line], float], aim: float, unit: str, ours_is: str = "pylog", **only: str
) -> Callable[[list[Line]], str | None]:
    """Look for a figure, smaller is better, of which pylog has more than *aim* times Kafka's."""

    def find(lines: list[Line]) -> str | None:
        ours, theirs = medians(lines, value, ours_is, **only)
        return None if ours <= aim * theirs else f"{ours:.2f} and {theirs:.2f} {unit}: {ours / theirs:.2f}"

    return find


def _readers(lines: list[Line]) -> str | None:
    rate = column("total_rate")
    few, many = (ours / theirs for ours, theirs in (medians(lines, rate, readers=count) for count in ("1", "20")))
    return None if many >= few else f"{few:.2f} times Kafka's messages a second to one reader, {many:.2f} to twenty"


def _slow_pace(lines: list[Line]) -> str | None:
    ours, theirs = medians(lines, column("cpu_cores"))
    return f"{ours * 1000:.0f} µs of CPU a message at 1,000 a second, Kafka {theirs * 1000:.0f}"


def _overhead(path: Path) -> dict[str, float]:
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    return {row[0]: float(row[1]) for row in rows if len(row) == 2 and "batches of" in row[0]}


_LOSSES = (
    Loss(
        "limits",
        "a topic's own codec: lz4, sent without, messages a second",
        more(column("lz4_rate"), 1),
        "1",
        "every record inside is checked in Python before the batch is packed anew, 2 µs each; the JVM compiles that",
        "a checker in C or Rust; `compression.type=producer`, the default, looks at the header alone",
    ),
    Loss("limits", "the same, broker CPU", less(column("lz4_cpu"), 1, "s per million"), "1", "the same", "the same"),
    Loss(
        "limits",
        "a topic's own codec: zstd, sent without, messages a second",
        more(column("zstd_rate"), 1),
        "1",
        "the same",
        "the same",
    ),
    Loss(
        "limits",
        "several producers at once, messages a second",
        more(column("many_rate"), 1),
        "1",
        "one process, one event loop, one core; Kafka's threads take all there are",
        "a second broker on the host: instances are meant for that, one for each disk and core or two",
    ),
    Loss(
        "limits",
        "metadata of 1,000 partitions",
        less(column("metadata_ms"), 1, "ms"),
        "1",
        "the answer is encoded partition by partition in Python, for every client anew",
        "keeping the encoded topic until the next image",
    ),
    Loss(
        "limits",
        "one offset commit after the other",
        less(column("commit_ms"), 1, "ms"),
        "1",
        "a batch is built, appended and parsed again for each",
        "commits of one wake-up in one batch",
    ),
    Loss(
        "wide",
        "a topic of 1,000 partitions: until it is said to be made",
        less(column("create_s"), 1, "s"),
        "1",
        "pylog answers when the partitions can be used; Kafka answers first and opens them afterwards",
        "answering earlier, and then every client waits instead",
    ),
    Loss(
        "paper",
        "consumer, throughput",
        more(column("rate"), 1.2, label="c50"),
        "1.2 times",
        "neither core is full (client 0.60, broker 0.40): they wait for each other's next fetch; the bytes go by "
        "sendfile in both brokers",
        "larger fetches than the paper's 200 KB",
    ),
    Loss(
        "paper",
        "consumer, broker CPU a message",
        less(_cost, 1 / 2.5, "s per million", label="c50"),
        "1 / 2.5",
        "half of a fetch is the kernel's sendfile and wake-ups; the other half is Python, whose caches are cold "
        "between them: 11 µs in a loop, 65 in place",
        "less code a fetch, or fewer and larger fetches, which the client asks for",
    ),
    Loss(
        "paper",
        "batches of 50, throughput",
        more(column("rate"), 2, label="p50a1"),
        "2 times",
        "the client's core is full (0.95), the broker's is not (0.72)",
        "a faster client, or several",
    ),
    Loss(
        "paper",
        "batches of 50, broker CPU a message",
        less(_cost, 1 / 3, "s per million", label="p50a1"),
        "1 / 3",
        "copying and checking 10 KB a batch is the same work in any language",
        "larger batches share what is Python",
    ),
    Loss(
        "paper",
        "batches of one, throughput",
        more(column("rate"), 6, label="p1a1"),
        "6 times",
        "the client alone takes 0.86 of its core at this rate, so it could not send much more",
        "batches",
    ),
    Loss(
        "paper",
        "batches of one, broker CPU a message",
        less(_cost, 1 / 8, "s per million", label="p1a1"),
        "1 / 8",
        "receiving, writing, answering and waking up for each message remain, whatever the language",
        "fewer system calls a request: io_uring, which Python's event loops do not use",
    ),
    Loss(
        "secured",
        "produce by TLS, batches of 50, broker CPU a message",
        less(_cost, 1 / 2, "s per million", "tls", label="p50a1"),
        "1 / 2",
        "librdkafka sends a batch as a record of TLS for nearly each message, and each is read by two system calls",
        "compressed batches, which come as two records; reading ahead, which Python's ssl does not offer",
    ),
    Loss(
        "secured",
        "produce by TLS, batches of one, broker CPU a message",
        less(_cost, 1 / 2, "s per million", "tls", label="p1a1"),
        "1 / 2",
        "the same",
        "the same",
    ),
    Loss(
        "secured",
        "consume by TLS, broker CPU a message",
        less(_cost, 0.6, "s per million", "tls", label="c50"),
        "0.6",
        "each 16 KB are encrypted in a copy and sent by a call of their own; without TLS the kernel sends the file",
        "TLS in the kernel",
    ),
    Loss(
        "fan_out",
        "many readers of one topic",
        _readers,
        "the same lead",
        "one core serves all; Kafka's threads share both, and its cost a message falls as readers keep it busy",
        "reading from replicas (`client.rack`), or a second broker",
    ),
    Loss(
        "pace",
        "few messages",
        _slow_pace,
        "as cheap as many",
        "at a slow pace each message wakes the process, its caches are cold, and nothing is batched",
        "a millisecond of `linger.ms`",
    ),
)


def rows() -> Iterator[str]:
    """Yield the table's rows, of those results that there are."""
    for loss in _LOSSES:
        path = newest(loss.bench)
        if path is None:
            continue
        with path.open(newline="") as file:
            found = loss.find(list(csv.DictReader(file)))
        if found is not None:
            source = f"[{path.stem}](../results/{path.name})"
            yield f"| {loss.what} | {found} | {loss.wanted} | {loss.why} | {loss.change} | {source} |"
    path = newest("growth")
    if path is not None:
        size = _overhead(path)["pylog, batches of 1"] - 200
        yield (
            f"| bytes on disk above a message of 200, batches of one | {size:.0f}, as Kafka's | the paper's 9 | the "
            f"format of today's protocol has a header of 61 bytes a batch | batches: 10 bytes at 50 a batch | "
            f"[{path.stem}](../results/{path.name}) |"
        )


def main() -> int:
    """Write the page."""
    text = _PAGE.format(rows="\n".join(rows()))
    pages.write_page("where-pylog-loses", text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
