"""Scaling of a study that states none: distances of what `bounds` and `standard` release to both targets.

For five real tables, epsilon 1 and 5, and the algorithm that `auto` chooses: median sines of the released
components to those of the correlation matrix and to those of the covariance by bounds, both exact. The one to
a study's own target is its accuracy; in brackets what the release states. `derived` are the components of the
correlations that follow from a matrix by bounds at no cost (`Moments.pca`). Vectors are compared as they are
printed, in the columns' own scales.

    python -m benchmarks.scaling_default --repeats 9"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from sklearn.datasets import load_diabetes

from benchmarks.accuracy import a_study
from benchmarks.families import Family, fixed
from benchmarks.scaling import exact, tables
from eigenveil.derived.moments import Moments
from eigenveil.errors import RequestError
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import sin_angle
from eigenveil.planning.predict import predict
from eigenveil.simulation import Simulation, simulate
from eigenveil.study.study import Column, Scaling, Study

EPSILONS, COMPONENTS = (1.0, 5.0), (1, 2)
HEADS = ("table", "epsilon", "k", "released", "algorithm", "to correlations", "to bounds", "stated", "cost")

# Units and bounds of the shipped dictionary; the six serum values are its lipids, their ratio, the logarithm
# of triglycerides, and glucose.
DIABETES = (
    ("age", "a", 0, 120), ("sex", "", 1, 2), ("bmi", "kg/m2", 5, 120), ("bp", "mm[Hg]", 10, 200),
    ("total_cholesterol", "mg/dL", 20, 1000), ("ldl_cholesterol", "mg/dL", 1, 800),
    ("hdl_cholesterol", "mg/dL", 1, 250), ("total_over_hdl", "1", 1, 30), ("log_triglycerides", "1", 1, 10),
    ("glucose", "mg/dL", 10, 1500),
)  # fmt: skip


def diabetes() -> Family:
    """442 x 10, of scikit-learn (Efron and others 2004), with the bounds of a clinical dictionary."""
    columns = tuple(Column(name=n, unit=u, lower=low, upper=high) for n, u, low, high in DIABETES)
    return fixed("diabetes", columns, lambda: np.asarray(load_diabetes(scaled=False).data))


def derived(done: Simulation, k: int) -> FloatArray | None:
    """Components of the correlations from a released matrix; None if there is none whose noise is known."""
    try:
        loadings = Moments.of(done.result).pca(k, scaling="standard").loadings.values
    except RequestError:
        return None
    return np.asarray(loadings / np.linalg.norm(loadings, axis=1, keepdims=True))


def rows(family: Family, study: Study, repeats: int) -> Iterator[str]:
    """Lines of the table for one study: `bounds`, what follows from it, and `standard`."""
    records, _ = family.draw(np.random.default_rng(0))
    k, goals = study.components, {}
    for scaling in (Scaling.STANDARD, Scaling.BOUNDS):
        goals[scaling] = exact(records, replace(study, scaling=scaling))
    for scaling in (Scaling.BOUNDS, Scaling.STANDARD):
        asked = replace(study, scaling=scaling)
        runs = [simulate(asked, {"all": records}, seed=seed) for seed in range(repeats)]
        found = predict(asked)
        cost = f"{found.rounds} rounds, {found.bytes_per_site} bytes"
        stated = statistics.median(
            1.0 if (s := one.result.predicted_sin_angle) is None else s for one in runs
        )
        ways = [(scaling.value, [one.result.components for one in runs], f"{stated:.2g}", cost)]
        free = [one for run in runs if (one := derived(run, k)) is not None]
        if scaling is Scaling.BOUNDS and free:
            ways.append(("derived", free, "", "none"))
        for name, components, error, spent in ways:
            sines = [
                f"{statistics.median(sin_angle(goal, one) for one in components):.2g}"
                for goal in goals.values()
            ]
            start = f"| {family.name} | {study.epsilon:g} | {k} | {name} | {found.algorithm.value}"
            yield f"{start} | {' | '.join(sines)} | {error} | {spent} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=9)
    chosen = parser.parse_args()
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}")
    for family in (diabetes(), *tables()):
        records, _ = family.draw(np.random.default_rng(0))
        for epsilon in EPSILONS:
            for k in COMPONENTS:
                study = a_study(family, epsilon=epsilon, components=k, expected_records=len(records))
                for line in rows(family, study, chosen.repeats):
                    print(line, flush=True)


if __name__ == "__main__":
    main()
