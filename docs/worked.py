"""`make docs`: run the code on the pages of docs/derived, write what it prints, and draw its pictures.

A page keeps its words and its code. A block of code is run with the names of those before it; what it prints
stands in the block of text below it. The first two pages draw what they named `found`, the last `factors`.
How often intervals hold stands on the first page, as `python -m benchmarks.derived` found it."""

from __future__ import annotations

import contextlib
import csv
import io
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from eigenveil.derived.correlations import Correlations
from eigenveil.derived.covariance import IntervalEstimate
from eigenveil.derived.factors import Factors
from eigenveil.derived.regression import Regression
from eigenveil.reporting.figures.figure import BLUE, GRID, GROUPS, INK, RED, SOFT, STYLE

PAGES = Path(__file__).resolve().parent / "derived"
BLOCK = re.compile(r"(```python\n(.*?)```\n)(?:(\n```text\n).*?(```\n))?", re.DOTALL)
MARKS = re.compile(r"(<!-- coverage -->\n).*?(<!-- end -->)", re.DOTALL)
DPI = 110


def worked(page: Path) -> tuple[str, dict[str, Any]]:
    """A page with what its code prints today, and the names that the code left."""
    space: dict[str, Any] = {}

    def run(block: re.Match[str]) -> str:
        message = io.StringIO()
        with contextlib.redirect_stdout(message):
            exec(compile(block[2], page.name, "exec"), space)
        if block[3] is None:
            return block[1]
        return block[1] + block[3] + message.getvalue() + block[4]

    text = BLOCK.sub(run, page.read_text())
    return MARKS.sub(lambda mark: mark[1] + coverage() + mark[2], text), space


def coverage() -> str:
    """Intervals of 100 that hold the exact answer, least and most of all studies: a line for each kind."""
    tables: dict[str, None] = {}
    cells: dict[str, dict[str, list[tuple[float, str]]]] = {}
    with (PAGES / "coverage.csv").open() as file:
        for row in csv.DictReader(file):
            arrow = "↓" if float(row["to"]) < 95 else "↑" if float(row["from"]) > 95 else ""
            found = cells.setdefault(row["answer"], {}).setdefault(row["table"], [])
            found.append((float(row["covered"]), row["covered"] + arrow))
            tables[row["table"]] = None
    lines = [("answer", *tables), ("---",) * (1 + len(tables))]
    lines += [(kind, *(_range(one.get(table, [])) for table in tables)) for kind, one in cells.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _range(found: list[tuple[float, str]]) -> str:
    """The least and the most, each with its arrow."""
    return f"{min(found)[1]}–{max(found)[1]}" if found else ""


def of_correlations(axes: Axes, space: dict[str, Any]) -> None:
    """Each pair's interval, and the exact number where one may look."""
    found: Correlations = space["found"]
    pairs = [(i, j) for i in range(len(found.columns)) for j in range(i)]
    pairs.sort(key=lambda at: float(found.numbers.values[at]))
    at = tuple(np.array(pairs).T)
    names = [f"{found.columns[j]}, {found.columns[i]}" for i, j in pairs]
    _whiskers(axes, names, found.numbers, at)
    exact = np.corrcoef(np.array(space["rows"]).T)[at]
    axes.scatter(exact, np.arange(len(names)), marker="x", color=RED, zorder=4, label="exact")
    axes.set_xlabel("correlation")


def of_slopes(axes: Axes, space: dict[str, Any]) -> None:
    """The coefficients for a standard deviation of each column, with both intervals."""
    found: Regression = space["found"]
    columns, rows = list(space["columns"]), np.array(space["rows"])
    at = [columns.index(name) for name in found.on]
    units = rows[:, at].std(axis=0)
    both, privacy = (
        replace(one, values=one.values * units, errors=one.errors * units)
        for one in (found.both, found.privacy)
    )
    _whiskers(axes, list(found.on), both, np.arange(len(at)), colour=SOFT, label="and of sampling")
    _whiskers(axes, list(found.on), privacy, np.arange(len(at)), width=4, label="of privacy")
    exact = np.array(space["exact"]) * units
    axes.scatter(exact, np.arange(len(at)), marker="x", color=RED, zorder=4, label="exact")
    axes.set_xlabel(f"{found.target} for one standard deviation of the column")


def of_factors(axes: Axes, space: dict[str, Any]) -> None:
    """The loadings of each factor."""
    found: Factors = space["factors"]
    for j in range(len(found.between)):
        every = found.loadings
        one = replace(every, values=every.values[:, j], errors=every.errors[:, j])
        _whiskers(
            axes, list(found.columns), one, np.arange(len(found.columns)),
            colour=GROUPS[j], label=f"factor {j + 1}", lift=0.16 - 0.32 * j,
        )  # fmt: skip
    axes.set_xlabel("loading")


def _whiskers(
    axes: Axes,
    names: list[str],
    numbers: IntervalEstimate,
    at: Any,
    *,
    colour: str = BLUE,
    width: float = 1.6,
    label: str = "95 % interval",
    lift: float = 0.0,
) -> None:
    slots = np.arange(len(names)) + lift
    axes.hlines(slots, numbers.low[at], numbers.high[at], color=colour, lw=width, zorder=2, label=label)
    axes.scatter(numbers.values[at], slots, s=22, color=colour, zorder=3)
    axes.set_yticks(np.arange(len(names)), names)
    axes.axvline(0, color=INK, lw=0.8)


PICTURES: dict[str, Callable[[Axes, dict[str, Any]], None]] = {
    "correlation": of_correlations,
    "regression": of_slopes,
    "factors": of_factors,
}


def draw(name: str, space: dict[str, Any]) -> None:
    """Write the picture of a page."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 4.6 if name == "correlation" else 2.9), dpi=DPI, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        PICTURES[name](axes, space)
        axes.grid(axis="x", color=GRID, lw=0.8)
        axes.set_ylim(-0.6, len(axes.get_yticks()) - 0.4)
        figure.legend(loc="outside upper right", ncols=3)
        figure.savefig(PAGES / f"{name}.png", metadata={"Software": None})


def main() -> int:
    """Write all pages and pictures anew."""
    for name in PICTURES:
        page = PAGES / f"{name}.md"
        text, space = worked(page)
        page.write_text(text)
        draw(name, space)
    return 0


if __name__ == "__main__":
    sys.exit(main())
