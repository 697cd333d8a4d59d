"""The schemes of the papers: the regime of each, the paper's claim there, and the bound that it gives.

A regime is generated records for which the paper states its result, of a size at which the scheme releases
something. Bounds are evaluated with constant 1 and without logarithms of n and d: they show the order of
magnitude, not a guarantee."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks.families import box, plus_minus, spiked
from benchmarks.paper_figures.covariance import zipf_rows
from benchmarks.paper_figures.smooth import axes
from benchmarks.paper_figures.subspaces import lattice, near
from eigenveil.accounting.zcdp import Neighbours
from eigenveil.numerics.encoding import FloatArray
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.grid import S
from eigenveil.study.radius import PublicNorm
from eigenveil.study.study import Column

DELTA = 1e-6
SITES = ("hospital-1", "hospital-2", "hospital-3")
ONE_SITE = SITES[:1]
A = Algorithm


class Regime(NamedTuple):
    """Records, columns, and the true components or None for the covariance. Shape: (n, d); (k, d)."""

    records: FloatArray
    columns: tuple[Column, ...]
    truth: FloatArray | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """One scheme of a paper. `bound` gives the paper's bound of its error
    (None: the paper bounds another error); `settings` are of the study.

    `sites` is one site where the scheme needs one, or where its federation would be a single record a sum."""

    paper: str
    algorithm: Algorithm
    claim: str
    regime: Callable[[np.random.Generator], Regime]
    bound: Callable[[], float] | None
    epsilon: float = 1.0
    components: int = 1
    settings: Mapping[str, Any] = field(default_factory=dict)
    sites: tuple[str, ...] = SITES

    @property
    def name(self) -> str:
        return str(self.algorithm.value)

    @property
    def federated(self) -> bool:
        """True if three real daemons may answer it."""
        properties = self.algorithm.properties
        return properties.federated and not properties.one_site


def normal(n: int, d: int, generator: np.random.Generator) -> Regime:
    """Normal records with variances 2, 1, ..., 1."""
    family = spiked(n, d)
    records, v = family.draw(generator)
    assert v is not None
    return Regime(records, family.columns, v[None, :])


def signal(n: int, d: int, noise: float, generator: np.random.Generator) -> Regime:
    """Records +-v plus normal noise."""
    family = plus_minus(n, d, noise)
    records, v = family.draw(generator)
    assert v is not None
    return Regime(records, family.columns, v[None, :])


def whole_numbers(n: int, d: int, k: int, generator: np.random.Generator) -> Regime:
    """Whole-number records in a subspace of dimension k."""
    records, truth = lattice(n, d, k, generator)
    return Regime(records, box(d, float(S)), truth)


def almost(n: int, d: int, k: int, ratio: float, generator: np.random.Generator) -> Regime:
    """Records near a subspace of dimension k."""
    records, truth = near(n, d, k, ratio, generator)
    return Regime(records, box(d, float(S)), truth)


def on_axes(gap: int, base: int, d: int, generator: np.random.Generator) -> Regime:
    """Records of norm 1 on d axes, with an eigenvalue gap of `gap` records after the second."""
    records, truth = axes(base + gap, base, d, generator)
    return Regime(records, box(d, 1.0), truth)


def unit_ball(n: int, d: int, bins: int, generator: np.random.Generator) -> Regime:
    """Records in the unit ball, most of them short where there are several `bins`."""
    return Regime(zipf_rows(n, d, bins, generator), box(d, 1.0), None)


def single_pass_bound(kappa: float, noise: float, n: int, d: int, epsilon: float) -> float:
    """DP-PCA, Theorem 5.1: kappa (sqrt(noise d / n) + sqrt(noise) d sqrt(ln(1 / delta)) / (epsilon n))."""
    private = d * math.sqrt(math.log(1 / DELTA)) / (epsilon * n)
    return min(1.0, kappa * math.sqrt(noise) * (math.sqrt(d / n) + private))


def smooth_bound(gap: float, d: int, k: int, per_direction: float, epsilon: float) -> float:
    """Smooth sensitivity: noise of `per_direction` / epsilon in d k entries, for a gap in records."""
    return min(1.0, math.sqrt(d * k) * per_direction / (2 * epsilon * (gap - 2)))


def rho(epsilon: float) -> float:
    """The rho of zCDP that an epsilon gives at DELTA, to first order: epsilon^2 / (4 ln(1 / delta))."""
    return epsilon**2 / (4 * math.log(1 / DELTA))


def separate_bound(n: int, d: int, epsilon: float) -> float:
    """Covariance Revisited, Theorem 3: d^(1/4) / (rho^(1/4) sqrt n) + sqrt d / (sqrt(rho) n)."""
    return math.sqrt(math.sqrt(d)) / (math.sqrt(math.sqrt(rho(epsilon))) * math.sqrt(n)) + math.sqrt(d) / (
        math.sqrt(rho(epsilon)) * n
    )


def gauss_bound(n: int, d: int, epsilon: float) -> float:
    """Analyze Gauss in Frobenius norm: d / (sqrt(rho) n)."""
    return d / (math.sqrt(rho(epsilon)) * n)


DP_PCA_PAPER = "DP-PCA"
SUBSPACES_PAPER = "Privately Learning Subspaces"
SMOOTH_PAPER = "Smooth Sensitivity PCA"
COVARIANCE_PAPER = "Covariance Revisited"
EXACT, NEAR, AXES = (600, 20, 2), (100_000, 6, 2, 1e-7), (20_000, 500, 8)
MANY, BALL = (150_000, 20), (16_000, 40)
SUBSPACE: dict[str, Any] = {"centring": False}
UNIT: dict[str, Any] = {"centring": False, "radius": PublicNorm(norm=1.0)}
FOUND = "the subspace itself, from n of about k + ln(1 / delta) / epsilon records on"
CLOSE = "the subspace nearly, if lambda_(k+1) / lambda_k is small enough"

SCHEMES = (
    Scheme(
        paper=DP_PCA_PAPER, algorithm=A.OJA,
        claim="Oja's algorithm, without privacy",
        regime=partial(normal, *MANY), bound=partial(single_pass_bound, 2.0, 0.5, *MANY, math.inf),
    ),
    Scheme(
        paper=DP_PCA_PAPER, algorithm=A.PRIVATE_OJA,
        claim="Oja's steps with noise as large as the gradients",
        regime=partial(normal, *MANY), bound=partial(single_pass_bound, 2.0, 1.0, *MANY, 1.0),
    ),
    Scheme(
        paper=DP_PCA_PAPER, algorithm=A.PRIVATE_OJA_SHUFFLED,
        claim="one record a step, amplified by a secret order",
        regime=partial(signal, 20_000, 5, 0.1), bound=partial(single_pass_bound, 1.01, 1.0, 20_000, 5, 0.5),
        epsilon=0.5, settings={"neighbours": Neighbours.REPLACE_ONE}, sites=ONE_SITE,
    ),
    Scheme(
        paper=DP_PCA_PAPER, algorithm=A.DP_PCA_SINGLE_PASS,
        claim="the optimal rate up to logarithms, in one pass",
        regime=partial(normal, *MANY), bound=partial(single_pass_bound, 2.0, 0.5, *MANY, 1.0),
    ),
    Scheme(
        paper=SUBSPACES_PAPER, algorithm=A.SUBSPACE_EXACT, claim=FOUND, components=2, settings=SUBSPACE,
        regime=partial(whole_numbers, *EXACT), bound=lambda: 0.0,
    ),
    Scheme(
        paper=SUBSPACES_PAPER, algorithm=A.SUBSPACE_EXACT_RANK,
        claim="the same, its dimension unknown", components=4,
        settings=SUBSPACE, regime=partial(whole_numbers, *EXACT), bound=lambda: 0.0,
    ),
    Scheme(
        paper=SUBSPACES_PAPER, algorithm=A.SUBSPACE_REFERENCE,
        claim="the same, by all subsets of records",
        components=2, settings=SUBSPACE | {"max_records": 250}, regime=partial(whole_numbers, 200, 20, 2),
        bound=lambda: 0.0, sites=ONE_SITE,
    ),
    Scheme(
        paper=SUBSPACES_PAPER, algorithm=A.SUBSPACE_APPROX, claim=CLOSE, components=2, settings=SUBSPACE,
        regime=partial(almost, *NEAR), bound=lambda: 0.1,
    ),
    Scheme(
        paper=SUBSPACES_PAPER, algorithm=A.SUBSPACE_APPROX_RANK,
        claim="the same, its dimension unknown", components=3,
        settings=SUBSPACE, regime=partial(almost, *NEAR), bound=lambda: 0.1,
    ),
    Scheme(
        paper=SMOOTH_PAPER, algorithm=A.SMOOTH_GAUSSIAN,
        claim="noise that falls with the gap, not with n",
        components=2, settings=SUBSPACE, regime=partial(on_axes, *AXES),
        bound=partial(smooth_bound, AXES[0], AXES[2], 2, 5 * math.sqrt(2 * math.log(2 / DELTA)), 1.0),
    ),
    Scheme(
        paper=SMOOTH_PAPER, algorithm=A.SMOOTH_CAUCHY,
        claim="the same at delta = 0", components=2,
        settings=SUBSPACE | {"delta": 0.0}, regime=partial(on_axes, *AXES),
        bound=partial(smooth_bound, AXES[0], AXES[2], 2, 6 * math.sqrt(AXES[2] * 2), 1.0),
    ),
    Scheme(
        paper=SMOOTH_PAPER, algorithm=A.PROPOSE_TEST_RELEASE,
        claim="the same bound, the gap tested first",
        components=2, settings=SUBSPACE, regime=partial(on_axes, *AXES),
        bound=partial(smooth_bound, AXES[0], AXES[2], 2, math.sqrt(2 * math.log(1.25 / DELTA)), 0.8),
    ),
    Scheme(
        paper=COVARIANCE_PAPER, algorithm=A.ANALYZE_GAUSS,
        claim="noise of one size on the matrix: d / (sqrt(rho) n)",
        settings=UNIT, regime=partial(unit_ball, *BALL, 1), bound=partial(gauss_bound, *BALL, 1.0),
    ),
    Scheme(
        paper=COVARIANCE_PAPER, algorithm=A.SEPARATE_COV,
        claim="eigenvalues apart: d^(1/4) / sqrt n for many columns",
        settings=UNIT, regime=partial(unit_ball, *BALL, 1), bound=partial(separate_bound, *BALL, 1.0),
    ),
    Scheme(
        paper=COVARIANCE_PAPER, algorithm=A.ADAPTIVE_COV,
        claim="the better of both, for a radius found privately",
        settings={"centring": False}, regime=partial(unit_ball, *BALL, 4),
        bound=lambda: min(gauss_bound(*BALL, 1.0), separate_bound(*BALL, 1.0)),
    ),
    Scheme(
        paper=COVARIANCE_PAPER, algorithm=A.EM_COV,
        claim="directions by the exponential mechanism (Amin et al.)",
        components=8, settings=UNIT, regime=partial(unit_ball, 16_000, 8, 1), bound=None,
    ),
    Scheme(
        paper=COVARIANCE_PAPER, algorithm=A.ZERO,
        claim="the matrix 0, the best of all where n is small for d",
        settings=UNIT, regime=partial(unit_ball, 300, 40, 1), bound=lambda: 1.0,
    ),
)  # fmt: skip
