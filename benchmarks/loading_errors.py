"""Shares of released loadings that lie within their stated errors of the exact ones, per algorithm.

For the real tables, both scalings, one to three components and epsilon 1 and 5: of all loadings of a run the
share with |released - exact| <= error, and the medians of both.

    python -m benchmarks.loading_errors --repeats 7"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

from benchmarks.accuracy import a_study
from benchmarks.families import Family
from benchmarks.scaling import exact, tables
from benchmarks.scaling_default import diabetes
from eigenveil.reporting.loadings import loading_errors
from eigenveil.simulation import simulate
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Scaling, Study

ALGORITHMS = (Algorithm.GAUSS_COV, Algorithm.REFINED_COV, Algorithm.DP_PCA, Algorithm.REFINED_PCA)
EPSILONS, COMPONENTS = (1.0, 5.0), (1, 2, 3)


def runs(family: Family, study: Study, repeats: int) -> Iterator[tuple[float, float]]:
    """Each loading's distance to the exact one, and its stated error."""
    records, _ = family.draw(np.random.default_rng(0))
    goal = exact(records, study)
    for seed in range(repeats):
        result = simulate(study, {"all": records}, seed=seed).result
        errors = loading_errors(result)
        if errors is not None:
            signs = np.sign((result.components * goal).sum(axis=1, keepdims=True))
            apart = np.abs(signs * result.components - goal)
            yield from zip(apart.ravel().tolist(), errors.ravel().tolist(), strict=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    print(
        "| table | algorithm | scaling | within | median distance | median error |\n|---|---|---|---|---|---|"
    )
    for family in (diabetes(), *tables()):
        many = len(family.draw(np.random.default_rng(0))[0])
        for algorithm in ALGORITHMS:
            for scaling in (Scaling.BOUNDS, Scaling.STANDARD):
                found = np.array([
                    pair
                    for epsilon in EPSILONS
                    for k in COMPONENTS
                    for pair in runs(
                        family,
                        a_study(
                            family, epsilon=epsilon, components=k, algorithm=algorithm, scaling=scaling,
                            expected_records=many,
                        ),
                        repeats,
                    )
                ])  # fmt: skip
                within = (found[:, 0] <= found[:, 1]).mean()
                apart, error = np.median(found, axis=0)
                row = f"| {family.name} | {algorithm.value} | {scaling.value} | {within:.2f}"
                print(f"{row} | {apart:.2g} | {error:.2g} |", flush=True)


if __name__ == "__main__":
    main()
