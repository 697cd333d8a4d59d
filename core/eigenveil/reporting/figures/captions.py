"""Captions of the figures, computed from their numbers, as alternative text. Figures of a report, each for a
wide and a narrow page, with alternative text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from eigenveil.accounting.formatting import shown_up
from eigenveil.errors import RequestError
from eigenveil.numerics.encoding import FloatArray
from eigenveil.planning.predict import EpsilonPrediction
from eigenveil.reporting.document import HasRelease
from eigenveil.reporting.figures.components import (
    error_curve,
    loadings,
    predicted_errors,
    scree,
    strongest_columns,
)
from eigenveil.reporting.figures.figure import MOST_COLUMNS, ReleaseFigureData, image_address, with_minus_sign
from eigenveil.reporting.figures.loadings import (
    PairMatrix,
    Projection,
    arrows_of,
    biplot,
    heatmap,
    pair_matrix,
)

FEW = 3  # most items named


def scree_caption(data: ReleaseFigureData) -> str:
    """Return the share of the variance of each component."""
    shares = data.result.explained_variance_ratio
    each = _and([f"{100 * share:.1f} %" for share in shares[:FEW].tolist()])
    first = f"Variance along each component: the first carries {each} of the whole"
    if data.k > 1:
        more = "" if data.k <= FEW else ", and so on"
        first = f"Variance along each component: the first {min(data.k, FEW)} carry {each} of the whole{more}"
    noise_components = [str(i) for i, noise in enumerate(data.result.from_noise, 1) if noise]
    noise = f" Component {_and(noise_components)} may be noise alone." if noise_components else ""
    return f"{first}; together the {data.k} carry {100 * float(shares.sum()):.1f} %.{noise}"


def loadings_caption(data: ReleaseFigureData) -> str:
    """Return the largest loadings of each of the first components."""
    names, components = data.result.columns, data.result.components
    phrases = []
    for i, row in enumerate(components[:FEW], 1):
        top = np.argsort(-np.abs(row), kind="stable")[:FEW]
        phrases.append(
            f"component {i}: " + ", ".join(f"{names[j]} {with_minus_sign(f'{row[j]:+.2f}')}" for j in top)
        )
    return "Largest loadings. " + "; ".join(phrases) + "."


def heatmap_caption(pairs: PairMatrix, columns: Sequence[str]) -> str:
    """Return the strongest pairs, and the number of pairs that may be noise alone."""
    rows, others = np.tril_indices(len(columns), -1)
    values, noise = pairs.values[rows, others], pairs.is_noise[rows, others]
    significant = [i for i in np.argsort(-np.abs(values), kind="stable") if not noise[i]][:FEW]
    noun = pairs.name.partition(" ")[0]
    strongest = "; ".join(
        f"{columns[others[i]]} with {columns[rows[i]]} {with_minus_sign(f'{values[i]:+.2g}')}"
        for i in significant
    )
    first = f"Strongest {noun}s: {strongest}." if significant else f"No {noun} stands out of the noise."
    return f"{first} Of {len(values)} pairs noise alone could explain {int(noise.sum())}."


def biplot_caption(arrows: FloatArray, columns: Sequence[str]) -> str:
    """Return the longest arrows and their tips."""
    largest = np.argsort(-np.linalg.norm(arrows, axis=1), kind="stable")[:FEW]
    phrases = [
        f"{columns[i]} {with_minus_sign(f'({arrows[i, 0]:+.2g}, {arrows[i, 1]:+.2g})')}" for i in largest
    ]
    first = f"The {len(columns)} columns as arrows in the plane of components 1 and 2"
    return f"{first}; the longest: {', '.join(phrases)}."


def error_caption(found: Sequence[EpsilonPrediction]) -> str:
    """Return the predicted errors at the smallest and the largest epsilon."""
    least, most = found[0], found[-1]
    return (
        f"Predicted error of {least.algorithm.value} against epsilon: {least.error.median:.2g} at epsilon "
        f"{shown_up(least.epsilon, 2)}, {most.error.median:.2g} at epsilon {shown_up(most.epsilon, 2)}."
    )


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


WIDTH, PHONE = 8.6, 4.0  # inches; the page scales both


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFigure:
    """Image addresses of a figure for a wide page and for a phone, and its alternative text."""

    wide: str
    narrow: str
    description: str


def report_figures(release: HasRelease, projection: Projection | None) -> dict[str, ReportFigure]:
    """Return the figures of a release by name."""
    data = ReleaseFigureData.of(release)
    columns = data.result.columns
    rows = 0.9 + 0.205 * len(strongest_columns(data))
    drawn: dict[str, tuple[Callable[[Axes], None], tuple[float, float], str]] = {
        "scree": (lambda axes: scree(axes, data), (3.3, 2.8), scree_caption(data)),
        "loadings": (lambda axes: loadings(axes, data), (rows + 0.4, rows + 0.6), loadings_caption(data)),
    }
    if data.k >= 2:
        arrows = arrows_of(data)
        words = biplot_caption(arrows, columns)
        drawn["biplot"] = (lambda axes: biplot(axes, arrows, columns, projection), (4.6, 3.2), words)
    if data.result.noise is not None and 2 <= len(columns) <= MOST_COLUMNS:
        both, tall = pair_matrix(data, "correlation"), min(8.2, 1.8 + 0.42 * len(columns))
        words = heatmap_caption(both, columns)
        drawn["correlations"] = (lambda axes: heatmap(axes, both, columns), (tall, min(tall, 4.2)), words)
    with suppress(RequestError):  # no error model: the page leaves the figure out
        points, epsilon = predicted_errors(data), data.study.epsilon
        words = error_caption(points)
        drawn["error"] = (lambda axes: error_curve(axes, points, study_epsilon=epsilon), (3.3, 2.9), words)
    return {
        name: ReportFigure(
            wide=image_address(WIDTH, wide, paint),
            narrow=image_address(PHONE, narrow, paint),
            description=words,
        )
        for name, (paint, (wide, narrow), words) in drawn.items()
    }
