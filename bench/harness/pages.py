"""Where results go: a page with its picture in docs/bench, every single figure in docs/results."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
# The same figures give the same file, so that a picture changes only when they do.
mpl.rcParams |= {"svg.hashsalt": "pylog", "svg.fonttype": "none", "font.size": 9}

from matplotlib import pyplot as plt  # noqa: E402  the back end is chosen first
from matplotlib.figure import Figure  # noqa: E402

_IN_FULL = "{x:,.10g}"

PAGES = Path(__file__).resolve().parents[2] / "docs" / "bench"
RESULTS = PAGES.parent / "results"


def result_name(bench: str) -> str:
    """Return the name of today's result file of *bench*."""
    return f"{bench}-{datetime.now(UTC):%Y-%m-%d}.csv"


def write_page(name: str, text: str) -> None:
    """Write ``docs/bench/<name>.md``."""
    PAGES.mkdir(parents=True, exist_ok=True)
    (PAGES / f"{name}.md").write_text(text)


def bars(name: str, title: str, unit: str, values: Mapping[str, float]) -> None:
    """Draw a bar for each of *values*, longest name left of it, as ``docs/bench/<name>.svg``."""
    figure, axes = plt.subplots(figsize=(7, 0.5 + 0.32 * len(values)))
    drawn = axes.barh(list(values), list(values.values()), color="#3b6ea5")
    axes.bar_label(drawn, [f" {value:,.0f}" if value >= 10 else f" {value:.2f}" for value in values.values()])
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter(_IN_FULL)
    axes.set_xlabel(unit)
    axes.set_xlim(right=1.15 * max(values.values()))
    _save(figure, name, title)


def lines(name: str, title: str, units: tuple[str, str], curves: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    """Draw a curve of (x, y) for each of *curves* as ``docs/bench/<name>.svg``."""
    figure, axes = plt.subplots(figsize=(7, 3))
    for label, points in curves.items():
        axes.plot([x for x, _ in points], [y for _, y in points], marker="o", markersize=3, label=label)
    axes.set_xlabel(units[0])
    axes.set_ylabel(units[1])
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(_IN_FULL)
    axes.legend()
    _save(figure, name, title)


def _save(figure: Figure, name: str, title: str) -> None:
    figure.axes[0].set_title(title)
    for side in ("top", "right"):
        figure.axes[0].spines[side].set_visible(False)
    PAGES.mkdir(parents=True, exist_ok=True)
    figure.savefig(PAGES / f"{name}.svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
