"""Findings in a file that nobody described: encoding, layout, numbers, codes for missing, and persons."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.errors import Code
from eigenveil_client.records.discovery.columns import SeenColumn, seen_column
from eigenveil_client.records.discovery.encodings import find_encoding
from eigenveil_client.records.discovery.layout import find_header, find_layout
from eigenveil_client.records.discovery.look import look_at
from eigenveil_client.records.discovery.persons import find_person, possible_persons
from eigenveil_client.records.discovery.words import CellKind, Marks, cell_kind, find_marks, value_of
from eigenveil_client.records.isolated import discovery
from eigenveil_client.records.isolated.frames import ReaderFailure
from eigenveil_client.records.tables.source import RecordsConfig
from eigenveil_client.records.tables.units import same_unit, split_unit
from tests.client.records.discovery.messy import messy_file
from tests.support import refused

GERMAN = "Größe, Körpergewicht und Müdigkeit: 37 °C, µl, süß, ÄÖÜ"
MARKS = [Marks(decimal=d, thousands=t) for d in ".," for t in ("", ".", ",", "'", " ", "\u00a0") if d != t]


@pytest.mark.parametrize(
    "name", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "latin-1", "cp1252", "cp850", "mac_roman"]
)
def test_text_is_read_as_it_was_written(name: str) -> None:
    data = GERMAN.encode(name)
    for size in (1, 7, len(data)):
        if size == len(data) or not name.startswith("utf-16"):
            found = find_encoding([data[at : at + size] for at in range(0, len(data), size)])
            assert data.decode(found.name).lstrip("\ufeff") == GERMAN, found


@given(st.floats(min_value=-1e7, max_value=1e7).map(lambda value: round(value, 2)), st.sampled_from(MARKS))
def test_a_number_with_any_marks_is_read_with_these(value: float, marks: Marks) -> None:
    text = f"{value:,.2f}".replace(",", "T").replace(".", marks.decimal).replace("T", marks.thousands)
    assert cell_kind(text) is CellKind.NUMBER
    assert value_of(text, marks) == value
    other = {"decimal": "." if marks.decimal == "," else ",", "thousands": ""}
    assert value_of(text, Marks(**other)) != value or "," not in text


@pytest.mark.parametrize("marks", MARKS)
def test_marks_are_found_among_numbers_that_leave_doubts(marks: Marks) -> None:
    numbers = ["1T234", "5D67", "890", "12T345D6"] if marks.thousands else ["5D67", "890", "1D234"]
    words = [(n.replace("D", marks.decimal).replace("T", marks.thousands), 1) for n in numbers]
    assert find_marks(words) == marks


@pytest.mark.parametrize(("end", "cell"), [("\r", "7"), ("\r\n", "7"), ("\n", "x" * 200_000)])
def test_a_file_is_looked_at_as_it_is_read(end: str, cell: str, tmp_path: Path) -> None:
    path = tmp_path / "records.csv"
    rows = ["PatNr;age;note", *(f"P{i};{40 + i};{cell}" for i in range(9)), "P9;50"]
    path.write_bytes(end.join([*rows, ""]).encode())
    table = look_at(RecordsConfig(source=path))
    assert (table.config.dialect.separator, table.lost) == (";", 1)
    assert [(one.header, one.filled) for one in table.columns] == [("PatNr", 9), ("age", 9), ("note", 9)]


@pytest.mark.parametrize(
    ("rows", "header", "units"),
    [
        (["a;b", "1;2", "3;4"], 0, None),
        (["Export;", "a;b", "1;2", "3;4"], 1, None),
        (["age;weight", "[years];[kg]", "50;70", "60;80"], 0, 1),
        (["age;weight", "m;77", "50;70", "60;80"], 0, None),
        (["Alter in Jahren;Gewicht", "age;wt", "50;70", "60;80"], 1, None),
        (["name;word", "x;y", "z;w"], 0, None),
        (["1;2", "3;4", "5;6"], None, None),
    ],
)  # fmt: skip
def test_the_row_of_names_is_the_last_of_words_before_the_values(
    rows: list[str], header: int | None, units: int | None
) -> None:
    found = find_header([row.split(";") for row in (*rows, *4 * rows[-2:])])
    assert (found and found.row, found and found.units) == (header, units)


def test_a_mark_in_free_text_separates_nothing() -> None:
    lines = ["id;note;value", *(f'{i};"see a, b, c, d";{i},5' for i in range(20))]
    assert find_layout(lines).separator == ";"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2\n3,4\n5,6\n", "no row names the columns"),
        ("a,a\nb,b\n", "no row names the columns"),
        ("Export\n\nid;BMI;BMI;age\n1;2;3;4\n5;6;7;8\n", "line 3 names two columns 'BMI'"),
    ],
)
def test_a_table_without_names_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "records.csv"
    path.write_text(text)
    with refused(Code.BAD_DATA, message):
        look_at(RecordsConfig(source=path))


def test_a_row_of_units_is_stated_to_be_skipped(tmp_path: Path) -> None:
    path = tmp_path / "records.csv"
    path.write_text("age;weight\n[years];[kg]\n50;70\n60;80\n55;75\n")
    table = look_at(RecordsConfig(source=path))
    assert table.config.units_below_header
    assert [(one.unit, one.filled) for one in table.columns] == [("a", 3), ("kg", 3)]


def column(header: str, *cells: tuple[str, int]) -> SeenColumn:
    return seen_column(header, Counter(dict(cells)), Marks())


DAYS = [(f"{30 + day / 20:.2f}", 1) for day in range(1200)]
AGES = [(str(age), 5) for age in range(30, 85)]


@pytest.mark.parametrize(
    ("cells", "codes"),
    [
        ([*AGES, ("-999", 2)], ("-999",)), ([*AGES, ("999", 1)], ("999",)), ([*AGES, ("99", 40)], ("99",)),
        ([*AGES, ("99", 2)], ()), ([*DAYS, ("99", 6)], ()),  # some people of 99
        ([*AGES, *((str(age), 3) for age in range(85, 100))], ()),
        ([("36.5", 9), ("37.1", 9), ("99.9", 1)], ("99.9",)), ([("97.9", 9), ("98.6", 9), ("99.9", 2)], ()),
        ([("-1", 30), ("0", 40), ("1", 30), ("2", 5), ("-3", 5)], ()),  # a difference
        ([("9", 3), ("1", 50), ("2", 60)], ()), ([("-9", 3), ("1", 50), ("2", 60)], ("-9",)),
    ],
)  # fmt: skip
def test_codes_for_missing_need_evidence(cells: list[tuple[str, int]], codes: tuple[str, ...]) -> None:
    found = column("x", *cells)
    assert found.codes == codes
    values = [float(word) for word, _ in cells if word not in codes]
    assert (found.quantiles[0], found.quantiles[-1]) == (min(values), max(values))


def test_words_for_no_value_dates_and_limits_are_counted_apart() -> None:
    found = column("x", ("n.b.", 3), ("", 2), ("<0.6", 4), ("7", 5), ("positive", 1))
    assert (found.absent, found.numbers, found.words, found.censored) == (5, 9, 1, 4)
    assert found.absent_words == ("n.b.",)
    for word, form in (("01.02.2024", "%d.%m.%Y"), ("20240201", "%Y%m%d"), ("2024-02-01", "ISO 8601")):
        assert column("x", (word, 9)).date_form == form
    assert column("x", ("02/13/2024", 4), ("03/01/2024", 4)).date_form == "%m/%d/%Y"


@pytest.mark.parametrize(
    ("names", "person"),
    [
        (["Fallnummer", "PatNr"], "PatNr"), (["Fallnr"], None), (["demographics_patient_id"],
        "demographics_patient_id"),
        (["patient_id", "case_id"], "patient_id"), (["age"], None), (["USUBJID", "ID"], "USUBJID"),
        (["weight_id"], None), (["PatNr", "MRN"], None),
        *(([name], None) for name in ("id", "Record ID", "study_id", "PID", "subject", "stay_id", "Case")),
    ],
)  # fmt: skip
def test_a_person_column_is_certain_by_the_name_of_a_patients_number_alone(
    names: list[str], person: str | None
) -> None:
    cells = [(f"P{i}", 1) for i in range(50)]
    found = find_person([column(name, *cells) for name in names])
    assert (found and found.header) == person
    assert possible_persons([*names, "age"]) == [name for name in names if name not in ("age", "weight_id")]
    few = find_person([column(name, ("1", 25), ("", 25)) for name in names])
    assert few is None  # half of the rows would name nobody


def test_rows_of_a_person_are_counted() -> None:
    once, often = (column("PatNr", *((str(i), times) for i in range(50))) for times in (1, 3))
    assert [one and one.several for one in map(find_person, ([once], [often]))] == [False, True]


@pytest.mark.parametrize(
    ("header", "name", "unit"),
    [
        ("GLUC_MGDL", "GLUC", "mg/dL"), ("Größe (cm)", "Größe", "cm"), ("labs_crea_umol_l", "labs_crea",
        "umol/L"),
        ("Temp [°C]", "Temp", "Cel"), ("Leukos (/nl)", "Leukos", "10*3/uL"), ("K", "K", ""), ("Na", "Na", ""),
        ("HR_MIN", "HR_MIN", ""), ("RR (mm[Hg])", "RR", "mm[Hg]"), ("age in years", "age", "a"),
    ],
)  # fmt: skip
def test_a_unit_is_split_from_a_header(header: str, name: str, unit: str) -> None:
    found = split_unit(header)
    assert (found.name, found.unit) == (name, unit)
    assert not unit or same_unit(unit, unit.lower())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("numbers", -1), ("numbers", "9"), ("quantiles", [1.0]), ("frequent", [["a"]]), ("header", 3),
        ("marks", {"decimal": "."} | {"other": "x"}), ("codes", [4]), ("fillers", [4]), ("unclear", [4]),
    ],
)  # fmt: skip
def test_a_reader_that_lies_about_a_column_is_not_believed(name: str, value: object) -> None:
    good = {
        "header": "a", "label": "", "unit": "", "rows": 2, "absent": 0, "numbers": 2, "dates": 0, "words": 0,
        "distinct": 2, "whole": True, "censored": 0, "marks": {"decimal": ".", "thousands": ""},
        "date_form": None, "absent_words": [], "codes": [], "fillers": [], "unclear": [], "missing_cells": [],
        "totals": [],
        "quantiles": [1.0] * 9, "frequent": [["1", 1]],
    }  # fmt: skip
    assert discovery._column(good).numbers == 2
    with pytest.raises(ReaderFailure):
        discovery._column(good | {name: value})


def test_an_isolated_reader_finds_the_same(tmp_path: Path) -> None:
    path = tmp_path / "records.csv"
    path.write_bytes(messy_file(0).data)
    assert discovery.look_at(RecordsConfig(source=path)) == look_at(RecordsConfig(source=path))
