"""The error that the planner predicts against epsilon."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes

from eigenveil.errors import Code, RequestError
from eigenveil.planning.sweep import Foreseen, around, sweep
from eigenveil.reporting.figures.style import BLUE, GRID, PALE, RED, SOFT, narrow
from eigenveil.reporting.figures.subject import Subject
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import MAX_RECORDS

LEAST = 0.02  # the height of the picture where no error is to be seen


def foreseen(subject: Subject, epsilons: Iterable[float] | None = None) -> tuple[Foreseen, ...]:
    """What the algorithm that ran is predicted to give at other epsilons, on what was released: its noised
    variances, their rest spread evenly, and the noised number of records.

    Raises:
        RequestError: no error of it can be predicted.
    """
    try:
        algorithm = Algorithm(subject.algorithm)
    except ValueError as problem:
        raise RequestError(
            Code.BAD_ARGUMENT, f"no law of the error of {subject.algorithm} is known: it is somebody's own"
        ) from problem
    counted = min(max(round(subject.result["records"]), 1), MAX_RECORDS)
    at = around(subject.study.epsilon) if epsilons is None else epsilons
    return sweep(
        replace(subject.study, expected_records=counted),
        [float(one) for one in at],
        algorithm,
        _spectrum(subject),
    )


def _spectrum(subject: Subject) -> list[float] | None:
    """Falling and above 0, as the planner wants them, and of the rest no less than the noise on a variance,
    as nothing less is known; None where noise left none."""
    least = max(subject.left, float(subject.result["noise_scale"]))
    rest = [least] if subject.k < len(subject.columns) else []
    falling = np.minimum.accumulate([one for one in (*subject.variances.tolist(), *rest) if one > 0])
    return falling.tolist() or None


def error_curve(axes: Axes, found: Sequence[Foreseen], *, own: float | None = None) -> None:
    """The median and where 8 in 10 runs should lie, with a line at the study's `own` epsilon."""
    epsilons = np.array([one.epsilon for one in found])
    low, median, high = np.array([(one.error.low, one.error.median, one.error.high) for one in found]).T
    axes.fill_between(epsilons, low, high, color=PALE, lw=0, alpha=0.7, label="8 in 10 runs")
    axes.plot(epsilons, median, color=BLUE, marker="o", ms=4, label="median")
    if own is not None:
        axes.axvline(own, color=RED, lw=1.1, ls=(0, (5, 3)))
        axes.annotate(
            f"this study: {own:g}", (own, 1), xycoords=("data", "axes fraction"), xytext=(3, -3),
            textcoords="offset points", va="top", color=RED, fontsize=9,
        )  # fmt: skip
    axes.set_xscale("log")
    ticks = epsilons if len(epsilons) <= 8 else epsilons[:: -(-len(epsilons) // 8)]
    axes.set_xticks(ticks, [f"{one:.3g}" for one in ticks], fontsize=8.5)
    axes.set_xticks([], minor=True)
    axes.set(
        ylim=(0, min(1.02, max(1.1 * float(high.max()), LEAST))), xlabel="epsilon (less is more private)"
    )
    axes.set_ylabel("error" if narrow(axes) else "predicted error (0: exact, 1: noise)")
    axes.grid(axis="y", color=GRID, lw=0.8)
    axes.legend(loc="center right", fontsize=9, labelcolor=SOFT)
