"""Interface of a parallel map."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

Piece = TypeVar("Piece")
Done = TypeVar("Done")


class ParallelMap(Protocol):
    """`map` or the map of an executor. Core starts no thread; the caller supplies this."""

    def __call__(self, work: Callable[[Piece], Done], pieces: Iterable[Piece], /) -> Iterable[Done]:
        """Return the results in the order of the pieces."""
