"""Share of 95 % intervals of `Moments` that hold the exact answer, on the real tables.

`python -m benchmarks.derived [--runs 40] [--out docs/derived/coverage.csv]`. Every question is asked of as
many releases of one table, which differ by their noise alone, and held against numpy on the same records: so
it is the privacy errors that are measured. The last rows draw the records anew in every run and ask whether
the errors with sampling hold the slopes that the records were drawn with.

Intervals of one release share its noise, so they are not as many trials as they are numbers: the interval of
a share (Wilson's) counts as many trials as the spread of the share from release to release says there are."""

from __future__ import annotations

import argparse
import contextlib
import csv
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.families import Family, bundled, present
from eigenveil.derived.covariance import IntervalEstimate, Units
from eigenveil.derived.factors import match_factors
from eigenveil.derived.moments import Moments
from eigenveil.noise.seeded import SeededNoise
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import single_blas_thread
from eigenveil.planning.choose import make_plan
from eigenveil.reporting.result import result_of
from eigenveil.session import Session
from eigenveil.simulation import MemoryJournal, run_study, simulate
from eigenveil.site.record_view import to_grid
from eigenveil.site.site import Site
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.grid import offsets, steps
from eigenveil.study.radius import Radius
from eigenveil.study.study import Column, Federation, Study

Z = 1.959964
VARIED = 0.05  # of its half range: a column's sd, or an answer about it is about a handful of people
QUESTIONS, ASKED = 8, 5  # sets of columns, and how many columns in each
SETTINGS: tuple[tuple[Algorithm, Radius, float], ...] = tuple(
    (algorithm, radius, epsilon)
    for algorithm, radius in (
        (Algorithm.GAUSS_COV, 1.0),
        (Algorithm.GAUSS_COV, None),
        (Algorithm.REFINED_COV, None),
    )
    for epsilon in (1.0, 3.0)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`ask` of a release's moments about some `columns` (all, if empty), and the `exact` answer, of the same
    shape."""

    kind: str
    ask: Callable[[Moments], IntervalEstimate]
    exact: FloatArray
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Shape: shares (runs,), of the intervals of each run that hold the exact answer. `length` is their
    median."""

    shares: FloatArray
    numbers: int
    length: float

    @property
    def wilson(self) -> tuple[float, float, float]:
        """The share of all, and Wilson's interval."""
        p, runs = float(self.shares.mean()), len(self.shares)
        spread = float(self.shares.var(ddof=1)) / runs
        trials = (
            min(runs * self.numbers, p * (1 - p) / spread) if spread > 0 and p < 1 else runs * self.numbers
        )
        middle = (p + Z**2 / (2 * trials)) / (1 + Z**2 / trials)
        half = Z / (1 + Z**2 / trials) * math.sqrt(p * (1 - p) / trials + Z**2 / (4 * trials**2))
        return p, middle - half, middle + half


def questions(
    rows: FloatArray, names: tuple[str, ...], scale: FloatArray, least: float = VARIED
) -> list[Question]:
    """Questions to a table, with numpy's answers, about columns of that relative sd or more. Shape: rows (n,
    d) in their units, scale (d,)."""
    generator = np.random.default_rng(5)
    varied = np.flatnonzero(rows.std(axis=0) > least * scale)
    out = []
    for _ in range(QUESTIONS):
        at = generator.choice(varied, ASKED, replace=False)
        out += _of_some(rows[:, at], [names[i] for i in at])
    scaled = rows / scale
    covariance = np.cov(scaled.T, bias=True).astype(np.float64)
    variances = np.linalg.eigvalsh(covariance)[::-1][:3].astype(np.float64)
    out.append(Question(kind="variances", ask=lambda m: m.pca(3).variances, exact=variances))
    axes = np.linalg.eigh(covariance)[1][:, :-4:-1].T.astype(np.float64)
    out.append(Question(kind="component", ask=lambda m: _like(m.pca(3).loadings, axes), exact=axes))
    wide = [names[i] for i in varied[:12]]
    standard = np.linalg.eigvalsh(np.corrcoef(rows[:, varied[:12]].T))[::-1][:3]
    out.append(
        Question(
            kind="variances, standardised",
            ask=lambda m: m.pca(3, scaling=Units.STANDARD, columns=wide).variances,
            exact=standard.astype(np.float64),
            columns=tuple(wide),
        )
    )
    return out


def _of_some(rows: FloatArray, names: list[str]) -> list[Question]:
    """Correlations of these columns, and the regression of the first on all others."""
    pairs = np.triu_indices(len(names), 1)
    inverse = np.linalg.inv(np.corrcoef(rows.T))
    sizes = np.sqrt(np.diag(inverse))
    design = np.column_stack([rows[:, 1:], np.ones(len(rows))])
    slopes = np.linalg.lstsq(design, rows[:, 0], rcond=None)[0]
    left = float(np.var(rows[:, 0] - design @ slopes) / np.var(rows[:, 0]))
    fit = partial(Moments.regress, target=names[0], on=names[1:])
    found = [
        Question(
            kind="correlation",
            ask=lambda m: _some(m.correlation(names).numbers, pairs),
            exact=np.asarray(np.corrcoef(rows.T))[pairs],
        ),
        Question(
            kind="partial correlation",
            ask=lambda m: _some(m.partial_correlations(names).numbers, pairs),
            exact=(-inverse / np.outer(sizes, sizes))[pairs],
        ),
        Question(kind="slope", ask=lambda m: fit(m).privacy, exact=slopes[:-1].astype(np.float64)),
        Question(kind="slope, ridge 0.1", ask=lambda m: fit(m, ridge=0.1).privacy, exact=_ridge(rows)),
        Question(kind="intercept", ask=lambda m: fit(m).intercept, exact=slopes[-1].astype(np.float64)),
        Question(kind="R squared", ask=lambda m: fit(m).r_squared, exact=np.asarray(1 - left)),
    ]
    return [replace(one, columns=tuple(names)) for one in found]


def _ridge(rows: FloatArray) -> FloatArray:
    covariance = np.cov(rows.T, bias=True)
    remaining = covariance[1:, 1:] + 0.1 * np.diag(np.diag(covariance)[1:])
    return np.asarray(np.linalg.solve(remaining, covariance[1:, 0]))


def _like(numbers: IntervalEstimate, axes: FloatArray) -> IntervalEstimate:
    """With the signs of `axes`: which of the two ends of an axis is which, no answer says."""
    signs = np.sign((numbers.values * axes).sum(axis=1, keepdims=True))
    return replace(numbers, values=numbers.values * signs)


def _some(numbers: IntervalEstimate, pairs: tuple[NDArray[np.int_], ...]) -> IntervalEstimate:
    return IntervalEstimate(values=numbers.values[pairs], errors=numbers.errors[pairs])


def releases(study: Study, rows: FloatArray, runs: int) -> Iterable[Moments]:
    """The moments of as many releases, which differ by their noise."""
    plan, sites = make_plan(study), {"all": Site(to_grid(rows, study))}
    for seed in range(runs):
        session = Session(plan)
        with single_blas_thread():
            run_study(session, sites, journal=MemoryJournal(plan), noise=SeededNoise(seed))
        yield Moments.of(result_of(plan, session.result))


def measured(answers: Iterable[Iterable[tuple[str, IntervalEstimate, FloatArray]]]) -> dict[str, Coverage]:
    """Coverage of the intervals, by kind of question. Each run gives kinds, answers, and the exact ones."""
    shares: dict[str, list[float]] = {}
    lengths: dict[str, list[float]] = {}
    numbers: dict[str, int] = {}
    for run in answers:
        inside: dict[str, list[bool]] = {}
        for kind, answer, exact in run:
            hit = (answer.low <= exact) & (exact <= answer.high)
            inside.setdefault(kind, []).extend(np.ravel(hit).tolist())
            lengths.setdefault(kind, []).extend(np.ravel(answer.high - answer.low).tolist())
        for kind, hits in inside.items():
            shares.setdefault(kind, []).append(sum(hits) / len(hits))
            numbers[kind] = len(hits)
    return {
        kind: Coverage(
            shares=np.array(shares[kind]), numbers=numbers[kind], length=float(np.median(lengths[kind]))
        )
        for kind in shares
    }


def on_table(family: Family, runs: int) -> Iterable[tuple[str, ...]]:
    """Rows of the table for one family."""
    values, _ = family.draw(np.random.default_rng(0))
    for algorithm, radius, epsilon in SETTINGS:
        study = Study(
            name="derived",
            columns=family.columns,
            epsilon=epsilon,
            delta=1e-6,
            components=3,
            federation=Federation(sites=("all",)),
            algorithm=algorithm,
            radius=radius,
        )
        grid = offsets(study) + to_grid(values, study) * steps(study)
        half = np.array([column.half_range for column in family.columns])
        names = tuple(column.name for column in family.columns)
        query = questions(grid, names, half)
        found = measured(
            [(one.kind, one.ask(moments), one.exact) for one in query]
            for moments in releases(study, values, runs)
        )
        setting = f"{algorithm.value}, {'none' if radius else 'balance'}, epsilon {epsilon:g}"
        for kind, coverage in found.items():
            yield _row(family.name, setting, kind, coverage)


def _row(table: str, setting: str, kind: str, coverage: Coverage) -> tuple[str, ...]:
    shares = (f"{100 * share:.1f}" for share in coverage.wilson)
    return (table, setting, kind, *shares, f"{coverage.length:.2g}")


LOADINGS = np.array([[0.8, 0], [0.7, 0], [0.6, 0.1], [0, 0.8], [0.1, 0.7], [0, 0.6]])


def drawn_anew(n: int, runs: int) -> Iterable[tuple[str, ...]]:
    """Normal records of two factors: slopes of the law they are drawn from, factors of the records."""
    columns = tuple(Column(name=f"x{i}", unit="1", lower=-6, upper=6) for i in range(6))
    distribution = LOADINGS @ LOADINGS.T + np.diag(1 - (LOADINGS**2).sum(axis=1))
    root, slopes = (
        np.linalg.cholesky(distribution),
        np.linalg.solve(distribution[1:, 1:], distribution[1:, 0]),
    )
    for epsilon in (1.0, 3.0):
        study = Study(
            name="derived",
            columns=columns,
            epsilon=epsilon,
            delta=1e-6,
            components=2,
            federation=Federation(sites=("all",)),
            algorithm=Algorithm.GAUSS_COV,
        )
        setting = f"gauss-cov, balance, epsilon {epsilon:g}"
        for kind, coverage in measured(_anew(study, root, slopes, n, seed) for seed in range(runs)).items():
            yield _row(f"normal, {n}", setting, kind, coverage)


def _anew(
    study: Study, root: FloatArray, slopes: FloatArray, n: int, seed: int
) -> list[tuple[str, IntervalEstimate, FloatArray]]:
    rows = np.random.default_rng(seed).standard_normal((n, 6)) @ root.T
    found = Moments.of(simulate(study, {"all": rows}, seed=10_000 + seed).result)
    fit, factors = found.regress("x0", on=found.columns[1:]), found.factor_analysis(2).loadings
    return [
        ("slope, with sampling", fit.both, slopes),
        ("factor loading", factors, match_factors(_factors(rows, found), factors.values)),
    ]


def _factors(rows: FloatArray, like: Moments) -> FloatArray:
    """The loadings of the records' own correlations: what such a release says without any noise."""
    exact = replace(
        like.matrix,
        values=np.cov(rows.T, bias=True) / np.outer(like.matrix.scale, like.matrix.scale),
        noise=like.matrix.noise.in_units(1e-9),
        mean_noise_variance=0.0,
    )
    return Moments(matrix=exact).factor_analysis(2).loadings.values


HEAD = ("table", "study", "answer", "covered", "from", "to", "length")


def main() -> int:
    """Print the table, or write it; `make docs` puts it on the page in short."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    families = [*present(), *(family for family in bundled() if family.name == "breast cancer")]
    rows = [row for family in families for row in on_table(family, given.runs)]
    rows += drawn_anew(20_000, given.runs)
    with contextlib.nullcontext(sys.stdout) if given.out is None else given.out.open("w") as file:
        csv.writer(file, lineterminator="\n").writerows([HEAD, *rows])
    return 0


if __name__ == "__main__":
    sys.exit(main())
