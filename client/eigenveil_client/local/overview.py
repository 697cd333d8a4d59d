"""All pictures of a release on one figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from eigenveil.reporting.figures.biplot import arrows_of, biplot
from eigenveil.reporting.figures.heatmap import heatmap, pairs
from eigenveil.reporting.figures.loadings import loadings, shown_columns
from eigenveil.reporting.figures.scree import scree
from eigenveil.reporting.figures.subject import Subject
from eigenveil_client.local.pictures import draw

WIDTH = 12.0  # inches


def overview(path: Path, document: Mapping[str, Any]) -> None:
    """Variances and loadings, and arrows and correlations where there are any.

    Raises:
        InternalError: code `storage`, it cannot be written.
    """
    subject = Subject.of(document)
    paints: list[Callable[[Axes], None]] = [
        lambda axes: scree(axes, subject),
        lambda axes: loadings(axes, subject),
    ]
    if subject.k >= 2:
        arrows = arrows_of(subject)
        paints.append(lambda axes: biplot(axes, arrows, subject.columns, None))
    if subject.result["noise"] is not None and len(subject.columns) >= 2:
        both = pairs(subject, "correlation")
        paints.append(lambda axes: heatmap(axes, both, subject.columns))
    rows = -(-len(paints) // 2)
    tall = max(4.0, 0.9 + 0.205 * len(shown_columns(subject)))

    def all_of_them(figure: Figure) -> None:
        private = "" if document["private"] else ": NOT PRIVATE"
        figure.suptitle(f"{subject.study.name}, {subject.algorithm}{private}", fontsize=11)
        for axes, paint in zip(figure.subplots(rows, 2).flat, paints, strict=False):
            paint(axes)
        for axes in figure.axes[len(paints) : 2 * rows]:
            axes.set_visible(False)

    draw(path, (WIDTH, rows * tall), all_of_them)
