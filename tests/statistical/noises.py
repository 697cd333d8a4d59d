"""Noise for audits: the operating system's, drawn in bulk, as asked for or (planted fault) too quiet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any
from unittest.mock import patch

import numpy as np

from eigenveil.noise.source import Block, NoiseSpec, OsNoise
from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil.protocol.query import NoiseDistribution

BULK = 50_000


class Bulk(OsNoise):
    """Draws of `OsNoise`, up to BULK values at a time, each handed out once: a release then costs
    microseconds. A scale that is asked for again is drawn in twice as many; one that never is, once.

    `factor` below 1 is the planted fault: every scale that much smaller than was asked for."""

    private = False

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self._factor = factor
        self._stock: dict[tuple[float, NoiseDistribution], IntArray] = {}
        self._wanted: dict[tuple[float, NoiseDistribution], int] = {}
        self._uniforms: FloatArray = np.zeros(0)

    def draw(self, spec: NoiseSpec) -> IntArray:
        """Shape: (spec.length,)."""
        if len(spec.blocks) == 1:
            return self._take(spec.blocks[0])
        return np.concatenate([self._take(block) for block in spec.blocks])

    def _take(self, block: Block) -> IntArray:
        name = block.scale, block.distribution
        stock = self._stock.get(name)
        if stock is None or len(stock) < block.count:
            self._wanted[name] = min(BULK, 2 * self._wanted.get(name, block.count))
            count = max(self._wanted[name], block.count)
            wanted = Block(count=count, scale=self._factor * block.scale, distribution=block.distribution)
            stock = super().draw(NoiseSpec(blocks=(wanted,)))
        self._stock[name] = stock[block.count :]
        return stock[: block.count]

    def uniform(self, count: int) -> FloatArray:
        """Shape: (count,)."""
        if len(self._uniforms) < count:
            self._uniforms = super().uniform(max(BULK, count))
        taken, self._uniforms = self._uniforms[:count], self._uniforms[count:]
        return taken


# What the releases of one sum compute from it again and again: the same each time, and longer than the rest.
ALWAYS_THE_SAME = (
    "eigenveil.noise.distributions.envelope",
    "eigenveil.mechanisms.papers.covariance.eigenpairs",
    "eigenveil.mechanisms.papers.subspaces.candidates",
    "eigenveil.mechanisms.papers.smooth_sensitivity.leading_subspace_and_gap",
    "eigenveil.mechanisms.papers.subspaces.count_votes",
)


@contextmanager
def computed_once() -> Iterator[None]:
    """While one sum is released many times, its decompositions and tallies are computed once."""
    with ExitStack() as stack:
        for name in ALWAYS_THE_SAME:
            module, function = name.rsplit(".", 1)
            known = remembered(getattr(import_module(module), function))
            stack.enter_context(patch(name, known))
        yield


def remembered(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arrays that is called once for each: all else that it is given stays the same."""
    known: dict[bytes, Any] = {}

    def call(*given: Any) -> Any:
        name = b"".join(value.tobytes() for value in given if isinstance(value, np.ndarray))
        if name not in known:
            known[name] = function(*given)
        return known[name]

    return call
