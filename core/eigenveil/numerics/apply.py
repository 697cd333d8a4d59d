"""How work is done on many pieces: one after the other with `map`, or side by side by whoever has threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

Piece = TypeVar("Piece")
Done = TypeVar("Done")


class Apply(Protocol):
    """`map`, or what an executor has instead: core keeps no thread, and is handed those of its caller."""

    def __call__(self, work: Callable[[Piece], Done], pieces: Iterable[Piece], /) -> Iterable[Done]:
        """What came of each piece, in their order."""
