"""Layout of a table: its separator, and which of its first rows names the columns.

A layout is scored: rows with the usual number of cells, times cells of a known kind, as CleverCSV does (van
den Burg, Nazabal, Sutton 2019), with this module's kinds."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from eigenveil_client.records.discovery.words import CellKind, cell_kind
from eigenveil_client.records.tables.units import cell_unit, is_row_of_units

SEPARATORS = (",", ";", "\t", "|")
LOOKED_AT = 400  # lines
BODY = 200  # rows that decide about the header
FILLED = 0.6  # least share of named columns in a header
TEXTUAL = 0.8  # least share of words in a header
UNITS = 0.5  # least share of units in a row of units
FEW = 0.02  # score of a table with a single column

LONG = 60  # characters of a cell
PARTED = re.compile(r'"|[,;|](?! )|\t')  # marks of a text that was cut at the wrong places

Row = Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundHeader:
    """Place of the row that names the columns (from 0), the rows of titles or labels before it, and the row
    of units after it, if there is one."""

    row: int
    labels: int | None = None
    units: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLayout:
    """Separator of a text, its header, and the evidence for the separator."""

    separator: str
    header: FoundHeader | None
    evidence: str


def find_layout(lines: Sequence[str]) -> FoundLayout:
    """Return the layout of a text from its first lines, without their ends."""
    filled = [line for line in lines[:LOOKED_AT] if line]
    scored = [
        (_score(rows), separator, rows) for separator in SEPARATORS if (rows := cells(filled, separator))
    ]
    score, separator, rows = max(scored, key=lambda one: one[0])  # of equals, the first
    width = usual_width(rows)
    shown = {"\t": "a tab"}.get(separator, repr(separator))
    evidence = f"nearly all lines have {width} cells, if {shown} separates them"
    if score <= FEW:
        evidence = f"no mark separates cells; read with {shown} as one column"
    return FoundLayout(separator=separator, header=find_header(rows), evidence=evidence)


def cells(lines: Sequence[str], separator: str) -> list[list[str]]:
    """Return the trimmed cells of lines, each a row of its own, as a quoted cell must not span lines."""
    return [[cell.strip() for cell in _cells(line, separator)] for line in lines]


def _cells(line: str, separator: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=separator), [])
    except csv.Error:  # a cell beyond the limit of that module, which other readers of these lines have not
        return line.split(separator)


def usual_width(rows: Sequence[Row]) -> int:
    """Return the number of cells that most rows have; of equals, the larger."""
    counted = Counter(map(len, rows))
    return max(counted, key=lambda width: (counted[width], width), default=0)


def _score(rows: Sequence[Row]) -> float:
    width = usual_width(rows)
    if width < 2:
        return FEW / 2
    same = [row for row in rows if len(row) == width]
    kinds = Counter(_known(cell) for row in same[1:] or same for cell in row)
    typed = kinds[True] / max(1, kinds.total())
    # a mark that occurs in few rows, or makes few cells, separates nothing
    return (len(same) / len(rows)) * (1 - 1 / width) * (0.1 + typed)


def _known(cell: str) -> bool:
    """Return True for a cell whose whole text is of one kind: a number, a date, a short word, or no value."""
    if cell_kind(cell) is not CellKind.WORD:
        return True
    return len(cell) <= LONG and PARTED.search(cell) is None


def find_header(rows: Sequence[Row]) -> FoundHeader | None:
    """Return the row that names the columns: the last row of distinct words before the first row of cells
    like the rest. None if the first rows are like the rest: the table names no columns."""
    width = usual_width(rows)
    body = rows[: BODY + 8]
    numeric = _numeric_columns(body, width)
    for place, row in enumerate(body[:-1] if len(body) > 1 else body):
        if not _names(row, width) or (numeric and _is_body(row, numeric)):
            continue
        following = place + 1
        if following < len(body) and _are_units(body[following], numeric):
            return FoundHeader(row=place, labels=_labels(body, place), units=following)
        if following < len(body) and numeric and _names(body[following], width):
            names = [body[following][column] for column in numeric]
            if sum(map(_is_word, names)) >= TEXTUAL * len(names):  # no record: words where numbers stand
                return FoundHeader(row=following, labels=place)
        return FoundHeader(row=place, labels=_labels(body, place))
    return None


def repeated_name(rows: Sequence[Row]) -> tuple[int, str] | None:
    """Return the place of the first row of words above values that names a column twice, and the name; None
    if there is none."""
    width, body = usual_width(rows), rows[: BODY + 8]
    numeric = _numeric_columns(body, width)
    for place, row in enumerate(body if numeric else ()):
        if _are_words(row, width) and not _is_body(row, numeric):
            times = Counter(filter(None, row)).most_common(1)
            return (place, times[0][0]) if times[0][1] > 1 else None
    return None


def _labels(rows: Sequence[Row], place: int) -> int | None:
    """Return the row just before the header if it titles groups of columns."""
    before = place - 1
    titled = before >= 0 and sum(map(bool, rows[before])) > 1 and len(rows[before]) == len(rows[place])
    return before if titled else None


def _names(row: Row, width: int) -> bool:
    """Return True if a row can name the columns: most are named, by words, no two alike."""
    named = [cell for cell in row if cell]
    return _are_words(row, width) and len(set(named)) >= 0.9 * len(named)


def _are_words(row: Row, width: int) -> bool:
    """Return True if most columns have a word in a row."""
    named = [cell for cell in row if cell]
    if not named or len(row) < width * FILLED or len(named) < FILLED * width or len(row) > width:
        return False
    return sum(map(_is_word, named)) >= TEXTUAL * len(named)


def _is_word(cell: str) -> bool:
    """Return True for text with a letter; NA names a column (sodium) as well as it means no value."""
    return any(letter.isalpha() for letter in cell)


def _numeric_columns(rows: Sequence[Row], width: int) -> list[int]:
    """Return the columns in which most filled cells are numbers or dates."""
    found = []
    for column in range(width):
        filled = [row[column] for row in rows if len(row) == width and row[column]]
        kinds = [cell_kind(cell) for cell in filled]
        valued = sum(kind in (CellKind.NUMBER, CellKind.DATE) for kind in kinds)
        if filled and valued > 0.5 * sum(kind is not CellKind.ABSENT for kind in kinds):
            found.append(column)
    return found


def _is_body(row: Row, numeric: Sequence[int]) -> bool:
    """Return True if a row has values where the table has."""
    here = [row[column] for column in numeric if column < len(row) and row[column]]
    valued = sum(cell_kind(cell) in (CellKind.NUMBER, CellKind.DATE) for cell in here)
    return bool(here) and valued >= 0.5 * len(here)


def _are_units(row: Row, numeric: Sequence[int]) -> bool:
    """Return True if a row has units where the table has numbers."""
    here = [row[column] for column in numeric if column < len(row) and row[column]]
    units = sum(bool(cell_unit(cell)) for cell in here)
    return bool(here) and units >= UNITS * len(here) and is_row_of_units(row)
