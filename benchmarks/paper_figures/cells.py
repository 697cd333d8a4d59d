"""Parts of a figure: points that are measured, and cells of a table that are kept.

A point is one place on one panel's axis, where several methods work on the same records, repeat after
repeat. A cell is what one method gave there: quantiles over the repeats. Cells are kept in a CSV file, and
a run measures only what its file does not hold yet."""

from __future__ import annotations

import csv
import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

Errors = Mapping[str, float]
NOISE = 10**6  # seeds of noise start here, seeds of records at 0, so that the two streams never meet
FEWER = 5  # a slow method is repeated this many times less often


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One place on one panel. `measure(setting, seed, series)` gives each series' error; NaN: no release.

    `slow` names series that are repeated `FEWER` times less often."""

    panel: str
    x: float
    series: tuple[str, ...]
    setting: Mapping[str, Any]
    measure: Callable[[Mapping[str, Any], int, tuple[str, ...]], Errors]
    repeats: int
    slow: tuple[str, ...] = ()

    def times(self, name: str) -> int:
        """Repeats of a series at this point."""
        return math.ceil(self.repeats / FEWER) if name in self.slow else self.repeats

    @property
    def code(self) -> str:
        """Eight hex digits that name the setting: cells of another setting are measured anew."""
        return f"{zlib.crc32(repr(sorted(self.setting.items())).encode()):08x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Result of one series at one point: quantiles of its error over repeats with seeds 0, 1, ...

    `released` is the share of repeats that released anything; the others count as `worst`."""

    panel: str
    series: str
    x: float
    median: float
    low: float
    high: float
    mean: float
    released: float
    repeats: int
    setting: str


@dataclass(slots=True)
class Table:
    """The cells of one figure, and the file that holds them."""

    path: Path
    cells: dict[tuple[str, str, float], Cell] = field(default_factory=dict)

    def missing(self, point: Point) -> tuple[str, ...]:
        """The series of a point that are not in the table with its repeats and setting."""

        def stored(name: str) -> bool:
            cell = self.cells.get((point.panel, name, point.x))
            return cell is not None and (cell.repeats, cell.setting) == (point.times(name), point.code)

        return tuple(name for name in point.series if not stored(name))

    def add(self, cells: list[Cell]) -> None:
        """Keep cells, and write the file."""
        for cell in cells:
            self.cells[cell.panel, cell.series, cell.x] = cell
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("w", newline="") as handle:
            writer = csv.DictWriter(handle, [f.name for f in fields(Cell)], lineterminator="\n")
            writer.writeheader()
            writer.writerows(asdict(cell) for _, cell in sorted(self.cells.items()))

    def retain(self, points: list[Point]) -> None:
        """Forget cells that no point asks for any more."""
        wanted = {(point.panel, name, point.x) for point in points for name in point.series}
        self.cells = {key: cell for key, cell in self.cells.items() if key in wanted}

    def line(self, panel: str, series: str) -> list[Cell]:
        """One series on one panel, by rising x."""
        found = [c for c in self.cells.values() if (c.panel, c.series) == (panel, series)]
        return sorted(found, key=lambda cell: cell.x)


def read_table(path: Path) -> Table:
    """The table in a file; empty if there is none, or if it was written with other columns."""
    table = Table(path)
    if not path.exists():
        return table
    with path.open(newline="") as handle:
        rows = csv.DictReader(handle)
        if rows.fieldnames != [f.name for f in fields(Cell)]:
            return table
        for row in rows:
            numbers = {name: float(row[name]) for name in ("x", "median", "low", "high", "mean", "released")}
            cell = Cell(
                panel=row["panel"],
                series=row["series"],
                repeats=int(row["repeats"]),
                setting=row["setting"],
                **numbers,
            )
            table.cells[cell.panel, cell.series, cell.x] = cell
    return table


def work(point: Point, names: tuple[str, ...]) -> list[Cell]:
    """Measure the named series of a point."""
    gathered: dict[str, list[float]] = {name: [] for name in names}
    for seed in range(max(point.times(name) for name in names)):
        wanted = tuple(name for name in names if seed < point.times(name))
        for name, error in point.measure(point.setting, seed, wanted).items():
            gathered[name].append(error)
    return [summary(point, name, np.array(errors)) for name, errors in gathered.items()]


def summary(point: Point, name: str, errors: np.ndarray) -> Cell:
    """The cell of one series. Shape: errors (repeats,), NaN where nothing was released: that counts as 1."""
    released = float(np.isfinite(errors).mean())
    errors = np.where(np.isfinite(errors), errors, 1.0)
    low, median, high = np.quantile(errors, (0.1, 0.5, 0.9))

    def short(value: float) -> float:
        return float(f"{value:.4g}")

    return Cell(
        panel=point.panel,
        series=name,
        x=point.x,
        median=short(median),
        low=short(low),
        high=short(high),
        mean=short(float(errors.mean())),
        released=short(released),
        repeats=len(errors),
        setting=point.code,
    )
