"""Content of a column as it was seen: numbers, dates, words, codes for a missing value, and quantiles.

Confidential: what is seen stays at the site."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from eigenveil_client.records.discovery.words import (
    CENSORED,
    CellKind,
    Marks,
    cell_kind,
    date_form,
    fillers,
    find_marks,
    is_awaited,
    value_of,
)
from eigenveil_client.records.tables.cells import TEXT
from eigenveil_client.records.tables.codes import MISSING
from eigenveil_client.records.tables.units import split_unit

QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
MEDIAN = 4  # its place in QUANTILES
MOST_WORDS = 24  # of a column that is reported
DATES = 0.9  # least share of dates in a column of dates
LONG, EXAMPLES = 60, 3  # characters of a word that is shown, and words
# Codes that stand for "no value" in questionnaires and device exports.
NEGATIVE_CODES = (-1.0, -8.0, -9.0, -77.0, -88.0, -99.0, -777.0, -888.0, -999.0, -9999.0, -99999.0)
NINES = (99.0, 99.9, 999.0, 999.9, 9999.0, 9999.9, 99999.0, 888.0, 8888.0, 777.0, 7777.0)
TOTALS = frozenset(("summe", "gesamt", "mittelwert", "mittel", "total", "totals", "sum", "mean", "average"))
SPREADS = 3.0  # a code lies so many times the spread of the middle half beyond all other values
LEAST_TIMES, LEAST_SHARE = 5, 0.01  # of a code that could be a value
SPIKE = 5.0  # times as many cells as the value nearby that most cells have


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenColumn:
    """Content of the column `header` over `rows`; counts are of cells.

    `label`: the text above the header, if a second row has one. `unit`: as UCUM, of the header, its label or
    a row of units ("" if none). `absent`: blank, or a usual word for it. `numbers`, `dates` and `words`: the
    rest. `absent_words`: those not every table has. `codes`: numbers that stand for no value. `fillers`:
    known words among numbers that stand for no value. `unclear`: the one or two other words that are all that
    is no number. `missing_cells`: each of these four, with its cells. `quantiles`: at `QUANTILES`, without
    codes. `frequent`: the words that most cells have; all if there are few. `totals`: words for a sum or a
    mean."""

    header: str
    label: str = ""
    unit: str = ""
    rows: int = 0
    absent: int = 0
    numbers: int = 0
    dates: int = 0
    words: int = 0
    distinct: int = 0
    whole: bool = False
    censored: int = 0
    marks: Marks = Marks()  # noqa: RUF009 - frozen
    date_form: str | None = None
    absent_words: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    fillers: tuple[str, ...] = ()
    unclear: tuple[str, ...] = ()
    missing_cells: tuple[tuple[str, int], ...] = ()
    quantiles: tuple[float, ...] = ()
    frequent: tuple[tuple[str, int], ...] = ()
    totals: tuple[str, ...] = ()

    @property
    def filled(self) -> int:
        """Number of cells with a value."""
        return self.numbers + self.dates + self.words

    @property
    def readable(self) -> float:
        """Share of the cells with a value that are numbers; 0 if there are none."""
        return self.numbers / self.filled if self.filled else 0.0

    @property
    def is_date(self) -> bool:
        """True if the cells are dates of one form."""
        return self.date_form is not None

    @property
    def median(self) -> float | None:
        """Median of the numbers; None if there are none."""
        return self.quantiles[MEDIAN] if self.quantiles else None


def words_of(column: pa.Array) -> Counter[str]:
    """Return the trimmed texts of a column, with their numbers of cells; "" for a null."""
    if not any(test(column.type) for test in TEXT):
        column = _as_text(column)
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        cells = column.cast(pa.binary()).to_pylist()
        column = pa.array([cell and cell.decode(errors="replace") for cell in cells], pa.string())
    counted = pc.fill_null(pc.utf8_trim_whitespace(column), "").value_counts()
    values, counts = counted.field(0).to_pylist(), counted.field(1).to_pylist()
    return Counter(dict(zip(values, counts, strict=True)))


def _as_text(column: pa.Array) -> pa.Array:
    """Return typed cells as text: a whole float without its point, so that it looks like a whole number."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_floating(column.type):
        values = column.to_pylist()
        texts = (None if v is None or v != v else f"{v:.15g}" for v in values)
        return pa.array(texts, pa.string())
    if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
        return pa.array([None if v is None else "(no text)" for v in column.to_pylist()], pa.string())
    return pc.cast(column, pa.string())


def seen_column(
    header: str, counted: Mapping[str, int], usual: Marks, *, label: str = "", unit: str = ""
) -> SeenColumn:
    """Return the content of a column from its distinct words; `usual` are the marks of the table's numbers.
    `label` and `unit` are the cells above and below the header."""
    kinds = {word: cell_kind(word) for word in counted}
    sizes = Counter[CellKind]()
    for word, times in counted.items():
        sizes[kinds[word]] += times
    marks, values = _values(counted, kinds, usual)
    form = _form(counted, kinds)
    if form is not None and sizes[CellKind.NUMBER]:  # 20240301
        sizes[CellKind.DATE] += sizes.pop(CellKind.NUMBER)
        values = {}
    unread = sum(
        times for word, times in counted.items() if kinds[word] is CellKind.NUMBER and word not in values
    )
    if form is None:
        sizes[CellKind.NUMBER] -= unread
        sizes[CellKind.WORD] += unread
    codes, quantiles, whole = _numbers(counted, values)
    absent = (word for word, kind in kinds.items() if kind is CellKind.ABSENT and word.lower() not in MISSING)
    absent_words, (known, unclear) = tuple(sorted(absent)), _fillers(counted, kinds, values)
    without = (*absent_words, *codes, *known, *unclear)
    named = split_unit(label).unit if label else ""
    return SeenColumn(
        header=header, label=label, unit=split_unit(header).unit or unit or named, rows=sum(counted.values()),
        absent=sizes[CellKind.ABSENT], numbers=sizes[CellKind.NUMBER], dates=sizes[CellKind.DATE],
        words=sizes[CellKind.WORD], distinct=sum(kinds[word] is not CellKind.ABSENT for word in counted),
        whole=whole, censored=sum(times for word, times in counted.items() if CENSORED.match(word)),
        marks=marks, date_form=form,
        absent_words=absent_words, codes=codes, fillers=known, unclear=unclear,
        missing_cells=tuple((word, _cells(counted, word)) for word in without),
        quantiles=quantiles, frequent=_frequent(counted, kinds),
        totals=tuple(sorted(word for word in counted if word.lower() in TOTALS)),
    )  # fmt: skip


def _values(
    counted: Mapping[str, int], kinds: Mapping[str, CellKind], usual: Marks
) -> tuple[Marks, dict[str, float]]:
    """Return the marks with which most words are numbers, and these numbers."""
    numbers = [(word, times) for word, times in counted.items() if kinds[word] is CellKind.NUMBER]
    own = find_marks(numbers, usual)
    tried = []
    for marks in dict.fromkeys((usual, own, Marks(decimal=own.decimal, thousands=usual.thousands), Marks())):
        if marks.decimal == marks.thousands:
            continue
        values = {word: value for word, _ in numbers if (value := value_of(word, marks)) is not None}
        tried.append((sum(counted[word] for word in values), marks, values))
    _, marks, values = max(tried, key=lambda one: one[0])  # of equals, the usual ones
    return marks, values


def _form(counted: Mapping[str, int], kinds: Mapping[str, CellKind]) -> str | None:
    dates = {word for word, kind in kinds.items() if kind is CellKind.DATE}
    packed = {word for word, kind in kinds.items() if kind is CellKind.NUMBER and len(word) == 8}
    filled = sum(times for word, times in counted.items() if kinds[word] is not CellKind.ABSENT)
    for words in (dates, packed):
        if words and sum(counted[word] for word in words) >= DATES * filled:
            return date_form(words)
    return None


def _numbers(
    counted: Mapping[str, int], values: Mapping[str, float]
) -> tuple[tuple[str, ...], tuple[float, ...], bool]:
    """Return the codes among numbers, the quantiles of the others, and True if all of those are whole."""
    if not values:
        return (), (), False
    words = np.array(list(values))
    numbers = np.array(list(values.values()))
    times = np.array([counted[word] for word in values])
    is_code = _are_codes(numbers, times)
    rest, weights = numbers[~is_code], times[~is_code]
    if not len(rest):
        return (), (), False
    order = np.argsort(rest, kind="stable")
    reached = np.cumsum(weights[order]) / weights.sum()
    at = np.minimum(np.searchsorted(reached, QUANTILES), len(rest) - 1)
    quantiles = tuple(float(value) for value in rest[order][at])
    return tuple(sorted(words[is_code].tolist())), quantiles, bool((rest == np.rint(rest)).all())


def _are_codes(numbers: NDArray[np.float64], times: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return True for numbers that stand for no value. Shape: (k,), (k,) -> (k,).

    A code has a known form, and lies far from all other numbers; or so many more cells have it than any
    number nearby that chance does not explain it, and no number lies beyond it."""
    known = np.isin(numbers, NEGATIVE_CODES) | np.isin(numbers, NINES)
    if not known.any() or known.all():
        return np.zeros(len(numbers), dtype=np.bool_)
    rest, weights = numbers[~known], times[~known]
    low, high = _middle(rest, weights)
    spread = max(high - low, 1e-9 * max(abs(high), 1.0))
    least, most = float(rest.min()), float(rest.max())
    share = times / times.sum()
    found = np.zeros(len(numbers), dtype=np.bool_)
    for place in np.flatnonzero(known):
        value = float(numbers[place])
        often = times[place] >= LEAST_TIMES and share[place] >= LEAST_SHARE
        if value < 0:
            beyond = value < least
            far = least >= 0 or value < least - SPREADS * spread
            found[place] = beyond and far
        elif value > most:
            far = value > most + SPREADS * spread and value > 2 * high
            near = weights[rest >= most - spread / 2].max()
            found[place] = far or (often and times[place] > SPIKE * near and _has_gap(value, most, rest))
    return found


def _has_gap(value: float, most: float, rest: NDArray[np.float64]) -> bool:
    """Return True if the distance to the next number is above the usual distance near the end."""
    end = np.sort(rest)[-20:]
    usual = float(np.median(np.diff(end))) if len(end) > 2 else 1.0
    return value - most > 2 * max(usual, 1e-9)


def _middle(numbers: NDArray[np.float64], weights: NDArray[np.int64]) -> tuple[float, float]:
    """Return the lower and upper quartile of weighted numbers."""
    order = np.argsort(numbers, kind="stable")
    reached = np.cumsum(weights[order]) / weights.sum()
    low, high = np.minimum(np.searchsorted(reached, (0.25, 0.75)), len(numbers) - 1)
    return float(numbers[order][low]), float(numbers[order][high])


def _fillers(
    counted: Mapping[str, int], kinds: Mapping[str, CellKind], values: Mapping[str, float]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the known words for no value in a column of numbers, and the one or two others that are all the
    rest, which a person must know. One of a few cells may be of a single person, and is neither."""
    unread = [word for word, kind in kinds.items() if kind is not CellKind.ABSENT and word not in values]
    if not values:
        return (), ()
    often = [word for word in unread if _cells(counted, word) >= LEAST_TIMES]
    folded = {word.lower(): word for word in sorted(often, reverse=True) if is_awaited(word)}
    rest = [word for word in unread if word.lower() not in folded]
    others = fillers(rest) if set(rest) <= set(often) else ()
    return tuple(sorted(folded.values())), others


def _cells(counted: Mapping[str, int], word: str) -> int:
    """Return the number of cells with a word, in any case of its letters."""
    return sum(times for one, times in counted.items() if one.lower() == word.lower())


def _frequent(counted: Mapping[str, int], kinds: Mapping[str, CellKind]) -> tuple[tuple[str, int], ...]:
    filled = ((word, times) for word, times in counted.items() if kinds[word] is not CellKind.ABSENT)
    most = sorted(filled, key=lambda one: (-one[1], one[0]))[:MOST_WORDS]
    return tuple((word[:LONG], times) for word, times in most)


def usual_marks(columns: Iterable[Mapping[str, int]]) -> Marks:
    """Return the marks of most numbers of a table."""
    votes = (
        (word, times)
        for counted in columns
        for word, times in counted.items()
        if cell_kind(word) is CellKind.NUMBER
    )
    return find_marks(votes)


def example_words(column: SeenColumn) -> Sequence[str]:
    """Return some of a column's words, to show at the site."""
    return [word for word, _ in column.frequent[:EXAMPLES]]
