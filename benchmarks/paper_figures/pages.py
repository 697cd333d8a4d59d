"""One small picture for each algorithm's page: error against n and against epsilon, with a grey reference.

Algorithms that are compared on the same records share a family. Where nothing is released the error counts
as 1."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.families import box
from benchmarks.paper_figures import smooth, subspaces
from benchmarks.paper_figures.cells import Point, Table
from benchmarks.paper_figures.figure import Figure
from benchmarks.paper_figures.simulated import exact, landed, run, sines
from benchmarks.paper_figures.style import MAIN, REFERENCE, Look, Panel, draw
from eigenveil.accounting.zcdp import Neighbours
from eigenveil.algorithms.papers.oja import oja
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import sin_angle
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Extraction

N, D, DECAY, SPREAD = 10_000, 20, 0.75, 0.25
SIZES = (300.0, 1000.0, 3000.0, 10_000.0, 30_000.0, 100_000.0)
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
Setting = Mapping[str, Any]
Measure = Callable[[Setting, int, tuple[str, ...]], Mapping[str, float]]


def clinical(n: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Normal records whose variances fall like i^-0.75, in random directions, within +-1; and the directions.

    Shape: (n, D) and (D, D), rows by falling variance."""
    generator = np.random.default_rng(seed)
    turn = np.linalg.qr(generator.standard_normal((D, D)))[0]
    values = np.arange(1, D + 1) ** -DECAY
    values *= D * SPREAD**2 / values.sum()
    return generator.standard_normal((n, D)) * np.sqrt(values) @ turn.T, turn.T


def directions(setting: Setting, seed: int, series: tuple[str, ...]) -> dict[str, float]:
    """The sine of the first component's angle to the records' own."""
    records, _ = clinical(setting["n"], seed)
    return sines(
        series,
        records,
        box(D, 1.0),
        exact(np.clip(records, -1, 1), 1),
        seed,
        epsilon=setting["epsilon"],
        **OPTIONS.get(setting.get("options", ""), {}),
    )


OPTIONS: dict[str, dict[str, Any]] = {
    "replace-one": {"neighbours": Neighbours.REPLACE_ONE},
    "deflation": {"rank": Extraction.DEFLATION},
}


def matrices(setting: Setting, seed: int, series: tuple[str, ...]) -> dict[str, float]:
    """The Frobenius distance to the records' own covariance, relative to its Frobenius norm."""
    records, _ = clinical(setting["n"], seed)
    records = np.clip(records, -1, 1)
    truth = np.cov(records.T, bias=True)
    out = {}
    for name in series:
        estimate = run(name, records, box(D, 1.0), seed, epsilon=setting["epsilon"])
        assert estimate.covariance is not None
        out[name] = float(np.linalg.norm(estimate.covariance - truth) / np.linalg.norm(truth))
    return out


def without_privacy(setting: Setting, seed: int, series: tuple[str, ...]) -> dict[str, float]:
    """Oja's rule and exact PCA against the true component: there is no epsilon."""
    records, truth = clinical(setting["n"], seed)
    records = records - records.mean(axis=0)
    found = {"oja": lambda: oja(records, 1), "exact PCA": lambda: exact(records, 1)}
    return {name: sin_angle(found[name](), truth[:1]) for name in series}


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Picture of one page. `n` and `epsilon` are held while the other is varied."""

    algorithm: Algorithm
    reference: str
    y: str = "sine of the angle, first component"
    measure: Measure = directions
    sizes: tuple[float, ...] = SIZES
    epsilons: tuple[float, ...] = EPSILONS
    n: int = N
    epsilon: float = 1.0
    repeats: int = 20
    scale: str = "log"
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """As users type it."""
        return str(self.algorithm.value)


MATRIX = "relative Frobenius error"
TURN = "sine of the largest angle"


def page_list() -> tuple[Page, ...]:
    """Every algorithm that can be named in a study, but `auto`."""
    a = Algorithm
    matrix = partial(Page, reference="gauss-cov", y=MATRIX, measure=matrices)
    exactly = partial(
        Page, reference="gauss-cov", y=TURN, measure=subspaces.exact_page, sizes=subspaces.SIZES,
        n=subspaces.N, scale="linear",
    )  # fmt: skip
    nearly = partial(
        exactly, measure=subspaces.near_page, sizes=subspaces.MANY, n=subspaces.NEAR_N, repeats=5
    )
    gaps = partial(
        Page, reference="gauss-cov", y=TURN, measure=smooth.page, sizes=smooth.SIZES, n=smooth.N,
    )  # fmt: skip
    few = {"options": "replace-one"}
    return (
        Page(algorithm=a.GAUSS_COV, reference="dp-pca"),
        Page(algorithm=a.ANALYZE_GAUSS, reference="gauss-cov"),
        matrix(algorithm=a.SEPARATE_COV),
        matrix(algorithm=a.ADAPTIVE_COV),
        Page(algorithm=a.EM_COV, reference="gauss-cov"),
        matrix(algorithm=a.ZERO),
        Page(algorithm=a.REFINED_COV, reference="gauss-cov"),
        Page(algorithm=a.REFINED_PCA, reference="dp-pca"),
        Page(algorithm=a.DP_PCA, reference="gauss-cov"),
        Page(
            algorithm=a.DP_PCA_SINGLE_PASS, reference="dp-pca", sizes=(*SIZES[3:], 3e5, 1e6), n=300_000,
            repeats=5,
        ),
        Page(
            algorithm=a.OJA, reference="exact PCA", measure=without_privacy, epsilons=(), sizes=SIZES[:5],
            repeats=8,
        ),
        Page(algorithm=a.PRIVATE_OJA, reference="dp-pca"),
        Page(
            algorithm=a.PRIVATE_OJA_SHUFFLED, reference="dp-pca", sizes=(1000.0, 2000.0, 4000.0),
            epsilons=(0.5, 1.0, 2.0), n=2000, repeats=3, more=few,
        ),
        Page(algorithm=a.NOISY_POWER, reference="dp-pca"),
        exactly(algorithm=a.SUBSPACE_EXACT),
        exactly(algorithm=a.SUBSPACE_EXACT_RANK),
        exactly(algorithm=a.SUBSPACE_REFERENCE),
        nearly(algorithm=a.SUBSPACE_APPROX),
        nearly(algorithm=a.SUBSPACE_APPROX_RANK),
        gaps(algorithm=a.SMOOTH_GAUSSIAN),
        gaps(algorithm=a.SMOOTH_CAUCHY),
        gaps(algorithm=a.PROPOSE_TEST_RELEASE),
    )  # fmt: skip


def points(page: Page, quick: bool) -> tuple[Point, ...]:
    """n varied, then epsilon; nothing if the algorithm is not in this version."""
    names = (page.name,) if page.algorithm is Algorithm.OJA else landed(page.name)
    if not names:
        return ()
    sizes, epsilons = page.sizes, page.epsilons
    repeats = page.repeats
    if quick:
        sizes, epsilons, repeats = sizes[1 : len(sizes) : 2][:2], epsilons[1:4:2], 2
    if quick and page.algorithm is Algorithm.PRIVATE_OJA_SHUFFLED:
        sizes, epsilons, repeats = (1000.0,), (), 1  # a round a record takes its time
    every = partial(
        Point,
        series=(*names, *landed(page.reference)),
        measure=page.measure,
        repeats=repeats,
    )
    n_held = int(min(page.n, 30_000)) if quick else page.n
    return (
        *(
            every(panel="n", x=n, setting={"n": int(n), "epsilon": page.epsilon} | dict(page.more))
            for n in sizes
        ),
        *(
            every(panel="epsilon", x=e, setting={"n": n_held, "epsilon": e} | dict(page.more))
            for e in epsilons
        ),
    )


def draw_page(page: Page, table: Table, path: Path) -> None:
    """Two panels, or one where there is no epsilon."""
    looks: dict[str, Look] = {page.reference: REFERENCE, page.name: MAIN}
    every = partial(
        Panel,
        series=(page.reference, page.name),
        looks=looks,
        y_scale=page.scale,
        y_limits=(-0.04, 1.04) if page.scale == "linear" else None,
    )
    title = f"ε = {page.epsilon:g}" if page.epsilons else "no privacy"
    panels = [every(key="n", title=title, x="records n", y=page.y)]
    if page.epsilons:
        panels.append(every(key="epsilon", title=f"n = {page.n:,}", x="ε"))
    draw(table, panels, path, columns=len(panels), width=3.2, height=2.7, share_y=True)


def figures(quick: bool) -> Iterator[Figure]:
    """A figure for each page, named after its algorithm."""
    for page in page_list():
        yield Figure(
            name=f"page-{page.name}",
            points=points(page, quick),
            draw=partial(draw_page, page),
        )
