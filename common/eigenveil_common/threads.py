"""Threads for core, which keeps none: `map` on every processor, for work that is long enough to be shared."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Piece = TypeVar("Piece")
Done = TypeVar("Done")

CORES = os.cpu_count() or 1


def side_by_side(work: Callable[[Piece], Done], pieces: Iterable[Piece], /) -> Iterator[Done]:
    """As `map`, in threads that live as long as the work; whatever one of them raises is raised here."""
    with ThreadPoolExecutor(CORES) as threads:
        yield from threads.map(work, pieces)
