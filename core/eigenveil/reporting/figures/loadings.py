"""Heatmap of the correlations or covariances of all pairs of columns, each pair once. Biplot: columns as
arrows in the plane of the first two components, over public records if given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from eigenveil.derived.covariance import IntervalEstimate, ScaledCovariance, Units
from eigenveil.derived.moments import Moments
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil.reporting.figures.figure import (
    GRID,
    GROUPS,
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


def pair_matrix(data: ReleaseFigureData, kind: str) -> PairMatrix:
    """Return the "correlation" or "covariance" of all pairs, and which of them noise alone could explain.
    Raises RequestError: another kind, or the release has no covariance whose noise is known."""
    moments = Moments.of(data.result)
    if kind == "correlation":
        found = moments.correlation().numbers
        return PairMatrix(
            values=found.values, is_noise=found.is_noise, name="correlation", includes_diagonal=False
        )
    if kind != "covariance":
        raise RequestError(Code.BAD_ARGUMENT, f'kind {kind!r}: choose "correlation" or "covariance"')
    scaled = ScaledCovariance.of(moments.matrix, Units.RELEASED)
    errors = moments.matrix.noise_only.entry_errors * np.outer(scaled.weights, scaled.weights)
    return PairMatrix(
        values=scaled.values,
        is_noise=IntervalEstimate(values=scaled.values, errors=errors).is_noise,
        name=f"covariance ({data.units})",
        includes_diagonal=True,
    )


def heatmap(axes: Axes, pair_values: PairMatrix, columns: tuple[str, ...]) -> None:
    """Draw a heatmap; cells that noise alone could explain are grey."""
    d, small = len(columns), is_narrow(axes)
    cells_shown = np.tri(d, k=0 if pair_values.includes_diagonal else -1, dtype=bool)
    largest = float(np.abs(pair_values.values[cells_shown]).max(initial=0.0))
    limit = largest if pair_values.includes_diagonal else 1.0
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
        text = f"{value:.2g}" if pair_values.includes_diagonal else f"{round(value, 2) + 0.0:.2f}"  # no -0
        axes.text(j + 0.5, i + 0.5, with_minus_sign(text), ha="center", va="center", fontsize=8, color=colour)


SHORTEST = 0.05  # shortest arrow that gets a label, relative to the longest
MOST_VECTOR_POINTS = 4000  # beyond this the point cloud is a raster image inside the SVG


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Projection:
    """Public records in the component plane. Shape: points (n, 2 or more), groups n labels or none."""

    points: FloatArray
    groups: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelLayout:
    """Number of labels, their length in characters, spacing and margin; distances relative to the extent."""

    labels: int
    characters: int
    spacing: float
    margin: float


WIDE_LAYOUT, NARROW_LAYOUT = (
    LabelLayout(labels=12, characters=30, spacing=0.135, margin=2.0),
    LabelLayout(labels=8, characters=13, spacing=0.24, margin=2.5),
)


def arrows_of(data: ReleaseFigureData) -> FloatArray:
    """Return loadings times standard deviations. Shape: (d, 2). Raises RequestError: code `bad-argument`:
    only one component was released."""
    if data.k < 2:
        raise RequestError(Code.BAD_ARGUMENT, "a biplot needs two components, and one was released")
    return np.asarray(
        data.result.components[:2].T * np.sqrt(np.maximum(data.result.explained_variance[:2], 0.0))
    )


def biplot(axes: Axes, arrows: FloatArray, columns: Sequence[str], projection: Projection | None) -> None:
    """Draw a biplot. Shape: arrows (d, 2); without records the axes have no ticks."""
    layout = NARROW_LAYOUT if is_narrow(axes) else WIDE_LAYOUT
    cloud = projection is not None and len(projection.points) > 0
    points = projection.points[:, :2] if projection is not None and cloud else np.zeros((1, 2))
    extent = 0.85 * float(np.quantile(np.abs(points), 0.995)) or 1.0
    tips = arrows * (extent / (float(np.linalg.norm(arrows, axis=1).max()) or 1.0))
    lengths = np.linalg.norm(tips, axis=1)
    named = np.argsort(-lengths, kind="stable")[: layout.labels]
    labels = _label_positions(tips, named[lengths[named] >= SHORTEST * extent], extent, layout)
    if projection is not None and cloud:
        _cloud(axes, projection)
    else:
        axes.set(xticks=[], yticks=[])
    _arrows(axes, tips, [short_label(name, layout.characters) for name in columns], labels)
    axes.axhline(0, color=GRID, lw=0.8, zorder=0)
    axes.axvline(0, color=GRID, lw=0.8, zorder=0)
    _frame(axes, points, tips, labels, extent, layout)
    axes.set(xlabel="component 1", ylabel="component 2")
    axes.spines[:].set_visible(False)


def _frame(
    axes: Axes,
    points: FloatArray,
    tips: FloatArray,
    labels: dict[int, tuple[float, float]],
    extent: float,
    layout: LabelLayout,
) -> None:
    """Set axis limits that contain all points, tips and labels; matplotlib drops arrows beyond them."""
    wide = [*points[:, 0], *tips[:, 0], *(np.sign(x) * layout.margin * extent for x, _ in labels.values())]
    heights = [*tips[:, 1], *(y for _, y in labels.values()), 0.5 * extent]
    half_height = 1.1 * max(float(np.quantile(np.abs(points[:, 1]), 0.998)), float(np.abs(heights).max()))
    low, high = min(wide) - 0.15 * extent, max(wide) + 0.15 * extent
    across, down = figure_of(axes).get_size_inches()
    more = max(0.0, 2 * half_height * across / down - (high - low)) / 2  # equal scales that fill the figure
    half_height = max(half_height, (high - low) * down / across / 2)
    axes.set(xlim=(low - more, high + more), ylim=(-half_height, half_height), aspect="equal")


def _cloud(axes: Axes, projection: Projection) -> None:
    groups = projection.groups or ("",) * len(projection.points)
    for i, group in enumerate(dict.fromkeys(groups)):
        inside = projection.points[[g == group for g in groups]]
        axes.scatter(
            inside[:, 0], inside[:, 1], s=11, lw=0, alpha=0.5, color=GROUPS[i % len(GROUPS)],
            marker="os^Dv"[i % 5], label=short_label(group) if group else None,
            rasterized=len(groups) > MOST_VECTOR_POINTS,
        )  # fmt: skip
    if projection.groups:
        axes.legend(loc="upper left", markerscale=1.8, handletextpad=0.2)


def _arrows(
    axes: Axes, tips: FloatArray, names: Sequence[str], labels: dict[int, tuple[float, float]]
) -> None:
    for i, tip in enumerate(tips):
        strong = i in labels
        axes.annotate(
            "", xy=(tip[0], tip[1]), xytext=(0, 0),
            arrowprops={"arrowstyle": "-|>" if strong else "-", "color": INK if strong else SOFT,
                        "lw": 1.1 if strong else 0.5, "alpha": 0.9 if strong else 0.4,
                        "shrinkA": 0, "shrinkB": 0},
        )  # fmt: skip
    for i, (x, y) in labels.items():
        named = axes.annotate(
            names[i], xy=(tips[i, 0], tips[i, 1]), xytext=(x, y),
            ha="left" if x > 0 else "right", va="center", fontsize=9, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": SOFT, "lw": 0.5, "alpha": 0.7, "shrinkB": 1},
        )  # fmt: skip
        named.set_in_layout(False)  # the axis limits include it


def _label_positions(
    tips: FloatArray, named: IntArray, extent: float, layout: LabelLayout
) -> dict[int, tuple[float, float]]:
    """Return label positions: a column on either side, in the order of the tips, without overlap."""
    positions: dict[int, tuple[float, float]] = {}
    for side in (-1, 1):
        columns_on_side = [int(i) for i in named if (1 if tips[i, 0] >= 0 else -1) == side]
        columns_on_side.sort(key=lambda i: float(tips[i, 1]))
        heights = [float(tips[i, 1]) for i in columns_on_side]
        for j in range(1, len(columns_on_side)):
            heights[j] = max(heights[j], heights[j - 1] + layout.spacing * extent)
        shift = sum(heights) - sum(float(tips[i, 1]) for i in columns_on_side)
        positions |= {
            i: (side * 1.25 * extent, height - shift / len(columns_on_side))
            for i, height in zip(columns_on_side, heights, strict=True)
        }
    return positions
