"""[P30] Whatever the rules: a record is a function of its person's rows, and not of anybody else's."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eigenveil.study.study import Column, Missing
from eigenveil_client.records.recoding import gather as room
from eigenveil_client.records.recoding.gather import ExactSums
from eigenveil_client.records.recoding.rule import Censored, ColumnRule, Rows
from eigenveil_client.records.sources import delimited_lines
from tests.client.records import support as records
from tests.client.records.support import made
from tests.client.site.support import a_study
from tests.support import Patch

CELLS: dict[str, float | str | None] = {
    "": None, "-999": None, "?": "bad", "7": 7.0, "-0": 0.0, "0": 0.0, "0.1": 0.1, "0.2": 0.2, "1e16": 1e16,
    "-1e16": -1e16, "<0.6": 0.3, "3": 3.0, "1e-9": 1e-9,
}  # fmt: skip
DATES: dict[str, date | str | None] = {
    "": None, "soon": "bad", "1.2.2020": date(2020, 2, 1), "01.02.2020": date(2020, 2, 1),
    "2.1.2020": date(2020, 1, 2), "31.12.1999": date(1999, 12, 31),
}  # fmt: skip
WORDS = {"": None, "a": 0, "b": 1, "c": None}
Row = tuple[str, str, str, str]  # person, cell, date, word

RULES = (
    ColumnRule(name="row", source="cell", missing=("-999",), censored=Censored.HALF),
    *(
        ColumnRule(
            name=rows.value,
            source="cell",
            missing=("-999",),
            censored=None if rows is Rows.COUNT else Censored.HALF,
            rows=rows,
            by="date" if rows in (Rows.FIRST, Rows.LAST) else None,
            dates="%d.%m.%Y" if rows in (Rows.FIRST, Rows.LAST) else None,
        )
        for rows in Rows
    ),
    ColumnRule(name="ever", source="word", levels=("a", "b"), rows=Rows.MAXIMUM),
)
rows = st.tuples(
    st.sampled_from(["x", "y", "z", ""]), st.sampled_from(sorted(CELLS)), st.sampled_from(sorted(DATES)),
    st.sampled_from(sorted(WORDS)),
)  # fmt: skip
tables = st.lists(rows, max_size=15)


@contextmanager
def file_of(table: Sequence[Row]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.csv"
        path.write_text("\n".join(["person,cell,date,word", *map(",".join, table)]) + "\n")
        yield path


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: Patch) -> None:
    monkeypatch.setattr(delimited_lines, "CHUNK_BYTES", 100)
    monkeypatch.setattr(room, "BLOCK", 2)


def expected(own: Sequence[Row]) -> list[float | None]:
    """Values of one person's rows by the rules, in file order; None is missing."""
    cells = [CELLS[cell] for _, cell, _, _ in own]
    known = [cell for cell in cells if isinstance(cell, float)]
    both = [(DATES[day], CELLS[cell]) for _, cell, day, _ in own]
    dated = sorted((day, cell) for day, cell in both if isinstance(day, date) and isinstance(cell, float))
    words = [WORDS[word] for _, _, _, word in own if WORDS[word] is not None]
    mean = float(sum(map(Fraction, known), Fraction()) / len(known)) if known else None
    return [
        first if isinstance(first := cells[0], float) else None, dated[0][1] if dated else None,
        dated[-1][1] if dated else None, mean, min(known) if known else None, max(known) if known else None,
        float(sum(cell is not None for cell in cells)),
        *((float(level in words) if words else None) for level in (0, 1)),
    ]  # fmt: skip


@example([("x", cell, "1.2.2020", "a") for cell in ("7", *["3"] * 15, "0.1")])
@given(tables)
def test_records_follow_each_persons_rows(table: list[Row]) -> None:
    by_name = {name: [row for row in table if row[0] == name] for name in "xyz"}
    by_name = {name: own for name, own in by_name.items() if own}
    if by_name:
        with file_of(table) as path:
            values, unread = made(path, RULES, "person")
        wanted = [expected(own) for own in by_name.values()]
        found = [[None if np.isnan(value) else value for value in record] for record in values.tolist()]
        assert found == wanted
        assert not np.signbit(values[:, 1:][values[:, 1:] == 0]).any()
        for own, bad in zip(by_name.values(), unread, strict=True):
            cells = [CELLS[cell] for _, cell, _, _ in own]
            assert bad[3] == (not any(isinstance(cell, float) for cell in cells) and "bad" in cells)


@given(
    tables,
    tables,
    st.sampled_from(["x", "y", "z", ""]),
    st.sampled_from(["fill", "drop"]),
    st.sets(st.integers(0, 7)),
)
def test_whatever_one_persons_rows_become_at_most_one_record_changes(
    table: list[Row], others: list[Row], person: str, rule: str, chosen: set[int]
) -> None:
    """[P30] Rows of one person are added, removed and changed; the grid, the number of persons and what each
    column is counted as move by that person alone."""
    own = [(person, *row[1:]) for row in others]
    neighbour = [row for row in table if row[0] != person]
    for place, row in enumerate(own):
        neighbour.insert((5 * place) % (len(neighbour) + 1), row)
    columns = [
        Column(name=name, unit="1", lower=-4.0, upper=5.0, fill=0.0)
        for place, name in enumerate(name for rule in RULES for name in rule.columns)
        if place in chosen or not chosen
    ]
    study = a_study(columns=tuple(columns), person_column="person", missing=Missing(rule))
    with file_of(table) as one, file_of(neighbour) as two:
        before, after = (
            records.read(path, study, rules=RULES, unreadable=lambda _: None) for path in (one, two)
        )
    left, right = (Counter(map(bytes, found.rows)) for found in (before, after))
    assert sum((left - right).values()) <= 1
    assert sum((right - left).values()) <= 1
    was, now = (any(person == row[0] != "" for row in rows) for rows in (table, neighbour))
    assert after.persons - before.persons == now - was
    for old, new in zip(before.quality, after.quality, strict=True):
        for count in ("missing", "unreadable", "below", "above", "at_bound"):
            assert abs(getattr(new, count) - getattr(old, count)) <= 1
        assert (old.persons, new.persons) == (before.persons, after.persons)


terms = st.lists(st.tuples(st.integers(0, 5), st.floats(allow_nan=False, allow_infinity=False)), max_size=40)


@example([(0, 1.0), (0, 1e-300), (1, 1e300)], 1)
@given(terms, st.integers(1, 40))
def test_a_mean_is_the_exact_one_rounded_once(added: list[tuple[int, float]], size: int) -> None:
    sums = ExactSums()
    for start in range(0, len(added), size):
        which, values = map(np.array, zip(*added[start : start + size], strict=True))
        sums.add(which, values, values, which.max() + 1)
    for number, mean in enumerate(sums.values(8).tolist()):
        own = [Fraction(value) for place, value in added if place == number]
        assert mean == float(sum(own) / len(own)) if own else np.isnan(mean)


def test_many_terms_of_one_size_do_not_overflow_a_digit() -> None:
    sums, value = ExactSums(), -(2.0 - 2**-52)
    for _ in range(20):
        sums.add(np.zeros(50_000, dtype=np.int64), np.full(50_000, value), np.zeros(0), 1)
    assert sums.values(1).tolist() == [value]
