"""How much each column weighs in each component."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from eigenveil.numerics.encoding import FloatArray
from eigenveil.reporting.figures.style import (
    GRID,
    GROUPS,
    HATCH,
    MOST_COLUMNS,
    SOFT,
    label,
    minus,
    narrow,
    whole,
)
from eigenveil.reporting.figures.subject import Subject

SIDE_BY_SIDE = 4  # components that stand beside each other as bars; more are a heat map


def shown_columns(subject: Subject) -> list[int]:
    """Those that the picture has room for: the strongest, in the study's order."""
    components = subject.components
    if components.shape[1] <= MOST_COLUMNS:
        return list(range(components.shape[1]))
    strongest = np.argsort(-np.abs(components).max(axis=0), kind="stable")[:MOST_COLUMNS]
    return sorted(strongest.tolist())


def loadings(axes: Axes, subject: Subject) -> None:
    """Bars side by side for a few components, a heat map for many; hatched where noise may have made all."""
    order = shown_columns(subject)
    names = [label(subject.columns[i], 14 if narrow(axes) else 30) for i in order]
    values = subject.components[:, order]
    marks = ["*" if noise else "" for noise in subject.from_noise]
    if subject.k <= (2 if narrow(axes) else SIDE_BY_SIDE):
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
    """Every component has a zero line of its own."""
    reach = max(0.55, 1.08 * float(np.abs(values).max()))
    zeros = 2 * reach * np.arange(len(values))
    at = np.arange(values.shape[1])
    for zero, row, mark in zip(zeros, values, marks, strict=True):
        axes.barh(
            at, row, left=zero, height=0.66, color=np.where(row < 0, GROUPS[1], GROUPS[0]), zorder=2,
            alpha=0.45 if mark else None, hatch=HATCH if mark else None,
        )  # fmt: skip
        axes.axvline(zero, color=SOFT, lw=0.8, zorder=3)
    halves = [(zero + part, minus(f"{part:g}")) for zero in zeros for part in (-0.5, 0.5)]
    axes.set_xticks([x for x, _ in halves], [text for _, text in halves], fontsize=8)
    names = [f"component {i}{mark}" for i, mark in enumerate(marks, 1)]
    axes.set_xticks(zeros, names, minor=True)
    axes.tick_params(axis="x", which="minor", length=0, pad=16)
    axes.set_xlim(-reach, zeros[-1] + reach)
    axes.grid(axis="x", color=GRID, lw=0.8)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _heat(axes: Axes, values: FloatArray, marks: list[str]) -> None:
    limit = float(np.abs(values).max())
    picture = axes.pcolormesh(values.T, cmap="RdBu", vmin=-limit, vmax=limit, edgecolors="white", lw=0.5)
    names = [f"{i}{mark}" for i, mark in enumerate(marks, 1)]
    axes.set_xticks(np.arange(len(values)) + 0.5, names)
    axes.set_xlabel("component")
    axes.tick_params(length=0)
    whole(axes).colorbar(picture, ax=axes, label="loading", fraction=0.05, pad=0.02)
