"""Reproducible noise for simulations and tests. It is not private and every release says so."""

from __future__ import annotations

import numpy as np

from eigenveil.ints import IntArray, frozen
from eigenveil.noise import NoiseSpec


class SeededNoise:
    """Rounded Gaussian noise from a seed: for simulations only."""

    private = False

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def draw(self, spec: NoiseSpec) -> IntArray:
        """Shape: (spec.length,), int64."""
        parts = [self._generator.normal(0.0, block.sigma, block.count) for block in spec.blocks]
        return frozen(np.rint(np.concatenate(parts)).astype(np.int64))
