"""Statistics of runs: the ratio of medians with its interval, and shares of statements that mislead."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from eigenveil.numerics.encoding import FloatArray

# Of an interval. With 95 % some 10 of 700 cells would lie wholly above the margin though nothing had changed.
LEVEL, DRAWS = 0.99, 2000
WORSE = 1.05  # a cell whose interval lies wholly above is missed
UNUSABLE, CONFIDENT = 0.9, 0.5  # false confidence: a true sine above the first, stated below the second
NEAR = (0.67, 1.5)  # stated by true, in the median of a cell

Pairs = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioInterval:
    """Ratio of two medians over the same seeds, and its bootstrap interval."""

    ratio: float
    low: float
    high: float
    seeds: int

    @property
    def word(self) -> str:
        """`MISSED` if the interval lies wholly above the margin, `better` if it lies as far below 1."""
        if self.low > WORSE:
            return "MISSED"
        return "better" if self.high < 1 / WORSE else ""


def ratio_interval(before: FloatArray, after: FloatArray) -> RatioInterval:
    """Return median(after) / median(before). Seeds are resampled in pairs: records are the same, and noise
    alike. Shape: twice (seeds,)."""
    chosen = np.random.default_rng(0).integers(len(before), size=(DRAWS, len(before)))
    ratios = np.median(after[chosen], axis=1) / np.median(before[chosen], axis=1)
    low, high = np.quantile(ratios, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    ratio = float(np.median(after) / np.median(before))
    return RatioInterval(ratio=ratio, low=float(low), high=float(high), seeds=len(before))


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementCounts:
    """Runs with a stated error, those with false confidence among them, and cells by their median of stated
    by true."""

    runs: int
    false: int
    cells: int
    near: int

    @property
    def false_share(self) -> float:
        return self.false / self.runs if self.runs else 0.0

    @property
    def near_share(self) -> float:
        return self.near / self.cells if self.cells else 1.0


def statement_counts(cells: Iterable[Pairs]) -> StatementCounts:
    """Return the counts over the runs of all cells; a run without a statement does not count."""
    runs = false = number = near = 0
    for pairs in cells:
        told = [(true, stated) for true, stated in pairs if not math.isnan(stated)]
        if not told:
            continue
        runs, number = runs + len(told), number + 1
        false += sum(true > UNUSABLE and stated < CONFIDENT for true, stated in told)
        near += NEAR[0] <= np.median([stated / true for true, stated in told]) <= NEAR[1]
    return StatementCounts(runs=runs, false=false, cells=number, near=near)


def median_sine(pairs: Pairs) -> float:
    """Return the median true sine; infinite if the study was refused."""
    sines = [true for true, _ in pairs if not math.isnan(true)]
    return float(np.median(sines)) if sines else math.inf


def regret(sines: dict[str, float], chosen: str) -> float:
    """Return the sine of the chosen algorithm relative to the least."""
    return sines[chosen] / min(sines.values())
