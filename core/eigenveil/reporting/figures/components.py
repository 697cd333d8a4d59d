"""Plots of components: scree with the privacy noise's uncertainty, loadings, and error against epsilon. Scree
bars are explained variances; loadings are of the columns on each component; the error is predicted."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes

from eigenveil.accounting.formatting import shown_up
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray
from eigenveil.planning.predict import EpsilonPrediction, epsilons_around, sweep
from eigenveil.reporting.figures.figure import (
    BLUE,
    GRID,
    GROUPS,
    HATCH,
    INK,
    MOST_COLUMNS,
    PALE,
    RED,
    SOFT,
    ReleaseFigureData,
    figure_of,
    is_narrow,
    short_label,
    with_minus_sign,
)
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import MAX_RECORDS

MOST_BARS = 20
LABEL_WIDTH = 28  # characters of a line beside an axis


def scree(axes: Axes, data: ReleaseFigureData) -> None:
    """Draw dark bars for components and pale bars for other directions. Whiskers are two noise standard
    deviations. Directions that may be noise are hatched or below the line."""
    chosen, k, small = data.result.explained_variance, data.k, is_narrow(axes)
    shown = np.concatenate([chosen, data.other_variances])[: max(12 if small else MOST_BARS, k)]
    at = np.arange(1, len(shown) + 1)
    bars = axes.bar(
        at, shown, width=0.62, color=[BLUE if i < k else PALE for i in range(len(shown))], zorder=2
    )
    for bar, noise in zip(bars, data.result.from_noise, strict=False):
        if noise:
            bar.set(facecolor=PALE, edgecolor=BLUE, hatch=HATCH)
    axes.errorbar(
        at[:k], chosen, yerr=2 * data.result.noise_scale,
        fmt="none", ecolor=INK, elinewidth=1.1, capsize=3.5, zorder=3,
    )  # fmt: skip
    if data.result.noise_edge is not None:
        axes.axhline(data.result.noise_edge, color=RED, lw=1.1, ls=(0, (5, 3)), zorder=4)
        axes.annotate(
            "may be noise below" if small else "below this line a direction may be noise",
            (1, data.result.noise_edge), xycoords=("axes fraction", "data"), xytext=(-2, 4),
            textcoords="offset points", ha="right", color=RED, fontsize=9,
            bbox={"facecolor": "white", "alpha": 0.75, "lw": 0, "pad": 1},
        )  # fmt: skip
    every = max(1, -(-len(shown) // (8 if small else 30)))
    axes.set(xticks=at[::every], xlim=(0.3, max(len(shown), 4) + 0.7), xlabel="component")
    label = textwrap.fill(f"variance ({data.units})", LABEL_WIDTH)  # else it is longer than the axis
    axes.set_ylabel(label, fontsize=9 if small else 10)
    axes.grid(axis="y", color=GRID, lw=0.8)


SIDE_BY_SIDE = 4  # most components that are drawn as bars; more are a heatmap


def strongest_columns(data: ReleaseFigureData) -> list[int]:
    """Return the columns with the strongest loadings that fit the figure, in the study's order."""
    components = data.result.components
    if components.shape[1] <= MOST_COLUMNS:
        return list(range(components.shape[1]))
    return sorted(np.argsort(-np.abs(components).max(axis=0), kind="stable")[:MOST_COLUMNS].tolist())


def loadings(axes: Axes, data: ReleaseFigureData) -> None:
    """Draw bars for a few components and a heatmap for many; components that may be noise are hatched."""
    order = strongest_columns(data)
    names = [short_label(data.result.columns[i], 14 if is_narrow(axes) else 30) for i in order]
    values = data.result.components[:, order]
    marks = ["*" if noise else "" for noise in data.result.from_noise]
    if data.k <= (2 if is_narrow(axes) else SIDE_BY_SIDE):
        _bars(axes, values, marks)
        axes.set_yticks(np.arange(len(names)), names, fontsize=8.5)
        axes.set_ylim(len(names) - 0.4, -0.6)
    else:
        _heat(axes, values, marks)
        axes.set_yticks(np.arange(len(names)) + 0.5, names, fontsize=8.5)
        axes.invert_yaxis()
    if any(marks):
        axes.annotate(
            "* may be noise", (1, 1), xycoords="axes fraction", xytext=(0, 3), textcoords="offset points",
            ha="right", va="bottom", fontsize=9, color=SOFT,
        )  # fmt: skip


def _bars(axes: Axes, values: FloatArray, marks: list[str]) -> None:
    """Draw bars, with a zero line for each component."""
    reach = max(0.55, 1.08 * float(np.abs(values).max()))
    zeros = 2 * reach * np.arange(len(values))
    at = np.arange(values.shape[1])
    for zero, row, mark in zip(zeros, values, marks, strict=True):
        axes.barh(
            at, row, left=zero, height=0.66, color=np.where(row < 0, GROUPS[1], GROUPS[0]), zorder=2,
            alpha=0.45 if mark else None, hatch=HATCH if mark else None,
        )  # fmt: skip
        axes.axvline(zero, color=SOFT, lw=0.8, zorder=3)
    halves = [(zero + part, with_minus_sign(f"{part:g}")) for zero in zeros for part in (-0.5, 0.5)]
    axes.set_xticks([x for x, _ in halves], [text for _, text in halves], fontsize=8)
    axes.set_xticks(zeros, [f"component {i}{mark}" for i, mark in enumerate(marks, 1)], minor=True)
    axes.tick_params(axis="x", which="minor", length=0, pad=16)
    axes.set_xlim(-reach, zeros[-1] + reach)
    axes.grid(axis="x", color=GRID, lw=0.8)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _heat(axes: Axes, values: FloatArray, marks: list[str]) -> None:
    limit = float(np.abs(values).max())
    picture = axes.pcolormesh(values.T, cmap="RdBu", vmin=-limit, vmax=limit, edgecolors="white", lw=0.5)
    axes.set_xticks(np.arange(len(values)) + 0.5, [f"{i}{mark}" for i, mark in enumerate(marks, 1)])
    axes.set_xlabel("component")
    axes.tick_params(length=0)
    figure_of(axes).colorbar(picture, ax=axes, label="loading", fraction=0.05, pad=0.02)


LEAST_HEIGHT = 0.02  # height of the error axis if all errors are near 0


def predicted_errors(
    data: ReleaseFigureData, epsilons: Iterable[float] | None = None
) -> tuple[EpsilonPrediction, ...]:
    """Return the predicted errors of the study's algorithm at other epsilons. They use the released values:
    the noised variances, the rest spread evenly, and the noised record count. Raises RequestError: the
    algorithm has no error model."""
    try:
        algorithm = Algorithm(data.algorithm)
    except ValueError as problem:
        raise RequestError(
            Code.BAD_ARGUMENT, f"no error model of {data.algorithm} is known: it is a custom algorithm"
        ) from problem
    counted = min(max(round(data.result.records), 1), MAX_RECORDS)
    at = epsilons_around(data.study.epsilon) if epsilons is None else epsilons
    return sweep(
        replace(data.study, expected_records=counted), [float(one) for one in at], algorithm, _spectrum(data)
    )


def _spectrum(data: ReleaseFigureData) -> list[float] | None:
    """Return descending positive variances for the planner; None if none is positive. The rest has at least
    the noise on a variance, because less cannot be known."""
    least = max(data.other_variance, float(data.result.noise_scale))
    rest = [least] if data.k < len(data.result.columns) else []
    falling = np.minimum.accumulate(
        [one for one in (*data.result.explained_variance.tolist(), *rest) if one > 0]
    )
    return falling.tolist() or None


def error_curve(axes: Axes, predictions: Sequence[EpsilonPrediction], *, study_epsilon: float) -> None:
    """Draw the median and the band of 8 in 10 runs, with a line at the study's epsilon."""
    epsilons = np.array([one.epsilon for one in predictions])
    low, median, high = np.array([(one.error.low, one.error.median, one.error.high) for one in predictions]).T
    axes.fill_between(epsilons, low, high, color=PALE, lw=0, alpha=0.7, label="8 in 10 runs")
    axes.plot(epsilons, median, color=BLUE, marker="o", ms=4, label="median")
    axes.axvline(study_epsilon, color=RED, lw=1.1, ls=(0, (5, 3)))
    axes.annotate(
        f"this study: {shown_up(study_epsilon)}", (study_epsilon, 1), xytext=(3, -3),
        xycoords=("data", "axes fraction"), textcoords="offset points", va="top", color=RED, fontsize=9,
    )  # fmt: skip
    axes.set_xscale("log")
    ticks = epsilons if len(epsilons) <= 8 else epsilons[:: -(-len(epsilons) // 8)]
    axes.set_xticks(ticks, [f"{one:.3g}" for one in ticks], fontsize=8.5)
    axes.set_xticks([], minor=True)
    axes.set(
        ylim=(0, min(1.02, max(1.1 * float(high.max()), LEAST_HEIGHT))),
        xlabel="epsilon (less is more private)",
    )
    axes.set_ylabel("error" if is_narrow(axes) else "predicted error (0: exact, 1: noise)")
    axes.grid(axis="y", color=GRID, lw=0.8)
    axes.legend(loc="center right", fontsize=9, labelcolor=SOFT)
