"""The pictures of a report: each twice, for a wide page and for a phone, and in words."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes

from eigenveil.errors import RequestError
from eigenveil.reporting.figures import words
from eigenveil.reporting.figures.biplot import Projection, arrows_of, biplot
from eigenveil.reporting.figures.error_curve import error_curve, foreseen
from eigenveil.reporting.figures.heatmap import heatmap, pairs
from eigenveil.reporting.figures.loadings import loadings, shown_columns
from eigenveil.reporting.figures.scree import scree
from eigenveil.reporting.figures.style import MOST_COLUMNS, svg
from eigenveil.reporting.figures.subject import Subject

WIDTH, PHONE = 8.6, 4.0  # inches; the page scales both


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The addresses of a picture for a wide page and for a phone, and what it shows in words."""

    wide: str
    phone: str
    words: str


def pictures(document: Mapping[str, Any], projection: Projection | None) -> dict[str, Shown]:
    """Those that a release has, by name."""
    subject = Subject.of(document)
    columns = subject.columns
    rows = 0.9 + 0.205 * len(shown_columns(subject))
    found = {
        "scree": _shown(lambda axes: scree(axes, subject), (3.3, 2.8), words.scree_words(subject)),
        "loadings": _shown(
            lambda axes: loadings(axes, subject), (rows + 0.4, rows + 0.6), words.loadings_words(subject)
        ),
    }
    if subject.k >= 2:
        arrows = arrows_of(subject)
        found["biplot"] = _shown(
            lambda axes: biplot(axes, arrows, columns, projection),
            (4.6, 3.2),
            words.biplot_words(arrows, columns),
        )
    if subject.result["noise"] is not None and 2 <= len(columns) <= MOST_COLUMNS:
        both = pairs(subject, "correlation")
        tall = min(8.2, 1.8 + 0.42 * len(columns))
        found["correlations"] = _shown(
            lambda axes: heatmap(axes, both, columns),
            (tall, min(tall, 4.2)),
            words.heatmap_words(both, columns),
        )
    return found | _error(subject)


def _error(subject: Subject) -> dict[str, Shown]:
    """Empty where no law of the error is known."""
    try:
        points = foreseen(subject)
    except RequestError:  # it says that there is none, which the page leaves out
        return {}
    own = subject.study.epsilon
    said = words.error_words(points)
    return {"error": _shown(lambda axes: error_curve(axes, points, own=own), (3.3, 2.9), said)}


def _shown(paint: Callable[[Axes], None], heights: tuple[float, float], said: str) -> Shown:
    wide, phone = (
        f"data:image/svg+xml;base64,{base64.b64encode(svg(width, height, paint).encode()).decode()}"
        for width, height in zip((WIDTH, PHONE), heights, strict=True)
    )
    return Shown(wide=wide, phone=phone, words=said)
