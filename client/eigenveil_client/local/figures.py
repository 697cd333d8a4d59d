"""One figure with all pictures of a release.

Picture of a comparison: one line for each algorithm, the least error on top.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from eigenveil.reporting.figures.biplot import arrows_of, biplot
from eigenveil.reporting.figures.components import loadings, scree, strongest_columns
from eigenveil.reporting.figures.figure import BLUE, GRID, RED, SOFT, ReleaseFigureData
from eigenveil.reporting.figures.heatmap import heatmap, pair_matrix
from eigenveil_client.local.options import write_figure
from eigenveil_client.local.tables import ComparisonRow, ordered

WIDTH = 12.0  # inches


def draw_overview(path: Path, document: Mapping[str, Any]) -> None:
    """Draw variances and loadings, and arrows and correlations if the release has them.

    Raises:
        InternalError: code `storage`, it cannot be written.
    """
    subject = ReleaseFigureData.of(document)
    panels: list[Callable[[Axes], None]] = [
        lambda axes: scree(axes, subject),
        lambda axes: loadings(axes, subject),
    ]
    if subject.k >= 2:
        arrows = arrows_of(subject)
        panels.append(lambda axes: biplot(axes, arrows, subject.columns, None))
    if subject.result["noise"] is not None and len(subject.columns) >= 2:
        correlations = pair_matrix(subject, "correlation")
        panels.append(lambda axes: heatmap(axes, correlations, subject.columns))
    rows = -(-len(panels) // 2)
    row_height = max(4.0, 0.9 + 0.205 * len(strongest_columns(subject)))

    def draw_panels(figure: Figure) -> None:
        private = "" if document["private"] else ": NOT PRIVATE"
        figure.suptitle(f"{subject.study.name}, {subject.algorithm}{private}", fontsize=11)
        for axes, paint in zip(figure.subplots(rows, 2).flat, panels, strict=False):
            paint(axes)
        for axes in figure.axes[len(panels) : 2 * rows]:
            axes.set_visible(False)

    write_figure(path, (WIDTH, rows * row_height), draw_panels)


def rows_with_error(rows: Sequence[ComparisonRow]) -> list[ComparisonRow]:
    """Return the rows with an error to draw."""
    return [row for row in ordered(rows) if row.sin_angle is not None or row.predicted is not None]


def draw_comparison(path: Path, rows: Sequence[ComparisonRow], title: str) -> None:
    """Draw the measured errors with the range over the repeats, and the errors stated by the releases.

    Raises:
        InternalError: code `storage`, it cannot be written.
    """
    known = rows_with_error(rows)

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        positions = np.arange(len(known))
        for name, marker, colour in (("sin_angle", "o", BLUE), ("predicted", "x", RED)):
            indices = [i for i, row in enumerate(known) if getattr(row, name) is not None]
            label = "measured" if name == "sin_angle" else "stated by the release"
            if indices:
                values = [getattr(known[i], name) for i in indices]
                axes.scatter(values, positions[indices], marker=marker, color=colour, zorder=3, label=label)
        for i, row in enumerate(known):
            if row.sin_least is not None and row.sin_most is not None:
                axes.plot([row.sin_least, row.sin_most], [i, i], color=SOFT, lw=2, zorder=2)
        axes.set_yticks(positions, [row.label for row in known])
        axes.set(ylim=(len(known) - 0.5, -0.5), xlim=(0, None), xlabel="error (0: exact, 1: noise)")
        axes.set_title(title, fontsize=11)
        axes.grid(axis="x", color=GRID, lw=0.8)
        axes.legend(loc="best", fontsize=9)

    write_figure(path, (7.0, 1.4 + 0.32 * max(len(known), 1)), paint)
