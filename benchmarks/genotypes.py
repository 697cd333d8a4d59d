"""Population structure under dp-pca: simulated genotypes, the exact components beside the released.

Genotypes follow Balding and Nichols: a variant's frequency in the ancestors is between 0.05 and 0.95, each
population's drifts from it as FST says, and a person has two draws of it. Variants are independent, as after
pruning for linkage. Five populations have 30, 25, 20, 15 and 10 % of the persons, so four components tell
them apart. Persons are drawn and kept block by block, one byte a genotype.

A run's `sine` is that of the largest angle between the four released directions and the exact ones, and
`sines` are those of all four angles: which of the directions are found. `placed` is the share of persons who
lie nearest to the centre of their own population in those four.

    python -m benchmarks.genotypes             # what is not in the JSON yet; begins nothing after 8 minutes
    python -m benchmarks.genotypes --draw      # the pictures alone"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.noise.seeded import SeededNoise
from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil.numerics.linalg import eigenpairs, orthonormal, sin_angle, single_blas_thread
from eigenveil.planning.choose import make_plan
from eigenveil.session import Session
from eigenveil.simulation import MemoryJournal, run_study
from eigenveil.site.site import Site
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.grid import unit
from eigenveil.study.study import Column, Federation, Study

OUT = Path("docs/figures/genotypes")
SHARES = (0.3, 0.25, 0.2, 0.15, 0.1)
K, DELTA = 4, 1e-6
BLOCK = 1024  # persons
SWEEPS = 8  # of the exact subspace: the gap behind it is wide
SHOWN = 3000  # persons in a picture
BEGIN_WITHIN = 480  # seconds
Genotypes = NDArray[np.int8]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run."""

    persons: int
    variants: int
    fst: float
    epsilon: float
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class People:
    """Persons and their populations. Shape: rows (n, d), alleles counted, less 1; population (n,)."""

    rows: Genotypes
    population: IntArray

    def blocks(self) -> Iterator[FloatArray]:
        """Rows as floats, some at a time."""
        for start in range(0, len(self.rows), BLOCK):
            yield self.rows[start : start + BLOCK].astype(np.float64)

    def mean(self) -> FloatArray:
        found: FloatArray = sum(block.sum(axis=0) for block in self.blocks()) / len(self.rows)
        return found

    def scores(self, directions: FloatArray) -> FloatArray:
        """Shape: directions (k, d) -> (n, k)."""
        return np.vstack([block @ directions.T for block in self.blocks()]) - self.mean() @ directions.T


def people(case: Case) -> People:
    """Persons drawn as `case` says."""
    generator = np.random.default_rng(case.seed)
    ancestral = generator.uniform(0.05, 0.95, case.variants)
    spread = (1 - case.fst) / case.fst
    frequency = generator.beta(ancestral * spread, (1 - ancestral) * spread, (len(SHARES), case.variants))
    population = generator.choice(len(SHARES), case.persons, p=SHARES)
    rows = np.empty((case.persons, case.variants), dtype=np.int8)
    for start in range(0, case.persons, BLOCK):
        here = slice(start, start + BLOCK)
        chance = frequency[population[here]].astype(np.float32)
        draws = (generator.random(chance.shape, dtype=np.float32) < chance for _ in range(2))
        rows[here] = sum(draw.astype(np.int8) for draw in draws) - 1
    return People(rows=rows, population=population)


def exact(stored: People) -> FloatArray:
    """The leading components of the persons themselves, by subspace iteration. Shape: (k, d)."""
    mean = stored.mean()
    v = orthonormal(np.random.default_rng(1).normal(size=(len(mean), 2 * K)))
    for _ in range(SWEEPS):
        moved = np.zeros_like(v)
        for block in stored.blocks():
            block -= mean
            moved += block.T @ (block @ v)
        v = orthonormal(moved)
    small = v.T @ sum(
        ((block - mean).T @ ((block - mean) @ v) for block in stored.blocks()), np.zeros_like(v)
    )
    return (v @ eigenpairs((small + small.T) / 2)[1][:, :K]).T


def study(case: Case) -> Study:
    """The study as somebody would write it."""
    return Study(
        name="genotypes",
        columns=tuple(
            Column(name=f"rs{i}_A", unit="alleles", lower=0, upper=2) for i in range(case.variants)
        ),
        epsilon=case.epsilon, delta=DELTA, components=K, algorithm=Algorithm.DP_PCA, grid_steps=1,
        federation=Federation(sites=("biobank",)), expected_records=case.persons, max_records=2**18,
    )  # fmt: skip


def released(query: Study, rows: Genotypes, seed: int) -> tuple[FloatArray, int]:
    """The released components, and after how many rounds. Shape: (k, d)."""
    plan = make_plan(query, federation="simulation", submission=f"run-{seed}", analyst="simulation")
    session, workers = Session(plan), os.cpu_count() or 1
    sites = {"biobank": Site(rows, unit=unit(query), workers=workers)}
    with single_blas_thread():
        run_study(session, sites, journal=MemoryJournal(plan), noise=SeededNoise(seed))
    return session.result.components, len(session.releases)


def placed(scores: FloatArray, population: IntArray) -> float:
    """The share of persons who are nearest to their own population's centre."""
    centres = np.array([scores[population == one].mean(axis=0) for one in range(len(SHARES))])
    nearest = ((scores[:, None, :] - centres) ** 2).sum(axis=2).argmin(axis=1)
    return float((nearest == population).mean())


def run(case: Case, stored: People, goal: FloatArray) -> tuple[dict[str, Any], FloatArray]:
    """One release, and what it was worth."""
    began = time.monotonic()
    found, rounds = released(study(case), stored.rows, case.seed)
    scores = stored.scores(found)
    cosines = np.linalg.svd(goal @ found.T, compute_uv=False)
    sines = np.sqrt(1 - np.minimum(cosines, 1) ** 2).round(4).tolist()
    worth = {
        "sine": sin_angle(goal, found),
        "sines": sines,
        "placed": placed(scores, stored.population),
        "rounds": rounds,
    }
    return asdict(case) | worth | {"seconds": round(time.monotonic() - began, 1)}, scores


def cases() -> list[Case]:
    """From the cheapest to the dearest."""
    narrow = product((1000,), (0.05, 0.01, 0.1), (1000, 2000, 5000, 10_000, 20_000, 50_000))
    largest = product((1000,), (0.05, 0.01), (100_000,))
    wide = product((20_000,), (0.05,), (2000, 20_000))
    return [
        Case(persons=n, variants=d, fst=fst, epsilon=epsilon)
        for d, fst, n in (*narrow, *largest, *wide)
        for epsilon in (5.0, 1.0)
    ]


PICTURED = tuple(
    Case(persons=n, variants=1000, fst=0.05, epsilon=epsilon)
    for n, epsilon in ((2000, 1.0), (5000, 1.0), (10_000, 1.0), (10_000, 5.0))
)


def measure(done: list[dict[str, Any]]) -> None:
    """Every case that is not done yet; what is found is written after each."""
    keys = [{name: one[name] for name in asdict(PICTURED[0])} for one in done]
    stored, goal, drawn, began = None, None, None, time.monotonic()
    for case in cases():
        if asdict(case) in keys:
            continue
        if time.monotonic() - began > BEGIN_WITHIN:
            print("there is more to measure: run this again")
            break
        if drawn != (case.persons, case.variants, case.fst):
            stored = people(case)
            goal, drawn = exact(stored), (case.persons, case.variants, case.fst)
        assert stored is not None
        assert goal is not None
        found, scores = run(case, stored, goal)
        print(json.dumps(found), flush=True)
        if case in PICTURED:
            some = slice(0, SHOWN)
            found["scores"] = np.round(scores[some, :2], 3).tolist()
            found["exact_scores"] = np.round(stored.scores(goal)[some, :2], 3).tolist()
            found["exact_placed"] = placed(stored.scores(goal), stored.population)
            found["population"] = stored.population[some].tolist()
        done.append(found)
        (OUT / "genotypes.json").write_text(json.dumps(done) + "\n")


def draw(done: list[dict[str, Any]]) -> None:
    """The pictures of what was measured."""
    import matplotlib.pyplot as plt

    shown = sorted((one for one in done if "scores" in one), key=lambda one: (one["persons"], one["epsilon"]))
    figure, axes = plt.subplots(
        1, len(shown) + 1, figsize=(3.4 * len(shown) + 3.4, 3.8), layout="constrained"
    )
    most = shown[-1]
    _scatter(axes[0], most["exact_scores"], most["population"], "exact", most["exact_placed"])
    for axis, one in zip(axes[1:], shown, strict=True):
        title = f"released: n = {one['persons']:,}, ε = {one['epsilon']:g}"
        points, due = np.array(one["scores"]), np.array(one["exact_scores"])
        points *= np.where((points * due).sum(axis=0) < 0, -1, 1)  # a component's sign means nothing
        _scatter(axis, points, one["population"], title, one["placed"])
    figure.savefig(OUT / "populations.png", dpi=110)
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained", sharex=True)
    curves = sorted({(one["variants"], one["fst"]) for one in done}, reverse=True)
    for (d, fst), marker in zip(curves, "os^Dv", strict=False):
        line = [one for one in done if (one["variants"], one["fst"]) == (d, fst)]
        line.sort(key=lambda one: float(one["persons"] * one["epsilon"]))
        size = [one["persons"] * one["epsilon"] for one in line]
        label = f"{d:,} variants, FST {fst:g}"
        axes[0].plot(size, [one["sine"] for one in line], marker, label=label, alpha=0.8)
        axes[1].plot(size, [one["placed"] for one in line], marker, label=label, alpha=0.8)
    axes[0].set(xscale="log", yscale="log", xlabel="persons × ε", ylabel="sine of the largest angle")
    axes[1].set(xlabel="persons × ε", ylabel="persons nearest to their own population", ylim=(0, 1.03))
    axes[1].axhline(max(SHARES), color="grey", linewidth=0.8, linestyle=":")
    axes[0].legend(frameon=False, fontsize=9)
    figure.savefig(OUT / "error.png", dpi=110)


def _scatter(axis: Any, scores: Any, population: Any, title: str, share: float) -> None:
    points = np.asarray(scores)
    axis.scatter(points[:, 0], points[:, 1], c=np.array(population), cmap="tab10", vmax=9, s=3, linewidths=0)
    axis.set(title=f"{title}\n{math.floor(100 * share)} % nearest to their own", xlabel="1st", ylabel="2nd")
    axis.set_aspect("equal", adjustable="datalim")


def main() -> None:
    """Measure what is missing, then draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--draw", action="store_true", help="measure nothing")
    query = parser.parse_args()
    file = OUT / "genotypes.json"
    done: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []
    if not query.draw:
        OUT.mkdir(parents=True, exist_ok=True)
        measure(done)
    draw(done)


if __name__ == "__main__":
    main()
