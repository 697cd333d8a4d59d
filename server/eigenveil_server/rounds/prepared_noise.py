"""Noise drawn while the sites compute: it depends on no data, and its time then tells nothing [P6]."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor, Future

from eigenveil.errors import Code, InternalError
from eigenveil.noise.source import NoiseSource, NoiseSpec
from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil_common.failpoints import failpoint


class NoiseAhead:
    """A noise source that hands out the vector it prepared, once, for exactly its specification."""

    def __init__(self, source: NoiseSource, threads: Executor) -> None:
        self._source = source
        self._threads = threads
        self._prepared: tuple[NoiseSpec, Future[IntArray]] | None = None

    @property
    def private(self) -> bool:
        return self._source.private

    def prepare(self, spec: NoiseSpec) -> None:
        """Start to draw; a vector prepared before and never handed out is thrown away."""
        self.discard()
        self._prepared = spec, self._threads.submit(self._source.draw, spec)

    async def drawn(self) -> None:
        """Wait for what was prepared, off every thread: a long draw keeps no other study waiting. That it
        failed is for `draw` to say, behind the barrier."""
        if self._prepared is not None:
            await asyncio.wait([asyncio.wrap_future(self._prepared[1])])

    def draw(self, spec: NoiseSpec) -> IntArray:
        """The prepared vector. Shape: (spec.length,). Blocks until it is drawn.

        Raises:
            InternalError: nothing is prepared, or for other noise.
        """
        failpoint("noise-taken")
        prepared, self._prepared = self._prepared, None
        if prepared is None or prepared[0] != spec:
            raise InternalError(Code.BUG, "the noise asked for is not the noise that was prepared")
        return prepared[1].result()

    def uniform(self, count: int) -> FloatArray:
        """Drawn by the source when asked: what a trusted mechanism needs depends on its data."""
        return self._source.uniform(count)

    def discard(self) -> None:
        if self._prepared is not None:
            self._prepared[1].cancel()
            self._prepared = None
