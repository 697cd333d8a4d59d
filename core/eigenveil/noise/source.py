"""Noise source and a site's noise share: the only module that draws noise, and that imports the sampler.

Noise is exact integers (rounded Gaussian, discrete Laplace) from the operating system's CSPRNG. Its standard
deviation is computed from the query's sensitivity and cost."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from eigenveil.accounting.zcdp import Neighbours, root_of, scale_squared
from eigenveil.errors import Code, InternalError
from eigenveil.numerics.encoding import FloatArray, IntArray, WordArray
from eigenveil.protocol.query import NoiseDistribution, PricedQuery
from eigenveil.protocol.query_limits import MAX_NOISE_SCALE, MIN_SHARE_SCALE
from eigenveil.queries import AdditiveQuery, Gram
from eigenveil.queries.limits import require
from eigenveil.study.study import Study


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """`count` consecutive integers with independent noise of one scale.

    `scale` is the standard deviation of the Gaussian before rounding, or b of the discrete Laplace
    exp(-|x| / b).

    Raises:
        RequestError: code `plan-overflow`: a draw could exceed 64 bits."""

    count: int
    scale: float
    distribution: NoiseDistribution = NoiseDistribution.GAUSSIAN

    def __post_init__(self) -> None:
        require(
            0 < self.scale <= MAX_NOISE_SCALE,
            f"noise scales are limited to {MAX_NOISE_SCALE:.3g}, got {self.scale:.3g}",
        )

    @property
    def sigma(self) -> float:
        """Standard deviation of the continuous distribution."""
        return self.scale if self.distribution is NoiseDistribution.GAUSSIAN else math.sqrt(2) * self.scale


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseSpec:
    """Noise of one answer: its blocks in order."""

    blocks: tuple[Block, ...]

    @classmethod
    def of(
        cls, count: int, scale: float, distribution: NoiseDistribution = NoiseDistribution.GAUSSIAN
    ) -> NoiseSpec:
        """Return the noise of one block."""
        return cls(blocks=(Block(count=count, scale=scale, distribution=distribution),))

    @property
    def length(self) -> int:
        """Number of integers in the answer."""
        return sum(block.count for block in self.blocks)

    @property
    def sigma(self) -> float:
        """Largest standard deviation of the blocks."""
        return max(block.sigma for block in self.blocks)


class NoiseSource(Protocol):
    """Source of noise. `private` is True for the operating system's CSPRNG only."""

    @property
    def private(self) -> bool:
        """True if releases with noise from this source have the privacy guarantee."""

    def draw(self, spec: NoiseSpec) -> IntArray:
        """Return independent integers as specified, in an array that the caller may modify. Shape:
        (spec.length,)."""

    def uniform(self, count: int) -> FloatArray:
        """Return independent uniform floats in (0, 1), on a grid of 2^-52. Shape: (count,)."""


class OsNoise:
    """Production noise: exact integers from the operating system's random bits, without a seed."""

    private = True

    def draw(self, spec: NoiseSpec) -> IntArray:
        """Return noise as specified. Shape: (spec.length,), int64."""
        # The import computes tables for 0.05 s, which only a real draw needs.
        from eigenveil.noise.quantiles import GAUSSIAN, LAPLACE
        from eigenveil.noise.sampler import integers

        noise, start = np.empty(spec.length, dtype=np.int64), 0
        for block in spec.blocks:
            quantile = GAUSSIAN if block.distribution is NoiseDistribution.GAUSSIAN else LAPLACE
            integers(quantile, block.scale, block.count, words, noise[start : start + block.count])
            start += block.count
        return noise

    def uniform(self, count: int) -> FloatArray:
        """Return uniform floats in (0, 1). Shape: (count,)."""
        return ((words(count) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def words(count: int) -> WordArray:
    """Return words of 64 fair bits from the operating system's CSPRNG. Shape: (count,)."""
    return np.frombuffer(os.urandom(8 * count), dtype="<u8")


def noise_spec(
    query: AdditiveQuery,
    micro_rho: int,
    neighbours: Neighbours,
    multiplicity: int = 1,
    noise_distribution: NoiseDistribution = NoiseDistribution.GAUSSIAN,
    shares: int = 1,
) -> NoiseSpec:
    """Return the noise with which `query` costs at most `micro_rho`, or one of `shares` Gaussian shares.

    Privacy: [P2] rho = sum_j D_j^2 / (2 sigma_j^2) for independent rounded Gaussians [P26]. With one
    sigma that is ||D||^2 / (2 sigma^2). For a Gram matrix, sigma on the diagonal and sigma / sqrt 2
    above it give ||D||_F^2 / (2 sigma^2), because every off-diagonal entry counts twice in the
    Frobenius norm [P3]. Laplace noise of scale b = l1 / epsilon is epsilon-DP, and epsilon = sqrt(2 rho)
    makes b^2 = l1^2 / (2 rho): the same formula with the other norm. A person at `multiplicity` sites
    changes the sum by that many vectors.
    Cost: `micro_rho`."""
    gaussian = noise_distribution is NoiseDistribution.GAUSSIAN
    sensitivity2 = query.l2_squared(neighbours) if gaussian else query.l1(neighbours) ** 2
    square = scale_squared(sensitivity2 * multiplicity**2, micro_rho) / shares
    if isinstance(query, Gram) and gaussian and not query.flat:
        d = query.centre.size
        diagonal = Block(count=d, scale=root_of(square))
        above = Block(count=query.length - d, scale=root_of(square / 2))
        return NoiseSpec(blocks=(diagonal, above))
    return NoiseSpec.of(query.length, root_of(square), noise_distribution)


def share_spec(priced: PricedQuery, study: Study, sites: int) -> NoiseSpec:
    """Return the noise share of each of `sites` sites for a query.

    Under secure aggregation at most t sites of an attempt S collude with the coordinator, and know their own
    shares. So each share has the variance sigma^2 / (|S| - t), and any sum that can be unmasked has at least
    the variance sigma^2 [P31] [P32]: the honest sites' shares suffice.

    Privacy: [P32] any sites - study.colluders shares add up to the noise of the query, or more.
    Cost: priced.cost, for all shares together.

    Raises:
        InternalError: the query is not masked, its noise is not Gaussian, or no site would be honest."""
    honest = sites - study.colluders
    if not (
        study.masked
        and isinstance(priced.query, AdditiveQuery)
        and priced.distribution is NoiseDistribution.GAUSSIAN
        and honest > 0
    ):
        raise InternalError(Code.BUG, "noise shares exist only for masked Gaussian noise with an honest site")
    whole = noise_spec(
        priced.query,
        priced.micro_rho,
        study.neighbours,
        study.max_sites_per_person,
        priced.distribution,
        shares=honest,
    )
    return NoiseSpec(
        blocks=tuple(
            Block(count=block.count, scale=max(block.scale, MIN_SHARE_SCALE)) for block in whole.blocks
        )
    )


def released_sigma(priced: PricedQuery, study: Study, sites: int) -> float:
    """Return the largest standard deviation of the noise in a sum of `sites` masked answers."""
    return share_spec(priced, study, sites).sigma * math.sqrt(sites)
