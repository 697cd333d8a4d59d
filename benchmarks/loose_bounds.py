"""True and stated error of refined-cov and gauss-cov where bounds are 3, 30 and 300 times too wide.

Beside it the error of the same queries without rounding: the table of docs/algorithms/refined-cov.md.

`python -m benchmarks.loose_bounds [--runs 20] [--seed 7000]`: the same records and noise for all."""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np

from benchmarks.accuracy import a_study, exact
from benchmarks.accuracy.floats import FloatSite
from benchmarks.families import Family, box
from eigenveil.noise.seeded import SeededNoise
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import sin_angle, single_blas_thread
from eigenveil.planning.choose import make_plan
from eigenveil.protocol.estimate import Estimate
from eigenveil.protocol.plan import Plan
from eigenveil.session import Session
from eigenveil.simulation import MemoryJournal, run_study
from eigenveil.site.record_view import to_grid
from eigenveil.site.site import Site
from eigenveil.study.algorithm import Algorithm

TOO_WIDE = (3, 30, 300)
EPSILONS = (0.5, 4.0, 30.0)
FITTING = 4.0  # half the width of fitting bounds, in standard deviations of the widest column


def generic(name: str, n: int, variances: list[float], spread: float) -> Family:
    """Return n normal records with these variances along random axes, the j-th of d columns then multiplied
    by 2**(-spread j / d); bounds of +-FITTING standard deviations of the widest column."""
    sd = np.sqrt(variances)
    axes, _ = np.linalg.qr(np.random.default_rng(sd.size).normal(size=(sd.size, sd.size)))
    across = sd[:, None] * axes * 2.0 ** (-spread * np.arange(sd.size) / sd.size)
    half = FITTING * float(np.sqrt((across**2).sum(axis=0)).max())
    mean = half / 4 * np.random.default_rng(sd.size).normal(size=sd.size)
    return Family(
        name=f"{n:,} x {sd.size}, {name}",
        columns=box(sd.size, half),
        draw=lambda generator: (generator.normal(size=(n, sd.size)) @ across + mean, None),
    )


REGIMES: tuple[tuple[Family, int], ...] = (
    (generic("alike", 20_000, [1 / i for i in range(1, 21)], 0.0), 1),
    (generic("sd of 1 to 1/16", 20_000, [1 / i for i in range(1, 21)], 4.0), 3),
)


def widened(family: Family, times: float) -> Family:
    """Return the family with bounds that many times as wide."""
    columns = tuple(replace(one, lower=one.lower * times, upper=one.upper * times) for one in family.columns)
    return replace(family, columns=columns)


def sines(family: Family, k: int, epsilon: float, seed: int) -> FloatArray:
    """Return the true and the stated sine of refined-cov, its true sine without rounding, and the same three
    of gauss-cov. Shape: -> (6,)."""
    found = []
    records, _ = family.draw(np.random.default_rng(seed))
    for algorithm in (Algorithm.REFINED_COV, Algorithm.GAUSS_COV):
        study = a_study(family, algorithm=algorithm, components=k, epsilon=epsilon)
        plan, right = make_plan(study), exact(records, study)
        rounded, float_only = (
            run(plan, site, seed) for site in (Site(to_grid(records, study)), FloatSite(records, study))
        )
        found += [sin_angle(rounded.components, right), rounded.sin_error or np.nan]
        found += [sin_angle(float_only.components, right)]
    return np.array(found)


def run(plan: Plan, site: Site, seed: int) -> Estimate:
    """Return the estimate of a plan over one site."""
    session = Session(plan)
    with single_blas_thread():
        run_study(session, {"all": site}, journal=MemoryJournal(plan), noise=SeededNoise(seed))
    return session.result


def main() -> None:
    """Print a row for each regime, width and epsilon: medians over the runs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=7000, help="of the first run (default: 7000)")
    chosen = parser.parse_args()
    columns = "refined-cov | stated | not rounded | gauss-cov | stated | not rounded |"
    print(f"| records | k | too wide | epsilon | {columns}\n|---|---|---|---|---|---|---|---|---|---|")
    for family, k in REGIMES:
        for times in TOO_WIDE:
            for epsilon in EPSILONS:
                seeds = range(chosen.seed, chosen.seed + chosen.runs)
                found = [sines(widened(family, times), k, epsilon, seed) for seed in seeds]
                cells = " | ".join(f"{one:.2g}" for one in np.median(found, axis=0))
                print(f"| {family.name} | {k} | {times} | {epsilon:g} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
