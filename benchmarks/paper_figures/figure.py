"""A figure: where it is measured, and how it is drawn from what was measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.paper_figures.cells import Point, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """`name`.csv holds the cells of `points`; `draw` makes `name`.png of them."""

    name: str
    points: tuple[Point, ...]
    draw: Callable[[Table, Path], None]
