"""One run of one row: what it moved, how fast, and what it cost the broker."""

import csv
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One kind of run.

    Attributes:
        label: p = produce, c = consume; messages a batch; a = acks.
        batch: messages a batch.
        acks: None for a consumer, which reads what the row before it wrote.
    """

    label: str
    batch: int
    acks: int | None

    def command(self, client: Path, bootstrap: str, topic: str, count: int, size: int) -> list[str]:
        """Return the client's command line."""
        shared = ["-b", bootstrap, "-t", topic, "-p", "0", "-c", str(count)]
        if self.acks is None:
            return [str(client), "-C", *shared, "-X", "fetch.message.max.bytes=204800"]
        return [
            str(client),
            "-P",
            *shared,
            "-s",
            str(size),
            "-X",
            f"acks={self.acks}",
            "-X",
            f"batch.num.messages={self.batch}",
            "-X",
            "linger.ms=5",
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one run showed; one line of a result file.

    Attributes:
        rate: messages a second; with acks=0 those that arrived, over the time until they had.
        other_cpu_s: CPU used by neither broker nor client meanwhile: the noise.
        lost: messages that the broker never showed.
        rss_mb: the broker's memory afterwards, in 10^6 bytes.
    """

    round: int
    system: str
    label: str
    count: int
    size: int
    rate: float
    wall_s: float
    broker_cpu_s: float
    client_cpu_s: float
    other_cpu_s: float
    lost: int
    rss_mb: float

    def __str__(self) -> str:
        return (
            f"round {self.round} {self.system:<5} {self.label:<5} {self.rate:>9,.0f} msgs/s "
            f"{self.cpu_s_per_million:6.2f} CPU s/M {self.rss_mb:6.0f} MB {self.other_cores:5.2f} other cores "
            f"{self.lost} lost"
        )

    @property
    def cpu_s_per_million(self) -> float:
        """The broker's CPU seconds per million messages."""
        return self.broker_cpu_s / self.count * 1e6

    @property
    def other_cores(self) -> float:
        """How many cores something else kept busy meanwhile."""
        return self.other_cpu_s / self.wall_s


def write_rows(path: Path, kind: "type[DataclassInstance]", rows: "Iterable[DataclassInstance]") -> None:
    """Write a result file: a column for each field of *kind*, a line for each of *rows*."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(kind)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(asdict, rows))


def write_samples(path: Path, samples: list[Sample]) -> None:
    """Write a result file of runs."""
    write_rows(path, Sample, samples)


def read_samples(path: Path) -> list[Sample]:
    """Read a result file."""
    types = {"system": str, "label": str, "round": int, "count": int, "size": int, "lost": int}
    with path.open(newline="") as file:
        return [
            Sample(**{name: types.get(name, float)(value) for name, value in line.items()})
            for line in csv.DictReader(file)
        ]
