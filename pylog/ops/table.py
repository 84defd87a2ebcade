"""Rows of text as the aligned lines of one table."""

from collections.abc import Iterable, Sequence


def aligned(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return *header* and *rows* as lines with columns two spaces apart."""
    everything = [header, *rows]
    widths = [max(len(row[column]) for row in everything) for column in range(len(header))]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in everything]
