"""Heatmap of the correlations or covariances of all pairs of columns, each pair once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from eigenveil.derived.covariance import IntervalEstimate, ScaledCovariance, Units
from eigenveil.derived.moments import Moments
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray
from eigenveil.reporting.figures.figure import (
    INK,
    MOST_COLUMNS,
    SOFT,
    ReleaseFigureData,
    figure_of,
    is_narrow,
    short_label,
    with_minus_sign,
)

MOST_LABELLED, MOST_LABELLED_NARROW = 14, 7  # columns whose numbers fit into their cells


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairMatrix:
    """Values of all pairs; `includes_diagonal`: with the diagonal. Shape: values and is_noise (d, d),
    symmetric."""

    values: FloatArray
    is_noise: NDArray[np.bool_]
    name: str
    includes_diagonal: bool


def pair_matrix(figure_data: ReleaseFigureData, kind: str) -> PairMatrix:
    """Return the "correlation" or "covariance" of all pairs, and which of them noise alone could explain.

    Raises:
        RequestError: another kind, or the release has no covariance whose noise is known.
    """
    moments = Moments.of(figure_data.result)
    if kind == "correlation":
        found = moments.correlation().numbers
        return PairMatrix(
            values=found.values, is_noise=found.is_noise, name="correlation", includes_diagonal=False
        )
    if kind != "covariance":
        raise RequestError(Code.BAD_ARGUMENT, f'kind {kind!r}: choose "correlation" or "covariance"')
    scaled = ScaledCovariance.of(moments.matrix, Units.RELEASED)
    errors = moments.matrix.entry_errors * np.outer(scaled.weights, scaled.weights)
    return PairMatrix(
        values=scaled.values,
        is_noise=IntervalEstimate(values=scaled.values, errors=errors).is_noise,
        name=f"covariance ({figure_data.units})",
        includes_diagonal=True,
    )


def heatmap(axes: Axes, pair_values: PairMatrix, columns: tuple[str, ...]) -> None:
    """Draw a heatmap; cells that noise alone could explain are grey."""
    d, small = len(columns), is_narrow(axes)
    cells_shown = np.tri(d, k=0 if pair_values.includes_diagonal else -1, dtype=bool)
    limit = (
        float(np.abs(pair_values.values[cells_shown]).max(initial=0.0))
        if pair_values.includes_diagonal
        else 1.0
    )
    cells = np.ma.masked_array(pair_values.values, mask=pair_values.is_noise | ~cells_shown)
    grey = np.ma.masked_array(np.ones_like(pair_values.values), mask=~(pair_values.is_noise & cells_shown))
    edges: Any = {"edgecolors": "white", "lw": 0.8 if d <= MOST_COLUMNS else 0}
    axes.pcolormesh(grey, cmap="Greys", vmin=0, vmax=6, **edges)
    picture = axes.pcolormesh(cells, cmap="RdBu", vmin=-limit, vmax=limit, **edges)
    _names(axes, [short_label(name, 12 if small else 18) for name in columns], small)
    first = 0 if pair_values.includes_diagonal else 1
    axes.set(xlim=(0, d - first), ylim=(d, first))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    if d <= (MOST_LABELLED_NARROW if small else MOST_LABELLED):
        _write_values(axes, pair_values, cells_shown, limit)
    figure_of(axes).colorbar(picture, ax=axes, label=pair_values.name, fraction=0.04, pad=0.02)


def _names(axes: Axes, names: list[str], small: bool) -> None:
    every = -(-len(names) // (24 if small else MOST_COLUMNS))
    at = np.arange(len(names))[::every] + 0.5
    axes.set_yticks(at, names[::every], fontsize=8.5)
    axes.set_xticks(at, names[::every], fontsize=8.5, rotation=55, ha="right", rotation_mode="anchor")


def _write_values(axes: Axes, pair_values: PairMatrix, cells_shown: NDArray[np.bool_], limit: float) -> None:
    for i, j in zip(*np.nonzero(cells_shown), strict=True):
        value, noise = float(pair_values.values[i, j]), bool(pair_values.is_noise[i, j])
        strong = abs(value) > 0.6 * limit and not noise
        colour = "white" if strong else SOFT if noise else INK
        text = with_minus_sign(
            f"{value:.2g}" if pair_values.includes_diagonal else f"{round(value, 2) + 0.0:.2f}"
        )  # no minus zero
        axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=8, color=colour)
