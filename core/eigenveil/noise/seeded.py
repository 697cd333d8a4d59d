"""Reproducible noise for simulations and tests. It is not private, and every release states this."""

from __future__ import annotations

import numpy as np

from eigenveil.noise.source import Block, NoiseSpec
from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil.protocol.query import NoiseDistribution


class SeededNoise:
    """Rounded Gaussian and Laplace noise from a seed, for simulations only."""

    private = False

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def draw(self, spec: NoiseSpec) -> IntArray:
        """Return noise as specified. Shape: (spec.length,), int64."""
        parts = [self._block(block) for block in spec.blocks]
        return np.rint(np.concatenate(parts)).astype(np.int64)

    def _block(self, block: Block) -> FloatArray:
        gaussian = block.distribution is NoiseDistribution.GAUSSIAN
        sampler = self._generator.normal if gaussian else self._generator.laplace
        return sampler(0.0, block.scale, block.count)

    def uniform(self, count: int) -> FloatArray:
        """Return uniform floats in (0, 1). Shape: (count,)."""
        return self._generator.uniform(2.0**-53, 1.0, count)
