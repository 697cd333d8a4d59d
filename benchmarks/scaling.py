"""Columns by their bounds or by their standard deviations: how far from the exact PCA of the same scaling.

For each table, epsilon and number of components, the median sine over runs with seeded noise: two algorithms
that release a matrix, which is a second look at the scales, and one that does not. `--times` compares how
long both take on 100,000 records of 100 columns.

    python -m benchmarks.scaling --repeats 9
    python -m benchmarks.scaling --times"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterable

import numpy as np

from benchmarks.accuracy import a_study
from benchmarks.families import Family, bundled, falling, present
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs, sin_angle
from eigenveil.simulation import simulate
from eigenveil.site.record_view import to_grid
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Scaling, Study

ALGORITHMS = (Algorithm.GAUSS_COV, Algorithm.REFINED_COV, Algorithm.DP_PCA)
SCALINGS = (Scaling.BOUNDS, Scaling.STANDARD)
EPSILONS, COMPONENTS = (0.3, 1.0, 3.0), (1, 3)


def tables() -> list[Family]:
    """Breast cancer, and the clinical tables that are on this machine."""
    return [one for one in bundled() if one.name == "breast cancer"] + present()


def exact(records: FloatArray, study: Study) -> FloatArray:
    """The leading components that neither noise nor clipping would change. Shape: (n, d) -> (k, d)."""
    x = to_grid(records, study).astype(np.float64)
    x -= x.mean(axis=0)
    if study.scaling is Scaling.STANDARD:
        spread = x.std(axis=0)
        x /= np.where(spread > 0, spread, 1.0)
    return eigenpairs(x.T @ x / len(x))[1][:, : study.components].T


def measured(records: FloatArray, study: Study, repeats: int) -> tuple[float, float]:
    """The median sine, and the median of what was stated."""
    goal, sines, stated = exact(records, study), [], []
    for seed in range(repeats):
        result = simulate(study, {"all": records}, seed=seed).result
        sines.append(sin_angle(goal, result.components))
        stated.append(1.0 if result.predicted_sin_angle is None else result.predicted_sin_angle)
    return statistics.median(sines), statistics.median(stated)


def rows(family: Family, repeats: int) -> Iterable[str]:
    """A line of a table for each epsilon and number of components: the median sine, and in brackets the
    stated one, by algorithm and scaling."""
    records, _ = family.draw(np.random.default_rng(0))
    for epsilon in EPSILONS:
        for k in COMPONENTS:
            cells = []
            for algorithm in ALGORITHMS:
                for scaling in SCALINGS:
                    study = a_study(
                        family, epsilon=epsilon, components=k, algorithm=algorithm, scaling=scaling,
                        expected_records=len(records),
                    )  # fmt: skip
                    cells.append("{:.2g} ({:.2g})".format(*measured(records, study, repeats)))
            yield f"| {family.name} | {epsilon:g} | {k} | {' | '.join(cells)} |"


def times(repeats: int) -> Iterable[str]:
    """Seconds of a study on 100,000 records of 100 columns, by algorithm and scaling."""
    family = falling(100_000, 100)
    records, _ = family.draw(np.random.default_rng(0))
    for algorithm in ALGORITHMS:
        taken: dict[Scaling, list[float]] = {scaling: [] for scaling in SCALINGS}
        for _ in range(repeats):
            for scaling in SCALINGS:
                begin = time.perf_counter()
                simulate(a_study(family, algorithm=algorithm, scaling=scaling), {"all": records}, seed=1)
                taken[scaling].append(time.perf_counter() - begin)
        bounds, standard = (min(taken[scaling]) for scaling in SCALINGS)
        yield f"{algorithm.value}: bounds {bounds:.2f} s, standard {standard:.2f} s, {standard / bounds:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--times", action="store_true")
    chosen = parser.parse_args()
    if chosen.times:
        for line in times(chosen.repeats):
            print(line, flush=True)
        return
    heads = [f"{one.value}, {scaling.value}" for one in ALGORITHMS for scaling in SCALINGS]
    print(f"| table | epsilon | k | {' | '.join(heads)} |\n|{'---|' * (3 + len(heads))}")
    for family in tables():
        for line in rows(family, chosen.repeats):
            print(line, flush=True)


if __name__ == "__main__":
    main()
