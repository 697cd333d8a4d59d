"""How the columns go together: correlations or covariances of all pairs, each pair once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from eigenveil.derived.frame import Frame, Units
from eigenveil.derived.moments import Moments
from eigenveil.derived.uncertain import Uncertain
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray
from eigenveil.reporting.figures.style import INK, MOST_COLUMNS, SOFT, label, minus, narrow, whole
from eigenveil.reporting.figures.subject import Subject

MOST_WRITTEN, MOST_WRITTEN_NARROW = 14, 7  # columns whose numbers fit into their cells


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pairs:
    """Shape: values and is_noise (d, d), symmetric. `whole`: a column with itself says something, too."""

    values: FloatArray
    is_noise: NDArray[np.bool_]
    name: str
    whole: bool


def pairs(subject: Subject, kind: str) -> Pairs:
    """The "correlation" or "covariance" of all pairs of a release, and where noise alone could show as much.

    Raises:
        RequestError: another kind, or the release has no covariance whose noise is known.
    """
    moments = Moments.of(subject.result)
    if kind == "correlation":
        found = moments.correlation().numbers
        return Pairs(values=found.values, is_noise=found.is_noise, name="correlation", whole=False)
    if kind != "covariance":
        raise RequestError(Code.BAD_ARGUMENT, f'kind {kind!r}: choose "correlation" or "covariance"')
    frame = Frame.of(moments.matrix, Units.RELEASED)
    errors = moments.matrix.entries * np.outer(frame.weights, frame.weights)
    return Pairs(
        values=frame.values,
        is_noise=Uncertain(values=frame.values, errors=errors).is_noise,
        name=f"covariance ({subject.units})",
        whole=True,
    )


def heatmap(axes: Axes, shown: Pairs, columns: tuple[str, ...]) -> None:
    """Grey where noise alone could show as much."""
    d, small = len(columns), narrow(axes)
    kept = np.tri(d, k=0 if shown.whole else -1, dtype=bool)
    limit = float(np.abs(shown.values[kept]).max(initial=0.0)) if shown.whole else 1.0
    cells = np.ma.masked_array(shown.values, mask=shown.is_noise | ~kept)
    grey = np.ma.masked_array(np.ones_like(shown.values), mask=~(shown.is_noise & kept))
    edges: Any = {"edgecolors": "white", "lw": 0.8 if d <= MOST_COLUMNS else 0}
    axes.pcolormesh(grey, cmap="Greys", vmin=0, vmax=6, **edges)
    picture = axes.pcolormesh(cells, cmap="RdBu", vmin=-limit, vmax=limit, **edges)
    _names(axes, [label(name, 12 if small else 18) for name in columns], small)
    first = 0 if shown.whole else 1
    axes.set(xlim=(0, d - first), ylim=(d, first))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    if d <= (MOST_WRITTEN_NARROW if small else MOST_WRITTEN):
        _written(axes, shown, kept, limit)
    whole(axes).colorbar(picture, ax=axes, label=shown.name, fraction=0.04, pad=0.02)


def _names(axes: Axes, names: list[str], small: bool) -> None:
    every = -(-len(names) // (24 if small else MOST_COLUMNS))
    at = np.arange(len(names))[::every] + 0.5
    axes.set_yticks(at, names[::every], fontsize=8.5)
    axes.set_xticks(at, names[::every], fontsize=8.5, rotation=55, ha="right", rotation_mode="anchor")


def _written(axes: Axes, shown: Pairs, kept: NDArray[np.bool_], limit: float) -> None:
    for i, j in zip(*np.nonzero(kept), strict=True):
        value, noise = float(shown.values[i, j]), bool(shown.is_noise[i, j])
        strong = abs(value) > 0.6 * limit and not noise
        colour = "white" if strong else SOFT if noise else INK
        text = minus(f"{value:.2g}" if shown.whole else f"{round(value, 2) + 0.0:.2f}")  # no minus zero
        axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=8, color=colour)
