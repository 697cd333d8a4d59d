"""Patient markers: two hundred strings that stand in the records and nowhere else, and their spellings."""

from __future__ import annotations

import base64
import csv
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from eigenveil.numerics.encoding import FloatArray
from eigenveil.site.record_view import to_grid
from eigenveil.study.study import Study

NAMES, IDS, DATES, VALUES, MALFORMED = 50, 50, 30, 50, 20
IDENTIFIERS = ("patient_id", "patient_name", "born")


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    text: str
    needles: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """The records of the sites, as rows of text below `headers`, with markers among them."""

    headers: tuple[str, ...]
    rows: list[list[str]]
    markers: list[Marker]


def plant(study: Study, values: FloatArray) -> Planted:
    """Markers in identifier columns of every record, and in the data of the first ones."""
    rows = [list(map(repr, row.tolist())) for row in values]
    markers: list[Marker] = []
    for index in range(VALUES):
        column = index % study.dimension
        bounds = study.columns[column]
        exact = bounds.lower + (bounds.upper - bounds.lower) * (
            0.3173205080757 + (index * 0.61803398875) % 0.4
        )
        rows[index][column] = f"{exact:.13g}"
        markers.append(_value(study, [float(cell) for cell in rows[index]], rows[index][column], column))
    for index in range(MALFORMED):
        cell = f"unreadable-{index * 7919 + 10007}-kgm2"
        rows[VALUES + index][index % study.dimension] = cell
        markers.append(_text(cell))
    people = [_person(index) for index in range(len(rows))]
    for position, most in enumerate((IDS, NAMES, DATES)):
        markers += [_text(people[index][position]) for index in range(most)]
    headers = (*IDENTIFIERS, *(column.name for column in study.columns))
    whole = [[*person, *row] for person, row in zip(people, rows, strict=True)]
    return Planted(headers=headers, rows=whole, markers=markers)


def _person(index: int) -> tuple[str, str, str]:
    """Person of a record: id, name and date of birth; the dates are of a century that no clock shows."""
    return (
        f"PID-{index * 104729 + 7368787}",
        f"Wilhelmine Q{index:03d} Markerowska",
        f"18{index % 90 + 10}-{index % 12 + 1:02d}-{index % 28 + 1:02d}",
    )


def _text(text: str) -> Marker:
    return Marker(text=text, needles=tuple(_spellings(text.encode(), text.encode("utf-16-le"))))


def _value(study: Study, row: list[float], text: str, column: int) -> Marker:
    """A number: as text, as 64 bits, and the record it stands in on the grid (one alone says too little)."""
    exact = struct.pack("<d", row[column])
    grid = to_grid(np.array([row]), study).tobytes()
    wide = to_grid(np.array([row]), study).astype("<i8").tobytes()
    raw = (text.encode(), text.encode("utf-16-le"), exact, grid[:16], wide[:32])
    return Marker(text=text, needles=tuple(_spellings(*raw)))


def _spellings(*raw: bytes) -> Iterator[bytes]:
    for data in raw:
        yield data
        yield data.hex().encode()
        yield data.hex().upper().encode()
        for shift in range(3):  # base64 of a longer text: the marker may begin at any of three places
            whole = base64.b64encode(bytes(shift) + data)
            yield whole[(shift * 8 + 5) // 6 : (shift + len(data)) * 8 // 6]


def write_csv(path: Path, planted: Planted, rows: Sequence[list[str]]) -> None:
    for file in (path, path.with_name(path.name + ".copy")):
        with file.open("w", newline="") as out:
            csv.writer(out).writerows([planted.headers, *rows])


def write_parquet(path: Path, planted: Planted, rows: Sequence[list[str]]) -> None:
    """A Parquet file of these rows: columns of text where a cell is no number, of numbers elsewhere."""
    columns = {}
    for position, header in enumerate(planted.headers):
        cells = [row[position] for row in rows]
        try:
            columns[header] = pa.array([float(cell) for cell in cells])
        except ValueError:
            columns[header] = pa.array(cells)
    parquet.write_table(pa.table(columns), path, compression="none", use_dictionary=False)


def found(markers: Sequence[Marker], files: Sequence[Path]) -> list[tuple[Marker, Path]]:
    hits = []
    for file in files:
        data = file.read_bytes()
        hits += [(marker, file) for marker in markers if any(needle in data for needle in marker.needles)]
    return hits
