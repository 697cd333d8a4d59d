"""Groups of tables, and how each is run. A view of `--compare` is of one or several groups.

Short runs come first, so that a measurement that is interrupted has most cells."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from benchmarks.accuracy import tables
from benchmarks.families import Family, bundled, falling, present
from benchmarks.generated import random_records
from eigenveil.study.algorithm import Algorithm

REFINED, GAUSS = Algorithm.REFINED_COV, Algorithm.GAUSS_COV
BOTH = (REFINED, GAUSS)
ALL = (REFINED, Algorithm.REFINED_PCA, GAUSS, Algorithm.DP_PCA, Algorithm.AUTO)
RANDOM_SEED, RANDOM_TABLES = 20261128, 60  # the planner's studies have other seeds
SEEDS, LARGE_SEEDS, WIDE_SEEDS, WIDEST_SEEDS = 40, 10, 5, 3
WIDEST = 3000  # columns
TIMES_TOO_WIDE = (3.0, 30.0, 300.0)

Settings = tuple[tuple[int, float], ...]
STATED: Settings = ((1, 0.5), (1, 2.0), (3, 1.0), (3, 4.0))
SMALL: Settings = ((1, 0.5), (1, 1.0), (3, 0.5), (3, 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRuns:
    """Runs of one table: pairs of components and epsilon, algorithms, and how many seeds."""

    group: str
    family: Family
    settings: Settings
    algorithms: tuple[Algorithm, ...] = ALL
    seeds: int = SEEDS
    floats: bool = False


# Views, by name, and the groups that they judge.
CORNERS: dict[str, tuple[str, ...]] = {
    "lopsided": ("lopsided",),
    "small": ("small",),
    "statements": ("generated", "flat", "t2", "outliers", "rare", "n << d", "pixels"),
    "loose": ("loose",),
    "wide": ("wide",),
}


@cache
def real() -> dict[str, Family]:
    """Return scikit-learn's tables and the real ones that are here, by name."""
    found = {family.name: family for family in (*bundled(), *present())}
    return {name: found[name] for name in REAL if name in found}


REAL = ("breast cancer", "digits", "NHANES I", "Diabetes-130", "BRFSS")


@cache
def table_runs() -> tuple[TableRuns, ...]:
    """Return what is measured, short runs first."""
    return (*_small(), *_statements(), *_loose(), *_standard(), *_wide())


def _small() -> Iterator[TableRuns]:
    found = real()
    for name, family in found.items():
        few = family if name == "breast cancer" else tables.sampled(family, 500)
        yield TableRuns(group="small", family=few, settings=SMALL)
    for family in (
        tables.patients(686),
        tables.patients(5000),
        tables.cells_of_images(2000, 58, 0.7),
        tables.cells_of_images(2000, 58, 1.0),
        tables.lognormal(5000, 20),
    ):
        yield TableRuns(group="lopsided", family=family, settings=STATED)


def _statements() -> Iterator[TableRuns]:
    generator = np.random.default_rng(RANDOM_SEED)
    for number in range(RANDOM_TABLES):
        one = random_records(generator)
        family, settings = tables.random_table(one, number), ((one.k, one.epsilon),)
        yield TableRuns(group="generated", family=family, settings=settings)
    groups = {
        "flat": (tables.spikes(5000, 30, (0.3,)), tables.spikes(20_000, 60, (0.2, 0.1, 0.05))),
        "t2": (tables.student(2000, 20), tables.student(10_000, 60)),
        "outliers": (tables.outliers(2000, 20, 20.0), tables.outliers(10_000, 60, 5.0)),
        "rare": (tables.rare(20_000, 40), tables.rare(60_000, 20)),
        "n << d": (tables.powers(200, 400, 2.0), tables.spikes(300, 500, (2000.0, 1000.0, 500.0))),
        "pixels": (tables.pixels(4000, 20, 20), tables.pixels(2000, 28, 28)),
    }
    for group, families in groups.items():
        for family in families:
            yield TableRuns(group=group, family=family, settings=STATED)


def _loose() -> Iterator[TableRuns]:
    settings = tuple((k, epsilon) for k in (1, 3) for epsilon in (0.5, 4.0, 30.0))
    bases = (tables.powers(20_000, 20, 1.0), *(one for name, one in real().items() if name == "NHANES I"))
    for family in bases:
        for times in TIMES_TOO_WIDE:
            loose = tables.loosened(family, times)
            yield TableRuns(group="loose", family=loose, settings=settings, algorithms=BOTH, floats=True)


def _standard() -> Iterator[TableRuns]:
    made = {family.name: family for family in bundled()}
    one: Settings = ((1, 1.0), (1, 4.0))
    both: Settings = ((1, 1.0), (1, 4.0), (3, 1.0), (3, 4.0))
    yield TableRuns(group="standard", family=falling(10_000, 50), settings=both)
    yield TableRuns(group="standard", family=made["+-v + 0.03 noise, 10000 x 50"], settings=one)
    yield TableRuns(group="standard", family=made["kappa 2, 10000 x 50"], settings=one)
    for family in real().values():
        seeds = LARGE_SEEDS if family.name in ("BRFSS", "Diabetes-130") else SEEDS
        yield TableRuns(group="standard", family=family, settings=both, seeds=seeds)


def _wide() -> Iterator[TableRuns]:
    weak, strong = (1, 1.0), (3, 4.0)
    for family, settings in (
        (tables.powers(10_000, 1100, 1.0), (weak, strong)),
        (tables.blocks(4000, 1200, 60), (weak, strong)),
        (tables.powers(20_000, 1500, 0.5), (strong,)),
        (tables.pixels(10_000, 28, 56), (weak, strong)),
        (tables.spikes(5000, 2000, (300.0, 150.0, 80.0)), (weak, strong)),
        (tables.spikes(10_000, 4000, (300.0, 150.0, 80.0)), (strong,)),
    ):
        seeds = WIDE_SEEDS if len(family.columns) < WIDEST else WIDEST_SEEDS
        yield TableRuns(group="wide", family=family, settings=settings, seeds=seeds)
