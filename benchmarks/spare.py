"""Would dp-pca be better off with a spare direction always (core/decisions/0016)?

The same records and seeds with and without it: the median sine to the records' own components, and the sine
over the stated one, median and 90 % quantile. The last column is how many runs bore a warning."""

from __future__ import annotations

import argparse
import importlib
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from unittest import mock

import numpy as np

from benchmarks.families import Family, box, bundled
from eigenveil.algorithms.recommended.dp_pca import Schedule, schedule
from eigenveil.algorithms.shared.preparation import LocationEstimate
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs, sin_angle
from eigenveil.simulation import simulate
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Federation, Study

DP_PCA = importlib.import_module("eigenveil.algorithms.recommended.dp_pca")
BUNDLED = ("kappa 2, 10000 x 50", "+-v + 0.3 noise, 10000 x 200", "breast cancer", "digits")
WIDTH = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Quality of one release."""

    sine: float
    stated: float
    warned: bool


def spare(start: LocationEstimate) -> Schedule:
    """The schedule with at least one direction more than components."""
    times, plan = schedule(start), start.plan
    return replace(
        times, directions=min(max(times.directions, plan.study.components + 1), plan.study.dimension)
    )


def turned(name: str, variances: FloatArray, n: int) -> Family:
    """Normal records of these variances along random axes."""

    def draw(generator: np.random.Generator) -> tuple[FloatArray, None]:
        turn, _ = np.linalg.qr(generator.normal(size=(WIDTH, WIDTH)))
        return (generator.normal(size=(n, WIDTH)) * np.sqrt(variances)) @ turn, None

    half = 6 * float(np.sqrt(max(4 * variances.mean(), variances.max() / 4)))
    return Family(name=f"{name}, {n} x {WIDTH}", columns=box(WIDTH, half), draw=draw)


def cases() -> Iterator[tuple[Family, int]]:
    """Families and how many components are asked of each."""
    for family in bundled():
        if family.name in BUNDLED:
            yield from ((family, k) for k in ((1,) if family.name in BUNDLED[:2] else (1, 2, 3)))
    for n in (5000, 20_000):
        for k in (1, 2, 3):
            yield turned("i^-1", 1 / np.arange(1.0, WIDTH + 1), n), k
            for ratio in (0.99, 0.95, 0.8, 0.5):
                variances = np.full(WIDTH, 0.1)
                variances[:k] = np.linspace(2, 1, k) if k > 1 else 1.0
                variances[k] = ratio * variances[k - 1]
                yield turned(f"next {ratio} of the last", variances, n), k


def release(study: Study, rows: FloatArray, seed: int) -> Run:
    """One release of these records, beside the exact components of what the bounds leave of them."""
    lower = np.array([column.lower for column in study.columns])
    half = np.array([column.half_range for column in study.columns])
    seen = np.clip((rows - lower) / half - 1, -1, 1)
    truth = eigenpairs(np.cov(seen.T))[1][:, : study.components].T
    found = simulate(study, {"all": rows}, seed=seed).estimate
    assert found.sin_error is not None
    return Run(sine=sin_angle(found.components, truth), stated=found.sin_error, warned=bool(found.warnings))


def main() -> None:
    """Print a line for each family and number of components."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--epsilon", type=float, default=1.0)
    chosen = parser.parse_args()
    for family, k in cases():
        study = Study(
            name="spare", columns=family.columns, epsilon=chosen.epsilon, delta=1e-6, components=k,
            algorithm=Algorithm.DP_PCA, federation=Federation(sites=("all",)), max_records=2**20,
        )  # fmt: skip
        words = []
        for rule in (schedule, spare):
            with mock.patch.object(DP_PCA, "schedule", rule):
                drawn = (family.draw(np.random.default_rng(seed))[0] for seed in range(chosen.repeats))
                runs = [release(study, rows, 1000 + seed) for seed, rows in enumerate(drawn)]
            over = [run.sine / run.stated for run in runs]
            words.append(
                f"{statistics.median(run.sine for run in runs):.4f} {statistics.median(over):5.2f} "
                f"({np.quantile(over, 0.9):4.1f}) {sum(run.warned for run in runs):3}"
            )
        print(f"{family.name:34} k={k}  without {words[0]}  with {words[1]}", flush=True)


if __name__ == "__main__":
    main()
