"""Noise for audits: the operating system's, drawn in bulk, as asked for or (planted fault) too quiet."""

from __future__ import annotations

import numpy as np

from eigenveil.ints import FloatArray, IntArray
from eigenveil.noise import Block, NoiseSpec, OsNoise
from eigenveil.query import Law

BULK = 50_000


class Bulk(OsNoise):
    """What `OsNoise` draws, BULK values at a time, each handed out once: a release then costs microseconds.

    `factor` below 1 is the planted fault: every scale that much smaller than was asked for.
    """

    private = False

    def __init__(self, factor: float = 1.0) -> None:
        self._factor = factor
        self._stock: dict[tuple[float, Law], IntArray] = {}
        self._uniforms: FloatArray = np.zeros(0)

    def draw(self, spec: NoiseSpec) -> IntArray:
        """Shape: (spec.length,)."""
        if len(spec.blocks) == 1:
            return self._take(spec.blocks[0])
        return np.concatenate([self._take(block) for block in spec.blocks])

    def _take(self, block: Block) -> IntArray:
        name = block.scale, block.law
        stock = self._stock.get(name)
        if stock is None or len(stock) < block.count:
            count = max(BULK, block.count)
            wanted = Block(count=count, scale=self._factor * block.scale, law=block.law)
            stock = super().draw(NoiseSpec(blocks=(wanted,)))
        self._stock[name] = stock[block.count :]
        return stock[: block.count]

    def uniform(self, count: int) -> FloatArray:
        """Shape: (count,)."""
        if len(self._uniforms) < count:
            self._uniforms = super().uniform(max(BULK, count))
        taken, self._uniforms = self._uniforms[:count], self._uniforms[count:]
        return taken
