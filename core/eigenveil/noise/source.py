"""The one gateway: the only place where noise is drawn, and the only importer of the sampler.

Noise is exact and discrete (OpenDP's discrete Gaussian and Laplace on integers), from the operating system's
CSPRNG, at a standard deviation computed from the question's own sensitivity and its price.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian, make_laplace
from opendp.metrics import l1_distance, l2_distance
from opendp.mod import enable_features

from eigenveil.accounting.neighbours import Neighbours
from eigenveil.accounting.zcdp import root_of, scale_squared
from eigenveil.numerics.apply import Apply
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.protocol.noise_ratio import LOUDEST
from eigenveil.protocol.query import NoiseLaw
from eigenveil.queries import Additive, Gram
from eigenveil.queries.limits import need

# Not `opendp.prelude`: where scikit-learn is installed, that imports all of it, a second a process.
enable_features("contrib")

AT_ONCE = 2**13  # draws: 80 ms of one core, beside which a thread costs nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """`count` consecutive integers that get independent noise of scale `scale`: the standard deviation of
    the discrete Gaussian, b of the discrete Laplace exp(-|x| / b).

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
        """Independent integers as `spec` says. Shape: (spec.length,)."""

    def uniform(self, count: int) -> FloatArray:
        """Independent floats, uniform in (0, 1), 2^-52 apart. Shape: (count,)."""


class OsNoise:
    """Production noise: OpenDP's exact sampler; it accepts no seed. `apply` may draw long blocks side by
    side."""

    private = True

    def __init__(self, *, apply: Apply = map) -> None:
        self._apply = apply

    def draw(self, spec: NoiseSpec) -> IntArray:
        """Shape: (spec.length,), int64."""
        small = [part for block in spec.blocks for part in _parts(block)]
        apply = self._apply if len(small) > len(spec.blocks) else map
        return frozen(np.concatenate(list(apply(_exact, small))))

    def uniform(self, count: int) -> FloatArray:
        """Shape: (count,)."""
        bits = np.frombuffer(os.urandom(8 * count), dtype="<u8") >> np.uint64(12)
        return (bits.astype(np.float64) + 0.5) * 2.0**-52


def _parts(block: Block) -> Iterator[Block]:
    """A long block as shorter ones, which may be drawn side by side: all draws are independent."""
    for start in range(0, max(block.count, 1), AT_ONCE):
        yield replace(block, count=min(AT_ONCE, block.count - start))


def _exact(block: Block) -> IntArray:
    if block.count == 0:
        return np.zeros(0, dtype=np.int64)
    domain = vector_domain(atom_domain(T="i64"))
    if block.law is NoiseLaw.GAUSSIAN:
        mechanism = make_gaussian(domain, l2_distance(T="f64"), scale=block.scale)
    else:
        mechanism = make_laplace(domain, l1_distance(T="i64"), scale=block.scale)
    return np.asarray(mechanism([0] * block.count), dtype=np.int64)


def noise_spec(
    query: Additive,
    micro_rho: int,
    neighbours: Neighbours,
    multiplicity: int = 1,
    law: NoiseLaw = NoiseLaw.GAUSSIAN,
) -> NoiseSpec:
    """The noise that makes `query` cost at most `micro_rho`.

    Privacy: [P2] rho = sum_j D_j^2 / (2 sigma_j^2) for independent discrete Gaussians. With one
    sigma that is ||D||^2 / (2 sigma^2). For a Gram matrix, sigma on the diagonal and sigma / sqrt 2
    above it give ||D||_F^2 / (2 sigma^2), because every off-diagonal entry counts twice in the
    Frobenius norm [P3]. Laplace noise of scale b = l1 / epsilon is epsilon-DP, and epsilon = sqrt(2 rho)
    makes b^2 = l1^2 / (2 rho): the same formula with the other norm. A person at `multiplicity` sites moves
    the sum by that many vectors.
    Cost: `micro_rho`.
    """
    gaussian = law is NoiseLaw.GAUSSIAN
    sensitivity2 = query.l2_squared(neighbours) if gaussian else query.l1(neighbours) ** 2
    square = scale_squared(sensitivity2 * multiplicity**2, micro_rho)
    if isinstance(query, Gram) and gaussian and not query.flat:
        d = query.centre.size
        diagonal = Block(count=d, scale=root_of(square))
        above = Block(count=query.length - d, scale=root_of(square / 2))
        return NoiseSpec(blocks=(diagonal, above))
    return NoiseSpec(blocks=(Block(count=query.length, scale=root_of(square), law=law),))
