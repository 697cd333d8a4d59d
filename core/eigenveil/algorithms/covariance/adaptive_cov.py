"""adaptive-cov: a private radius, a clipping threshold, then the better of gauss-cov and separate-cov.

Source: Dong, Liang, Yi 2022 (PrivRadius and AdaptiveCov). Both searches are sparse vectors over a public
logarithmic grid with a public floor; only a place on that grid is released.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace

import numpy as np

from eigenveil.accounting.zcdp import mu
from eigenveil.algorithms.covariance.frobenius import gauss_error, separate_error
from eigenveil.algorithms.covariance.gauss_cov import deflated, of_matrix
from eigenveil.algorithms.covariance.noised_gram import (
    Clip,
    clip_radius,
    clip_to,
    covariance,
    left_after,
    noise_ratio,
)
from eigenveil.algorithms.covariance.separate_cov import separately
from eigenveil.algorithms.shared.clip_radius import Grid
from eigenveil.algorithms.shared.preparation import Centred, law, locate, price, priced, public_radius
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.protocol.estimate import Steps
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import NoiseLaw, PricedQuery
from eigenveil.protocol.release import Release
from eigenveil.queries import RadiusSearch, SquaredNormSum
from eigenveil.queries.limits import least_row_radius
from eigenveil.study.grid import S

SEARCH_SHARE, ENERGY_SHARE = 0.05, 0.01  # of rho
PURE_SEARCH_SHARE, PURE_ENERGY_SHARE = 0.08, 0.03  # of epsilon
MISTAKEN = 0.1  # how often noise alone may make a search stop too early or run on


def adaptive_cov(plan: Plan) -> Steps:
    """Count, mean, private radius, total variance, threshold, then the better of the two methods.

    A radius that the study states (a quantile, a norm, or none) replaces both searches.

    Neighbours: as the study says.
    Privacy: [P7], [P10], [P12]; searches and spectrum work at the coordinator, which must be trusted with
    exact sums.
    Cost: the whole budget, d (d + 1) / 2 integers from every site or twice that, 10 or 11 rounds.
    """
    start = yield from locate(plan)
    find = _searched if plan.study.radius is None else _stated
    clip, trace = yield from find(plan, start)
    radius = clip.radius / S
    gauss = gauss_error(plan, price(plan, clip.left), radius)
    if gauss <= separate_error(plan, price(plan, clip.left / 2), radius, trace):
        noised = yield from covariance(plan, start, clip, clip.left)
        return of_matrix(plan, start, clip, noised, deflated)
    return (yield from separately(plan, start, clip))


def _searched(plan: Plan, start: Centred) -> Generator[PricedQuery, Release, tuple[Clip, float]]:
    """The threshold by two sparse vectors, and the noised sum of squared norms (analysis units)."""
    search, energy = SEARCH_SHARE, ENERGY_SHARE
    if law(plan) is NoiseLaw.LAPLACE:
        search, energy = PURE_SEARCH_SHARE, PURE_ENERGY_SHARE
    left = left_after(plan, start) - 2 * search - energy
    top = public_radius(plan, start.centre)
    edges = Grid(top=top / S).edges(S)
    # So few that noise, which moves both sides, rarely says so of an edge beyond which many lie.
    few = math.ceil(2 / mu(price(plan, search)) * math.log(edges.size / MISTAKEN))
    radius = yield from _search(plan, start.centre, edges, frozen(np.full(edges.size, few)), top)
    trace = yield from _energy(plan, start, radius, energy)
    edges = edges[: max(1, int(np.searchsorted(edges, radius)))]
    tau = yield from _search(plan, start.centre, edges, _worth(plan, edges, radius, left, trace), radius)
    # The norms are those about the centre before its last step, which may have been far off.
    norms = start.norms.of_mean_square(trace / start.records)
    return clip_to(tau, norms, start.records, left), trace


def _stated(plan: Plan, start: Centred) -> Generator[PricedQuery, Release, tuple[Clip, float]]:
    """The radius that the study states, and the noised sum of squared norms."""
    energy = ENERGY_SHARE if law(plan) is NoiseLaw.GAUSSIAN else PURE_ENERGY_SHARE
    clip = yield from clip_radius(plan, start, noise_ratio(plan))
    trace = yield from _energy(plan, start, clip.radius, energy)
    return replace(clip, left=clip.left - energy), trace


def _energy(plan: Plan, start: Centred, radius: int, share: float) -> Generator[PricedQuery, Release, float]:
    release = yield priced(plan, SquaredNormSum(centre=start.centre, radius=radius), share)
    return max(float(release.values[0]) / S**2, 0.0)


def _search(
    plan: Plan, centre: IntArray, edges: IntArray, limits: IntArray, top: int
) -> Generator[PricedQuery, Release, int]:
    """The first edge beyond which few enough records lie, or the public floor; `top` if there is none."""
    share = SEARCH_SHARE if law(plan) is NoiseLaw.GAUSSIAN else PURE_SEARCH_SHARE
    release = yield priced(plan, RadiusSearch(centre=centre, edges=edges, limits=limits), share)
    found = int([*edges.tolist(), top][int(release.values[0])])
    return max(found, least_row_radius(centre.size))


def _worth(plan: Plan, edges: IntArray, top: int, left: float, trace: float) -> IntArray:
    """For each edge, the number of records beyond it from which on some larger one is worth its noise.

    A threshold t cuts at most (u^2 - t^2) more off each record beyond it than a larger one, u, would, and u
    costs error(u) - error(t) more, error being that of the better method: where one method takes over from
    the other the next edge may not be worth it and a later one is. Shape: (b,).
    """
    radii = np.append(edges, max(top, int(edges[-1]) + 1)) / S
    errors = np.array(
        [
            min(
                gauss_error(plan, price(plan, left), radius),
                separate_error(plan, price(plan, left / 2), radius, trace),
            )
            for radius in radii.tolist()
        ]
    )
    worth = np.array(
        [
            ((errors[i + 1 :] - errors[i]) / (radii[i + 1 :] ** 2 - radii[i] ** 2)).min()
            for i in range(edges.size)
        ]
    )
    return frozen(np.clip(np.rint(worth), 0, plan.most_records).astype(np.int64))
