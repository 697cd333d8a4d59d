"""A comparison as a picture: a line an algorithm, the least error on top."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from eigenveil.reporting.figures.style import BLUE, GRID, RED, SOFT
from eigenveil_client.local.compare.rows import Row, ordered
from eigenveil_client.local.pictures import draw


def shown(rows: Sequence[Row]) -> list[Row]:
    """Those with an error to show."""
    return [row for row in ordered(rows) if row.sin_angle is not None or row.predicted is not None]


def picture(path: Path, rows: Sequence[Row], title: str) -> None:
    """Measured errors with the least and the most of the repeats, and those that the releases state.

    Raises:
        InternalError: code `storage`, it cannot be written.
    """
    known = shown(rows)

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        at = np.arange(len(known))
        for name, marker, colour in (("sin_angle", "o", BLUE), ("predicted", "x", RED)):
            there = [i for i, row in enumerate(known) if getattr(row, name) is not None]
            said = "measured" if name == "sin_angle" else "stated by the release"
            if there:
                values = [getattr(known[i], name) for i in there]
                axes.scatter(values, at[there], marker=marker, color=colour, zorder=3, label=said)
        for i, row in enumerate(known):
            if row.sin_least is not None and row.sin_most is not None:
                axes.plot([row.sin_least, row.sin_most], [i, i], color=SOFT, lw=2, zorder=2)
        axes.set_yticks(at, [row.label for row in known])
        axes.set(ylim=(len(known) - 0.5, -0.5), xlim=(0, None), xlabel="error (0: exact, 1: noise)")
        axes.set_title(title, fontsize=11)
        axes.grid(axis="x", color=GRID, lw=0.8)
        axes.legend(loc="best", fontsize=9)

    draw(path, (7.0, 1.4 + 0.32 * max(len(known), 1)), paint)
