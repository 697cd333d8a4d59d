"""Counts of 95 % intervals that hold the exact answer, on tables of many shapes, by what their answer says.

`python -m benchmarks.interval_families [--runs 40] [--only NAME]`. Twelve generated tables, half of
them with rare ones, outliers or long tails, and the real ones. Every question is put to as many releases,
which differ by their noise alone. An answer says whether its intervals are `trusted` or `unknown`. A line for
each table and study: intervals of trusted answers, how many of them hold, and the kind of answer with the
least share; then the share of answers that are unknown. The last line counts the rows of trusted answers, by
table, study and kind, of which less than 90 % hold, and not by chance: by Wilson's interval of as many trials
as there are answers, whose intervals share their noise. The exit code is 1 if there are any."""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.derived import Question, Z, questions, releases
from benchmarks.families import Family, box, bundled, fixed, present
from eigenveil.derived.clipping import IntervalTrust
from eigenveil.derived.moments import Moments
from eigenveil.numerics.encoding import FloatArray
from eigenveil.site.record_view import to_grid
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.grid import offsets, steps
from eigenveil.study.study import Column, Federation, Scaling, Study

Draw = Callable[[np.random.Generator, int], FloatArray]
COLUMNS, SEED = 8, 31


def drawn(name: str, n: int, columns: tuple[Column, ...], draw: Draw) -> Family:
    """A table of n records, drawn once and limited to the bounds."""

    def load() -> FloatArray:
        lower, upper = (np.array([getattr(one, end) for one in columns]) for end in ("lower", "upper"))
        return np.asarray(np.clip(draw(np.random.default_rng(SEED), n), lower, upper))

    return fixed(f"{name}, {n:,}", columns, load)


def normals(generator: np.random.Generator, n: int) -> FloatArray:
    """Correlated normal columns: two factors and noise."""
    factors = generator.standard_normal((n, 2))
    loadings = np.random.default_rng(1).uniform(-0.8, 0.8, (2, COLUMNS))
    unique = np.sqrt(np.maximum(1 - (loadings**2).sum(axis=0), 0.2))
    return np.asarray(factors @ loadings + unique * generator.standard_normal((n, COLUMNS)))


def with_rare(share: float) -> Draw:
    """A yes/no column of that prevalence, related to the first of the normal ones."""

    def draw(generator: np.random.Generator, n: int) -> FloatArray:
        rows = normals(generator, n)
        chosen = rows[:, 0] + generator.standard_normal(n)
        rows[:, -1] = chosen >= np.sort(chosen)[-round(share * n)]
        return rows

    return draw


def _lognormal(generator: np.random.Generator, n: int) -> FloatArray:
    return np.exp(normals(generator, n))


def _t3(generator: np.random.Generator, n: int) -> FloatArray:
    return normals(generator, n) / np.sqrt(generator.chisquare(3, (n, 1)) / 3)


def _outliers(generator: np.random.Generator, n: int) -> FloatArray:
    rows = normals(generator, n)
    rows[: n // 100] *= 8
    return rows


def _flat(generator: np.random.Generator, n: int) -> FloatArray:
    shared = generator.uniform(-0.5, 0.5, (n, 1))
    return np.asarray(shared + generator.uniform(-0.5, 0.5, (n, COLUMNS)))


def _integers(generator: np.random.Generator, n: int) -> FloatArray:
    return generator.poisson(np.exp(0.5 + 0.4 * normals(generator, n))).astype(np.float64)


def _mixture(generator: np.random.Generator, n: int) -> FloatArray:
    group = generator.random((n, 1)) < 0.15
    return normals(generator, n) + np.where(group, 4.0, 0.0) * np.linspace(-1, 1, COLUMNS)


def _binaries(generator: np.random.Generator, n: int) -> FloatArray:
    return (normals(generator, n) > np.linspace(-0.5, 1.5, COLUMNS)).astype(np.float64)


def _ties(generator: np.random.Generator, n: int) -> FloatArray:
    rows = normals(generator, n)
    return np.where(rows > 0.8, np.round(4 * (rows - 0.8)) + 1, 0.0)


def interval_families() -> list[Family]:
    """The generated tables."""
    ones = (*box(COLUMNS - 1, 6.0), Column(name="rare", unit="1", lower=0, upper=1))
    within = tuple(Column(name=f"x{i}", unit="1", lower=0, upper=20) for i in range(COLUMNS))
    yes = tuple(Column(name=f"x{i}", unit="1", lower=0, upper=1) for i in range(COLUMNS))
    return [
        drawn("normal", 20_000, box(COLUMNS, 6.0), normals),
        drawn("flat", 20_000, box(COLUMNS, 1.0), _flat),
        drawn("integers", 20_000, within, _integers),
        drawn("mixture", 20_000, box(COLUMNS, 9.0), _mixture),
        drawn("binaries", 20_000, yes, _binaries),
        drawn("ties", 20_000, within, _ties),
        drawn("lognormal", 20_000, within, _lognormal),
        drawn("t3", 20_000, box(COLUMNS, 20.0), _t3),
        drawn("1 % outliers", 20_000, box(COLUMNS, 30.0), _outliers),
        drawn("1 in 2,000 yes", 100_000, ones, with_rare(0.0005)),
        drawn("1 in 500 yes", 20_000, ones, with_rare(0.002)),
        drawn("1 in 100 yes", 20_000, ones, with_rare(0.01)),
    ]


GOAL = 0.9
SETTINGS = tuple(
    (algorithm, scaling, epsilon)
    for algorithm in (Algorithm.GAUSS_COV, Algorithm.REFINED_COV)
    for scaling in (Scaling.BOUNDS, Scaling.STANDARD)
    for epsilon in (1.0, 3.0)
)


@dataclass(slots=True)
class Count:
    """Intervals of trusted answers and how many hold; answers, and how many are unknown."""

    intervals: int = 0
    held: int = 0
    answers: int = 0
    unknown: int = 0

    @property
    def share(self) -> float:
        """The share that holds; 1 without intervals."""
        return self.held / self.intervals if self.intervals else 1.0

    @property
    def is_below(self) -> bool:
        """True if even the upper end of the share's interval is below the goal."""
        if (trials := self.answers - self.unknown) == 0:
            return False
        p = self.share
        half = Z * math.sqrt(p * (1 - p) / trials + Z**2 / (4 * trials**2))
        return (p + Z**2 / (2 * trials) + half) / (1 + Z**2 / trials) < GOAL


def counted(family: Family, study: Study, runs: int) -> dict[str, Count]:
    """Counts by kind of question."""
    values, _ = family.draw(np.random.default_rng(0))
    grid = offsets(study) + to_grid(values, study) * steps(study)
    half = np.array([column.half_range for column in family.columns])
    query = questions(grid, tuple(column.name for column in family.columns), half, least=1e-3)
    if study.scaling is Scaling.STANDARD:  # these two are about columns divided by their bounds
        query = [one for one in query if one.kind not in ("variances", "component")]
    found: dict[str, Count] = defaultdict(Count)
    for moments in releases(study, values, runs):
        for one in query:
            _add(found[one.kind], one, moments)
    return found


def _add(count: Count, question: Question, moments: Moments) -> None:
    matrix = moments.matrix.of(question.columns or moments.columns)
    count.answers += 1
    if matrix.intervals is IntervalTrust.UNKNOWN:
        count.unknown += 1
        return
    answer = question.ask(moments)
    count.intervals += question.exact.size
    count.held += int(((answer.low <= question.exact) & (question.exact <= answer.high)).sum())


def main() -> int:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    tables = [*interval_families(), *(one for one in bundled() if one.name == "breast cancer"), *present()]
    rows: list[Count] = []
    for family in (one for one in tables if given.only in one.name):
        for algorithm, scaling, epsilon in SETTINGS:
            study = Study(
                name="intervals", columns=family.columns, epsilon=epsilon, delta=1e-6, components=3,
                federation=Federation(sites=("all",)), algorithm=algorithm, scaling=scaling,
            )  # fmt: skip
            found = counted(family, study, given.runs)
            rows += found.values()
            setting = f"{algorithm.value}, {scaling.value}, epsilon {epsilon:g}"
            print(f"{family.name:24} {setting:34} {_line(found)}", flush=True)
    below, trusted = sum(one.is_below for one in rows), sum(one.intervals > 0 for one in rows)
    plain = sum(one.share < GOAL for one in rows)
    print(f"below {GOAL:.0%}: {plain} of {trusted} rows of trusted answers, {below} of them not by chance")
    return 1 if below else 0


def _line(found: dict[str, Count]) -> str:
    total, held = (sum(getattr(one, name) for one in found.values()) for name in ("intervals", "held"))
    unknown = sum(one.unknown for one in found.values()) / sum(one.answers for one in found.values())
    if not total:
        return f"trusted: none; unknown {unknown:.0%}"
    kind, least = min(found.items(), key=lambda one: one[1].share)
    return (
        f"trusted: {held} of {total} hold ({held / total:.1%}), least {least.share:.1%} of {least.intervals} "
        f"({kind}); unknown {unknown:.0%}"
    )


if __name__ == "__main__":
    sys.exit(main())
