"""A table of runs in a file: a row for each cell, with the sine and the stated sine of each seed from 0 on.

The first lines of the file say how it was made. Figures have four digits."""

from __future__ import annotations

import csv
import gzip
import io
import math
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.accuracy.runs import AccuracyCell

COLUMNS = ("table", "components", "epsilon", "algorithm", "sines", "stated")
NONE = "-"  # refused, or no error stated


def rounded(value: float) -> float:
    """Return a value as it is stored."""
    return float(f"{value:.4g}")


@dataclass(slots=True)
class StoredRuns:
    """Pairs of true and stated sine of each cell, seed after seed, and the lines of the header."""

    cells: dict[AccuracyCell, list[tuple[float, float]]] = field(default_factory=dict)
    header: list[str] = field(default_factory=list)

    @property
    def seeds(self) -> int:
        """The most seeds of a cell."""
        return max(map(len, self.cells.values()), default=0)

    def add(self, cell: AccuracyCell, seed: int, pair: tuple[float, float]) -> None:
        """Add the run of the next seed of a cell; a seed that is there stays as it is."""
        seen = self.cells.setdefault(cell, [])
        if len(seen) == seed:
            seen.append((rounded(pair[0]), rounded(pair[1])))

    def write(self, path: Path) -> None:
        """Write the file, the same bytes for the same runs."""
        text = io.StringIO()
        text.writelines(f"# {line}\n" for line in self.header)
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(COLUMNS)
        for cell, pairs in self.cells.items():
            figures = (" ".join(map(_figure, column)) for column in zip(*pairs, strict=True))
            rows.writerow([cell.table, cell.components, f"{cell.epsilon:g}", cell.algorithm, *figures])
        unfinished = path.with_suffix(".part")
        unfinished.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))
        unfinished.replace(path)


def read(path: Path) -> StoredRuns:
    """Return the runs of a file."""
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    header = [line[2:] for line in lines if line.startswith("# ")]
    found = StoredRuns(header=header)
    for row in csv.DictReader(lines[len(header) :]):
        cell = AccuracyCell(
            table=row["table"], components=int(row["components"]), epsilon=float(row["epsilon"]),
            algorithm=row["algorithm"],
        )  # fmt: skip
        sines, stated = (map(_value, row[name].split()) for name in ("sines", "stated"))
        found.cells[cell] = list(zip(sines, stated, strict=True))
    return found


def _figure(value: float) -> str:
    return NONE if math.isnan(value) else f"{value:.4g}"


def _value(text: str) -> float:
    return math.nan if text == NONE else float(text)
