"""The one gateway: the only place where noise is drawn, and the only importer of the sampler.

Noise is exact and discrete (OpenDP's discrete Gaussian on integers), from the operating system's
CSPRNG, at a standard deviation computed from the question's own sensitivity and its price.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian
from opendp.metrics import l2_distance
from opendp.mod import enable_features

from eigenveil.accounting import MICRO
from eigenveil.ints import IntArray, frozen
from eigenveil.query import Ask, Gram
from eigenveil.study import Neighbours

# Not `opendp.prelude`: where scikit-learn is installed, that imports all of it, a second a process.
enable_features("contrib")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """`count` consecutive integers that get independent noise of standard deviation `sigma`."""

    count: int
    sigma: float


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
        """Independent integers as `spec` says. Shape: (spec.length,)."""


class OsNoise:
    """Production noise: OpenDP's exact sampler; it accepts no seed."""

    private = True

    def draw(self, spec: NoiseSpec) -> IntArray:
        """Shape: (spec.length,), int64."""
        return frozen(np.concatenate([_gaussian(block) for block in spec.blocks]))


def _gaussian(block: Block) -> IntArray:
    if block.count == 0:
        return np.zeros(0, dtype=np.int64)
    space = vector_domain(atom_domain(T="i64")), l2_distance(T="f64")
    mechanism = make_gaussian(*space, scale=block.sigma)
    return np.asarray(mechanism([0] * block.count), dtype=np.int64)


def noise_spec(ask: Ask, micro_rho: int, neighbours: Neighbours, multiplicity: int = 1) -> NoiseSpec:
    """The noise that makes `ask` cost at most `micro_rho`.

    Privacy: [P2] rho = sum_j D_j^2 / (2 sigma_j^2) for independent discrete Gaussians. With one
    sigma that is ||D||^2 / (2 sigma^2). For a Gram matrix, sigma on the diagonal and sigma / sqrt 2
    above it give ||D||_F^2 / (2 sigma^2), because every off-diagonal entry counts twice in the
    Frobenius norm [P3]. A person at `multiplicity` sites moves the sum by that many vectors.
    Cost: `micro_rho`.
    """
    variance = Fraction(ask.l2_squared(neighbours) * multiplicity**2 * MICRO, 2 * micro_rho)
    if isinstance(ask, Gram):
        d = ask.centre.size
        diagonal = Block(count=d, sigma=_root_up(variance))
        above = Block(count=ask.length - d, sigma=_root_up(variance / 2))
        return NoiseSpec(blocks=(diagonal, above))
    return NoiseSpec(blocks=(Block(count=ask.length, sigma=_root_up(variance)),))


def _root_up(variance: Fraction) -> float:
    """The least float found whose exact square is at least `variance`."""
    sigma = math.sqrt(variance)
    while Fraction(sigma) ** 2 < variance:
        sigma = math.nextafter(sigma, math.inf)
    return sigma
