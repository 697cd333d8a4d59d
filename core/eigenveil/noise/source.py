"""The one gateway: the only place where noise is drawn, and the only importer of the sampler.

Noise is exact and made of integers (the rounded Gaussian, the discrete Laplace law), from the operating
system's CSPRNG, at a standard deviation computed from the question's own sensitivity and its price.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from eigenveil.accounting.neighbours import Neighbours
from eigenveil.accounting.zcdp import root_of, scale_squared
from eigenveil.numerics.encoding import FloatArray, IntArray, Words
from eigenveil.protocol.noise_ratio import LOUDEST
from eigenveil.protocol.query import NoiseLaw
from eigenveil.queries import Additive, Gram
from eigenveil.queries.limits import need


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """`count` consecutive integers that get independent noise of scale `scale`: the standard deviation of
    the Gaussian before it is rounded, b of the discrete Laplace exp(-|x| / b).

    Raises:
        RequestError: code `plan-overflow`: a scale at which a draw could leave 64 bits.
    """

    count: int
    scale: float
    law: NoiseLaw = NoiseLaw.GAUSSIAN

    def __post_init__(self) -> None:
        need(0 < self.scale <= LOUDEST, f"noise is drawn at scales up to {LOUDEST:.3g}, not {self.scale:.3g}")

    @property
    def sigma(self) -> float:
        """Its standard deviation (that of the continuous law)."""
        return self.scale if self.law is NoiseLaw.GAUSSIAN else math.sqrt(2) * self.scale


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseSpec:
    """The noise of one answer, block after block."""

    blocks: tuple[Block, ...]

    @property
    def length(self) -> int:
        """Integers in the answer."""
        return sum(block.count for block in self.blocks)

    @property
    def sigma(self) -> float:
        """The largest standard deviation among the blocks."""
        return max(block.sigma for block in self.blocks)


class NoiseSource(Protocol):
    """Where noise comes from. `private` is False for anything but the operating system's CSPRNG."""

    @property
    def private(self) -> bool:
        """Whether releases drawn from this source carry the guarantee."""

    def draw(self, spec: NoiseSpec) -> IntArray:
        """Independent integers as `spec` says, the caller's own: what they are added to may be written over
        them. Shape: (spec.length,)."""

    def uniform(self, count: int) -> FloatArray:
        """Independent floats, uniform in (0, 1), 2^-52 apart. Shape: (count,)."""


class OsNoise:
    """Production noise: exact integers from the operating system's bits; it accepts no seed."""

    private = True

    def draw(self, spec: NoiseSpec) -> IntArray:
        """Shape: (spec.length,), int64."""
        # Its tables are a twentieth of a second of ball arithmetic, which only a real draw needs.
        from eigenveil.noise.quantiles import GAUSSIAN, LAPLACE
        from eigenveil.noise.sampler import integers

        noise, start = np.empty(spec.length, dtype=np.int64), 0
        for block in spec.blocks:
            quantile = GAUSSIAN if block.law is NoiseLaw.GAUSSIAN else LAPLACE
            integers(quantile, block.scale, block.count, words, noise[start : start + block.count])
            start += block.count
        return noise

    def uniform(self, count: int) -> FloatArray:
        """Shape: (count,)."""
        return ((words(count) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def words(count: int) -> Words:
    """Fair bits of the operating system's CSPRNG, 64 a word. Shape: (count,)."""
    return np.frombuffer(os.urandom(8 * count), dtype="<u8")


def noise_spec(
    query: Additive,
    micro_rho: int,
    neighbours: Neighbours,
    multiplicity: int = 1,
    law: NoiseLaw = NoiseLaw.GAUSSIAN,
    among: int = 1,
) -> NoiseSpec:
    """The noise that makes `query` cost at most `micro_rho`; of Gaussian noise, one share `among` so many.

    Privacy: [P2] rho = sum_j D_j^2 / (2 sigma_j^2) for independent rounded Gaussians [P26]. With one
    sigma that is ||D||^2 / (2 sigma^2). For a Gram matrix, sigma on the diagonal and sigma / sqrt 2
    above it give ||D||_F^2 / (2 sigma^2), because every off-diagonal entry counts twice in the
    Frobenius norm [P3]. Laplace noise of scale b = l1 / epsilon is epsilon-DP, and epsilon = sqrt(2 rho)
    makes b^2 = l1^2 / (2 rho): the same formula with the other norm. A person at `multiplicity` sites moves
    the sum by that many vectors.
    Cost: `micro_rho`.
    """
    gaussian = law is NoiseLaw.GAUSSIAN
    sensitivity2 = query.l2_squared(neighbours) if gaussian else query.l1(neighbours) ** 2
    square = scale_squared(sensitivity2 * multiplicity**2, micro_rho) / among
    if isinstance(query, Gram) and gaussian and not query.flat:
        d = query.centre.size
        diagonal = Block(count=d, scale=root_of(square))
        above = Block(count=query.length - d, scale=root_of(square / 2))
        return NoiseSpec(blocks=(diagonal, above))
    return NoiseSpec(blocks=(Block(count=query.length, scale=root_of(square), law=law),))
