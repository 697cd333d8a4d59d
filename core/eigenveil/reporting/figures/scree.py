"""Explained variances, with what the privacy noise leaves unknown of them."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from eigenveil.reporting.figures.style import BLUE, GRID, HATCH, INK, PALE, RED, narrow
from eigenveil.reporting.figures.subject import Subject

MOST_BARS = 20


def scree(axes: Axes, subject: Subject) -> None:
    """Dark bars for the components, pale ones for the other directions; whiskers of two noise standard
    deviations; hatched, and below the line, what noise alone may have made."""
    chosen, k, small = subject.variances, subject.k, narrow(axes)
    shown = np.concatenate([chosen, subject.others])[: max(12 if small else MOST_BARS, k)]
    at = np.arange(1, len(shown) + 1)
    bars = axes.bar(
        at, shown, width=0.62, color=[BLUE if i < k else PALE for i in range(len(shown))], zorder=2
    )
    for bar, noise in zip(bars, subject.from_noise, strict=False):
        if noise:
            bar.set(facecolor=PALE, edgecolor=BLUE, hatch=HATCH)
    axes.errorbar(
        at[:k], chosen, yerr=2 * subject.result["noise_scale"],
        fmt="none", ecolor=INK, elinewidth=1.1, capsize=3.5, zorder=3,
    )  # fmt: skip
    if subject.noise_edge is not None:
        axes.axhline(subject.noise_edge, color=RED, lw=1.1, ls=(0, (5, 3)), zorder=4)
        axes.annotate(
            "may be noise below" if small else "below this line a direction may be noise",
            (1, subject.noise_edge), xycoords=("axes fraction", "data"), xytext=(-2, 4),
            textcoords="offset points", ha="right", color=RED, fontsize=9,
            bbox={"facecolor": "white", "alpha": 0.75, "lw": 0, "pad": 1},
        )  # fmt: skip
    every = max(1, -(-len(shown) // (8 if small else 30)))
    axes.set(xticks=at[::every], xlim=(0.3, max(len(shown), 4) + 0.7), xlabel="component")
    axes.set_ylabel(f"variance ({subject.units})", fontsize=9 if small else 10)
    axes.grid(axis="y", color=GRID, lw=0.8)
